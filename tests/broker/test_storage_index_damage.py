"""Indexes that are damaged, padded or incomplete: a look-up says what the batches say (R-163, R-227, R-236)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from odradek_broker.storage.errors import LogCorrupted
from odradek_proto.formats import decode_time_index, encode_time_index
from odradek_proto.values import replace

from tests.broker.log_bench import SMALL, START_MS, LogBench, batch, indexes, opened
from tests.seeds import unless_torture


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["missing", "torn", "wrong"])
def test_a_bad_index_is_rebuilt(bench: LogBench, suffix: str, how: str, clean: bool) -> None:
    """In the active segment and in those before it (R-236)."""
    written = [bench.fill(1, timestamp=START_MS + place)[0] for place in range(30)]
    wanted = indexes(bench.reopen(clean=True))
    bases = bench.names(".log")
    bench.close()
    for base in (bases[1], bases[-1]):
        path = bench.path(f"{base:020d}{suffix}")
        if how == "missing":
            bench.files.remove(path)
        elif how == "torn":
            bench.garbage(f"{base:020d}{suffix}", b"\x01\x02\x03")
        else:
            file = bench.files.open(path)
            file.pwritev([b"\x7f" * file.size()], 0)
    bench.open(clean=clean)
    assert bench.read_all() == written
    assert [each[0] for each in indexes(bench.log)] == [each[0] for each in wanted]
    assert bench.log.offset_for_timestamp(START_MS + 11, 30) == (START_MS + 11, 11)


BITS = unless_torture((1, 6), tuple(range(8)))


def every_flip(bench: LogBench, path: str, entry_bytes: int) -> Iterator[tuple[int, int]]:
    """Each byte of an index of at least one entry, with one bit of it turned over while the caller looks."""
    file = bench.files.open(path)
    sound = file.pread(0, file.size())
    assert len(sound) >= entry_bytes
    for at in range(len(sound)):
        for bit in BITS:
            bench.disk.flip(path, at, bit)
            yield at, bit
            file = bench.files.open(path)
            file.truncate(0)
            file.pwritev([sound], 0)


@pytest.mark.parametrize("place", [0, -1], ids=["complete", "active"])
def test_no_damaged_entry_of_an_index_hides_a_record_or_blames_the_log(bench: LogBench, place: int) -> None:
    """Whichever bit is another one: each offset is found from the disk, after a clean stop that nobody checks."""
    written = bench.fill(16)
    bench.close()
    path = bench.path(f"{bench.names('.log')[place]:020d}.index")
    for at, bit in every_flip(bench, path, entry_bytes=8):
        bench.open(clean=True)
        bench.cold()
        for offset, expected in enumerate(written):
            assert [bytes(piece) for piece in bench.log.read(offset, 1, 16)] == [expected], (at, bit, offset)
        assert bench.log.max_timestamp(16) == (START_MS, 0)
        for offset in (15, 2):  # in the segment, and behind it
            assert bench.truncate(offset) == offset
            for each in written[offset:]:
                bench.append(each)
        bench.close()


TIMES = [*range(0, 9000, 1000), 900_000, *range(10_000, 13_000, 1000), *[11_000, 8000, 11_000, 8000] * 2, 14_000]
EQUAL = [0, 1000, 1000, 5000, 5000, 7000, 5000, 3000, 5000, 9000, 5000, 9000, 12_000, 5000, 9000, 15_000, 9000, 20_000]
MOVED = [*range(0, 900, 100), 5000, 6000, 5000, 7000, 8000, 9000]  # 9 is indexed; 11 is one bit off


@pytest.mark.parametrize(
    ("times", "interval"),
    [(TIMES, 100), (EQUAL, 100), (EQUAL[::-1], 100), (MOVED, 300)],
    ids=["one-late", "equal", "falling", "moved"],
)
@pytest.mark.parametrize("place", [0, -1], ids=["complete", "active"])
def test_no_damaged_entry_of_a_time_index_hides_a_record_or_keeps_it(
    place: int, times: list[int], interval: int
) -> None:
    """Whichever bit is another one: look-ups by time and retention say what the batches say (R-163, R-227)."""
    bench = opened(replace(SMALL, segment_bytes=1700, index_interval_bytes=interval, retention_ms=3_600_000))
    for after in times:
        bench.fill(1, timestamp=START_MS + after)
    if len(bench.log.segments) == 1:
        bench.log.roll(START_MS)
        times = [*times, 9500]
        bench.fill(1, timestamp=START_MS + 9500)
    bench.close()
    count, segments = len(times), bench.log.segments
    stamps = [(START_MS + after, offset) for offset, after in enumerate(times)]
    last = max(times[: segments[1].base_offset])
    path = segments[place].path.replace(".log", ".timeindex")
    for at, bit in every_flip(bench, path, entry_bytes=12):
        log = bench.open(clean=True)
        due_ms = START_MS + last + 3_600_000
        assert log.retention_start(due_ms, count, 1) is None, (at, bit)
        assert log.retention_start(due_ms + 1, count, 1) == segments[1].base_offset, (at, bit)
        assert log.max_timestamp(count) == max(stamps, key=lambda each: (each[0], -each[1])), (at, bit)
        for wanted in sorted({START_MS + after + around for after in times for around in (0, 1)}):
            expected = next((each for each in stamps if each[0] >= wanted), None)
            assert log.offset_for_timestamp(wanted, count) == expected, (at, bit, wanted - START_MS)
        bench.close(clean=False)


def test_time_index_entries_that_no_batch_agrees_with_are_passed_over(bench: LogBench) -> None:
    """However many they are: all but the last one name the end of the segment, in order."""
    for place in range(20):
        bench.fill(1, timestamp=START_MS + place * 1000)
    bench.close()
    path = bench.path(f"{0:020d}.timeindex")
    entries = decode_time_index(bench.disk.read(path))
    assert len(entries) > 3
    moved = [(timestamp, entries[-1].relative_offset) for timestamp, _ in entries]
    bench.files.open(path).pwritev([encode_time_index(moved)], 0)
    bench.open(clean=True)
    for place in range(20):
        expected = (START_MS + place * 1000, place)
        assert bench.log.offset_for_timestamp(START_MS + place * 1000 - 1, 20) == expected


def test_a_cut_below_a_damaged_time_index_entry_goes_on() -> None:
    """Its offset may be below the cut, and its timestamp then above all that is left: the batches are asked (R-230)."""
    bench = opened(replace(SMALL, segment_bytes=1 << 20))
    for place in range(40):
        bench.fill(1, timestamp=START_MS + place * 1000)
    bench.close()
    path = bench.path(f"{0:020d}.timeindex")
    entries = decode_time_index(bench.disk.read(path))
    assert len(entries) > 8
    moved = [*entries[:4], (entries[4][0], entries[3][1] + 1), *entries[5:]]
    bench.files.open(path).pwritev([encode_time_index(moved)], 0)
    bench.open(clean=True)
    cut = entries[3][1] + 2
    assert bench.truncate(cut) == cut
    segment = bench.log.segments[0]
    assert (segment.next_offset, segment.largest_timestamp) == (cut, START_MS + (cut - 1) * 1000)
    written = bench.read_all() + bench.fill(10, epoch=1, timestamp=START_MS + 5_000_000)
    bench.reopen(clean=True)
    assert bench.read_all() == written
    assert bench.log.offset_for_timestamp(START_MS + 4_000_000, bench.log.end_offset) == (START_MS + 5_000_000, cut)


def test_an_index_padded_with_zeros_is_read(bench: LogBench) -> None:
    """Kafka gives the active segment's index its full size before it is used."""
    written = bench.fill(7)
    bench.close()
    entries = bench.log.segments[0].index.entries
    assert entries
    bench.garbage(f"{0:020d}.index", b"\0" * 8000)
    bench.garbage(f"{0:020d}.timeindex", b"\0" * 12000)
    bench.open(clean=True)
    assert bench.log.segments[0].index.entries == entries
    written += bench.fill(5)
    bench.cold()
    assert bench.read_all() == written


@pytest.mark.parametrize("missing", range(5))
def test_a_time_index_without_its_last_entries_hides_no_record_and_deletes_none(missing: int) -> None:
    """It looks whole: what it does not tell is in the batches behind its last entry (R-163, R-227, R-236)."""
    bench = opened(replace(SMALL, index_interval_bytes=100, retention_ms=3_600_000))
    times = [10, 20, 30, 50, 90, *range(31, 46)]
    for after in times:
        bench.fill(1, timestamp=START_MS + after)
    bench.close()
    path = bench.path(f"{0:020d}.timeindex")
    entries = decode_time_index(bench.disk.read(path))
    assert len(entries) >= 4
    bench.files.open(path).truncate(12 * max(len(entries) - missing, 0))
    log = bench.open(clean=True)
    assert log.offset_for_timestamp(START_MS + 51, 20) == (START_MS + 90, 4)
    assert log.retention_start(START_MS + 90 + 3_600_000, 20, 1) is None


def test_damage_behind_a_bad_index_is_told_each_time_and_hides_nothing_before_it() -> None:
    """The index of a complete segment is rebuilt up to the damage; its largest timestamp is not known then (R-236)."""
    bench = opened(replace(SMALL, retention_ms=3_600_000))
    written = [bench.fill(1, timestamp=START_MS + place)[0] for place in range(20)]
    bench.close()
    count = bench.log.segments[1].base_offset
    bench.disk.flip(bench.log.segments[0].path, sum(map(len, written[: count - 1])) + 16)  # the magic of its last batch
    bench.garbage(f"{0:020d}.index", bytes([0, 0, 0, 1, 0, 0, 0, 1]))
    log = bench.open(clean=True)
    assert b"".join(map(bytes, log.read(0, 100, 20))) == written[0]
    for _ in range(2):
        with pytest.raises(LogCorrupted, match="magic"):
            log.retention_start(START_MS + 90 + 3_600_000, 20, 1)
        with pytest.raises(LogCorrupted, match="magic"):
            log.offset_for_timestamp(START_MS + count - 1, 20)
    assert log.segments[0].next_offset == count


def test_an_offset_that_no_index_can_hold_makes_a_clean_mark_unbelievable(bench: LogBench) -> None:
    """Recovery cuts the log there, as it does after a crash (R-237)."""
    written = bench.fill(3)
    bench.close()
    for _ in range(3):  # the indexes are rebuilt, and one entry is due
        bench.garbage(f"{0:020d}.log", batch(1 << 40))
    bench.files.remove(bench.path(f"{0:020d}.index"))
    bench.open(clean=True)
    assert bench.log.end_offset == 3
    assert bench.read_all() == written
