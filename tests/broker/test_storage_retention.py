"""The start of a log: what retention takes, what the log start takes, and when files go (R-3, R-160 to R-165)."""

from __future__ import annotations

import pytest
from odradek_broker.storage.settings import LogSettings

from tests.broker.log_bench import START_MS, LogBench, batch, offsets, opened

DAY_MS = 86_400_000


def filled(file_delete_delay_ms: int = 60_000) -> LogBench:
    """Thirty records in segments of eight, one day apart each."""
    bench = opened(
        LogSettings(segment_bytes=1000, segment_ms=1 << 60, retention_ms=-1, file_delete_delay_ms=file_delete_delay_ms)
    )
    for place in range(30):
        bench.fill(1, timestamp=START_MS + place * DAY_MS)
    return bench


def bases(bench: LogBench) -> list[int]:
    return [segment.base_offset for segment in bench.log.segments]


def retain(bench: LogBench, wall_ms: int, high_watermark: int) -> int | None:
    """What the rim does with retention: ask, tell the core, then delete."""
    start = bench.log.retention_start(wall_ms, high_watermark)
    if start is not None:
        bench.log.advance_log_start(start)
        bench.log.state.epochs.truncate_from_start(start)
        bench.log.delete_before_log_start(wall_ms)
    return start


def with_retention(bench: LogBench, retention_ms: int = -1, retention_bytes: int = -1) -> None:
    bench.log.settings = LogSettings(
        segment_bytes=1000, segment_ms=1 << 60, retention_ms=retention_ms, retention_bytes=retention_bytes
    )


@pytest.mark.parametrize("reopened", [False, True])
def test_segments_whose_newest_record_is_too_old_go(reopened: bool) -> None:
    """By the largest timestamp of each, oldest first; the first that is young enough ends it (R-163)."""
    bench = filled()
    before = bases(bench)
    if reopened:
        bench.reopen(clean=True)
    with_retention(bench, retention_ms=10 * DAY_MS)
    newest_of_second = START_MS + (before[2] - 1) * DAY_MS
    assert bench.log.retention_start(newest_of_second + 10 * DAY_MS, 30) == before[1]
    assert retain(bench, newest_of_second + 10 * DAY_MS + 1, 30) == before[2]
    assert bases(bench) == before[2:]
    assert offsets(bench.read_all()) == list(range(before[2], 30))


def test_without_a_time_and_a_size_everything_stays() -> None:
    """-1 is no limit, however old a record is (R-163)."""
    bench = filled()
    with_retention(bench)
    assert bench.log.retention_start(START_MS + 10_000 * DAY_MS, 30) is None


def test_a_young_segment_protects_all_behind_it() -> None:
    """Deletion never leaves a hole, whatever the timestamps say (R-163)."""
    bench = opened(LogSettings(segment_bytes=1000, segment_ms=1 << 60, retention_ms=1000))
    bench.fill(8, timestamp=START_MS + 5000)
    bench.fill(20, timestamp=START_MS)
    assert bench.log.retention_start(START_MS + 5500, 28) is None


def test_segments_beyond_the_size_go() -> None:
    """As long as what is left is still at least retention.bytes (R-163)."""
    bench = filled()
    sizes = [segment.size for segment in bench.log.segments]
    with_retention(bench, retention_bytes=sum(sizes[1:]) + 1)
    assert bench.log.retention_start(0, 30) is None
    with_retention(bench, retention_bytes=sum(sizes[1:]))
    assert retain(bench, 0, 30) == bases(bench)[0] > 0
    assert bench.log.size_bytes == sum(sizes[1:])


@pytest.mark.parametrize("high_watermark", range(31))
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark: int) -> None:
    """For every high watermark (LG-08)."""
    bench = filled()
    before = bases(bench)
    with_retention(bench, retention_bytes=0)
    start = retain(bench, 0, high_watermark)
    assert bench.log.log_start_offset <= high_watermark
    whole = [end for end in [*before[1:], 30] if end <= high_watermark]
    assert start == (whole[-1] if whole else None)
    assert bench.log.end_offset == 30
    bench.fill(1)


def test_when_all_of_it_goes_a_new_segment_begins_first() -> None:
    """The log is empty at its end, which does not move (R-163)."""
    bench = filled()
    with_retention(bench, retention_ms=1000)
    assert retain(bench, START_MS + 90 * DAY_MS, 30) == 30
    assert bases(bench) == [30]
    assert (bench.log.log_start_offset, bench.log.end_offset) == (30, 30)
    assert retain(bench, START_MS + 90 * DAY_MS, 30) is None
    bench.fill(2, epoch=1)
    bench.reopen(clean=False)
    assert offsets(bench.read_all()) == [30, 31]


def test_segments_below_the_log_start_go_and_a_partly_covered_one_stays() -> None:
    """After DeleteRecords, at the granularity of segments (LG-09, LG-10: whatever the cleanup policy)."""
    bench = filled()
    before = bases(bench)
    bench.log.advance_log_start(before[2] + 1)
    assert bench.log.delete_before_log_start(START_MS) == 2
    assert bases(bench) == before[2:]
    assert bench.log.log_start_offset == before[2] + 1
    assert bench.log.delete_before_log_start(START_MS) == 0


def test_the_epoch_cache_follows_the_log_start() -> None:
    """Its oldest entry starts where the log starts (LG-11)."""
    bench = opened(LogSettings(segment_bytes=1000, retention_ms=-1, retention_bytes=300))
    for epoch in range(6):
        bench.fill(5, epoch=epoch)
    start = retain(bench, 0, 30)
    assert start is not None
    assert bench.epochs()[0] == (start // 5, start)


def test_the_log_start_only_rises_and_takes_the_recovery_point_along() -> None:
    """What is below it needs no recovery (R-160)."""
    bench = filled()
    bench.log.advance_log_start(12)
    bench.log.advance_log_start(5)
    assert (bench.log.log_start_offset, bench.log.recovery_point) == (12, 12)
    with pytest.raises(AssertionError):
        bench.log.advance_log_start(31)


def test_files_are_renamed_first_and_removed_after_the_delay() -> None:
    """Who still reads a segment may end (R-163, file.delete.delay.ms)."""
    bench = filled(file_delete_delay_ms=60_000)
    written = bench.read_all()
    bench.cold()
    segments = bench.log.segments
    bench.log.advance_log_start(bases(bench)[1])
    bench.log.delete_before_log_start(START_MS)
    assert bench.names(".log.deleted") == bench.names(".index.deleted") == bench.names(".timeindex.deleted") == [0]
    assert segments[0].file.pread(0, len(written[0])) == written[0]
    bench.log.purge(START_MS + 59_999)
    assert bench.names(".log.deleted") == [0]
    bench.log.purge(START_MS + 60_000)
    assert bench.names(".deleted") == []
    with pytest.raises(OSError):
        segments[0].file.pread(0, 10)


def test_snapshots_of_deleted_segments_go() -> None:
    """They speak of records that are gone."""
    bench = filled()
    before = bases(bench)
    bench.log.advance_log_start(before[2])
    bench.log.delete_before_log_start(START_MS)
    assert list(bench.log.snapshot_offsets) == before[2:]


def test_without_timestamps_age_counts_from_the_first_sight() -> None:
    """A segment whose records have none is not deleted by the age of the epoch of 1970 (R-163)."""
    bench = opened(LogSettings(segment_bytes=1000, retention_ms=1000))
    for offset in range(20):
        bench.append(batch(offset, timestamp=-1))
    assert bench.log.retention_start(START_MS + 1000, 20) is None
    assert bench.log.retention_start(START_MS + 1001, 20) == 20
