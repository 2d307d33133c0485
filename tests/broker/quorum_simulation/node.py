"""One node of the simulated quorum: a core, a disk, and the rim that carries out effects one after the other."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from odradek_broker.core.partition.epochs import EpochCache
from odradek_broker.core.partition.messages import ReplicaLog, Transition, WriteEpochs
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.messages import (
    AppendFetched,
    AppendLeaderChange,
    AppendRecords,
    Dial,
    Effect,
    Fail,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    LeadershipBegan,
    LeadershipEnded,
    PersistState,
    QuorumConfig,
    QuorumState,
    Reply,
    ReplyRecords,
    Send,
    TruncateLog,
)
from odradek_proto.records import (
    BatchHeader,
    ControlType,
    encode_batch,
    encode_control_batch,
    leader_change_value,
    read_header,
)
from odradek_proto.topics import TopicPartition

METADATA = TopicPartition("__cluster_metadata", 0)


class QuorumFault(AssertionError):
    """A core found what cannot be in a sound quorum, or an invariant does not hold."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    header: BatchHeader
    data: bytes


@dataclass(slots=True)
class Disk:
    """What a node has written. A crash keeps the flushed batches, and chance decides how many of the others."""

    state: QuorumState = field(default_factory=QuorumState)
    batches: list[StoredBatch] = field(default_factory=list)
    flushed: int = 0  # batches

    @property
    def end_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else 0

    @property
    def flushed_end_offset(self) -> int:
        return self.batches[self.flushed - 1].header.next_offset if self.flushed else 0

    def append(self, data: bytes, header: BatchHeader) -> None:
        assert header.base_offset == self.end_offset, (header.base_offset, self.end_offset)
        self.batches.append(StoredBatch(header, data))

    def truncate(self, offset: int) -> None:
        while self.batches and self.batches[-1].header.next_offset > offset:
            self.batches.pop()
        self.flushed = min(self.flushed, len(self.batches))
        assert self.end_offset == offset, (self.end_offset, offset)

    def read(self, offset: int, limit: int, max_bytes: int) -> list[StoredBatch]:
        """Whole batches from `offset` on, below `limit`; at least one when there is any."""
        found: list[StoredBatch] = []
        size = 0
        for batch in self.batches:
            if batch.header.base_offset >= offset and batch.header.next_offset <= limit:
                if found and size + len(batch.data) > max_bytes:
                    break
                found.append(batch)
                size += len(batch.data)
        return found

    def crash(self, rng: random.Random) -> None:
        del self.batches[rng.randint(self.flushed, len(self.batches)) :]
        self.flushed = len(self.batches)

    def open(self) -> ReplicaLog:
        """The log as recovery finds it: nothing is known of a high watermark."""
        epochs = EpochCache()
        for batch in self.batches:
            epochs.assign(batch.header.leader_epoch, batch.header.base_offset)
        self.flushed = len(self.batches)
        return ReplicaLog(METADATA, bytes(16), 0, self.end_offset, 0, epochs, ProducerStates(), self.end_offset)


class Surroundings(Protocol):
    """What a node asks of its world."""

    def later(self, node: Node, what: str) -> None: ...
    def send(self, node: Node, send: Send) -> None: ...
    def dial(self, node: Node, peer_id: int) -> None: ...
    def reply(self, node: Node, reply: Reply | ReplyRecords, batches: Sequence[StoredBatch]) -> None: ...
    def saw(self, node: Node, effect: Effect) -> None: ...


class Node:
    """A node that can crash between any two effects. While `quorum-state` is being written, the effects behind it
    wait.
    """

    def __init__(self, config: QuorumConfig, world: Surroundings, rng: random.Random) -> None:
        self.config = config
        self.node_id = config.node_id
        self.disk = Disk()
        self.core: QuorumCore | None = None
        self.life = 0  # number of the incarnation
        self._world = world
        self._rng = rng
        self._outbox: deque[Effect] = deque()
        self._persisting: QuorumState | None = None
        self._flushing: int | None = None  # batches that the running flush covers
        self._flush_again = False

    def start(self, now_ms: int) -> None:
        assert self.core is None
        self.life += 1
        self.core = QuorumCore(self.config, self.disk.open(), self.disk.state, self._rng)
        self.carry_out(self.core.start(now_ms))

    def crash(self) -> None:
        self.core = None
        self._outbox.clear()
        self._persisting = self._flushing = None
        self._flush_again = False
        self.disk.crash(self._rng)

    def carry_out(self, effects: Sequence[Effect]) -> None:
        self._outbox.extend(effects)
        while self._outbox and self._persisting is None:
            effect = self._outbox.popleft()
            self._one(effect)
            self._world.saw(self, effect)

    def _one(self, effect: Effect) -> None:
        match effect:
            case PersistState():
                self._persisting = effect.state
                self._world.later(self, "persisted")
            case AppendLeaderChange():
                value = leader_change_value(self.node_id, effect.voters, effect.granting)
                data = encode_control_batch(
                    ControlType.LEADER_CHANGE,
                    value,
                    timestamp=0,
                    base_offset=effect.base_offset,
                    leader_epoch=effect.epoch,
                )
                self.disk.append(data, read_header(data))
            case AppendRecords():
                records = [(0, None, record, ()) for record in effect.records]
                data = encode_batch(records, base_offset=effect.base_offset, leader_epoch=effect.epoch)
                self.disk.append(data, read_header(data))
            case AppendFetched():
                position = 0
                for header in effect.headers:
                    self.disk.append(effect.batches[position : position + header.size], header)
                    position += header.size
            case TruncateLog():
                assert self._flushing is None, "a log is not cut while it is flushed"
                self.disk.truncate(effect.offset)
            case FlushLog():
                self._flush()
            case Send():
                self._world.send(self, effect)
            case Dial():
                self._world.dial(self, effect.peer_id)
            case Reply():
                self._world.reply(self, effect, ())
            case ReplyRecords():
                found = self.disk.read(effect.fetch_offset, effect.limit, effect.max_bytes)
                self._world.reply(self, effect, found)
            case Fail():
                raise QuorumFault(f"node {self.node_id}: {effect.reason}")
            case (
                WriteEpochs()
                | HighWatermarkAdvanced()
                | LeadershipBegan()
                | LeadershipEnded()
                | LeaderChanged()
                | Transition()
            ):
                pass

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flush_again = True
            return
        self._flushing = len(self.disk.batches)
        self._world.later(self, "flushed")

    def done(self, what: str, now_ms: int) -> None:
        """The disk has finished something."""
        assert self.core is not None
        if what == "persisted":
            assert self._persisting is not None
            self.disk.state, self._persisting = self._persisting, None
            self.carry_out(())
            return
        assert self._flushing is not None
        self.disk.flushed, self._flushing = self._flushing, None
        again, self._flush_again = self._flush_again, False
        effects = self.core.on_flushed(self.disk.flushed_end_offset, now_ms)
        if again:
            self._flush()
        self.carry_out(effects)
