"""Edges of the storage that mutants were not caught at: the last number that fits, the last byte, what is flushed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest
from odradek_broker.core.quorum.messages import SnapshotId
from odradek_broker.storage import walk
from odradek_broker.storage.atomic import read_file
from odradek_broker.storage.log import Log
from odradek_broker.storage.metadata_snapshots import MetadataSnapshots
from odradek_broker.storage.settings import LogSettings
from odradek_broker.storage.walk import walk_headers, walk_verified
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.disk.inodes import Directory, Inode
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.checksum import crc32c
from odradek_proto.formats import LEADER_EPOCH_CHECKPOINT, decode_leader_epochs
from odradek_proto.records import HEADER_SIZE, CorruptBatch, encode_batch, iter_batches, read_header
from odradek_proto.transport.ports import File

from tests.broker.crashing_disk import CrashingFiles, PowerLost, write_snapshot
from tests.broker.log_bench import DIRECTORY, ORDERS, START_MS, LogBench, batch, offsets, opened


def lost_by_a_power_loss(bench: LogBench, suffixes: tuple[str, ...]) -> list[int]:
    """Base offsets of the files with these suffixes that a power loss would change or take."""
    directory = bench.disk.directory(DIRECTORY)
    lost = []
    for name, entry in sorted(directory.entries.items()):
        if not name.endswith(suffixes):
            continue
        assert isinstance(entry, Inode)
        if directory.durable.get(name) is not entry or bytes(entry.durable()) != bytes(entry.data):
            lost.append(int(name.split(".")[0]))
    return lost


def test_indexes_are_durable_where_they_are_believed(bench: LogBench) -> None:
    """Of complete segments after a flush, since recovery does not read those again; after a clean end all (R-238)."""
    for place in range(30):
        bench.fill(1, timestamp=START_MS + place)
    complete = [segment.base_offset for segment in bench.log.segments[:-1]]
    assert lost_by_a_power_loss(bench, (".index",))[: len(complete)] == complete
    bench.flush()
    assert not set(lost_by_a_power_loss(bench, (".index", ".timeindex"))) & set(complete)
    active = bench.log.segments[-1]
    assert active.index.entries
    bench.close()
    assert lost_by_a_power_loss(bench, (".index", ".timeindex", ".log")) == []


@pytest.mark.parametrize("missing", [1, 30, 50])
def test_a_clean_mark_on_a_log_that_lacks_its_last_bytes_is_not_believed(bench: LogBench, missing: int) -> None:
    """The last batch has its whole header, which speaks of more than there is (R-234)."""
    written = bench.fill(4)
    assert len(written[-1]) - missing >= HEADER_SIZE
    path = bench.log.segments[-1].path
    bench.close()
    bench.files.open(path).truncate(sum(map(len, written)) - missing)
    bench.open(clean=True)
    assert bench.log.end_offset == 3
    assert bench.read_all() == written[:3]


def test_the_largest_offset_that_an_index_can_span_stays_in_the_segment() -> None:
    """Relative offsets have 31 bits and a sign: the last one that fits begins no segment, the next one does (R-225)."""
    bench = opened(gaps=True)
    bench.fill(1)
    bench.append(batch((1 << 31) - 1))
    assert [segment.base_offset for segment in bench.log.segments] == [0]
    bench.append(batch(1 << 31))
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1 << 31]
    assert offsets(bench.read_all()) == [0, (1 << 31) - 1, 1 << 31]


@pytest.mark.parametrize("max_bytes", [1, 60, 61, 1000])
def test_a_reader_goes_on_behind_the_widest_gap(max_bytes: int) -> None:
    """Between two segments that do not touch (R-225): whoever asks for an offset there gets the next batch, however
    little room there is (R-39, LG-12)."""
    bench = opened(gaps=True)
    far = 1 << 31
    bench.fill(1)
    bench.append(batch(far))
    bench.append(batch(far * 3))
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1, far * 3]
    for cold in (False, True):
        if cold:
            bench.cold()
        for offset, found in ((1, far), (far - 1, far), (far + 1, far * 3), (far * 3 - 1, far * 3)):
            assert bench.log.read(offset, max_bytes, bench.log.end_offset)[0] == batch(found), (offset, cold)


def compacted(base_offset: int, offsets_of_it: int) -> bytes:
    """A batch of one record, which had more before a compaction."""
    made = bytearray(batch(base_offset))
    made[23:27] = (offsets_of_it - 1).to_bytes(4, "big")  # last offset delta
    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("clean", [True, False])
def test_a_compacted_batch_is_kept_and_served(bench: LogBench, clean: bool) -> None:
    """Kafka's logs may hold batches with fewer records than offsets: from the disk as well as from memory."""
    written = [batch(0), compacted(1, 5), batch(6)]
    bench.append(*written)
    for _ in range(2):
        assert b"".join(bench.log.read(0, 10_000, 7)) == b"".join(written)
        bench.cold()
    bench.reopen(clean=clean)
    assert bench.read_all() == written


def test_batches_in_several_pieces_are_served_and_spread_batch_by_batch() -> None:
    """A stamped head and the rest each, as they come from producers: in memory, and over two segments."""
    bench = opened(LogSettings(segment_bytes=500))
    made = [batch(offset) for offset in range(6)]
    pieces = [piece for each in made for piece in (each[:16], memoryview(each)[16:])]
    bench.log.append([read_header(each) for each in made], pieces)
    size = len(made[0])
    assert len(bench.log.segments) > 1
    assert b"".join(bench.disk.read(segment.path) for segment in bench.log.segments) == b"".join(made)
    for offset in range(6):
        for count in range(1, 7 - offset):
            found = b"".join(bench.log.read(offset, count * size, 6))
            assert found == b"".join(made[offset : offset + count]), (offset, count)


@pytest.mark.parametrize("piece", range(HEADER_SIZE, 3 * HEADER_SIZE, 7))
def test_a_walk_reads_on_wherever_its_piece_ends(bench: LogBench, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two batches, in a header and in a body: a log of many megabytes has all of it."""
    bench.log.use(LogSettings())
    made = []
    for place in range(40):
        value = (b"\0" if place % 3 else b"\xff") * (30 + place % 13 * 11)  # what a number is read from by mistake
        made.append(encode_batch([(START_MS, None, value, ())], base_offset=place))
        bench.append(made[-1])
    written = b"".join(made)
    (segment,) = bench.log.segments
    monkeypatch.setattr(walk, "HEADER_CHUNK", piece)
    monkeypatch.setattr(walk, "VERIFY_CHUNK", piece)
    there = [(position, header.base_offset) for position, header in iter_batches(written)]
    for way in (walk_headers, walk_verified):
        assert [(at, header.base_offset) for at, header in way(segment.file, 0, segment.size)] == there
        with pytest.raises(CorruptBatch):  # what stands behind the end is not looked at
            list(way(segment.file, 0, segment.size - 1))


class KeptFiles(SimFiles):
    """Files that know whom they opened."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk, SimLoop(), random.Random(1))
        self.opened: list[File] = []

    def open(self, path: str, *, create: bool = False) -> File:
        self.opened.append(super().open(path, create=create))
        return self.opened[-1]


def test_whoever_looks_at_a_metadata_snapshot_leaves_nothing_open() -> None:
    """A descriptor for each look would be the end of a controller that lives for long."""
    files = KeptFiles(SimDisk(random.Random(1)))
    files.makedirs("/metadata")
    snapshots = MetadataSnapshots(files, "/metadata")
    name = SnapshotId(12, 3)
    written = write_snapshot(files, snapshots, name, iter([b"one", b"two"]), START_MS)
    assert snapshots.describe(name) == written
    assert list(snapshots.records(name)) == [b"one", b"two"]
    assert len(snapshots.read(name, 0, 10)) == 10
    assert len(files.opened) >= 4
    for file in files.opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.pread(0, 1)


def test_a_clean_mark_is_not_believed_where_the_index_is_gone_and_the_end_is_torn(bench: LogBench) -> None:
    """Two things at once are one more reason to recover, as each of them alone."""
    written = bench.fill(4)
    bench.close()
    name = f"{bench.names('.log')[-1]:020d}"
    bench.files.remove(bench.path(name + ".index"))
    file = bench.files.open(bench.path(name + ".log"))
    file.truncate(file.size() - 10)
    bench.open(clean=True)
    assert bench.read_all() == written[:3]


def test_the_last_producer_snapshot_of_a_clean_end_outlives_a_power_loss(bench: LogBench) -> None:
    """Its name as well: everything is durable before somebody says that the end was clean."""
    bench.fill(3)
    bench.flush()
    bench.close()
    assert bench.names(".snapshot") == [3]
    bench.disk.power_loss()
    assert bench.names(".snapshot") == [3]


def test_an_index_goes_on_where_a_truncation_cut_it() -> None:
    """Its file as well: entries of what was cut would stand in it before those of what came in their place."""
    bench = opened(LogSettings(index_interval_bytes=200))
    bench.fill(30)
    bench.reopen(clean=True)
    bench.truncate(12)
    bench.fill(9, epoch=1, size=333)
    before = bench.log.segments[-1].index.entries
    assert len(before) > 9
    bench.reopen(clean=True)
    active = bench.log.segments[-1]
    active.load_indexes()
    assert active.index.entries == before


def listings_after_a_power_loss(directory: Directory) -> Iterator[set[str]]:
    """The names that may be there: each change since the last flush happened or did not, in any combination."""
    for fates in product((False, True), repeat=len(directory.pending)):
        names = set(directory.durable)
        for steps, happened in zip(directory.pending, fates, strict=True):
            for name, entry in steps if happened else []:
                names = names - {name} if entry is None else names | {name}
        yield names


def test_a_power_loss_while_segments_are_given_up_leaves_no_hole() -> None:
    """A segment that comes back lies right below those that stay, whenever the power goes (R-163)."""
    left, stopped = 0, True
    while stopped:
        disk = SimDisk(random.Random(1))
        files = CrashingFiles(disk, 1 << 60)
        files.makedirs(DIRECTORY)
        settings = LogSettings(segment_bytes=300)
        log = Log.open(files, DIRECTORY, ORDERS, settings=settings, clean=True, wall_ms=START_MS)
        for offset in range(8):
            log.append([read_header(batch(offset))], [batch(offset)])
        log.flush()
        bases = [segment.base_offset for segment in log.segments]
        assert len(bases) == 4
        log.advance_log_start(bases[3])
        files.left = left
        try:
            log.delete_before_log_start(START_MS)
            stopped = False
        except PowerLost:
            left += 1
        for names in listings_after_a_power_loss(disk.directory(DIRECTORY)):
            kept = sorted(int(name[:20]) for name in names if name.endswith(".log"))
            assert kept == bases[-len(kept) :]
    assert left >= 9


# --- Which epochs a log has when it is opened: those of the records that are there (R-61, R-66) ----------------------


def test_epochs_below_the_recovery_point_come_back_too(bench: LogBench) -> None:
    """A lost file is read again from all batches, not only from those that a recovery walks through (R-61)."""
    for epoch in (0, 2):
        bench.fill(10, epoch=epoch)
    bench.flush()
    bench.fill(10, epoch=5)
    bench.close(clean=False)
    bench.files.remove(bench.path(LEADER_EPOCH_CHECKPOINT))
    bench.open(clean=False)
    assert bench.log.recovery.batches < 30
    assert bench.epochs() == ((0, 0), (2, 10), (5, 20))


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_without_its_segments_has_no_epochs(bench: LogBench, clean: bool) -> None:
    """It begins anew where it began; the epochs of records that are gone are nobody's (R-66)."""
    bench.fill(10, epoch=3)
    bench.log_start = 7
    bench.close(clean=clean)
    for suffix in (".log", ".index", ".timeindex"):
        for base in bench.names(suffix):
            bench.files.remove(bench.path(f"{base:020d}{suffix}"))
    bench.open(clean=clean)
    assert (bench.log.state.log_start_offset, bench.log.end_offset) == (7, 7)
    assert bench.epochs() == ()


def test_a_log_that_begins_anew_forgets_its_epochs_on_the_disk(bench: LogBench) -> None:
    """Before its segments go, and not only when the core says so: a kill may come in between (R-67, R-231)."""
    bench.fill(3, epoch=4)
    bench.log.restart_at(20)
    content = read_file(bench.files, bench.path(LEADER_EPOCH_CHECKPOINT))
    assert content is not None
    assert decode_leader_epochs(content) == []
    bench.log_start = 20
    bench.reopen(clean=False)
    assert (bench.epochs(), bench.log.end_offset) == ((), 20)
