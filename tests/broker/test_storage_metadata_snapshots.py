"""Snapshot files of the metadata log: their bytes, damage, and power loss at every step of writing, receiving and
installing one and of cutting the log (R-231, R-239).

The state is the list of all records; the record at offset n is `value n`, of epoch n // 10, on every node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from odradek_broker.core.partition.messages import WriteEpochs
from odradek_broker.core.quorum.messages import AppendRecords, SnapshotId
from odradek_broker.runtime.quorum.opening import MetadataIncomplete, OpenedQuorumLog, open_quorum_log
from odradek_broker.storage.metadata_snapshots import DAMAGED_SUFFIX, MetadataSnapshots
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_proto.metadata_snapshots import (
    CorruptSnapshot,
    SnapshotName,
    parse_snapshot_file_name,
    snapshot_file_name,
    snapshot_records,
    snapshot_timestamp,
)

from tests.broker.crashing_disk import CrashingFiles, PowerLost, write_snapshot
from tests.seeds import seeds, unless_torture

pytestmark = pytest.mark.xdist_group("metadata snapshots")  # in one process, so that each is made once
SETTINGS = LogSettings(segment_bytes=300, index_interval_bytes=100, retention_ms=-1)
DIRECTORY = "/data/__cluster_metadata-0"
STRIDE = 3


def value(offset: int) -> bytes:
    return b"value %d" % offset


def epoch_of(offset: int) -> int:
    return offset // 10


def named(end_offset: int) -> SnapshotId:
    return SnapshotId(end_offset, epoch_of(end_offset - 1))


def load(snapshot: SnapshotId, records: Iterator[bytes]) -> list[bytes]:
    state = list(records)
    assert state == [value(offset) for offset in range(snapshot.end_offset)], snapshot
    return state


@cache  # sent at every step at which the receiver may crash
def bytes_of(end_offset: int) -> bytes:
    """A snapshot as another node would send it."""
    files = CrashingFiles(SimDisk(random.Random(0)), 1 << 60)
    files.makedirs("/other")
    snapshots = MetadataSnapshots(files, "/other")
    write_snapshot(files, snapshots, named(end_offset), map(value, range(end_offset)), 7_000)
    return snapshots.read(named(end_offset), 0, 1 << 20)


class Story:
    """The metadata log of one node, and what it has promised: records that it had flushed, or a whole snapshot."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.promised = 0

    def start(self, steps: int = 1 << 60) -> OpenedQuorumLog:
        self.files = CrashingFiles(self.disk, steps)
        if not self.files.is_dir("/data"):
            self.files.makedirs("/data")
            self.files.fsync_dir("/")
        self.opened = open_quorum_log(self.files, "/data", load, 0, SETTINGS)
        self.opened.take_over()
        self.log, self.snapshots = self.opened.log, self.opened.snapshots
        self.promised = max(self.promised, self.log.state.log_end_offset)
        return self.opened

    def append(self, count: int) -> None:
        state = self.log.state
        for offset in range(state.log_end_offset, state.log_end_offset + count):
            if state.epochs.assign(epoch_of(offset), offset):
                self.log.carry_out(WriteEpochs(state.epochs.entries), 1, 0)
            self.log.carry_out(AppendRecords(offset, epoch_of(offset), (value(offset),)), 1, 0)
            state.log_end_offset = offset + 1

    def flush(self) -> None:
        self.log.flush()
        self.promised = self.log.flushed()

    def take(self) -> None:
        end_offset = self.log.state.log_end_offset
        write_snapshot(self.files, self.snapshots, named(end_offset), map(value, range(end_offset)), 7_000)

    def start_log_at(self, end_offset: int) -> None:
        self.log.state.log_start_offset = end_offset
        if self.log.state.epochs.truncate_from_start(end_offset):
            self.log.carry_out(WriteEpochs(self.log.state.epochs.entries), 1, 0)
        self.log.start_at(end_offset, 0)
        self.snapshots.drop_below(end_offset)

    def install(self, end_offset: int) -> None:
        data, snapshot, state = bytes_of(end_offset), named(end_offset), self.log.state
        for position in range(0, len(data), 400):
            self.snapshots.receive(snapshot, position, data[position : position + 400])
        assert len(load(snapshot, self.snapshots.records(snapshot, part=True))) == end_offset
        self.snapshots.complete(snapshot)
        self.log.restart_at(snapshot)
        self.snapshots.drop_below(end_offset)
        self.promised = end_offset
        state.log_start_offset = state.log_end_offset = end_offset
        state.epochs.clear()
        state.epochs.assign(snapshot.epoch, end_offset)
        self.log.carry_out(WriteEpochs(state.epochs.entries), 1, 0)

    def check(self) -> None:
        """Everything promised is there, in a snapshot and the log behind it, and nothing that was never written."""
        opened, state = self.opened, self.log.state
        base = opened.kept[-1].id.end_offset if opened.kept else 0
        found = list(opened.state) if isinstance(opened.state, list) else []
        for batch in self.log.committed(base, state.log_end_offset):
            assert batch.epoch == epoch_of(batch.base_offset)
            found += batch.records
        assert found == [value(offset) for offset in range(len(found))]
        assert len(found) == state.log_end_offset >= self.promised
        assert not opened.lost
        ends = [each.id.end_offset for each in opened.kept]
        assert state.log_start_offset == 0 or state.log_start_offset in ends, "M-6"
        assert all(start >= state.log_start_offset for start in ends)
        if found:
            assert state.epochs.latest_epoch == epoch_of(len(found) - 1), "what the next fetch or vote names"
        assert state.high_watermark == max(ends, default=0)
        assert not [name for name in self.files.list(DIRECTORY) if name.endswith(".part")]


def snapshots_and_cuts(story: Story) -> None:
    story.append(8)
    story.take()
    story.append(9)
    story.flush()
    story.take()
    story.start_log_at(8)
    story.append(7)
    story.take()
    story.start_log_at(24)
    story.append(3)
    story.flush()


def installs(story: Story) -> None:
    story.append(12)
    story.flush()
    story.take()
    story.append(4)
    story.install(45)
    story.append(6)
    story.flush()
    story.install(80)
    story.append(2)
    story.take()
    story.start_log_at(82)


def crash(tell: Callable[[Story], None], steps: int, seed: int) -> bool:
    """Tell a story until the disk stops, lose power, open, check, go on; false when the story came to its end."""
    disk = SimDisk(random.Random(seed))
    story = Story(disk)
    stopped = False
    try:
        story.start(steps)
        tell(story)
    except PowerLost:
        stopped = True
    story.files.detach()
    disk.power_loss(random.Random(seed))
    story.start()
    story.check()
    story.append(5)
    story.flush()
    story.start()
    story.check()
    return stopped


@pytest.mark.parametrize("first", seeds(STRIDE, every_day=1))
@pytest.mark.parametrize("tell", [snapshots_and_cuts, installs], ids=lambda tell: tell.__name__)
def test_a_power_loss_at_every_step_leaves_a_snapshot_and_a_log_that_fit(
    tell: Callable[[Story], None], first: int
) -> None:
    """For every third change of the disk in writing, receiving, installing and cutting (the slow tests have the
    others), with disks that it may leave."""
    for disk in range(unless_torture(1, 3)):
        steps = first
        while crash(tell, steps, seed=steps * 31 + disk):
            steps += STRIDE
        assert steps > 80


def opened_with_two_snapshots() -> Story:
    """Snapshots at 8 and 17; the log starts at 8 and ends at 20."""
    story = Story(SimDisk(random.Random(1)))
    story.start()
    story.append(8)
    story.take()
    story.append(9)
    story.take()
    story.start_log_at(8)
    story.append(3)
    story.flush()
    return story


def test_a_start_goes_on_from_the_newest_snapshot() -> None:
    """The log is read from there, and still starts at the oldest one."""
    opened = opened_with_two_snapshots().start()
    assert isinstance(opened.state, list)
    assert len(opened.state) == 17
    assert [each.id.end_offset for each in opened.kept] == [8, 17]
    assert (opened.log.state.log_start_offset, opened.log.state.log_end_offset) == (8, 20)
    assert opened.damaged == []


def test_an_older_snapshot_serves_for_a_damaged_one() -> None:
    """The damaged one is set aside, where nobody reads it and everybody can look at it."""
    story = opened_with_two_snapshots()
    story.disk.flip(story.snapshots.path(named(17)), 150)
    opened = story.start()
    story.check()
    assert [(each.end_offset, "CRC" in reason) for each, reason in opened.damaged] == [(17, True)]
    assert [each.id.end_offset for each in opened.kept] == [8]
    assert story.files.exists(story.snapshots.path(named(17)) + DAMAGED_SUFFIX)
    assert not opened.lost, "the log has everything that the snapshot had"


def test_a_node_without_a_sound_snapshot_says_what_is_missing() -> None:
    """The log starts in the middle: to go on from there would be to forget what lies below."""
    story = opened_with_two_snapshots()
    for end_offset in (8, 17):
        story.disk.flip(story.snapshots.path(named(end_offset)), 150)
    with pytest.raises(MetadataIncomplete, match=r"no sound snapshot; 17-1 is damaged: .*Records in between"):
        story.start()


def test_the_log_serves_for_a_damaged_snapshot_while_it_reaches_back() -> None:
    """Nothing was cut yet, so nothing is missing."""
    story = Story(SimDisk(random.Random(1)))
    story.start()
    story.append(8)
    story.take()
    story.flush()
    story.disk.flip(story.snapshots.path(named(8)), 150)
    opened = story.start()
    story.check()
    assert (opened.state, len(opened.damaged), opened.log.state.log_end_offset) == (None, 1, 8)


def test_a_damaged_snapshot_above_the_log_is_a_loss() -> None:
    """It was installed, so this node has said that it has everything in it."""
    story = opened_with_two_snapshots()
    story.snapshots.receive(named(40), 0, bytes_of(40))
    story.snapshots.complete(named(40))
    story.disk.flip(story.snapshots.path(named(40)), 150)
    opened = story.start()
    assert opened.lost
    assert opened.log.state.log_end_offset == 20


def test_a_log_of_another_epoch_gives_way_to_the_snapshot() -> None:
    """It holds what was never committed: the snapshot was received instead, just before the crash."""
    story = Story(SimDisk(random.Random(1)))
    story.start()
    state = story.log.state
    state.epochs.assign(99, 0)
    for offset in range(30):
        story.log.carry_out(AppendRecords(offset, 99, (b"uncommitted",)), 1, 0)
        state.log_end_offset = offset + 1
    story.log.flush()
    story.snapshots.receive(named(20), 0, bytes_of(20))
    story.snapshots.complete(named(20))
    story.promised = 20
    story.start()
    story.check()
    assert story.log.state.log_end_offset == 20


def test_every_bit_of_a_snapshot_counts() -> None:
    """Whatever bit turns over, wherever the file ends: whoever reads it to its end finds out."""
    data = bytes_of(30)
    assert list(snapshot_records(_reader(data), len(data), 2)) == [value(offset) for offset in range(30)]
    assert snapshot_timestamp(_reader(data)) == 7_000
    rng = random.Random(5)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        with pytest.raises(CorruptSnapshot):
            list(snapshot_records(_reader(bytes(damaged)), len(data), 2))
        with pytest.raises(CorruptSnapshot):
            list(snapshot_records(_reader(data[:place]), place, 2))
    with pytest.raises(CorruptSnapshot, match="behind the footer"):
        list(snapshot_records(_reader(data + b"\0"), len(data) + 1, 2))


def _reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda position, length: data[position : position + length]


def test_a_snapshot_has_kafkas_name() -> None:
    """End offset with twenty digits, epoch with ten (KIP-630)."""
    name = snapshot_file_name(813, 4)
    assert name == "00000000000000000813-0000000004.checkpoint"
    assert parse_snapshot_file_name(name) == SnapshotName(813, 4)
    assert parse_snapshot_file_name(name + ".part") is None
    with pytest.raises(ValueError, match="no snapshot ends"):
        snapshot_file_name(-1, 4)
