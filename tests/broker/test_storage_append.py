"""Appending to a log and reading from it (R-221, R-225 to R-229)."""

from __future__ import annotations

import errno

import pytest
from odradek_broker.storage.cache import RUN_BYTES, RecentBatches
from odradek_broker.storage.errors import AppendOutOfOrder, DiskFull, LogCorrupted, LogDirectoryFailed
from odradek_broker.storage.settings import LogSettings
from odradek_proto.formats import decode_offset_index, decode_producer_snapshot, decode_time_index
from odradek_proto.records import HEADER_SIZE, iter_batches, read_header

from tests.broker.log_bench import DIRECTORY, START_MS, LogBench, batch, interrupt, offsets, opened, read_all


def test_what_was_appended_is_read_from_memory_and_from_disk(bench: LogBench) -> None:
    """Both roads give the very bytes that came in."""
    written = bench.fill(12) + bench.fill(5, records=3)
    assert len(bench.log.segments) > 2
    assert bench.read_all() == written
    bench.cold()
    assert not bench.log.is_hot(0)
    assert bench.read_all() == written
    assert b"".join(bench.disk.read(segment.path) for segment in bench.log.segments) == b"".join(written)


def test_stamped_head_and_rest_are_one_write(bench: LogBench) -> None:
    """A batch may come in pieces: the file has them one behind the other."""
    made = batch(0, 2)
    bench.log.append([read_header(made)], [made[:16], memoryview(made)[16:]])
    assert bench.disk.read(bench.log.segments[0].path) == made
    assert b"".join(bench.log.read(0, 1000, 2)) == made


def test_an_append_that_is_not_at_the_log_end_is_refused(bench: LogBench) -> None:
    """Below and above, inside of one append too (LG-06, R-221)."""
    bench.fill(3)
    for batches in ([batch(2)], [batch(3, 2), batch(4)], [batch(4)], [batch(3, 2), batch(6)]):
        with pytest.raises(AppendOutOfOrder):
            bench.append(*batches)
    assert bench.log.end_offset == 3


def test_a_segment_is_full_before_it_is_too_large() -> None:
    """No segment is larger than segment.bytes, unless a single batch is (R-225)."""
    bench = opened(LogSettings(segment_bytes=500, index_interval_bytes=100))
    bench.fill(20)
    bench.fill(1, size=900)
    bench.fill(3)
    sizes = {segment.base_offset: segment.size for segment in bench.log.segments}
    assert all(size <= 500 for base, size in sizes.items() if base != 20), sizes
    assert sizes[20] > 900


def test_a_segment_may_be_just_full() -> None:
    """segment.bytes is the most that it may have, not the first size that is too much (R-225)."""
    bench = opened(LogSettings(segment_bytes=2 * len(batch(0))))
    bench.fill(4)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 2]


def test_a_run_of_batches_is_spread_over_segments() -> None:
    """A follower's one append fills segment after segment at the same places as many appends would."""
    one, many = LogBench(), LogBench()
    one.open()
    many.open()
    batches = [batch(offset, producer=(5, 0, offset)) for offset in range(30)]
    one.append(*batches)
    for each in batches:
        many.append(each)
    assert [segment.base_offset for segment in one.log.segments] == [s.base_offset for s in many.log.segments]
    assert one.read_all() == many.read_all() == batches
    for base in one.log.snapshot_offsets:
        path = one.path(f"{base:020d}.snapshot")
        assert decode_producer_snapshot(one.disk.read(path)) == decode_producer_snapshot(many.disk.read(path))
    assert one.log.snapshot_offsets == many.log.snapshot_offsets


def test_a_segment_ends_when_its_time_is_over() -> None:
    """Record timestamps decide, not clocks (R-225)."""
    bench = opened(LogSettings(segment_ms=1000))
    bench.fill(1, timestamp=START_MS)
    bench.fill(1, timestamp=START_MS + 1000)
    bench.fill(1, timestamp=START_MS + 1001)
    bench.fill(1, timestamp=START_MS + 2001)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 2]


@pytest.mark.parametrize(("jitter_ms", "waited_ms"), [(0, 1000), (300, 700), (1300, 700)])
def test_a_segment_ends_so_much_earlier_as_its_jitter_says(jitter_ms: int, waited_ms: int) -> None:
    """`segment.jitter.ms` keeps logs from rolling all at once; it counts modulo the time of a segment (R-225)."""
    bench = opened(LogSettings(segment_ms=1000))
    bench.log.segment_jitter_ms = jitter_ms
    for waited in (0, waited_ms, waited_ms + 1):
        bench.fill(1, timestamp=START_MS + waited)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 2]


def test_without_timestamps_the_clock_ends_a_segment() -> None:
    """A segment whose records have none counts from its creation (R-225)."""
    bench = opened(LogSettings(segment_ms=1000))
    for offset, wall_ms in ((0, START_MS), (1, START_MS + 1000), (2, START_MS + 1001)):
        made = batch(offset, timestamp=-1)
        bench.log.append([read_header(made)], [made], wall_ms)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 2]


def test_a_full_index_ends_a_segment() -> None:
    """An index has segment.index.bytes at most (R-225)."""
    bench = opened(LogSettings(segment_index_bytes=60, index_interval_bytes=0))
    bench.fill(40)
    assert len(bench.log.segments) > 2
    assert all(len(segment.time_index) * 12 <= 60 for segment in bench.log.segments)


def test_segments_touch_when_offsets_do_not() -> None:
    """A new segment begins where the log ended, also when the next batch begins higher."""
    bench = opened(gaps=True)
    bench.fill(7)
    bench.append(batch(50))
    while len(bench.log.segments) == 1:
        bench.append(batch(bench.log.end_offset + 10))
    first, second = bench.log.segments
    assert second.base_offset == first.next_offset < read_header(bench.read_all()[-1]).base_offset


def test_the_index_has_an_entry_for_every_interval(bench: LogBench) -> None:
    """Last offset and start of a batch, whenever index.interval.bytes were written before it (R-227)."""
    bench.fill(9, size=10)
    bench.close()
    entries = decode_offset_index(bench.disk.read(bench.path(f"{0:020d}.index")))
    size = len(batch(0, size=10))
    step = 200 // size + 1
    assert [tuple(entry) for entry in entries] == [(place, place * size) for place in range(step, 9, step)]
    times = decode_time_index(bench.disk.read(bench.path(f"{0:020d}.timeindex")))
    assert [entry.relative_offset for entry in times] == [0]  # all have the same timestamp


def test_a_sealed_segment_ends_with_its_largest_timestamp(bench: LogBench) -> None:
    """The last entry of the time index tells the age of the segment (R-227)."""
    for place in range(12):
        bench.fill(1, timestamp=START_MS + place)
    first = bench.log.segments[0]
    end = bench.log.segments[1].base_offset
    entries = decode_time_index(bench.disk.read(first.path.replace(".log", ".timeindex")))
    assert tuple(entries[-1]) == (START_MS + end - 1, end - 1)


@pytest.mark.parametrize("cold", [False, True])
def test_a_read_never_passes_its_limit(bench: LogBench, cold: bool) -> None:
    """For every limit inside and across segments, in batches of three (LG-13, R-229)."""
    bench.fill(10, records=3)
    if cold:
        bench.cold()
    for limit in range(31):
        data = b"".join(bench.log.read(0, 1 << 20, limit))
        found = [header.next_offset for _, header in iter_batches(data)]
        assert found == list(range(3, limit + 1, 3))


@pytest.mark.parametrize("cold", [False, True])
def test_a_read_starts_with_the_batch_that_contains_the_offset(bench: LogBench, cold: bool) -> None:
    """Whole batches only, from the middle of one too (R-228)."""
    bench.fill(10, records=3)
    if cold:
        bench.cold()
    for offset in range(30):
        first = read_header(b"".join(bench.log.read(offset, 1, 30)))
        assert first.base_offset == offset - offset % 3


@pytest.mark.parametrize("cold", [False, True])
def test_a_read_in_a_gap_returns_the_next_batch(cold: bool) -> None:
    """Offsets without a record are stepped over, at the end of a segment too (LG-12)."""
    bench = opened(gaps=True)
    for offset in (0, 10, 20, 30, 40, 50, 60, 70, 80, 90):
        bench.append(batch(offset))
    assert len(bench.log.segments) > 1
    if cold:
        bench.cold()
    for offset in range(91):
        assert read_header(b"".join(bench.log.read(offset, 1, 91))).base_offset == -(-offset // 10) * 10


@pytest.mark.parametrize("cold", [False, True])
def test_a_read_has_at_least_one_batch_and_otherwise_its_size(bench: LogBench, cold: bool) -> None:
    """The first batch comes whatever its size, the others only where there is room (R-39)."""
    written = bench.fill(6, records=2)
    size = len(written[0])
    if cold:
        bench.cold()
    for max_bytes in range(0, 5 * size, 37):
        got = sum(map(len, bench.log.read(0, max_bytes, 12)))
        assert got == max(1, max_bytes // size) * size
        got = sum(map(len, bench.log.read(0, max_bytes, 12, at_least_one=False)))
        assert got == max_bytes // size * size


def test_reads_above_the_log_end_are_empty(bench: LogBench) -> None:
    """Nothing is there yet, and that is no error."""
    bench.fill(2)
    assert bench.log.read(2, 1000, 99) == []
    assert bench.log.read(7, 1000, 99) == []
    assert bench.log.is_hot(2)


def test_a_damaged_batch_is_never_served(bench: LogBench) -> None:
    """What stands before it is; then the error names file, position and offset (G7)."""
    written = bench.fill(3)
    position = len(written[0]) + len(written[1])
    bench.disk.flip(bench.log.segments[0].path, position + HEADER_SIZE + 5)
    bench.cold()
    assert b"".join(bench.log.read(0, 10_000, 3)) == written[0] + written[1]
    with pytest.raises(LogCorrupted) as caught:
        bench.log.read(2, 10_000, 3)
    assert (caught.value.position, caught.value.offset) == (position, 2)
    assert caught.value.path == bench.log.segments[0].path


def test_a_read_that_met_a_truncation_returns_nothing(bench: LogBench) -> None:
    """A cold read in a thread must not mix a log before a cut with the one after it."""
    bench.fill(8)
    bench.cold()

    def cut() -> None:
        bench.truncate(2)
        bench.fill(6, epoch=1)

    interrupt(bench.log.segments[0], "pread", cut)
    assert bench.log.read(0, 10_000, 8) == []
    assert len(bench.log.read(0, 10_000, 8)) > 0


def test_a_full_disk_leaves_the_log_as_it_was(bench: LogBench) -> None:
    """The producer gets an error; once there is room again the log goes on, without a torn batch in between."""
    written = bench.fill(3)
    bench.disk.quota = bench.disk.used + 40
    for _ in range(5):
        with pytest.raises(DiskFull):
            bench.log.append([read_header(batch(3, 4))], [batch(3, 4)])
    assert bench.log.end_offset == 3
    bench.disk.quota = None
    written += bench.fill(1)
    bench.cold()
    assert bench.read_all() == written
    bench.reopen(clean=False)
    assert bench.read_all() == written
    assert bench.log.recovery.cut_offset is None


def test_a_full_disk_leaves_no_part_of_an_index_entry(bench: LogBench) -> None:
    """A roll completes the indexes first: with room for some bytes of them the write ends in the middle of an entry."""
    while bench.log.segments[0].size + len(batch(0)) <= bench.log.settings.segment_bytes:
        bench.fill(1)
    full = batch(bench.log.end_offset)
    for room in range(1, 40):
        bench.disk.quota = bench.disk.used + room
        with pytest.raises(DiskFull):
            bench.log.append([read_header(full)], [full])
        sizes = [bench.files.open(bench.path(f"{0:020d}{suffix}")).size() for suffix in (".index", ".timeindex")]
        assert (sizes[0] % 8, sizes[1] % 12) == (0, 0), room
    bench.disk.quota = None
    bench.append(full)
    assert len(bench.names(".log")) == 2


def test_a_full_disk_in_the_middle_of_a_run_takes_all_of_it_back(bench: LogBench) -> None:
    """A run that would spread over three segments is written as a whole or not at all."""
    written = bench.fill(3)
    run = [batch(offset) for offset in range(3, 30)]
    bench.disk.quota = bench.disk.used + 2500
    with pytest.raises(DiskFull):
        bench.log.append([read_header(each) for each in run], [b"".join(run)])
    bench.disk.quota = None
    assert (bench.log.end_offset, len(bench.log.segments)) == (3, 1)
    assert bench.read_all() == written
    bench.append(*run)
    bench.cold()
    assert bench.read_all() == written + run


def test_a_run_that_a_full_disk_ended_in_new_segments_only_is_taken_back(bench: LogBench) -> None:
    """The segment in which the log ended has nothing of it, and what began behind that one has to go."""
    bench.log.use(LogSettings(segment_bytes=1000, segment_ms=1000))
    written = bench.fill(2)
    later = START_MS + 2000
    run = [batch(offset, timestamp=later) for offset in range(2, 30)]
    bench.disk.quota = bench.disk.used + 1500
    with pytest.raises(DiskFull):
        bench.log.append([read_header(each) for each in run], [b"".join(run)])
    bench.disk.quota = None
    assert (bench.log.end_offset, bench.names(".log")) == (2, [0])
    bench.reopen(clean=False)
    assert bench.read_all() == written
    assert bench.log.recovery.cut_offset is None


def test_what_a_full_disk_took_is_gone_for_good(bench: LogBench) -> None:
    """A power loss must not bring it back below what comes in its place. Where nothing came, nothing is flushed."""
    bench.fill(3)
    before = bench.disk.fsyncs
    bench.disk.quota = bench.disk.used + 200
    with pytest.raises(DiskFull):
        bench.log.append([read_header(batch(3)), read_header(batch(4))], [batch(3), batch(4)])
    assert bench.disk.fsyncs == before + 1
    bench.disk.quota = bench.disk.used
    with pytest.raises(DiskFull):
        bench.log.append([read_header(batch(3))], [batch(3)])
    assert bench.disk.fsyncs == before + 1


def test_a_failed_write_takes_the_directory_offline(bench: LogBench) -> None:
    """Any error but a full disk means that the disk cannot be trusted."""
    bench.fill(2)
    bench.disk.inject("write", ".log", code=errno.EIO)
    with pytest.raises(LogDirectoryFailed):
        bench.log.append([read_header(batch(2))], [batch(2)])
    with pytest.raises(LogDirectoryFailed):
        bench.log.append([read_header(batch(2))], [batch(2)])
    assert len(bench.read_all()) == 2  # readers may go on


def test_bytes_that_are_not_the_headers_batches_are_refused(bench: LogBench) -> None:
    """What is written is checked by a second road: the sizes have to agree."""
    bench.fill(1)
    with pytest.raises(ValueError, match="bytes"):
        bench.log.append([read_header(batch(1))], [batch(1) + b"more"])
    bench.fill(1)
    bench.cold()
    assert offsets(bench.read_all()) == [0, 1]


def test_two_logs_share_the_memory_and_the_oldest_leaves() -> None:
    """The budget counts the buffers that are kept alive, each once; what left memory is read from disk."""
    size = len(batch(0)) + RUN_BYTES
    cache = RecentBatches(budget_bytes=4 * size)
    one, two = LogBench(), LogBench()
    one.open(cache=cache)
    two.open(cache=cache)
    written = one.fill(3)
    assert cache.used_bytes == 3 * size
    two.fill(3)
    assert cache.used_bytes == 4 * size
    assert not one.log.is_hot(1)
    assert one.log.is_hot(2)
    assert two.log.is_hot(0)
    assert one.read_all() == written
    whole = b"".join(batch(offset) for offset in range(3, 6))
    headers = [header for _, header in iter_batches(whole)]
    one.log.append(headers[:1], [memoryview(whole)[: headers[0].size]])
    one.log.append(headers[1:], [memoryview(whole)[headers[0].size :]])
    assert cache.used_bytes == len(whole) + 2 * RUN_BYTES + size  # one buffer that two runs hold
    two.close()
    one.close()
    assert cache.used_bytes == 0


def test_memory_that_is_cleared_holds_nothing_of_any_log() -> None:
    """All is read from disk then, and what comes afterwards enters as ever."""
    cache = RecentBatches()
    one, two = LogBench(), LogBench()
    one.open(cache=cache)
    two.open(cache=cache)
    written = one.fill(3)
    two.fill(3)
    cache.clear()
    assert cache.used_bytes == 0
    assert not one.log.is_hot(2)
    assert not two.log.is_hot(2)
    assert one.read_all() == written
    one.fill(1)
    assert one.log.is_hot(3)
    assert not one.log.is_hot(2)
    assert cache.used_bytes == len(batch(3)) + RUN_BYTES


def test_a_run_larger_than_the_memory_is_not_kept() -> None:
    """The cache is then empty for this log, since it has to hold the end of it."""
    bench = LogBench()
    bench.open(cache=RecentBatches(budget_bytes=100))
    written = bench.fill(3)
    assert not bench.log.is_hot(2)
    assert read_all(bench.log) == written


def test_the_files_are_those_of_kafka(bench: LogBench) -> None:
    """Every segment has three files by the name of its base offset, every roll a snapshot (R-1, R-226)."""
    bench.fill(12)
    bases = [segment.base_offset for segment in bench.log.segments]
    for suffix in (".log", ".index", ".timeindex"):
        assert bench.names(suffix) == bases
    assert bench.names(".snapshot") == bases[1:]
    assert "leader-epoch-checkpoint" in bench.files.list(DIRECTORY)
