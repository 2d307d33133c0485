"""Cutting a log, and all that hangs on it (R-230, R-231, R-247)."""

from __future__ import annotations

import errno

import pytest
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.storage.errors import LogDirectoryFailed
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.inodes import Inode
from odradek_proto.errors import ErrorCode
from odradek_proto.records import read_header

from tests.broker.log_bench import DIRECTORY, LogBench, batch, interrupt, offsets, opened


@pytest.mark.parametrize("target", range(30))
def test_records_at_the_offset_and_above_go(bench: LogBench, target: int) -> None:
    """At every offset, across segments; what is appended then follows without a trace of what was there."""
    written = bench.fill(30)
    assert bench.truncate(target) == target
    assert bench.read_all() == written[:target]
    bench.cold()
    assert bench.read_all() == written[:target]
    written = written[:target] + bench.fill(10, epoch=1)
    bench.cold()
    assert bench.read_all() == written
    bench.reopen(clean=False)
    assert bench.read_all() == written


def test_a_batch_that_spans_the_offset_goes_as_a_whole(bench: LogBench) -> None:
    """The log then ends at its base offset, so that the next fetch begins where a batch begins (R-230)."""
    written = bench.fill(4, records=5)
    assert bench.truncate(12) == 10
    assert bench.log.end_offset == 10
    assert bench.read_all() == written[:2]
    bench.append(batch(10, 5, epoch=1))


def test_a_log_that_is_cut_in_a_gap_ends_with_its_last_batch() -> None:
    """Records 40 and 44, truncated to 43: the log ends at 41, for nothing that is there ends higher (LG-25, R-230)."""
    bench = opened(gaps=True)
    bench.append(batch(40))
    bench.append(batch(44))
    assert bench.truncate(43) == 41
    assert offsets(bench.read_all()) == [40]


def test_a_gap_survives_a_roll_and_a_recovery() -> None:
    """The next segment begins where the last batch ended, not where the next one begins."""
    bench = opened(gaps=True)
    for offset in (0, 10, 20):
        bench.append(batch(offset))
    assert bench.truncate(15) == 11
    bench.log.roll(0)
    bench.append(batch(15, epoch=1))
    bench.reopen(clean=False)
    assert offsets(bench.read_all()) == [0, 10, 15]


@pytest.mark.parametrize("target", [29, 30])
def test_truncating_at_or_above_the_end_changes_no_data(bench: LogBench, target: int) -> None:
    """Only an epoch entry without records goes, which the core drops (LG-02, KAFKA-10706, R-65)."""
    written = bench.fill(29)
    bench.log.state.epochs.assign(20, 29)
    assert bench.truncate(target) == 29
    assert bench.epochs() == ((0, 0),)
    bench.reopen(clean=True)
    assert bench.epochs() == ((0, 0),)
    assert bench.read_all() == written


def test_truncating_below_the_log_start_leaves_an_empty_log_there(bench: LogBench) -> None:
    """There is nothing to keep (R-230): one empty segment begins at the offset."""
    bench.fill(30)
    bench.log.advance_log_start(20)
    bench.log.delete_before_log_start(0)
    first = bench.log.segments[0].base_offset
    assert first > 5
    assert bench.truncate(5) == 5
    assert [segment.base_offset for segment in bench.log.segments] == [5]
    assert (bench.log.log_start_offset, bench.log.end_offset, bench.log.recovery_point) == (5, 5, 5)


def test_a_log_that_is_cut_below_its_start_starts_there(bench: LogBench) -> None:
    """R-230: in the segment in which it starts, what stays lies below the old start; it never starts above its end."""
    bench.fill(30)
    bench.log.advance_log_start(4)
    assert bench.truncate(2) == 2
    assert (bench.log.log_start_offset, bench.log.end_offset, bench.log.recovery_point) == (2, 2, 2)
    bench.fill(1, epoch=1)
    assert offsets(bench.read_all()) == [2]


@pytest.mark.parametrize("target", [0, 17, 30, 90])
def test_a_restart_drops_everything(bench: LogBench, target: int) -> None:
    """Start, end and recovery point are at the offset, producers and snapshots are gone (R-231, KAFKA-9491)."""
    for sequence in range(30):
        bench.append(batch(sequence, producer=(7, 0, sequence)))
    bench.log.restart_at(target)
    assert bench.read_all() == []
    assert bench.names(".log") == [target]
    assert bench.names(".snapshot") == []
    assert (len(bench.log.state.producers), bench.log.state.producers.end_offset) == (0, target)
    assert (bench.log.log_start_offset, bench.log.end_offset, bench.log.recovery_point) == (target, target, target)
    bench.append(batch(target, epoch=3))
    bench.log_start = target
    bench.reopen(clean=False)
    assert offsets(bench.read_all()) == [target]


@pytest.mark.parametrize("with_snapshots", [True, False])
@pytest.mark.parametrize("target", [1, 7, 11, 12, 13, 22])
def test_producer_state_is_that_of_the_log_that_is_left(bench: LogBench, target: int, with_snapshots: bool) -> None:
    """As a replay to that offset would give it (LG-04), without any snapshot too (LG-05)."""
    batches = [batch(offset, producer=(offset % 3, 0, offset // 3)) for offset in range(24)]
    for each in batches:
        bench.append(each)
    if not with_snapshots:
        bench.log._snapshots.drop(lambda _: True)
    bench.truncate(target)
    replayed = ProducerStates()
    for each in batches[:target]:
        replayed.update(read_header(each))
    producers = bench.log.state.producers
    assert producers.end_offset == target
    for producer_id in range(3):
        got, wanted = producers.get(producer_id), replayed.get(producer_id)
        assert (got is None) == (wanted is None)
        if got is not None and wanted is not None:
            assert got.batches == wanted.batches


def test_a_cut_sequence_is_neither_a_duplicate_nor_out_of_order(bench: LogBench) -> None:
    """Otherwise a retry would be acknowledged and stored nowhere (R-247)."""
    for sequence in range(10):
        bench.append(batch(sequence, producer=(7, 0, sequence)))
    bench.truncate(6)
    check = bench.log.state.producers.check(read_header(batch(0, producer=(7, 0, 6))), 0)
    assert (check.error, check.duplicate) == (ErrorCode.NONE, None)


def test_snapshots_above_the_cut_go_and_one_stands_at_it(bench: LogBench) -> None:
    """They speak of records that are gone (R-247)."""
    bench.fill(40)
    bases = [segment.base_offset for segment in bench.log.segments]
    bench.truncate(bases[2] + 1)
    assert list(bench.log.snapshot_offsets) == [bases[1], bases[2], bases[2] + 1]
    assert bench.names(".snapshot") == list(bench.log.snapshot_offsets)


def test_indexes_are_cut_with_the_log(bench: LogBench) -> None:
    """No entry points behind the end, and the largest timestamp is that of what is left."""
    for place in range(9):
        bench.fill(1, timestamp=1000 + place)
    bench.truncate(5)
    segment = bench.log.segments[0]
    assert all(relative < 5 for relative, _ in segment.index.entries)
    assert segment.largest_timestamp == 1004
    found = bench.log.max_timestamp(99)
    assert found == (1004, 4)


def test_the_recovery_point_is_lowered_before_the_cut(bench: LogBench) -> None:
    """A crash in the middle must not find a checkpoint above what is there (R-230)."""
    bench.fill(20)
    bench.flush()
    assert bench.checkpoint == 20
    seen: list[tuple[int, int]] = []
    lower = bench.log.on_recovery_point_lowered
    assert lower is not None

    def watch(log: Log, offset: int) -> None:
        seen.append((offset, log.end_offset))
        lower(log, offset)

    bench.log.on_recovery_point_lowered = watch
    bench.truncate(13)
    assert seen == [(13, 20)]
    assert (bench.checkpoint, bench.log.recovery_point) == (13, 13)
    bench.fill(5, epoch=1)
    assert bench.log.recovery_point == 13
    bench.truncate(15)
    assert len(seen) == 1


def test_a_flush_that_met_a_truncation_does_not_count(bench: LogBench) -> None:
    """It spoke of records that are gone; the ones at the same offsets now may not be on the disk."""
    bench.fill(8)

    def cut() -> None:
        segment.fsync()
        bench.truncate(3)
        bench.fill(6, epoch=1)

    segment = bench.log.segments[0]
    interrupt(segment, "fsync", cut)
    assert bench.log.flush() == 0
    assert bench.log.recovery_point == 0
    assert bench.log.flush() == 9


def test_truncate_right_after_reopening(bench: LogBench) -> None:
    """There is no memory yet, only files (LG-20)."""
    written = bench.fill(30)
    for target, clean in ((25, True), (14, False), (3, True)):
        bench.reopen(clean=clean)
        bench.truncate(target)
        assert bench.read_all() == written[:target]


def test_a_truncation_that_must_last_is_flushed() -> None:
    """With odradek.fsync=before-ack the cut survives a power loss at once."""
    bench = opened(LogSettings(segment_bytes=1000, flush_before_ack=True))
    written = bench.fill(30)
    bench.flush()
    bench.truncate(7)
    bench.files.detach()
    for _, inode in bench.disk.walk():
        inode.data = inode.durable()
    bench.new_files()
    bench.open(clean=False)
    assert bench.read_all() == written[:7]


def durable_batches(bench: LogBench) -> bytes:
    """What the segments hold that survives any power loss."""
    entries = bench.disk.directory(DIRECTORY).durable
    segments = [entry for name, entry in sorted(entries.items()) if name.endswith(".log")]
    return b"".join(bytes(entry.durable()) for entry in segments if isinstance(entry, Inode))


@pytest.mark.parametrize("target", [3, 7, 8, 20, 29])
def test_what_was_cut_is_gone_for_good_before_the_next_append(bench: LogBench, target: int) -> None:
    """Otherwise it could come back below newer batches, with offsets and epochs that fit."""
    written = bench.fill(30)
    bench.flush()
    assert durable_batches(bench) == b"".join(written)
    bench.log.truncate(target)
    assert durable_batches(bench) == b"".join(written[:target])


def test_a_cut_that_drops_nothing_flushes_nothing() -> None:
    """To the end, behind it, and above the end that another cut has left."""
    bench = opened(gaps=True)
    bench.fill(3)
    bench.append(batch(20))
    bench.flush()
    before = bench.disk.fsyncs
    assert bench.log.truncate(21) == 21
    assert bench.log.truncate(30) == 21
    assert bench.disk.fsyncs == before
    assert bench.log.truncate(15) == 3
    assert bench.disk.fsyncs == before + 1
    assert bench.log.truncate(10) == 3
    assert bench.log.truncate(3) == 3
    assert bench.disk.fsyncs == before + 1


def test_a_failed_cut_takes_the_directory_offline(bench: LogBench) -> None:
    """What is on the disk is then unknown."""
    bench.fill(20)
    bench.disk.inject("write", ".snapshot", code=errno.EIO)
    with pytest.raises(LogDirectoryFailed):
        bench.truncate(3)
    assert bench.log.failed is not None
    with pytest.raises(LogDirectoryFailed):
        bench.log.flush()
