"""Where a consumer is, decided by hand: resets, truncation, old answers (R-265, R-266, CL-01 to CL-05)."""

from __future__ import annotations

import pytest
from odradek.core.cluster_view import LeaderAndEpoch
from odradek.core.fetch_state import EARLIEST, LATEST, Chunk, FetchingState, FetchPosition, FetchState
from odradek.shared.config import OffsetReset
from odradek.shared.errors import LogTruncated, NoOffset
from odradek_proto.records import Record
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import broker_pb2 as pb

TP = TopicPartition("orders", 0)


def reading(offset: int = 10, epoch: int = 4, reset: OffsetReset = "earliest") -> FetchState:
    """A partition that was read up to an offset, under leader 1 in leader epoch 4."""
    state = FetchState(TP, reset)
    state.on_leader(LeaderAndEpoch(1, 4))
    state.seek(offset)
    state.moved_to(offset, epoch)
    state.rewind()
    return state


@pytest.fixture
def state() -> FetchState:
    """Read up to offset 10 in leader epoch 4."""
    return reading()


@pytest.mark.parametrize(("reset", "asked"), [("earliest", EARLIEST), ("latest", LATEST)])
def test_a_new_partition_starts_where_the_policy_says(reset: OffsetReset, asked: int) -> None:
    """Without a position the leader is asked for the beginning or the end."""
    state = FetchState(TP, reset)
    assert (state.state, state.reset_to) == (FetchingState.NEEDS_OFFSET, asked)
    state.on_listed_offset(asked, 7)
    assert (state.state, state.position.offset, state.fetch_offset) == (FetchingState.FETCHING, 7, 7)


def test_without_a_policy_somebody_must_seek() -> None:
    """auto.offset.reset=none is an error until the application seeks."""
    state = FetchState(TP, "none")
    assert isinstance(state.error, NoOffset)
    state.seek(3)
    assert state.state is FetchingState.FETCHING


@pytest.mark.parametrize(
    ("reset", "epoch", "end", "then"),
    [
        ("earliest", 4, 6, FetchPosition(6, 4)),  # not at the reset position, but where the logs part
        ("earliest", 3, 6, FetchPosition(6, 3)),  # by the epoch of the record before the next leader is asked
        ("earliest", 4, 10, FetchPosition(10, 4)),  # all that was read, and no more: nothing changes but the leader
        ("none", 4, 10, FetchPosition(10, 4)),
        ("earliest", -1, -1, EARLIEST),
        ("earliest", 4, -1, EARLIEST),  # nothing can be concluded from half an answer
        ("earliest", -1, 10, EARLIEST),
        ("none", 3, 6, (6, 3)),
        ("none", -1, -1, (None, None)),
    ],
)
def test_a_position_is_validated_by_what_the_new_leader_says_of_its_epoch(
    reset: OffsetReset, epoch: int, end: int, then: FetchPosition | int | tuple[int | None, int | None]
) -> None:
    """R-266, CL-01, CL-02, CL-03: it goes on, is reset by policy, or is told as truncated, with both places."""
    state = reading(reset=reset)
    state.on_leader(LeaderAndEpoch(2, 5))
    assert state.state is FetchingState.VALIDATING
    state.on_epoch_end(FetchPosition(10, 4), 5, epoch, end)
    if isinstance(then, FetchPosition):
        assert (state.state, state.position) == (FetchingState.FETCHING, then)
        assert state.may_fetch_from(2, 0)
    elif isinstance(then, int):
        assert (state.state, state.reset_to) == (FetchingState.NEEDS_OFFSET, then)
    else:
        assert isinstance(state.error, LogTruncated)
        assert (state.error.position, state.error.epoch) == (10, 4)
        assert (state.error.divergent_offset, state.error.divergent_epoch) == then


def test_a_validation_for_an_old_position_is_dropped(state: FetchState) -> None:
    """CL-04: the application sought meanwhile, or the leader changed once more."""
    state.on_leader(LeaderAndEpoch(2, 5))
    state.seek(20, 4)
    state.on_epoch_end(FetchPosition(10, 4), 5, 4, 6)
    assert (state.state, state.position) == (FetchingState.VALIDATING, FetchPosition(20, 4))
    state.on_leader(LeaderAndEpoch(3, 6))
    state.on_epoch_end(FetchPosition(20, 4), 5, 4, 6)
    assert state.state is FetchingState.VALIDATING


def test_without_an_epoch_there_is_nothing_to_validate() -> None:
    """R-266: a position that came from the application or a reset has no epoch."""
    state = reading(epoch=-1)
    state.on_leader(LeaderAndEpoch(2, 5))
    assert state.state is FetchingState.FETCHING


def test_answers_for_another_position_or_epoch_are_old_news(state: FetchState) -> None:
    """CL-05, R-265: only the answer to the outstanding fetch counts."""
    state.asked(1)
    right = pb.FetchedPartition(fetch_offset=10, request_leader_epoch=4)
    assert state.is_answered_by(1, right)
    assert not state.is_answered_by(2, right)
    assert not state.is_answered_by(1, pb.FetchedPartition(fetch_offset=9, request_leader_epoch=4))
    assert not state.is_answered_by(1, pb.FetchedPartition(fetch_offset=10, request_leader_epoch=3))
    state.seek(30)
    assert not state.is_answered_by(1, right)


def test_a_new_leader_epoch_drops_what_is_buffered(state: FetchState) -> None:
    """What was fetched and not handed out is read again after the validation; its credit is not forgotten."""
    state.asked(1)
    answer = pb.FetchedPartition(fetch_offset=10, request_leader_epoch=4, high_watermark=30)
    state.on_data(answer, Chunk(memoryview(b"batch"), 0, 5, 1), 20)
    assert state.fetch_offset == 20
    state.on_leader(LeaderAndEpoch(2, 5))
    assert (state.fetch_offset, len(state.chunks), [chunk.credit for chunk in state.dropped]) == (10, 0, [5])


def test_a_paused_partition_is_not_fetched(state: FetchState) -> None:
    """Nor is one that waits for its retry."""
    state.paused = True
    assert not state.may_fetch_from(1, 0)
    state.paused = False
    state.on_refused(0, 50)
    assert not state.may_fetch_from(1, 49)
    assert state.may_fetch_from(1, 50)


def test_an_offset_that_was_asked_for_before_is_not_taken() -> None:
    """R-265: the application wants another one by now, or reads on from its own."""
    state = FetchState(TP, "latest")
    state.seek_to(EARLIEST)
    state.on_listed_offset(LATEST, 7)
    assert (state.state, state.position.offset) == (FetchingState.NEEDS_OFFSET, -1)
    state.seek(3)
    state.on_listed_offset(EARLIEST, 0)
    assert (state.state, state.position.offset) == (FetchingState.FETCHING, 3)


def test_a_topic_that_was_created_again_is_fetched_anew() -> None:
    """Its epochs begin again, so the new one is no newer: the fetch that waits at the old leader is given up."""
    state = reading(epoch=-1)
    state.asked(1)
    state.on_leader(LeaderAndEpoch(2, 0))
    assert state.may_fetch_from(2, 0)


def test_a_new_leader_is_asked_at_once() -> None:
    """R-267: the pause was for the one before."""
    state = reading(epoch=-1)
    state.asked(1)
    state.on_refused(0, 50)
    state.on_leader(LeaderAndEpoch(2, 5))
    assert state.may_fetch_from(2, 0)


@pytest.mark.parametrize(("epoch", "then"), [(4, FetchingState.VALIDATING), (-1, FetchingState.FETCHING)])
def test_a_divergence_that_the_leader_found_drops_what_is_buffered(epoch: int, then: FetchingState) -> None:
    """R-266: it is of another log; and before anything else the position is looked at, if there is an epoch for it."""
    state = reading(epoch=epoch)
    answer = pb.FetchedPartition(fetch_offset=10, request_leader_epoch=4, high_watermark=30)
    state.on_data(answer, Chunk(memoryview(b"batch"), 0, 5, 1), 20)
    state.asked(1)
    state.on_divergence(answer)
    assert (state.state, state.fetch_offset, len(state.chunks), state.outstanding) == (then, 10, 0, None)


def test_records_that_are_put_back_keep_the_epoch_of_the_position(state: FetchState) -> None:
    """R-265: the position is before them again."""
    state.put_back([Record(8, 0, None, b"v", ())])
    assert state.position == FetchPosition(8, 4)


def test_refusals_count_from_the_last_answer(state: FetchState) -> None:
    """R-267: pauses grow only with refusals one after the other."""
    state.on_refused(0, 50)
    state.on_data(pb.FetchedPartition(fetch_offset=10, request_leader_epoch=4), None, 10)
    assert state.failures == 0
