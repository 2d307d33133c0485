"""What the loop does to a log while a thread reads or flushes it, and what a full disk leaves of a new segment."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from odradek_broker.storage.errors import DiskFull, LogDirectoryFailed
from odradek_broker.storage.index import _SparseIndex
from odradek_broker.storage.segment import Segment
from odradek_proto.records import read_header
from odradek_proto.transport.ports import File

from tests.broker.log_bench import SMALL, START_MS, LogBench, batch, interrupt, opened

LIMIT = 3


def cold(bench: LogBench) -> LogBench:
    """The log ends at the limit, and no batch of it is in memory."""
    bench.fill(LIMIT)
    bench.cold()
    return bench


# --- A read, and what happens meanwhile: it is not seen (R-229) ------------------------------------------------------


def test_a_read_at_the_end_does_not_see_what_is_appended_meanwhile(bench: LogBench) -> None:
    """The limit was the end of the file when the read began, and is so no more (KAFKA-9835, R-229)."""
    (segment,) = cold(bench).log.segments
    before = segment.size
    interrupt(segment, "pread", lambda: bench.fill(3, epoch=1))
    found = bench.log.read(0, 10_000, LIMIT)
    assert segment.size > before, "the appended batches stand in the file that was read"
    assert b"".join(found) == b"".join(batch(offset) for offset in range(LIMIT))


@pytest.mark.parametrize("kept", range(LIMIT))
def test_a_read_that_meets_a_truncation_does_not_fail(bench: LogBench, kept: int) -> None:
    """What was to be read is gone: that is nothing to read, not a damaged log; the next read is right (KAFKA-9838)."""
    (segment,) = cold(bench).log.segments
    interrupt(segment, "pread", lambda: bench.truncate(kept))
    assert bench.log.read(kept, 10_000, LIMIT) == []
    assert bench.log.end_offset == kept
    assert b"".join(bench.log.read(0, 10_000, LIMIT)) == b"".join(batch(offset) for offset in range(kept))


# --- A flush, and what happens meanwhile -----------------------------------------------------------------------------


def test_a_flush_that_begins_during_a_cut_says_nothing_of_what_is_cut(bench: LogBench) -> None:
    """R-238: it saw the end of before; the recovery point is never above the log's end."""
    bench.fill(30)
    bench.flush()
    lower = bench._lower
    bench.log.on_recovery_point_lowered = lambda log, offset: (lower(log, offset), bench.log.flush())[0]
    bench.truncate(12)
    assert bench.log.recovery_point <= bench.log.end_offset == 12
    for _ in range(20):
        bench.append(batch(bench.log.end_offset, epoch=1))
    assert bench.log.needs_flush(0), "several segments were filled since"


@pytest.mark.parametrize("how", ["truncation", "retention"])
def test_a_segment_that_is_removed_during_a_flush_does_not_fail_it(how: str) -> None:
    """The disk is sound, and nobody needs what is gone."""
    bench = opened(replace(SMALL, file_delete_delay_ms=0))
    log = bench.log
    bench.fill(30)

    def remove() -> None:
        if how == "truncation":
            bench.truncate(3)
        else:
            log.advance_log_start(24)
            log.delete_before_log_start(START_MS)
        log.purge(START_MS)

    interrupt(log.segments[0], "fsync", remove)
    log.flush()
    assert not log.failed
    bench.flush()
    assert log.recovery_point == log.end_offset


def test_what_fails_in_a_segment_that_is_there_fails_the_flush(
    bench: LogBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The near miss of the one before."""
    bench.fill(3)
    monkeypatch.setattr(Segment, "fsync", lambda segment: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(LogDirectoryFailed, match="broken"):
        bench.log.flush()


def test_indexes_of_a_segment_that_is_rolled_during_a_flush_are_flushed(
    bench: LogBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush took it for the active one; a recovery point above it says that its indexes are durable, too."""
    bench.fill(9)
    rolled = bench.log.segments[-1]
    interrupt(bench.log.segments[0], "fsync", lambda: bench.fill(9))
    flushed: list[str] = []
    real = _SparseIndex.fsync

    def fsync(index: _SparseIndex) -> None:
        flushed.append(index._file.path)
        real(index)

    monkeypatch.setattr(_SparseIndex, "fsync", fsync)
    bench.flush()
    bench.flush()
    assert rolled is not bench.log.segments[-1]
    assert rolled.path.replace(".log", ".index") in flushed
    assert rolled.path.replace(".log", ".timeindex") in flushed


# --- A disk that is full in the middle of a roll ---------------------------------------------------------------------


def refuse_new(bench: LogBench, suffix: str) -> Callable[[], None]:
    """No file of this kind can be made until the returned function is called."""
    real = bench.files.open

    def open_or_refuse(path: str, *, create: bool = False) -> File:
        if create and path.endswith(suffix) and not bench.files.exists(path):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return real(path, create=create)

    bench.files.open = open_or_refuse  # type: ignore[method-assign]
    return lambda: setattr(bench.files, "open", real)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_segment_that_could_not_be_made_leaves_nothing(bench: LogBench, suffix: str, clean: bool) -> None:
    """R-230: what still fits into the old one goes there, and a start must not take an empty file for the log's end."""
    written = bench.fill(6)
    has_room = refuse_new(bench, suffix)
    before = bench.files.list(bench.path("").rstrip("/"))
    with pytest.raises(DiskFull):
        bench.append(batch(6, size=600))
    assert bench.files.list(bench.path("").rstrip("/")) == before
    written += bench.fill(1, size=20)
    has_room()
    bench.flush()
    bench.reopen(clean=clean)
    assert bench.read_all() == written
    written += bench.fill(9, epoch=1)
    bench.cold()
    assert bench.read_all() == written


def test_an_empty_segment_stays_when_the_next_one_cannot_be_made() -> None:
    """A gap in the offsets asks for another; the full one before it is not touched."""
    bench = opened(gaps=True)
    written = bench.fill(6)
    bench.log.roll(START_MS)
    has_room = refuse_new(bench, ".index")
    with pytest.raises(DiskFull):
        bench.append(batch((1 << 31) + 20))
    has_room()
    assert [read_header(each).base_offset for each in bench.read_all()] == [0, 1, 2, 3, 4, 5]
    assert [(each.base_offset, each.size > 0) for each in bench.log.segments] == [(0, True), (6, False)]
    written += bench.fill(2)
    bench.reopen(clean=False)
    assert bench.read_all() == written
