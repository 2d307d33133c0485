"""The leader epoch cache (R-60 to R-68)."""

import pytest
from odradek_broker.core.partition.epochs import UNDEFINED, EpochCache, EpochEntry
from odradek_proto.formats import decode_leader_epochs, encode_leader_epochs


def cache(*entries: tuple[int, int]) -> EpochCache:
    made = EpochCache()
    for epoch, offset in entries:
        made.assign(epoch, offset)
    return made


def test_a_new_epoch_ends_at_the_log_end() -> None:
    """The newest epoch ends where the log ends (EC-01)."""
    made = cache((2, 10))
    assert made.latest_epoch == 2
    assert made.end_offset_for(2, 11) == (2, 11)


@pytest.mark.parametrize(
    ("entries", "epoch", "expected"),
    [
        pytest.param([(2, 10)], -1, UNDEFINED, id="EC-02 undefined epoch"),
        pytest.param([], 5, UNDEFINED, id="EC-03 empty cache"),
        pytest.param([(2, 100)], 3, UNDEFINED, id="EC-04 above the newest"),
        pytest.param(
            [(5, 11), (6, 12), (7, 13)], 4, (4, 11), id="EC-05 below the oldest: the requested one comes back"
        ),
        pytest.param([(0, 10), (2, 13), (4, 17)], 1, (0, 13), id="EC-06 between the first two"),
        pytest.param([(0, 10), (2, 13), (4, 17)], 2, (2, 17), id="EC-06 exact"),
        pytest.param([(0, 10), (2, 13), (4, 17)], 3, (2, 17), id="EC-06 between the last two"),
        pytest.param([(0, 10), (2, 13), (4, 17)], 4, (4, 20), id="newest"),
    ],
)
def test_end_offset_for_epoch(entries: list[tuple[int, int]], epoch: int, expected: tuple[int, int]) -> None:
    """The largest epoch not above the requested one answers, with the start of the next (R-62)."""
    assert cache(*entries).end_offset_for(epoch, 20) == expected


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        pytest.param([(2, 9), (3, 9)], [(3, 9)], id="EC-07 an epoch without records is replaced"),
        pytest.param([(2, 6), (3, 5)], [(3, 5)], id="EC-08 a lower offset wins"),
        pytest.param([(1, 5), (2, 6), (1, 7)], [(1, 7)], id="EC-09 an older epoch takes over"),
        pytest.param([(5, 11), (6, 12), (7, 13), (7, 12)], [(5, 11), (7, 12)], id="EC-10 same epoch, earlier start"),
        pytest.param([(0, 0), (1, 0), (1, 1), (2, 5)], [(1, 0), (2, 5)], id="EC-11 many leaders"),
        pytest.param([(3, 4), (3, 9)], [(3, 4)], id="a later batch of the same epoch"),
    ],
)
def test_conflicting_entries_give_way(entries: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    """Epochs and offsets both rise strictly, whatever is assigned (R-60)."""
    assert list(cache(*entries).entries) == left


def test_an_earlier_start_of_the_newest_epoch_moves_the_ends_before_it() -> None:
    """After (7, 12) replaced (6, 12) and (7, 13), epochs 5 and 6 both end at 12 (EC-10)."""
    made = cache((5, 11), (6, 12), (7, 13), (7, 12))
    assert made.end_offset_for(5, 20) == (5, 12)
    assert made.end_offset_for(6, 20) == (5, 12)


def test_leaders_that_wrote_nothing_leave_empty_epochs() -> None:
    """An epoch that began and ended at the same offset is answered by what stands around it (EC-11)."""
    made = cache((0, 0), (1, 0), (2, 5))
    assert made.end_offset_for(0, 10) == (0, 0)
    assert made.end_offset_for(1, 10) == (1, 5)
    assert made.end_offset_for(2, 10) == (2, 10)


def test_assign_says_whether_the_file_must_be_written() -> None:
    """Only a change costs a write: every batch of an epoch after the first one costs none."""
    made = EpochCache()
    assert made.assign(1, 0)
    assert not made.assign(1, 0)
    assert not made.assign(1, 7)
    assert made.assign(2, 9)


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_negative_values_are_refused(epoch: int, offset: int) -> None:
    """A log without epochs must not grow entries (KAFKA-7897)."""
    with pytest.raises(ValueError, match="negative"):
        EpochCache().assign(epoch, offset)


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        pytest.param(9, [(2, 6), (3, 8)], id="EC-12"),
        pytest.param(11, [(2, 6), (3, 8)], id="an entry that starts there goes"),
        pytest.param(12, [(2, 6), (3, 8), (4, 11)], id="above all"),
        pytest.param(6, [], id="the first goes too"),
        pytest.param(-1, [(2, 6), (3, 8), (4, 11)], id="EC-15"),
    ],
)
def test_truncation_from_the_end(offset: int, left: list[tuple[int, int]]) -> None:
    """Entries that start at the new end or later go (R-63)."""
    made = cache((2, 6), (3, 8), (4, 11))
    assert made.truncate_from_end(offset) == (len(left) != 3)
    assert list(made.entries) == left


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        pytest.param(9, [(3, 9), (4, 11)], id="EC-13"),
        pytest.param(15, [(4, 15)], id="EC-14"),
        pytest.param(8, [(3, 8), (4, 11)], id="at a boundary"),
        pytest.param(6, [(2, 6), (3, 8), (4, 11)], id="at the first"),
        pytest.param(1, [(2, 6), (3, 8), (4, 11)], id="below the first"),
        pytest.param(-1, [(2, 6), (3, 8), (4, 11)], id="EC-15"),
    ],
)
def test_truncation_from_the_start(offset: int, left: list[tuple[int, int]]) -> None:
    """The epoch that the new start lies in stays, and starts there (R-64)."""
    made = cache((2, 6), (3, 8), (4, 11))
    assert made.truncate_from_start(offset) == (left != [(2, 6), (3, 8), (4, 11)])
    assert list(made.entries) == left


def test_entries_survive_in_the_file() -> None:
    """What is written to the file and read back is the same cache (EC-16)."""
    made = cache((2, 6), (3, 8), (4, 11))
    again = EpochCache(EpochEntry(*entry) for entry in decode_leader_epochs(encode_leader_epochs(made.entries)))
    assert again.entries == made.entries


def test_epoch_for_offset() -> None:
    """A record belongs to the last epoch that starts at or below it, and to none before the first (R-67)."""
    made = cache((2, 6), (3, 8))
    assert [made.epoch_for_offset(offset) for offset in (5, 6, 7, 8, 99)] == [None, 2, 2, 3, 3]


def test_clear() -> None:
    """A full truncation forgets everything (R-67)."""
    made = cache((2, 6))
    assert made.clear()
    assert not made.clear()
    assert made.latest_epoch == -1
    assert made.end_offset_for(2, 9) == UNDEFINED
