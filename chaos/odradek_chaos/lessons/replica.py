"""One broker of a lesson: the real roles above the real storage, on a simulated disk.

It carries out the core's effects in their order, as the runtime does. The disk outlives the process: a kill leaves all
that was written, a power loss what was flushed and nothing else (of what a power loss may leave, that is the least).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek_broker.core.delayed import DelayedOperations, DelayedProduce
from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import (
    AdvanceLogStart,
    AppendBatches,
    BrokerView,
    Effect,
    HighWatermarkAdvanced,
    IsrChanged,
    IsrProposal,
    PartitionFailed,
    PartitionSettings,
    ProposeIsr,
    RequestReady,
    RestartLog,
    Transition,
    Truncate,
    WriteEpochs,
)
from odradek_broker.core.partition.policy import ReplicaPolicy
from odradek_broker.core.partition.roles import Role, new_role, role_goes_on
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.errors import ErrorCode
from odradek_proto.formats import REPLICATION_OFFSET_CHECKPOINT, decode_offset_checkpoint
from odradek_proto.records import BatchHeader, decode_records, iter_batches
from odradek_proto.topics import TopicPartition, partition_directory

from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.disk.inodes import Inode
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
CLUSTER_ID = "lesson"
DIRECTORY = "/data"
WALL_MS = 1_500_000_000_000  # July 2017, when Kafka 0.11 was new; every record has this time
LOG_SUFFIX = ".log"
READ_BYTES = 1 << 20
PRODUCE = "produce"  # whose purgatory it is: there is one partition


@dataclass(frozen=True)
class RecordOnDisk:
    """One record as it stands in a replica's log."""

    offset: int
    value: str
    leader_epoch: int


@dataclass(frozen=True)
class Evidence:
    """What a broker wrote down: who, what, by which rule, with which numbers."""

    broker: int
    event: str
    rule: str
    facts: Mapping[str, object]


def _records_in(data: bytes) -> list[RecordOnDisk]:
    return [
        RecordOnDisk(record.offset, (record.value or b"").decode(), header.leader_epoch)
        for position, header in iter_batches(data)
        for record in decode_records(data, header, position)
    ]


class _LosesAll(random.Random):
    """The chance of a power loss that keeps nothing of what was not flushed."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return a


class Replica:
    """Broker `number`. `role` is None while it is down; `note` tells the world what happened."""

    def __init__(
        self,
        number: int,
        policy: ReplicaPolicy,
        note: Callable[[Evidence], None],
    ) -> None:
        self.number = number
        self.role: Role | None = None
        self.purgatory: DelayedOperations[str, DelayedProduce] = DelayedOperations()
        self.proposals: list[IsrProposal] = []
        self.answer_bytes: Sequence[bytes] = ()  # of the fetch answer that is being taken
        self.disk = SimDisk(random.Random(0))
        self._policy = policy
        self._note = note
        self._loop = SimLoop()
        self._files: SimFiles | None = None
        self._directory: LogDirectory | None = None
        self._log: Log | None = None
        self._registration: PartitionRegistration | None = None  # that the role is of
        self._now_ms = 0

    # --- What it is ------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> LeaderPartition:
        assert isinstance(self.role, LeaderPartition), f"broker {self.number} does not lead"
        return self.role

    @property
    def follower(self) -> FollowerPartition:
        assert isinstance(self.role, FollowerPartition), f"broker {self.number} does not follow"
        return self.role

    @property
    def log(self) -> Log:
        assert self._log is not None, f"broker {self.number} is down"
        return self._log

    @property
    def directory(self) -> LogDirectory:
        assert self._directory is not None, f"broker {self.number} is down"
        return self._directory

    def records(self) -> list[RecordOnDisk]:
        """Every record in the log's files, in their order, whether the broker runs or not."""
        return [record for inode in self._segments() for record in _records_in(bytes(inode.data))]

    def durable_end(self) -> int:
        """Where the log would end after a power loss."""
        durable = [record for inode in self._segments() for record in _records_in(bytes(inode.durable()))]
        return durable[-1].offset + 1 if durable else 0

    def _segments(self) -> list[Inode]:
        directory = f"{DIRECTORY}/{partition_directory(ORDERS)}"
        return [inode for path, inode in self.disk.walk(directory) if path.endswith(LOG_SUFFIX)]

    def checkpointed_high_watermark(self) -> int:
        """What the file says that a restart would read."""
        entry = f"{DIRECTORY}/{REPLICATION_OFFSET_CHECKPOINT}"
        if self.disk.find(entry) is None:
            return 0
        return decode_offset_checkpoint(self.disk.read(entry)).get(ORDERS, 0)

    # --- Life ------------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """A new process opens the directory and recovers the log; its role comes with the metadata, by `take`."""
        self._files = SimFiles(self.disk, self._loop, random.Random(0))
        rng = random.Random(self.number)
        self._directory = LogDirectory.open(
            self._files, DIRECTORY, node_id=self.number, cluster_id=CLUSTER_ID, wall_ms=WALL_MS, rng=rng
        )
        settings = LogSettings(accept_straddling=self._policy.appends_straddling_batch)
        self._log = self._directory.open_log(ORDERS, TOPIC_ID, settings, wall_ms=WALL_MS)

    def kill(self, *, power: bool = False) -> None:
        """The process dies in this moment; with `power` the machine does."""
        assert self._files is not None, f"broker {self.number} is down"
        self._files.detach()
        self.role = self._registration = self._log = self._directory = None
        self.purgatory = DelayedOperations()
        self.proposals = []
        if power:
            self.disk.power_loss(_LosesAll())

    def close(self) -> None:
        """Stop cleanly: logs flushed, checkpoints written."""
        self.directory.close(clean=True)
        self.role = self._registration = self._log = self._directory = None

    def take(self, registration: PartitionRegistration, brokers: BrokerView, now_ms: int) -> None:
        """Metadata came: the same role goes on, another one is a new object (R-100 to R-104)."""
        self._now_ms = now_ms
        role, known = self.role, self._registration
        self._registration = registration
        if role is not None and known is not None and role_goes_on(known, registration, self.number):
            self._carry_out(role.update(registration, now_ms))
            return
        self._answer(self.purgatory.fail(PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.role = new_role(
            role,
            self.log.state,
            registration,
            broker_id=self.number,
            settings=PartitionSettings(),
            policy=self._policy,
            brokers=brokers,
            now_ms=now_ms,
        )
        self._carry_out(self.role.start(now_ms))

    # --- Effects ---------------------------------------------------------------------------------------------------

    def step(self, effects: Sequence[Effect], now_ms: int) -> None:
        self._now_ms = now_ms
        self._carry_out(effects)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transition(event, rule, facts):
                    self._note(Evidence(self.number, event, rule, facts))
                case WriteEpochs(entries):
                    self.log.write_epochs(entries)
                case AppendBatches(headers):
                    self._append(headers)
                case Truncate(offset):
                    self._carry_out(self.follower.on_truncated(self.log.truncate(offset), self._now_ms))
                case RestartLog(offset):
                    self.log.restart_at(offset)
                    self._carry_out(self.follower.on_restarted(offset, self._now_ms))
                case AdvanceLogStart(offset):
                    self.log.advance_log_start(offset)
                case HighWatermarkAdvanced(old, new):
                    self._note(Evidence(self.number, "high_watermark_advanced", "R-20", {"from": old, "to": new}))
                    self._complete_produces()
                case IsrChanged():
                    self._complete_produces()
                case ProposeIsr(proposal):
                    self.proposals.append(proposal)
                case PartitionFailed(reason):
                    self._note(Evidence(self.number, "partition_failed", "R-85", {"reason": reason}))
                case RequestReady():
                    pass

    def _append(self, headers: Sequence[BatchHeader]) -> None:
        """A follower writes what it was given, and notes where: the place of a batch is what L-9 is about."""
        end = self.log.state.log_end_offset
        facts = {"base_offset": headers[0].base_offset, "last_offset": headers[-1].last_offset, "log_end_offset": end}
        rule = "R-81" if headers[0].base_offset >= end else "L-9"
        self._note(Evidence(self.number, "appended", rule, facts))
        self.log.append(headers, self.answer_bytes, WALL_MS)
        self._carry_out(self.follower.on_appended(headers, self._now_ms))

    def _complete_produces(self) -> None:
        if isinstance(self.role, LeaderPartition):
            self._answer(self.purgatory.check(PRODUCE, self.role.log.high_watermark))

    def _answer(self, outcomes: Sequence[tuple[DelayedProduce, ErrorCode]]) -> None:
        for produced, error in outcomes:
            produced.complete(error)

    def read(self, offset: int, limit: int) -> tuple[list[BatchHeader], bytes]:
        """Whole batches from the one that holds `offset`, headers and bytes (R-39)."""
        data = b"".join(self.log.read(offset, READ_BYTES, limit))
        return [header for _, header in iter_batches(data)], data
