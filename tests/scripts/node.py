"""One broker of a transcript: a real `LeaderPartition` or `FollowerPartition` above a disk in memory.

It carries out the core's effects in their order and says each of them in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import (
    AdvanceLogStart,
    AppendBatches,
    Effect,
    FetchRequest,
    HighWatermarkAdvanced,
    IsrChanged,
    IsrProposal,
    PartitionFailed,
    PartitionSettings,
    ProposeIsr,
    ReplicaLog,
    RequestReady,
    RestartLog,
    Transition,
    Truncate,
    WriteEpochs,
)
from odradek_broker.core.partition.policy import ReplicaPolicy
from odradek_broker.core.purgatory import ProducePurgatory
from odradek_chaos.lessons.role import Role, goes_on, new_role
from odradek_proto.errors import ErrorCode

from tests.scripts.in_memory import Batch, Brokers, Disk


class Node:
    """Broker `number`. `log` and `role` are None while it is down; `batches` are those of the answer in hand."""

    def __init__(
        self, number: int, settings: PartitionSettings, policy: ReplicaPolicy, say: Callable[[str], None]
    ) -> None:
        self.number = number
        self.settings = settings
        self.policy = policy
        self.disk = Disk()
        self.log: ReplicaLog | None = None
        self.role: Role | None = None
        self.purgatory = ProducePurgatory()
        self.waiting_fetches: dict[int, FetchRequest] = {}
        self.proposals: list[IsrProposal] = []
        self.batches: Sequence[Batch] = ()
        self._say = say
        self._now_ms = 0

    @property
    def running(self) -> bool:
        return self.role is not None

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
        assert self.log is not None, f"b{self.number} is down"
        return self.log

    # --- Life ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self.log = self.role = None
        self.purgatory = ProducePurgatory()
        self.waiting_fetches = {}
        self.proposals = []

    def take(self, registration: PartitionRegistration, brokers: Brokers, now_ms: int) -> None:
        """Metadata came: the same role goes on, another one is a new object (R-100 to R-104)."""
        self._now_ms = now_ms
        if self.log is None:
            self.log = self.disk.open()
        role = self.role
        if role is not None and registration.partition_epoch < role.partition_epoch:
            return
        if role is not None and goes_on(role, registration, self.number):
            self.carry_out(role.update(registration, now_ms))
            return
        self.answer(self.purgatory.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.waiting_fetches = {}
        self.role = new_role(
            role,
            self.log,
            registration,
            broker_id=self.number,
            settings=self.settings,
            policy=self.policy,
            brokers=brokers,
            now_ms=now_ms,
        )
        self.carry_out(self.role.start(now_ms))

    # --- Effects ---------------------------------------------------------------------------------------------------

    def step(self, effects: list[Effect], now_ms: int) -> None:
        self._now_ms = now_ms
        self.carry_out(effects)

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transition(event, rule, facts):
                    self._say(f"b{self.number} {event} ({rule}) {_facts(facts)}")
                case WriteEpochs(entries):
                    self.disk.epochs = entries
                case AppendBatches(headers):
                    self.disk.append(self.batches)
                    self.carry_out(self.follower.on_appended(headers, self._now_ms))
                case Truncate(offset, _):
                    end = self.disk.truncate(offset)
                    self.disk.rebuild_producers(self.open_log)
                    self.carry_out(self.follower.on_truncated(end, self._now_ms))
                case RestartLog(offset, _):
                    self.disk.restart(offset)
                    self.carry_out(self.follower.on_restarted(offset, self._now_ms))
                case AdvanceLogStart(offset):
                    self.disk.log_start_offset = offset
                case HighWatermarkAdvanced(old, new):
                    self._say(f"b{self.number} high watermark {old} => {new}")
                    self._complete_produce()
                case IsrChanged():
                    self._complete_produce()
                case ProposeIsr(proposal):
                    self.proposals.append(proposal)
                case PartitionFailed(reason):
                    self._say(f"b{self.number} failed: {reason}")
                case RequestReady():
                    pass

    def _complete_produce(self) -> None:
        if isinstance(self.role, LeaderPartition):
            self.answer(self.purgatory.on_progress(self.role))

    def answer(self, outcomes: list[tuple[object, ErrorCode]]) -> None:
        for token, error in outcomes:
            self._say(f"{token} acknowledged" if error == ErrorCode.NONE else f"{token} {error.name}")

    # --- Views -----------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """The state line: role, epoch, offsets, for a leader also ISR and remote log end offsets, then the records."""
        if self.role is None or self.log is None:
            return f"b{self.number} down"
        log = self.log
        words = [f"b{self.number}", "leader" if isinstance(self.role, LeaderPartition) else "follower"]
        words += [f"epoch={self.role.leader_epoch}", f"leo={log.log_end_offset}", f"hw={log.high_watermark}"]
        if isinstance(self.role, LeaderPartition):
            words.append(f"isr={_ids(self.role.isr)}")
            if self.role.maximal_isr != self.role.isr:
                words.append(f"maximal={_ids(self.role.maximal_isr)}")
            known = self.role.remote_replicas(self._now_ms)
            words.append(
                "remote=" + (",".join(f"{each.broker_id}:{_end(each.log_end_offset)}" for each in known) or "-")
            )
        elif self.role.failed is not None:
            words.append("failed")
        records = " ".join(str(each) for each in self.disk.batches) or "empty"
        return f"{' '.join(words)} | {records}"


def _end(offset: int) -> str:
    return "?" if offset < 0 else str(offset)


def _ids(ids: Sequence[int]) -> str:
    return ",".join(str(each) for each in ids)


def _facts(facts: object) -> str:
    assert isinstance(facts, dict), facts
    return " ".join(f"{name}={_ids(value) if isinstance(value, tuple) else value}" for name, value in facts.items())
