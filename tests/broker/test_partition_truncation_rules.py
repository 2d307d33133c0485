"""The pure rules of divergence and truncation: where a reader's log parts from ours, and how far a follower cuts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_broker.core.partition.epochs import UNDEFINED, EpochCache, EpochEntry
from odradek_broker.core.partition.fencing import check_leader_epoch, decide_read
from odradek_broker.core.partition.truncation import TruncationStep, cut_for
from odradek_proto.errors import ErrorCode

from tests.scripts.roles import replica_log

HISTORY = ((0, 0), (3, 2), (4, 8), (7, 13), (9, 14), (10, 17))


@pytest.mark.parametrize(
    ("last_epoch", "offset", "end"),
    [(2, 5, (0, 2)), (0, 4, (0, 2)), (6, 6, (4, 13)), (5, 9, (4, 13)), (10, 18, (10, 17))],
)
def test_divergence_is_found_by_epoch_and_offset(last_epoch: int, offset: int, end: tuple[int, int]) -> None:
    """A fetch that does not continue our log is told the epoch and the end up to which it may agree. (R-36, PA-01)"""
    decision = decide_read(replica_log(17, epochs=HISTORY), offset, last_epoch, 17)
    assert (decision.error, decision.diverging) == (ErrorCode.NONE, EpochEntry(*end))


@pytest.mark.parametrize(("last_epoch", "offset"), [(0, 2), (7, 14), (9, 17), (10, 17)])
def test_matching_prefix_is_read(last_epoch: int, offset: int) -> None:
    """A fetch at or below the end of its epoch reads. (R-36, PA-01)"""
    decision = decide_read(replica_log(17, epochs=HISTORY), offset, last_epoch, 17)
    assert (decision.error, decision.diverging, decision.limit) == (ErrorCode.NONE, None, 17)


def test_unknown_larger_epoch_is_out_of_range() -> None:
    """Who names an epoch that we never heard of is not told where logs part. (R-36, PA-01)"""
    assert decide_read(replica_log(17, epochs=HISTORY), 10, 11, 17).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_log_start_is_compared_before_divergence() -> None:
    """Below the log start nothing can be compared, so even a diverging fetch is out of range. (R-36, PA-01)"""
    log = replica_log(17, high_watermark=17, epochs=((2, 5), (4, 8), (10, 17)), log_start_offset=5)
    assert decide_read(log, 8, 2, 17).diverging is None
    assert decide_read(log, 9, 2, 17).diverging == EpochEntry(2, 8)
    assert decide_read(log, 4, 2, 17).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert decide_read(log, 4, 3, 17).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_divergence_is_told_with_the_bounds_of_the_log() -> None:
    """No records go with it; high watermark and log start are those of any other answer (R-36)."""
    log = replica_log(17, high_watermark=11, epochs=((2, 5), (4, 8), (10, 17)), log_start_offset=5)
    decision = decide_read(log, 9, 2, 17)
    assert (decision.error, decision.diverging, decision.limit) == (ErrorCode.NONE, EpochEntry(2, 8), -1)
    assert (decision.high_watermark, decision.last_stable_offset, decision.log_start_offset) == (11, 11, 5)


def test_epoch_below_the_oldest_is_cut_at_the_log_start() -> None:
    """An epoch from before our log start ends at the log start, under the name that was asked for. (PA-01)"""
    log = replica_log(17, high_watermark=17, epochs=((3, 5), (4, 8), (10, 17)), log_start_offset=5)
    assert decide_read(log, 8, 2, 17).diverging == EpochEntry(2, 5)


@pytest.mark.parametrize(("offset", "error"), [(4, 1), (5, 0), (9, 0), (10, 1), (-1, 1)])
def test_range_is_the_log(offset: int, error: int) -> None:
    """Without an epoch only the range counts: from the log start up to the log end, both included."""
    log = replica_log(9, high_watermark=6, log_start_offset=5)
    assert decide_read(log, offset, -1, 6).error == error


@pytest.mark.parametrize(
    ("requested", "error"),
    [
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ],
)
def test_leader_epoch_fences(requested: int, error: ErrorCode) -> None:
    """Older, newer, equal, absent. (PA-21)"""
    assert check_leader_epoch(requested, 4) == error


@pytest.mark.parametrize(
    ("own", "log_end_offset", "answer", "cut"),
    [
        (((3, 0), (4, 120)), 200, (4, 155), TruncationStep(155, True)),
        (
            ((3, 101), (5, 120)),
            200,
            (4, 155),
            TruncationStep(120, False),
        ),  # FE-14, first round: epoch 4 is unknown here
        (((3, 0), (5, 120)), 200, (3, 101), TruncationStep(101, True)),  # FE-14, second round
        (((3, 0), (5, 100)), 200, (3, 150), TruncationStep(100, True)),  # our 3 ended earlier than the leader's
        (((4, 120),), 200, (4, 140), TruncationStep(140, True)),  # FE-15
        (((1, 100), (2, 119), (4, 129)), 140, (3, 130), TruncationStep(129, False)),  # FE-15, second answer
        (((1, 100), (4, 119)), 129, (2, 120), TruncationStep(119, False)),  # FE-15, third answer
        ((), 200, (4, 156), TruncationStep(156, True)),  # FE-16: no epochs here
        (((3, 0),), 200, (4, 250), TruncationStep(200, True)),  # FE-16: never beyond the own end
        (((4, 0),), 200, (-1, 190), TruncationStep(190, True)),  # FE-17: an answer without an epoch
        (((4, 0),), 180, (-1, 190), TruncationStep(180, True)),
        (((4, 0),), 200, (-1, -1), TruncationStep(77, True)),  # FE-05: the leader knows nothing
    ],
)
def test_cut_follows_from_the_leaders_answer(
    own: tuple[tuple[int, int], ...], log_end_offset: int, answer: tuple[int, int], cut: TruncationStep
) -> None:
    """The five cases of R-75; 77 is the high watermark. (FE-14, FE-15, FE-16, FE-17)"""
    cache = EpochCache(EpochEntry(*each) for each in own)
    assert cut_for(EpochEntry(*answer), cache, log_end_offset, 77) == cut


Histories = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3)), max_size=6).map(
    lambda turns: [epoch for epoch, count in sorted(dict(turns).items()) for _ in range(count)]
)


def cache_of(history: list[int]) -> EpochCache:
    """The epoch cache of a log whose record at offset i has the epoch `history[i]`."""
    cache = EpochCache()
    for offset, epoch in enumerate(history):
        cache.assign(epoch, offset)
    return cache


@given(shared=Histories, mine=Histories, theirs=Histories)
def test_rounds_end_at_the_longest_common_prefix(shared: list[int], mine: list[int], theirs: list[int]) -> None:
    """Whatever two histories, rounds of divergence and cut leave just what both have in common (R-77).

    One epoch has one leader, so the same epoch means the same records as far as both have them.
    """
    base = max(shared, default=-1) + 1
    own = shared + [base + 2 * epoch for epoch in mine]
    leader = shared + [base + 2 * epoch + 1 for epoch in theirs]
    log = replica_log(len(leader), epochs=cache_of(leader).entries)
    log.epochs.assign(base + 100, len(leader))
    rounds = 0
    while own:
        decision = decide_read(log, len(own), own[-1], len(leader))
        assert decision.error == ErrorCode.NONE
        if decision.diverging is None:
            break
        assert decision.diverging != UNDEFINED
        cut = cut_for(decision.diverging, cache_of(own), len(own), 0)
        assert cut.offset < len(own)
        own = own[: cut.offset]
        rounds += 1
        assert rounds <= 20
    assert own == shared
