"""One broker of the stage: the broker's own `Replica` and `IsrChannel` above its own storage on a simulated disk.

It carries out the core's effects as the broker does, and says each of them. How a request waits on its
connection is played by `exchange`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import cast

from odradek_broker.config.log_levels import REPLICA
from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.in_sync import RemoteReplicaStatus
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import (
    AppendBatches,
    Effect,
    HighWatermarkAdvanced,
    IsrAnswer,
    IsrProposal,
    PartitionFailed,
    PartitionSettings,
    ReplicaLog,
)
from odradek_broker.core.partition.policy import ReplicaPolicy
from odradek_broker.core.partition.roles import Role, new_role, role_goes_on
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.membership.controller_channel import ControllerChannel
from odradek_broker.runtime.membership.isr_channel import IsrChannel
from odradek_broker.runtime.replicas.purgatory import Purgatory
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.log import Log
from odradek_proto.transport.ports import Clock
from odradek_proto.v1 import controller_messages

from odradek_chaos.stage.disk import StageDisk
from odradek_chaos.stage.metadata import Brokers
from odradek_chaos.stage.said import (
    CONTROLLER,
    Evidence,
    FollowerAppended,
    FollowerFailed,
    HighWatermarkRaised,
    MessageSent,
    TranscriptLine,
    ids,
)

Say = Callable[[TranscriptLine], None]


class TranscribedEvents(EventLog):
    """The evidence that a broker writes, as part of the story."""

    def __init__(self, number: int, say: Say) -> None:
        self._number = number
        self._say_line = say

    def write(self, event: str, rule: str, facts: Mapping[str, object], logger: str = REPLICA) -> None:
        said = {name: fact for name, fact in facts.items() if name != "partition"}
        self._say_line(Evidence(self._number, event, rule, said))


class TranscribedReplica(Replica):
    """The broker's replica. It reports the effects of which there is no other evidence."""

    def __init__(self, number: int, log: Log, node: StageNode, say: Say) -> None:
        super().__init__(log, node)
        self._number = number
        self._say = say

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self._say(HighWatermarkRaised(self._number, effect.old, effect.new))
            elif isinstance(effect, PartitionFailed):
                self._say(FollowerFailed(self._number, effect.reason))
            elif isinstance(effect, AppendBatches) and effect.headers[0].base_offset < self.state.log_end_offset:
                first, last = effect.headers[0].base_offset, effect.headers[-1].last_offset
                self._say(FollowerAppended(self._number, first, last, self.state.log_end_offset))
            super()._carry_out((effect,))


class Controller:
    """What a broker's `IsrChannel` calls: a request waits here until the story answers it."""

    def __init__(self, number: int, say: Say) -> None:
        self.requests: list[tuple[controller_messages.AlterPartitionRequest, asyncio.Future[bytes]]] = []
        self._number = number
        self._say = say

    async def call(self, method: str, request_bytes: bytes, timeout_ms: float) -> bytes:
        request = controller_messages.AlterPartitionRequest.FromString(request_bytes)
        (item,) = request.partitions
        isr = ids([member.broker_id for member in item.new_isr])
        text = f"{method} isr={isr} partition_epoch={item.partition_epoch}"
        self._say(MessageSent(f"b{self._number}", CONTROLLER, text, words=f"ISR {isr}?"))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.requests.append((request, answer))
        return await answer

    async def confirm(self) -> None:
        """A heartbeat, which is answered at once."""


class StageNode:
    """Broker `number`. `replica` is None while it is down. Implements `ReplicaServices` for its replica."""

    def __init__(
        self, number: int, settings: PartitionSettings, policy: ReplicaPolicy, clock: Clock, disk: StageDisk, say: Say
    ) -> None:
        self.number = number
        self.settings = settings
        self.policy = policy
        self.clock = clock
        self.disk = disk
        self.replica: Replica | None = None
        self.brokers = Brokers(())  # as this broker's own metadata have them
        self.broker_epoch = 100 + number
        self.events: EventLog = TranscribedEvents(number, say)
        self.counters = Counters()
        self.purgatory = Purgatory(clock)
        self.controller = Controller(number, say)
        self._tasks: list[asyncio.Task[None]] = []
        self._say = say
        self._channel = self._new_channel()

    def _new_channel(self) -> IsrChannel:
        return IsrChannel(
            clock=self.clock,
            channel=cast("ControllerChannel", self.controller),
            broker_id=self.number,
            broker_epoch=lambda: self.broker_epoch,
            on_answer=self._on_isr_answer,
            spawn=self._spawn,
            confirm=self.controller.confirm,
        )

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # a story may end before its answer
        self._tasks = [each for each in self._tasks if not each.done()] + [task]
        return task

    def _on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        if self.replica is not None:
            self.replica.on_isr_answer(proposal, answer)

    @property
    def running(self) -> bool:
        return self.replica is not None

    @property
    def here(self) -> Replica:
        assert self.replica is not None, f"b{self.number} is down"
        return self.replica

    @property
    def role(self) -> Role | None:
        return None if self.replica is None else self.replica.role

    @property
    def leader(self) -> LeaderPartition:
        assert isinstance(self.role, LeaderPartition), f"b{self.number} does not lead"
        return self.role

    @property
    def follower(self) -> FollowerPartition:
        assert isinstance(self.role, FollowerPartition), f"b{self.number} does not follow"
        return self.role

    @property
    def open_log(self) -> ReplicaLog:
        return self.here.state

    @property
    def proposals(self) -> list[controller_messages.AlterPartitionRequest]:
        """The AlterPartition requests that wait for an answer: one at most (R-48)."""
        return [request for request, _ in self.controller.requests]

    # --- Life ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self.here.close()
        self.disk.kill()
        self.purgatory.close()
        self.purgatory = Purgatory(self.clock)
        self.replica = None
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self.controller.requests.clear()
        self._channel = self._new_channel()

    def take(self, registration: PartitionRegistration, brokers: Brokers) -> None:
        """Metadata came: the same role goes on, another one is a new object (R-100 to R-104).

        Metadata that were left behind are handed to the role that is there: it has to ignore them, too. The broker asks
        before that (`ReplicaManager`, tests/broker/test_replica_manager.py).
        """
        self.brokers.take(brokers)
        if self.replica is None:
            self.replica = TranscribedReplica(self.number, self.disk.open(self.clock.wall_ms()), self, self._say)
        replica, known = self.replica, self.replica.registration
        if known is not None and registration.partition_epoch < known.partition_epoch:
            replica.update_registration(registration)
            replica.registration = known
        elif known is not None and role_goes_on(known, registration, self.number):
            replica.update_registration(registration)
        else:
            replica.registration = registration
            replica.take_role(self._role_in(replica, registration))

    def _role_in(self, replica: Replica, registration: PartitionRegistration) -> Role:
        return new_role(
            replica.role,
            replica.state,
            registration,
            broker_id=self.number,
            settings=self.settings,
            policy=self.policy,
            brokers=self.brokers,
            now_ms=self.clock.now_ms(),
        )

    # --- What a replica needs of its broker ------------------------------------------------------------------------

    def propose_isr(self, replica: Replica, proposal: IsrProposal) -> None:
        self._channel.submit(proposal)

    def request_ready(self, replica: Replica) -> None:
        """The story decides when a follower fetches."""

    def after_append(self, replica: Replica) -> None:
        """The story decides when the log is flushed."""

    def may_acknowledge_alone(self) -> bool:
        return True

    def storage_failed(self, replica: Replica, error: Exception) -> None:
        raise error

    def allow_gaps(self, replica: Replica) -> None:
        replica.log.allow_gaps()

    # --- Views -----------------------------------------------------------------------------------------------------

    def remote_replicas(self) -> list[RemoteReplicaStatus]:
        """What this leader knows of each follower."""
        return self.leader.remote_replicas(self.clock.now_ms())

    def describe(self) -> str:
        """The state line: role, epoch, offsets, for a leader also ISR and remote log end offsets, then the records."""
        if self.replica is None or self.role is None:
            return f"b{self.number} down"
        log = self.replica.state
        words = [f"b{self.number}", "leader" if isinstance(self.role, LeaderPartition) else "follower"]
        words += [f"epoch={self.role.leader_epoch}"]
        if log.log_start_offset:
            words.append(f"start={log.log_start_offset}")
        words += [f"leo={log.log_end_offset}", f"hw={log.high_watermark}"]
        if isinstance(self.role, LeaderPartition):
            words.append(f"isr={ids(self.role.isr)}")
            if self.role.maximal_isr != self.role.isr:
                words.append(f"maximal={ids(self.role.maximal_isr)}")
            known = [f"{each.broker_id}:{_end(each.log_end_offset)}" for each in self.remote_replicas()]
            words.append(f"remote={','.join(known) or '-'}")
        elif self.role.failed is not None:
            words.append("failed")
        records = " ".join(str(each) for each in self.disk.batches) or "empty"
        return f"{' '.join(words)} | {records}"


def _end(offset: int) -> str:
    return "?" if offset < 0 else str(offset)
