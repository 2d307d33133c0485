"""Offsets by timestamp, and flushes."""

from __future__ import annotations

import errno
import sys

import pytest
from odradek_broker.storage.errors import CannotDecompress, LogCorrupted, LogDirectoryFailed
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import Codec, encode_batch, read_header

from tests.broker.log_bench import START_MS, LogBench, batch, interrupt


@pytest.mark.parametrize("state", ["running", "clean", "recovered"])
def test_the_first_record_at_or_after_a_timestamp(bench: LogBench, state: str) -> None:
    """Record by record, within batches and across segments."""
    for place in range(12):
        bench.fill(1, records=3, timestamp=START_MS + place * 100)
    if state != "running":
        bench.reopen(clean=state == "clean")
    stamps = [(START_MS + place * 100 + within, place * 3 + within) for place in range(12) for within in range(3)]
    for wanted in range(START_MS - 1, START_MS + 1200, 7):
        expected = next((each for each in stamps if each[0] >= wanted), None)
        assert bench.log.offset_for_timestamp(wanted, 36) == expected


def test_a_timestamp_above_the_limit_is_not_found(bench: LogBench) -> None:
    """What is not below the high watermark is not there yet."""
    bench.fill(1, records=3)
    assert bench.log.offset_for_timestamp(START_MS + 2, 3) == (START_MS + 2, 2)
    assert bench.log.offset_for_timestamp(START_MS + 2, 2) is None
    assert bench.log.offset_for_timestamp(START_MS + 3, 3) is None


def test_timestamps_need_not_rise(bench: LogBench) -> None:
    """The first record by offset, not the smallest timestamp."""
    for timestamp in (50, 10, 90, 20, 70):
        bench.fill(3, timestamp=timestamp)
    assert bench.log.offset_for_timestamp(15, 15) == (50, 0)
    assert bench.log.offset_for_timestamp(60, 15) == (90, 6)
    assert bench.log.max_timestamp(15) == (90, 6)
    assert bench.log.max_timestamp(6) == (50, 0)


def test_records_below_the_log_start_are_not_found(bench: LogBench) -> None:
    """Their segment may still be there."""
    bench.fill(5, timestamp=100)
    bench.log.advance_log_start(3)
    assert bench.log.offset_for_timestamp(0, 5) == (100, 3)
    assert bench.log.max_timestamp(5) == (100, 3)


def test_compressed_batches_are_looked_into(bench: LogBench) -> None:
    """Off the hot path: a lookup may decompress."""
    rows = [(START_MS + place, None, b"v" * 100, ()) for place in range(9)]
    made = encode_batch(rows, codec=Codec.GZIP, leader_epoch=0)
    bench.append(made)
    assert bench.log.offset_for_timestamp(START_MS + 5, 9) == (START_MS + 5, 5)


def test_a_log_without_timestamps_has_no_answer(bench: LogBench) -> None:
    """Records of -1 are older than everything."""
    bench.append(batch(0, timestamp=-1))
    assert bench.log.offset_for_timestamp(0, 1) is None
    assert bench.log.max_timestamp(1) is None


def test_a_damaged_batch_is_named(bench: LogBench) -> None:
    """A lookup reads records, so it checks them first."""
    bench.fill(1)
    bench.disk.flip(bench.log.segments[0].path, 70)
    with pytest.raises(LogCorrupted, match="CRC"):
        bench.log.offset_for_timestamp(0, 1)


def test_a_flush_moves_the_recovery_point(bench: LogBench) -> None:
    """To the log end as it was when the flush began; nothing is flushed twice (R-238)."""
    bench.fill(20)
    assert bench.log.recovery_point == 0
    assert bench.log.flush() == 20
    assert bench.log.recovery_point == 20
    before = bench.disk.fsyncs
    bench.log.flush()
    assert bench.disk.fsyncs == before


def test_appends_during_a_flush_wait_for_the_next_one(bench: LogBench) -> None:
    """A flush in a thread promises only what it found."""
    bench.fill(2)
    segment = bench.log.segments[0]
    interrupt(segment, "fsync", lambda: bench.fill(1))
    assert bench.log.flush() == 2
    assert segment.dirty
    assert bench.log.flush() == 3


def test_a_failed_flush_is_never_tried_again(bench: LogBench) -> None:
    """The kernel may have dropped what it could not write, and would now say that all is well (R-238)."""
    bench.fill(2)
    bench.disk.inject("fsync", ".log", code=errno.EIO)
    with pytest.raises(LogDirectoryFailed):
        bench.log.flush()
    before = bench.disk.fsyncs
    with pytest.raises(LogDirectoryFailed):
        bench.log.flush()
    assert bench.disk.fsyncs == before
    assert bench.log.recovery_point == 0
    assert bench.log.failed is not None


def test_a_log_that_is_closed_under_a_flush_is_no_failure(bench: LogBench) -> None:
    """A topic may be deleted while its log is flushed or read in a thread: the directory stays online."""
    bench.fill(2)
    interrupt(bench.log.segments[0], "fsync", lambda: bench.log.close(clean=False))
    assert bench.log.flush() == 0
    assert bench.log.read(0, 1000, 2) == []
    assert bench.log.failed is None
    assert bench.log.flush() == 0


def test_a_read_that_fails_takes_the_directory_offline(bench: LogBench) -> None:
    """An error of the disk is not a gap in the log."""
    bench.fill(2)
    bench.cold()
    bench.disk.inject("read", ".log")
    with pytest.raises(LogDirectoryFailed):
        bench.log.read(0, 1000, 2)


def test_when_a_flush_is_due(bench: LogBench) -> None:
    """By messages, by time since something was first found unflushed, and after every roll (R-226, R-238)."""
    log = bench.log
    log.settings = LogSettings(segment_bytes=1000, flush_messages=3, flush_ms=500)
    assert not log.needs_flush(0)
    bench.fill(2)
    assert not log.needs_flush(1000)
    assert not log.needs_flush(1499)
    assert log.needs_flush(1500)
    log.flush()
    assert not log.needs_flush(1501)
    bench.fill(3)
    assert log.needs_flush(1502)
    log.flush()
    log.settings = LogSettings(segment_bytes=1000)
    bench.fill(1)
    assert not log.needs_flush(10**9)
    log.roll(START_MS)
    assert log.needs_flush(10**9)
    log.flush()
    assert (log.recovery_point, log.segments[-1].base_offset) == (6, 6)
    assert not log.needs_flush(10**9)


def test_a_header_is_enough_to_append(bench: LogBench) -> None:
    """Storage never looks into the records."""
    made = bytearray(batch(0))
    made[70:80] = b"\xff" * 10
    bench.log.append([read_header(made)], [made])
    assert bench.log.end_offset == 1


def test_a_codec_that_is_not_installed_is_said_and_is_no_damage(
    bench: LogBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are taken and served without a look into them; a lookup by time has to look."""
    bench.append(encode_batch([(START_MS, None, b"value", ())], codec=Codec.ZSTD, leader_epoch=0))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CannotDecompress, match=r"pip install 'odradek\[compression\]'"):
        bench.log.offset_for_timestamp(START_MS, 1)
    with pytest.raises(CannotDecompress, match="zstd"):
        bench.log.max_timestamp(1)
