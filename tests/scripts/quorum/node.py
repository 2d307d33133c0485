"""One node of a transcript's quorum: a core, a disk, and effects that are carried out one after the other."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from odradek_broker.core.partition.epochs import EpochCache
from odradek_broker.core.partition.messages import ReplicaLog, Transition, WriteEpochs
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.messages import (
    Answer,
    AppendFetched,
    AppendLeaderChange,
    AppendRecords,
    CheckSnapshot,
    Dial,
    Effect,
    Fail,
    FlushLog,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    LeadershipBegan,
    LeadershipEnded,
    PersistState,
    QuorumConfig,
    QuorumState,
    ReceiveChunk,
    Reply,
    ReplyChunk,
    ReplyRecords,
    SegmentSize,
    Send,
    Snapshot,
    SnapshotId,
    StartLogAt,
    TakeSnapshot,
    Token,
    TruncateLog,
)
from odradek_proto.checksum import crc32c
from odradek_proto.records import (
    BatchHeader,
    ControlType,
    encode_batch,
    encode_control_batch,
    leader_change_value,
    read_header,
)
from odradek_proto.values import replace

from tests.broker.quorum_core import METADATA


class QuorumFault(AssertionError):
    """A core found a state that is impossible in a correct quorum."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    header: BatchHeader
    data: bytes


@dataclass(slots=True)
class Disk:
    """What a node has written. A crash keeps the flushed batches, and chance decides how many of the others.

    A snapshot is here the batches that it stands for, one behind the other, with a CRC in front.
    """

    state: QuorumState = field(default_factory=QuorumState)
    batches: list[StoredBatch] = field(default_factory=list)
    flushed: int = 0  # everything below is flushed
    start: int = 0  # where the log starts: batches below may be gone
    snapshots: dict[SnapshotId, bytes] = field(default_factory=dict)  # whole ones, the oldest first
    part: bytearray = field(default_factory=bytearray)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.start

    def append(self, data: bytes, header: BatchHeader) -> None:
        assert header.base_offset == self.end_offset, (header.base_offset, self.end_offset)
        self.batches.append(StoredBatch(header, data))

    def truncate(self, offset: int) -> None:
        while self.batches and self.batches[-1].header.next_offset > offset:
            self.batches.pop()
        self.flushed = min(self.flushed, offset)
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

    # --- snapshots ---

    def content_below(self, end_offset: int) -> bytes:
        """All batches below an offset, from this disk's newest snapshot below it and its log."""
        base, content = 0, b""
        for snapshot, data in self.snapshots.items():
            if snapshot.end_offset <= end_offset:
                base, content = snapshot.end_offset, data[4:]
        found = [batch for batch in self.batches if base <= batch.header.base_offset < end_offset]
        assert not found or found[0].header.base_offset == base, (base, found[0].header)
        return content + b"".join(batch.data for batch in found)

    def take(self, snapshot: SnapshotId) -> Snapshot:
        content = self.content_below(snapshot.end_offset)
        self.snapshots[snapshot] = crc32c(content).to_bytes(4, "big") + content
        return self.describe(snapshot)

    def describe(self, snapshot: SnapshotId) -> Snapshot:
        return Snapshot(snapshot, len(self.snapshots[snapshot]), 0)

    def segments(self) -> list[SegmentSize]:
        """Each batch is a segment of its own, but for the last."""
        return [SegmentSize(batch.header.next_offset, len(batch.data)) for batch in self.batches[:-1]]

    def start_at(self, snapshot: SnapshotId) -> None:
        """Older snapshots go, and batches that lie wholly below."""
        self.start = snapshot.end_offset
        self.snapshots = {each: data for each, data in self.snapshots.items() if each.end_offset >= self.start}
        while self.batches and self.batches[0].header.next_offset <= self.start:
            del self.batches[0]

    def receive(self, position: int, data: bytes) -> None:
        del self.part[position:]
        self.part += data

    def check(self, snapshot: SnapshotId) -> Snapshot | str:
        if int.from_bytes(self.part[:4], "big") != crc32c(bytes(self.part[4:])):
            return "the CRC is not right"
        return Snapshot(snapshot, len(self.part), 0)

    def install(self, snapshot: SnapshotId) -> None:
        self.snapshots = {snapshot: bytes(self.part)}
        self.batches, self.flushed, self.start = [], snapshot.end_offset, snapshot.end_offset

    # --- lives ---

    def crash(self, rng: random.Random) -> None:
        flushed = sum(batch.header.next_offset <= self.flushed for batch in self.batches)
        del self.batches[rng.randint(flushed, len(self.batches)) :]
        self.flushed = self.end_offset
        self.part.clear()

    def open(self) -> ReplicaLog:
        """The log as recovery finds it; its high watermark is the end of the newest snapshot."""
        epochs = EpochCache()
        below = next((each.epoch for each in self.snapshots if each.end_offset == self.start), None)
        if below is not None:
            epochs.assign(below, self.start)
        for batch in self.batches:
            if batch.header.next_offset > self.start:
                epochs.assign(batch.header.leader_epoch, max(batch.header.base_offset, self.start))
        self.flushed = self.end_offset
        known = max((each.end_offset for each in self.snapshots), default=0)
        assert known <= self.end_offset, (known, self.end_offset)
        end = self.end_offset
        return ReplicaLog(METADATA, bytes(16), self.start, end, known, epochs, ProducerStates(), end)


class Surroundings(Protocol):
    """The world as a node needs it."""

    def later(self, node: Node, what: str) -> None: ...
    def send(self, node: Node, send: Send) -> None: ...
    def dial(self, node: Node, peer_id: int) -> None: ...
    def reply(self, node: Node, token: Token, answer: Answer, batches: Sequence[StoredBatch]) -> None: ...

    on_effect: Callable[[Node, Effect], None]

    @property
    def now_ms(self) -> int: ...


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
        self._flushing: int | None = None  # the end of what the running flush covers
        self._flush_again = False
        self._taking: SnapshotId | None = None
        self._installing: SnapshotId | None = None
        self._checking: SnapshotId | None = None
        self.applied = SnapshotId(0, 0)
        self._deadline_ms: int | None = None
        self._deadline_is_known = False  # it changes only when the core is called, and then effects are carried out

    def next_deadline_ms(self) -> int | None:
        """When the core wants to be called. Remembered: the world asks all nodes at every step, and one has changed."""
        if self.core is None:
            return None
        if not self._deadline_is_known:
            self._deadline_ms, self._deadline_is_known = self.core.next_deadline_ms(), True
        return self._deadline_ms

    def start(self, now_ms: int) -> None:
        assert self.core is None
        self.life += 1
        kept = [self.disk.describe(snapshot) for snapshot in self.disk.snapshots]
        self.applied = kept[-1].id if kept else SnapshotId(0, 0)
        self.core = QuorumCore(self.config, self.disk.open(), self.disk.state, self._rng, kept)
        self.carry_out(self.core.start(now_ms))

    def crash(self) -> None:
        self.core = None
        self._outbox.clear()
        self._persisting = self._flushing = self._taking = self._installing = self._checking = None
        self._flush_again = False
        self.disk.crash(self._rng)

    def carry_out(self, effects: Sequence[Effect]) -> None:
        self._deadline_is_known = False
        self._outbox.extend(effects)
        while self._outbox and self._persisting is None and self._installing is None:
            effect = self._outbox.popleft()
            self._one(effect)
            self._world.on_effect(self, effect)
            if isinstance(effect, HighWatermarkAdvanced):
                self._apply(effect)

    def _apply(self, effect: HighWatermarkAdvanced) -> None:
        assert self.core is not None
        batches = self.disk.read(self.applied.end_offset, effect.new, 1 << 30)
        assert batches[-1].header.next_offset == effect.new
        self.applied = SnapshotId(effect.new, batches[-1].header.leader_epoch)
        self._outbox.extend(self.core.on_applied(sum(len(batch.data) for batch in batches), self._world.now_ms))

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
                self._world.reply(self, effect.token, effect.answer, ())
            case ReplyRecords():
                found = self.disk.read(effect.fetch_offset, effect.limit, effect.max_bytes)
                self._world.reply(self, effect.token, effect.answer, found)
            case ReplyChunk():
                position = effect.answer.position
                data = self.disk.snapshots[effect.answer.snapshot][position : position + effect.max_bytes]
                self._world.reply(self, effect.token, replace(effect.answer, data=data), ())
            case TakeSnapshot():
                self._taking = self.applied
                self._world.later(self, "taken")
            case StartLogAt():
                self.disk.start_at(effect.snapshot)
            case ReceiveChunk():
                self.disk.receive(effect.position, effect.data)
            case CheckSnapshot():
                self._checking = effect.snapshot
                self._world.later(self, "checked")
            case InstallSnapshot():
                assert self._flushing is None, "a log is not cut while it is flushed"
                self._installing = effect.snapshot
                self._world.later(self, "installed")
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
        self._flushing = self.disk.end_offset
        self._world.later(self, "flushed")

    def done(self, what: str, now_ms: int) -> None:
        """The disk has finished something."""
        assert self.core is not None
        if what == "persisted":
            assert self._persisting is not None
            self.disk.state, self._persisting = self._persisting, None
            self.carry_out(())
        elif what == "taken":
            assert self._taking is not None
            taken, self._taking = self.disk.take(self._taking), None
            self.carry_out(self.core.on_snapshot_taken(taken, self.disk.segments(), now_ms, now_ms))
        elif what == "checked":
            assert self._checking is not None
            snapshot, self._checking = self._checking, None
            self.carry_out(self.core.on_snapshot_checked(snapshot, self.disk.check(snapshot), now_ms))
        elif what == "installed":
            assert self._installing is not None
            self.applied, self._installing = self._installing, None
            self.disk.install(self.applied)
            self.carry_out(())
        else:
            self._flush_done(now_ms)

    def _flush_done(self, now_ms: int) -> None:
        assert self.core is not None
        assert self._flushing is not None
        self.disk.flushed, self._flushing = self._flushing, None
        again, self._flush_again = self._flush_again, False
        effects = self.core.on_flushed(self.disk.flushed, now_ms)
        if again:
            self._flush()
        self.carry_out(effects)
