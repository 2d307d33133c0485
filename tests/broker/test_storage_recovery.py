"""Opening a log after a clean end, a crash, and damage (R-66, R-233 to R-237, R-246)."""

from __future__ import annotations

import random

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.storage.errors import InconsistentTopicId, LogCorrupted, LogDirectoryFailed
from odradek_broker.storage.log import Log
from odradek_broker.storage.opening import KnownLog
from odradek_proto.formats import encode_leader_epochs
from odradek_proto.records import read_header
from odradek_proto.transport.files import OsFiles
from odradek_proto.values import replace

from tests.broker.log_bench import (
    DIRECTORY,
    ORDERS,
    SMALL,
    START_MS,
    LogBench,
    batch,
    indexes,
    offsets,
    opened,
    read_all,
)


def test_a_new_log_is_empty_and_has_its_files(bench: LogBench) -> None:
    """One segment at the log start."""
    state = bench.log.state
    assert (state.log_start_offset, state.high_watermark, state.log_end_offset) == (0, 0, 0)
    assert bench.names(".log") == [0]
    bench.reopen(clean=False)
    assert bench.log.end_offset == 0


def test_a_clean_end_needs_no_recovery(bench: LogBench) -> None:
    """Nothing is walked, and everything is as it was (R-233)."""
    written = [bench.fill(1, epoch=place // 9, timestamp=START_MS + place)[0] for place in range(30)]
    before = indexes(bench.log)
    epochs = bench.epochs()
    bench.reopen(clean=True)
    assert bench.log.recovery.batches == 0
    assert bench.read_all() == written
    assert (bench.log.recovery_point, bench.log.state.flushed_offset) == (30, 30)
    assert bench.epochs() == epochs
    after = indexes(bench.log)
    assert [each[0] for each in after] == [each[0] for each in before]
    assert bench.log.segments[-1].largest_timestamp == START_MS + 29


def test_recovery_gives_the_log_that_was_there(bench: LogBench) -> None:
    """Same end and same index entries with and without recovery (LG-17)."""
    written = [bench.fill(1, timestamp=START_MS + place)[0] for place in range(30)]
    bench.reopen(clean=True)
    believed = indexes(bench.log)
    bench.checkpoint = 0
    bench.reopen(clean=False)
    assert bench.log.recovery.batches == 30
    assert bench.log.end_offset == 30
    assert [each[0] for each in indexes(bench.log)] == [each[0] for each in believed]
    assert indexes(bench.log)[:-1] == believed[:-1]
    assert bench.read_all() == written


def test_garbage_behind_the_data_is_cut(bench: LogBench) -> None:
    """In the log and in its index: all records come back, and the index is rebuilt (LG-16)."""
    written = bench.fill(8)
    before = bench.log.segments[-1].index.entries
    bench.close()
    name = f"{bench.log.segments[-1].base_offset:020d}"
    bench.garbage(name + ".log", random.Random(1).randbytes(500))
    bench.garbage(name + ".index", random.Random(2).randbytes(77))
    bench.checkpoint = 0
    bench.open(clean=False)
    assert bench.read_all() == written
    assert bench.log.recovery.cut_offset == 8
    assert bench.log.recovery.cut_bytes == 500
    assert bench.log.segments[-1].index.entries == before
    written += bench.fill(3, epoch=1)
    assert bench.reopen(clean=True).end_offset == 11
    assert bench.read_all() == written


@pytest.mark.parametrize("tail", [b"\0" * 61, b"\0" * 4000, b"x", batch(8)[:-1], batch(8)[:40], batch(3)])
def test_an_end_that_is_no_batch_is_cut(bench: LogBench, tail: bytes) -> None:
    """Zeros, parts of a batch, and a batch that was there before (R-234, R-237, R-239)."""
    written = bench.fill(8)
    bench.close(clean=False)
    bench.garbage(f"{bench.log.segments[-1].base_offset:020d}.log", tail)
    bench.open(clean=False)
    assert bench.read_all() == written
    assert bench.log.recovery.cut_bytes == len(tail)
    assert not bench.log.recovery.below_recovery_point


@pytest.mark.parametrize("damaged", range(0, 30, 3))
def test_everything_before_a_damaged_batch_is_kept(bench: LogBench, damaged: int) -> None:
    """And nothing behind it, whole later segments neither (LG-24, R-234)."""
    written = bench.fill(30)
    segment = next(each for each in reversed(bench.log.segments) if each.base_offset <= damaged)
    bench.close(clean=False)
    position = (damaged - segment.base_offset) * len(written[0])
    bench.disk.flip(segment.path, position + 70)
    bench.open(clean=False)
    assert bench.log.end_offset == damaged
    assert bench.read_all() == written[:damaged]
    assert bench.names(".log")[-1] <= damaged
    assert all(offset <= damaged for offset in bench.log.snapshot_offsets)
    bench.fill(20, epoch=2)
    bench.reopen(clean=False)
    assert offsets(bench.read_all()) == list(range(damaged + 20))


OFFSET_BYTES, EPOCH_BYTES = range(8), range(12, 16)  # of a batch: all that no CRC covers, but for its length


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("damaged", [0, 4, 9])
def test_no_flipped_bit_of_a_base_offset_makes_a_hole(clean: bool, damaged: int) -> None:
    """A base offset that rises too far ends the log as one that falls: no CRC covers it (R-234, R-221)."""
    for byte in OFFSET_BYTES:
        for bit in range(8):
            bench = opened(replace(SMALL, segment_bytes=1 << 20))
            written = bench.fill(10)
            bench.flush()
            path = bench.log.segments[0].path
            bench.close(clean=clean)
            bench.disk.flip(path, damaged * len(written[0]) + byte, bit)
            log = bench.open(clean=clean)
            if not clean or log.recovery.cut_offset is not None:
                assert (log.end_offset, log.recovery.cut_offset) == (damaged, damaged)
                assert log.recovery.below_recovery_point
                assert bench.read_all() == written[:damaged]
                continue
            assert log.end_offset == 10, "whoever believes a clean stop looks at the end of the log alone"
            with pytest.raises(LogCorrupted, match="offset"):
                bench.read_all()
            assert damaged < 9, "the end of the log is always looked at"


@pytest.mark.parametrize("damaged", [0, 4, 9])
def test_no_flipped_bit_of_a_leader_epoch_is_believed(damaged: int) -> None:
    """What was flushed has epochs that the flushed file knows: one that contradicts it is damage (R-61, R-234)."""
    for byte in EPOCH_BYTES:
        for bit in range(8):
            bench = opened(replace(SMALL, segment_bytes=1 << 20))
            written = bench.fill(6, epoch=3) + bench.fill(4, epoch=5)
            bench.flush()
            bench.close(clean=False)
            bench.disk.flip(bench.log.segments[0].path, damaged * len(written[0]) + byte, bit)
            log = bench.open(clean=False)
            assert (log.end_offset, log.recovery.below_recovery_point) == (damaged, True)
            assert bench.epochs() == ((3, 0), (5, 6))[: (damaged > 0) + (damaged > 6)]


@pytest.mark.parametrize(("flipped", "bit", "end"), [(2, 0, 2), (3, 0, 3), (3, 31, 3), (0, 31, 0), (4, 2, 4)])
def test_an_epoch_that_contradicts_where_one_begins_is_not_believed(flipped: int, bit: int, end: int) -> None:
    """No epoch begins at two offsets. So much is known above the recovery point, too, and none is negative (R-234)."""
    bench = opened(replace(SMALL, segment_bytes=1 << 20))
    written = bench.fill(3, epoch=2) + bench.fill(3, epoch=3)
    bench.close(clean=False)
    position = flipped * len(written[0]) + 12 + (3 - bit // 8)
    bench.disk.flip(bench.log.segments[0].path, position, bit % 8)
    assert bench.open(clean=False).end_offset == end
    assert bench.read_all() == written[:end]


@pytest.mark.parametrize(("epochs", "end"), [((3, 3, 9, 3), 2), ((3, 5, 5, 3), 3), ((3, 9, 1), 1), ((3, 3, 3, 1), 3)])
def test_of_an_epoch_that_stands_alone_above_the_next_nothing_is_kept(
    bench: LogBench, epochs: tuple[int, ...], end: int
) -> None:
    """Without an epoch file a single batch between two lower epochs is the one that is wrong (R-234)."""
    for epoch in epochs:
        bench.fill(1, epoch=epoch)
    bench.close(clean=False)
    bench.files.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    log = bench.open(clean=False)
    assert log.end_offset == end


def test_damage_below_the_recovery_point_is_reported_as_such(bench: LogBench) -> None:
    """No torn write can be there: the disk lost what it had promised."""
    bench.fill(5)
    bench.flush()
    bench.close(clean=False)
    bench.disk.flip(bench.log.segments[0].path, 70)
    bench.open(clean=False)
    assert bench.log.recovery.below_recovery_point
    assert bench.log.recovery_point == 0


@pytest.mark.parametrize("kept", [0, 2])
def test_a_log_that_ends_below_its_recovery_point_is_damaged(bench: LogBench, kept: int) -> None:
    """Its last segment lost all its bytes, or ends with a sound batch: nothing is left that could be found damaged."""
    written = bench.fill(30)
    bench.flush()
    last = bench.log.segments[-1]
    bench.close(clean=False)
    bench.files.open(last.path).truncate(kept * len(written[0]))
    bench.open(clean=False)
    end = last.base_offset + kept
    recovery = bench.log.recovery
    assert (bench.log.end_offset, recovery.cut_offset, recovery.cut_bytes) == (end, end, 0)
    assert recovery.below_recovery_point
    assert recovery.reason == f"{last.path} ends at {end}: the log was flushed up to 30"
    assert bench.log.recovery_point == end


def test_a_segment_whose_end_is_missing_ends_the_log(bench: LogBench) -> None:
    """The next segments are there and sound, but between them and it records are gone (R-234, R-239)."""
    written = bench.fill(30)
    first = bench.log.segments[0]
    keep = 3 * len(written[0])
    bench.close(clean=False)
    file = bench.files.open(first.path)
    file.truncate(keep)
    bench.open(clean=False)
    assert bench.read_all() == written[:3]
    assert bench.names(".log") == [0]


def test_segments_below_the_recovery_point_are_believed(bench: LogBench) -> None:
    """They were flushed: reading them again would only make the start slow (R-234)."""
    written = bench.fill(30)
    bench.flush()
    bench.fill(2)
    bench.reopen(clean=False)
    assert bench.log.recovery.segments == 1
    assert 0 < bench.log.recovery.batches < 10
    assert bench.read_all()[:30] == written


def test_the_recovery_point_is_that_of_the_checkpoint(bench: LogBench) -> None:
    """What a recovery read need not be on the disk yet, but for what the checkpoint says (R-235)."""
    bench.fill(10)
    bench.flush()
    bench.fill(10)
    bench.reopen(clean=False)
    assert (bench.log.recovery_point, bench.log.end_offset) == (10, 20)
    bench.checkpoint = 99
    bench.reopen(clean=False)
    assert bench.log.recovery_point == 20


def test_missing_epochs_come_back_from_the_batches(bench: LogBench) -> None:
    """The file is stale, lost, empty or bad (LG-18, R-61)."""
    for epoch in (0, 2, 5, 9):
        bench.fill(7, epoch=epoch)
    epochs = bench.epochs()
    path = bench.path("leader-epoch-checkpoint")
    for content in (encode_leader_epochs(epochs[:2]), None, b"", b"rubbish\n", encode_leader_epochs([])):
        for clean in (False, True):
            if clean and content is not None and content.startswith(b"0\n2"):
                continue  # a clean end is believed
            bench.close(clean=clean)
            bench.checkpoint = 0
            bench.files.remove(path)
            if content is not None:
                bench.files.open(path, create=True).pwritev([content], 0)
            bench.open(clean=clean)
            assert bench.epochs() == epochs


def test_an_epoch_file_from_before_a_truncation_is_corrected(bench: LogBench) -> None:
    """A power loss may undo the file's last rename: the batches know better, also where their epoch is lower."""
    bench.fill(5, epoch=3)
    bench.append(batch(5, 3, epoch=4))
    bench.append(batch(8, 2, epoch=6))
    bench.close(clean=False)
    stale = encode_leader_epochs([EpochEntry(3, 0), EpochEntry(5, 5)])
    bench.files.remove(bench.path("leader-epoch-checkpoint"))
    bench.files.open(bench.path("leader-epoch-checkpoint"), create=True).pwritev([stale], 0)
    bench.open(clean=False)
    assert bench.epochs() == ((3, 0), (4, 5), (6, 8))


def test_an_epoch_that_falls_ends_the_log(bench: LogBench) -> None:
    """Old batches behind new ones: a cut that did not reach the disk."""
    written = bench.fill(3, epoch=4)
    old = batch(3, epoch=2)
    bench.log.append([read_header(old)], [old])
    bench.reopen(clean=False)
    assert bench.read_all() == written


def test_epoch_entries_outside_of_the_log_go_when_it_is_opened(bench: LogBench) -> None:
    """Entries at or above the log end, and below the log start (R-66)."""
    for epoch in (0, 1, 2):
        bench.fill(4, epoch=epoch)
    bench.log.write_epochs([*bench.epochs(), EpochEntry(7, 12)])
    bench.log_start = 6
    bench.reopen(clean=True)
    assert bench.epochs() == ((1, 6), (2, 8))


def test_a_log_that_ends_below_its_start_is_begun_anew(bench: LogBench) -> None:
    """Corruption below the log start: one empty segment there (LG-19, R-235)."""
    bench.fill(6)
    bench.close(clean=False)
    bench.disk.flip(bench.log.segments[0].path, 2 * len(batch(0)) + 70)
    bench.log_start = 4
    bench.open(clean=False)
    state = bench.log.state
    assert (state.log_start_offset, state.log_end_offset, state.high_watermark) == (4, 4, 4)
    assert bench.names(".log") == [4]
    assert bench.epochs() == ()
    bench.fill(2, epoch=1)
    bench.reopen(clean=False)
    assert offsets(bench.read_all()) == [4, 5]


@pytest.mark.parametrize(("checkpoint", "expected"), [(0, 2), (5, 5), (99, 8)])
def test_the_high_watermark_lies_within_the_log(bench: LogBench, checkpoint: int, expected: int) -> None:
    """Whatever the checkpoint says (R-1, R-30, PA-28)."""
    bench.fill(8)
    bench.log_start = 2
    bench.close()
    assert bench.open(clean=True, high_watermark=checkpoint).state.high_watermark == expected


def test_litter_is_removed_and_a_swap_completed(bench: LogBench) -> None:
    """Files of deletions and cleanings that a crash interrupted (R-236)."""
    written = bench.fill(30)
    bench.close(clean=False)
    second, third = bench.names(".log")[1:3]
    merged = b"".join(written[second : bench.names(".log")[3]])
    for name in (
        f"{0:020d}.log.deleted",
        f"{0:020d}.index.deleted",
        f"{5:020d}.log.cleaned",
        f"{7777:020d}.index",
        f"{7777:020d}.timeindex",
        "leader-epoch-checkpoint.tmp",
    ):
        bench.garbage_file(name, b"litter")
    bench.garbage_file(f"{second:020d}.log.swap", merged)
    bench.open(clean=False)
    assert third not in bench.names(".log")
    assert bench.read_all() == written
    left = bench.files.list(DIRECTORY)
    assert not [name for name in left if name.endswith((".deleted", ".cleaned", ".swap", ".tmp")) or "7777" in name]


def test_a_swap_that_is_not_whole_is_not_used(bench: LogBench) -> None:
    """What it was to replace is still there (R-236)."""
    written = bench.fill(3)
    bench.close(clean=False)
    bench.garbage_file(f"{0:020d}.log.swap", b"".join(written)[:-1])
    bench.open(clean=False)
    assert bench.read_all() == written


def test_a_clean_mark_on_a_torn_log_is_not_believed(bench: LogBench) -> None:
    """Whoever wrote the mark was wrong: the end of the file is no batch."""
    written = bench.fill(4)
    bench.close()
    bench.garbage(f"{0:020d}.log", b"torn")
    bench.open(clean=True)
    assert bench.read_all() == written
    assert bench.log.recovery.cut_bytes == 4


def producers_of(log: Log) -> list[tuple[int, int, int]]:
    return [(each.producer_id, each.producer_epoch, each.last_sequence) for each in log.state.producers.entries()]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshots", ["there", "gone", "corrupt"])
def test_producer_state_survives(bench: LogBench, clean: bool, snapshots: str) -> None:
    """From the newest sound snapshot and the batches behind it; a corrupt one is deleted (PS-07, LG-23, R-246)."""
    for offset in range(30):
        bench.append(batch(offset, producer=(offset % 2, 0, offset // 2)))
    bench.close(clean=clean)
    for offset in bench.names(".snapshot"):
        if snapshots == "gone":
            bench.files.remove(bench.path(f"{offset:020d}.snapshot"))
        elif snapshots == "corrupt":
            bench.disk.flip(bench.path(f"{offset:020d}.snapshot"), 20)
    bench.open(clean=clean)
    assert producers_of(bench.log) == [(0, 0, 14), (1, 0, 14)]
    duplicate = bench.log.state.producers.check(read_header(batch(99, producer=(1, 0, 14))), 0).duplicate
    assert duplicate is not None
    assert duplicate.first_offset == 29
    assert bench.log.snapshot_offsets[-1] == 30
    bases = [segment.base_offset for segment in bench.log.segments]
    assert set(bench.log.snapshot_offsets) <= {*bases[1:], 30}


def test_a_corrupt_snapshot_goes_and_the_next_older_one_serves(bench: LogBench) -> None:
    """R-246: it knows a producer whose records lie below the log start, where no batch tells of it any more."""
    bench.append(batch(0, producer=(1, 0, 0)))
    for offset in range(1, 30):
        bench.append(batch(offset, producer=(2, 0, offset - 1)))
    bench.log.advance_log_start(4)
    *_, older, newest = bench.log.snapshot_offsets
    bench.disk.flip(bench.path(f"{newest:020d}.snapshot"), 20)
    bench.truncate(newest + 1)
    assert bench.log.state.producers.get(1) is not None
    assert bench.log.snapshot_offsets[-2:] == (older, newest + 1)


@pytest.mark.parametrize("how", ["truncated", "closed", "killed", "emptied and closed", "emptied and killed"])
def test_who_wrote_records_that_were_deleted_since_is_known(bench: LogBench, how: str) -> None:
    """R-241: they may come again, since their answers were lost. Only whole segments that go take a snapshot along."""
    bench.append(batch(0, producer=(1, 0, 0)))
    bench.fill(39)
    bases = [segment.base_offset for segment in bench.log.segments]
    bench.flush()
    bench.log_start = 40 if "emptied" in how else bases[2]
    bench.log.advance_log_start(bench.log_start)
    bench.log.delete_before_log_start(START_MS)
    if how == "truncated":
        bench.truncate(bases[2] + 1)
        assert bench.log.snapshot_offsets == (bases[2], bases[2] + 1)
    else:
        bench.reopen(clean="closed" in how)
    assert bench.log.state.producers.get(1) is not None


def test_snapshots_outside_of_the_log_are_removed(bench: LogBench) -> None:
    """Those beyond the end and those below the first segment (PS-06)."""
    bench.fill(30)
    bases = [segment.base_offset for segment in bench.log.segments]
    bench.close()
    bench.garbage_file(f"{500:020d}.snapshot", b"")
    for suffix in (".log", ".index", ".timeindex"):
        bench.files.remove(bench.path(f"{0:020d}{suffix}"))
        bench.files.remove(bench.path(f"{bases[1]:020d}{suffix}"))
    bench.open(clean=True)
    assert list(bench.log.snapshot_offsets) == [*bases[2:], 30]
    assert bench.names(".snapshot") == [*bases[2:], 30]


def test_a_directory_belongs_to_one_topic_id() -> None:
    """A topic that was deleted and created again by the same name is another one."""
    bench = LogBench()
    one, two = bytes(range(16)), bytes(range(16, 32))

    def opened(topic_id: bytes) -> Log:
        known = KnownLog(topic_id)
        return Log.open(bench.files, DIRECTORY, ORDERS, settings=SMALL, known=known, clean=True, wall_ms=START_MS)

    opened(one).close(clean=True)
    again = opened(b"")
    assert again.state.topic_id == one
    again.close(clean=True)
    with pytest.raises(InconsistentTopicId, match="orders-0"):
        opened(two)


def test_a_real_file_system_keeps_a_log(tmp_path: object) -> None:
    """The same over the operating system's files: append, roll, truncate, end cleanly and not, open again."""
    files = OsFiles()

    def opened(clean: bool) -> Log:
        return Log.open(
            files,
            f"{tmp_path}/orders-0",
            ORDERS,
            settings=SMALL,
            known=KnownLog(b"x" * 16),
            clean=clean,
            wall_ms=START_MS,
        )

    log = opened(True)
    written = [batch(offset, epoch=offset // 20) for offset in range(40)]
    for each in written:
        log.append([read_header(each)], [each[:16], memoryview(each)[16:]])
    assert log.truncate(33) == 33
    assert log.flush() == 33
    log.close(clean=True)
    for clean in (True, False):
        log = opened(clean)
        assert read_all(log) == written[:33]
        log.close(clean=False)


def test_what_a_failed_fsync_left_in_memory_is_written_again() -> None:
    """The kernel takes those bytes for written (fsyncgate): merely to flush them would promise what is not so."""
    bench = opened(replace(SMALL, segment_bytes=1 << 20))
    written = bench.fill(3, size=700)
    bench.flush()
    written += bench.fill(3, size=700)
    bench.disk.inject("fsync", ".log")
    with pytest.raises(LogDirectoryFailed):
        bench.flush()
    bench.reopen(clean=False)
    assert bench.read_all() == written
    bench.flush()
    assert bench.log.recovery_point == 6
    for segment in bench.log.segments:
        assert segment.size
        assert bench.disk.file(segment.path).is_durable_up_to(segment.size)


def test_a_file_that_only_looks_like_a_swap_is_left_alone(bench: LogBench) -> None:
    """Only a segment takes another one's place; what else somebody put there does not keep a broker from its start."""
    written = bench.fill(3)
    bench.close()
    for name in ("foo.log.swap", "-1.log.swap", f"{1 << 64}.log.swap"):
        bench.garbage_file(name, written[0])
        bench.open(clean=False)
        assert bench.read_all() == written
        assert name in bench.files.list(DIRECTORY)
        bench.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_negative_log_start_in_the_checkpoint_is_none(clean: bool) -> None:
    """Nobody wrote it; a partition's directory without any segment begins at 0 then."""
    bench = LogBench()
    bench.log_start = -5
    assert bench.open(clean=clean).state.log_start_offset == 0
    written = bench.fill(3)
    bench.reopen(clean=clean)
    assert bench.read_all() == written
