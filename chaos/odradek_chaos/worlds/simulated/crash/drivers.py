"""Those who tell the stories of `stories.py`: a process on a recorded disk, act by act.

A driver does what a core and a runtime would tell storage to do, and marks after each act what is promised by then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from odradek_broker.core.cleaning import CompactionSettings
from odradek_broker.core.partition.messages import WriteEpochs
from odradek_broker.core.quorum.messages import AppendRecords, QuorumState, SnapshotId, TruncateLog
from odradek_broker.runtime.quorum.opening import OpenedQuorumLog, open_quorum_log
from odradek_broker.runtime.quorum.state_file import read_quorum_state, write_quorum_state
from odradek_broker.storage.cleaning.round import CleanedSegment, CleaningRound
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.metadata_snapshots import MetadataSnapshots, SnapshotWriter
from odradek_broker.storage.segments import SegmentReplacement
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import encode_batch, read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Files
from odradek_proto.values import replace

from odradek_chaos.worlds.simulated.crash.checks import LOOP, METADATA, WALL_MS, Bench
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.disk.inodes import Directory, Entry
from odradek_chaos.worlds.simulated.disk.recording import DurabilityMark, LogPromise, Operation, Recorder

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
ROOT = "/data"
VOTERS = (1, 2, 3)
SMALL = LogSettings(segment_bytes=900, index_interval_bytes=200, segment_ms=1 << 60)
BEFORE_ACK = LogSettings(segment_bytes=900, index_interval_bytes=200, segment_ms=1 << 60, flush_before_ack=True)


class Driver:
    """What all stories share: a recorded disk, and a process on it."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings
        self.disk = SimDisk(random.Random(0))
        self.recorder = self.disk.recorder = Recorder(self.disk.root)
        self.life = 0
        self.files = SimFiles(self.disk, LOOP, random.Random(0))
        self.start()

    def new_files(self) -> SimFiles:
        """Those of a new process; the old one is dead."""
        self.files.detach()
        self.life += 1
        self.files = SimFiles(self.disk, LOOP, random.Random(0))
        return self.files

    def start(self) -> None:
        raise NotImplementedError

    def wait_long(self) -> None:
        """The kernel has written everything by itself; nobody was told, and nothing more is promised."""
        waiting: list[Entry] = [self.disk.root]
        while waiting:
            entry = waiting.pop()
            entry.fsync()
            if isinstance(entry, Directory):
                waiting.extend(entry.entries.values())
        self.recorder.begin(self.disk.root)

    @property
    def bench(self) -> Bench:
        return Bench(ROOT, 1, self.settings)

    @property
    def operations(self) -> list[Operation]:
        return self.recorder.operations


class LogDriver(Driver):
    """A log directory with one partition."""

    producer_epoch = 0

    def start(self) -> None:
        self.directory = LogDirectory.open(
            self.new_files(), ROOT, node_id=1, cluster_id="c", wall_ms=WALL_MS, rng=random.Random(1)
        )
        self.begin_producer()
        self.open_log()
        self.mark("start")

    def begin_producer(self) -> None:
        """The next batches come with a higher producer epoch, and sequences from 0."""
        self.producer_epoch += 1
        self.sequence = 0

    def open_log(self) -> None:
        self.log: Log = self.directory.open_log(ORDERS, TOPIC_ID, self.settings, wall_ms=WALL_MS)

    def mark(self, word: str, *, gone: bool = False) -> None:
        log = self.log
        promise = LogPromise(log.recovery_point, log.log_start_offset, self.life)
        self.recorder.mark(DurabilityMark({} if gone else {str(ORDERS): promise}, (str(ORDERS),) if gone else (), word))

    def append(self, count: int, epoch: int, *, records: int = 1, size: int = 30, keys: int = 0) -> None:
        """Batches of an idempotent producer, with a new epoch noted first (R-60); with one of so many keys, or none."""
        log = self.log
        for _ in range(count):
            offset = log.end_offset
            rows = [
                (
                    WALL_MS + offset,
                    b"key %d" % (offset % keys) if keys else None,
                    (b"at %d in epoch %d" % (offset, epoch)).ljust(size, b"."),
                    (),
                )
                for _ in range(records)
            ]
            made = encode_batch(
                rows,
                base_offset=offset,
                leader_epoch=epoch,
                producer_id=7,
                producer_epoch=self.producer_epoch,
                base_sequence=self.sequence,
            )
            header = read_header(made)
            if log.state.epochs.assign(epoch, offset):
                log.write_epochs(log.state.epochs.entries)
            log.append([header], [made])
            log.state.log_end_offset = log.end_offset
            log.state.producers.update(header)
            self.sequence += records
        self.mark(f"append to {log.end_offset}")

    def roll(self) -> None:
        self.log.roll(WALL_MS)
        self.mark("roll")

    def flush(self) -> None:
        self.log.flush()
        self.mark("flush")

    def checkpoint(self) -> None:
        """All three files of offsets."""
        self.directory.write_recovery_points()
        self.mark("recovery point checkpoint")
        self.log.state.high_watermark = self.log.end_offset
        self.directory.write_high_watermarks()
        self.directory.write_log_starts()
        self.mark("checkpoints")

    def flush_and_checkpoint(self) -> None:
        self.flush()
        self.checkpoint()

    def truncate(self, offset: int) -> None:
        end = self.log.truncate(offset)
        self.log.state.log_end_offset = end
        self.log.state.epochs.truncate_from_end(end)
        self.log.write_epochs(self.log.state.epochs.entries)
        self.begin_producer()
        self.mark(f"truncate to {offset}")

    def restart_at(self, offset: int) -> None:
        self.log.restart_at(offset)
        self.log.state.log_end_offset = self.log.state.log_start_offset = offset
        self.log.state.epochs.clear()
        self.log.write_epochs(())
        self.mark(f"restart at {offset}")

    def retain(self, offset: int) -> None:
        self.log.advance_log_start(offset)
        self.mark(f"log start {offset}")
        self.log.state.epochs.truncate_from_start(offset)
        self.log.write_epochs(self.log.state.epochs.entries)
        self.log.delete_before_log_start(WALL_MS)
        self.directory.write_log_starts()
        self.mark("retention")
        self.log.purge(WALL_MS + 100_000)
        self.mark("purge")

    def clean(self, *, until: str = "") -> SegmentReplacement | None:
        """What the cleaner does, all of it or until the first `begin` or `exchange` of a segment."""
        log = self.log
        log.use(replace(self.settings, compaction=CompactionSettings()))
        work = CleaningRound(
            self.files,
            log,
            first_dirty_offset=log.log_start_offset,
            end_offset=log.segments[-1].base_offset,
            wall_ms=WALL_MS,
            map_bytes=1 << 20,
        )
        for step in work.steps():
            if not isinstance(step, CleanedSegment):
                continue
            self.directory.write_cleaned(log, work.end_offset)
            replacement = log.replace(step.old, step.new)
            for act in (replacement.begin, replacement.exchange, replacement.finish):
                act()
                log.flush_directory()
                if act.__name__ == until:
                    return replacement
        self.mark("clean")
        return None

    def stop(self, *, clean: bool) -> None:
        self.directory.close(clean=clean, broker_epoch=self.life)
        self.mark("stop")

    def delete(self) -> None:
        self.recorder.mark(DurabilityMark({}, (str(ORDERS),), "begin to delete"))
        self.directory.delete_log(self.log, WALL_MS)
        self.directory.flush_names()
        for path in self.directory.due(WALL_MS + 100_000):
            while self.directory.remove_some(path, 2):
                continue
        self.mark("delete", gone=True)


class QuorumDriver(Driver):
    """A metadata log with its snapshots and votes. The record at offset n is `value n`, of epoch n // 10 or another."""

    def start(self) -> None:
        files = self.new_files()
        LogDirectory.open(files, ROOT, node_id=1, cluster_id="c", wall_ms=WALL_MS, rng=random.Random(1))
        self.opened: OpenedQuorumLog = open_quorum_log(files, ROOT, _load, WALL_MS, self.settings)
        self.opened.take_over()
        self.log, self.snapshots = self.opened.log, self.opened.snapshots
        self.vote_state = read_quorum_state(files, f"{ROOT}/{METADATA}")
        self.flushed = self.log.state.log_end_offset
        self.mark("start")

    def mark(self, word: str) -> None:
        promise = LogPromise(self.flushed, self.log.state.log_start_offset, self.life)
        self.recorder.mark(DurabilityMark({METADATA: promise}, word=word))

    def vote(self, epoch: int, candidate: int) -> None:
        self.vote_state = QuorumState(epoch, -1, candidate)
        write_quorum_state(self.files, f"{ROOT}/{METADATA}", self.vote_state, VOTERS)
        self.mark(f"vote in epoch {epoch}")

    def append(self, count: int, epoch: int | None = None) -> None:
        state = self.log.state
        for offset in range(state.log_end_offset, state.log_end_offset + count):
            of_epoch = offset // 10 if epoch is None else epoch
            if state.epochs.assign(of_epoch, offset):
                self.log.carry_out(WriteEpochs(state.epochs.entries), 1, WALL_MS)
            self.log.carry_out(AppendRecords(offset, of_epoch, (_value(offset),)), 1, WALL_MS)
            state.log_end_offset = offset + 1
        self.mark("append")

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.flushed()
        self.mark("flush")

    def truncate(self, offset: int) -> None:
        """As a follower of a new leader does, with what nobody has committed."""
        state = self.log.state
        self.log.carry_out(TruncateLog(offset, "another leader"), 1, WALL_MS)
        state.log_end_offset = offset
        self.flushed = min(self.flushed, offset)
        if state.epochs.truncate_from_end(offset):
            self.log.carry_out(WriteEpochs(state.epochs.entries), 1, WALL_MS)
        self.mark(f"truncate to {offset}")

    def take(self) -> None:
        _write_snapshot(self.files, self.snapshots, self.log.state.log_end_offset)
        self.mark("snapshot")

    def start_log_at(self, end_offset: int) -> None:
        state = self.log.state
        state.log_start_offset = end_offset
        self.mark("log start")
        if state.epochs.truncate_from_start(end_offset):
            self.log.carry_out(WriteEpochs(state.epochs.entries), 1, WALL_MS)
        self.log.start_at(end_offset, WALL_MS)
        self.snapshots.drop_below(end_offset)
        self.mark("log cut below a snapshot")

    def install(self, end_offset: int) -> None:
        data, snapshot, state = _snapshot_of(end_offset), _named(end_offset), self.log.state
        for position in range(0, len(data), 400):
            self.snapshots.receive(snapshot, position, data[position : position + 400])
        self.snapshots.complete(snapshot)
        self.mark("snapshot received")
        self.log.restart_at(snapshot)
        self.snapshots.drop_below(end_offset)
        state.log_start_offset = state.log_end_offset = self.flushed = end_offset
        state.epochs.clear()
        state.epochs.assign(snapshot.epoch, end_offset)
        self.log.carry_out(WriteEpochs(state.epochs.entries), 1, WALL_MS)
        self.mark("snapshot installed")


def _value(offset: int) -> bytes:
    return b"value %d" % offset


def _named(end_offset: int) -> SnapshotId:
    return SnapshotId(end_offset, (end_offset - 1) // 10)


def _load(snapshot: SnapshotId, records: Iterator[bytes]) -> object:
    return list(records)


def _write_snapshot(files: Files, snapshots: MetadataSnapshots, end_offset: int) -> None:
    writer = SnapshotWriter(files, snapshots, _named(end_offset), map(_value, range(end_offset)), WALL_MS)
    writer.begin()
    while writer.write_some():
        pass
    writer.finish()


def _snapshot_of(end_offset: int) -> bytes:
    """A snapshot as another node would send it."""
    files = SimFiles(SimDisk(random.Random(0)), LOOP, random.Random(0))
    files.makedirs("/other")
    snapshots = MetadataSnapshots(files, "/other")
    _write_snapshot(files, snapshots, end_offset)
    return snapshots.read(_named(end_offset), 0, 1 << 20)
