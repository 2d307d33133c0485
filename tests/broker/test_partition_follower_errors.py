"""What a follower does when the leader refuses it, when its offset is out of range, and when the disk fails (A7)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.follower import FIRST_DELAY_MS, FollowerPartition
from odradek_broker.core.partition.messages import (
    AppendBatches,
    EpochRequest,
    FetchAnswer,
    OffsetsRequest,
    PartitionFailed,
    RequestReady,
    RestartLog,
    Truncate,
    TruncationMode,
    WriteEpochs,
)
from odradek_proto.errors import ErrorCode

from tests.scripts.roles import answer, ask, events, follower, header, of_kind, registration, replica_log, started, take


def offsets_request(partition: FollowerPartition) -> OffsetsRequest:
    """Answer the first fetch with OFFSET_OUT_OF_RANGE; the follower then asks for the leader's bounds."""
    partition.on_fetch_answer(answer(ask(partition), error=ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    request = partition.next_request(0)
    assert isinstance(request, OffsetsRequest)
    return request


def test_out_of_range_above_the_leaders_end() -> None:
    """The leader ends below us: cut at its end, and nothing is fatal. (FE-11, R-83, KAFKA-7414)"""
    partition = started(9, 8, ((4, 0),))
    effects = partition.on_offsets_answer(offsets_request(partition), ErrorCode.NONE, 0, 6, 0)
    assert [effect.offset for effect in of_kind(effects, Truncate)] == [6]
    partition.on_truncated(6, 0)
    assert (partition.log.log_end_offset, partition.log.high_watermark, ask(partition).fetch_offset) == (6, 6, 6)


def test_out_of_range_below_the_leaders_start() -> None:
    """The leader begins above our end: start anew there. (FE-12, R-165)"""
    partition = started(3, 2, ((0, 0),))
    effects = partition.on_offsets_answer(offsets_request(partition), ErrorCode.NONE, 7, 12, 0)
    assert [effect.offset for effect in of_kind(effects, RestartLog)] == [7]
    effects = partition.on_restarted(7, 0)
    assert effects == [WriteEpochs(()), RequestReady()]
    log = partition.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (7, 7, 7)
    assert ask(partition).last_fetched_epoch == -1


def test_out_of_range_without_a_reason_waits() -> None:
    """In range by now: go on, after a short delay, since the next fetch may be refused again."""
    partition = started(9, 8, ((4, 0),))
    assert partition.on_offsets_answer(offsets_request(partition), ErrorCode.NONE, 0, 20, 10) == []
    assert partition.next_request(10) is None
    assert ask(partition, 10 + FIRST_DELAY_MS).fetch_offset == 9


def test_out_of_range_query_is_retried() -> None:
    """An error instead of the bounds: the same question after the delay (R-84, R-90)."""
    partition = started(9, 8, ((4, 0),))
    request = offsets_request(partition)
    assert partition.on_offsets_answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, 0) == []
    assert partition.next_request(FIRST_DELAY_MS) == request


@pytest.mark.parametrize(("start", "end"), [(7, 20), (9, 20), (9, 9), (0, 9)])
def test_out_of_range_within_the_leaders_range_keeps_the_log(start: int, end: int) -> None:
    """The leader begins within our log, or right at its end, or both end at the same place: nothing goes (R-84).

    Whatever is left to be said the next fetch says, after a short wait.
    """
    partition = started(9, 8, ((2, 0), (4, 9)))
    assert partition.on_offsets_answer(offsets_request(partition), ErrorCode.NONE, start, end, 10) == []
    assert partition.next_request(10) is None
    request = ask(partition, 10 + FIRST_DELAY_MS)
    assert (request.fetch_offset, request.last_fetched_epoch, request.log_start_offset) == (9, 4, 0)


def test_out_of_range_question_names_the_epoch() -> None:
    """A leader of another epoch does not answer it (R-84, R-110)."""
    assert offsets_request(started(9, 8, ((4, 0),))).current_leader_epoch == 5


def test_out_of_range_as_an_answer_to_the_question_is_waited_for() -> None:
    """The question is not asked in circles (R-84, R-90)."""
    partition = started(9, 8, ((4, 0),))
    request = offsets_request(partition)
    assert partition.on_offsets_answer(request, ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, 0) == []
    assert partition.next_request(0) is None
    assert partition.next_request(FIRST_DELAY_MS) == request


def test_bounds_that_nobody_asked_for_are_ignored() -> None:
    """The leader epoch changed, or the stream broke, while the question was out (R-74)."""
    partition = started(9, 8, ((4, 0),))
    request = offsets_request(partition)
    partition.on_transport_error(0)
    assert partition.on_offsets_answer(request, ErrorCode.NONE, 0, 6, 0) == []
    partition.update(registration(leader_epoch=6, partition_epoch=1), 0)
    assert partition.on_offsets_answer(request, ErrorCode.FENCED_LEADER_EPOCH, -1, -1, 0) == []
    assert (partition.log.log_end_offset, partition.failed) == (9, None)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_errors_delay_the_partition(error: ErrorCode) -> None:
    """Each of them: back off, longer from time to time, and start short again after a good answer (R-90)."""
    partition = started()
    now_ms = 0
    for delay_ms in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000):
        partition.on_fetch_answer(answer(ask(partition, now_ms), error=error), now_ms)
        assert partition.next_deadline_ms() == now_ms + delay_ms
        now_ms += delay_ms
    partition.on_fetch_answer(answer(ask(partition, now_ms)), now_ms)
    partition.on_fetch_answer(answer(ask(partition, now_ms), error=error), now_ms)
    assert partition.next_deadline_ms() == now_ms + FIRST_DELAY_MS


def test_records_after_an_error_start_the_delays_anew() -> None:
    """A good answer is one with records, too (R-90)."""
    partition = started()
    for now_ms in (0, 100):
        partition.on_fetch_answer(answer(ask(partition, now_ms), error=ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms)
    take(partition, partition.on_fetch_answer(answer(ask(partition, 200), [header()]), 200), 200)
    assert partition.next_deadline_ms() is None
    partition.on_fetch_answer(answer(ask(partition, 300), error=ErrorCode.NOT_LEADER_OR_FOLLOWER), 300)
    assert partition.next_deadline_ms() == 300 + FIRST_DELAY_MS


def test_records_that_cannot_be_appended_delay_the_partition_longer_each_time() -> None:
    """On a full disk: otherwise the same records would be fetched in a loop (R-86, R-90)."""
    partition = started()
    now_ms = 0
    for delay_ms in (2, 4, 8, 16, 32):
        effects = partition.on_fetch_answer(answer(ask(partition, now_ms), [header()]), now_ms)
        assert of_kind(effects, AppendBatches)
        partition.on_corrupt_answer(now_ms)
        assert partition.next_deadline_ms() == now_ms + delay_ms
        now_ms += delay_ms


def test_transport_error_frees_and_delays() -> None:
    """A broken stream loses the request in flight; it is sent anew after the delay (R-90)."""
    partition = started()
    request = ask(partition)
    assert partition.on_transport_error(5) == []
    assert partition.next_request(5) is None
    assert partition.next_request(5 + FIRST_DELAY_MS) == request


def test_the_end_of_an_epoch_starts_the_delays_anew() -> None:
    """A good answer is one about an epoch, too (R-90); until then the same is asked. (FE-09, R-78)."""
    partition = follower(replica_log(9, 2, [(3, 0)]), mode=TruncationMode.EPOCH_REQUEST)
    partition.start(0)
    for now_ms in (0, 100, 200):
        request = partition.next_request(now_ms)
        assert isinstance(request, EpochRequest)
        partition.on_epoch_answer(request, ErrorCode.UNKNOWN_LEADER_EPOCH, EpochEntry(-1, -1), now_ms)
    request = partition.next_request(300)
    assert isinstance(request, EpochRequest)
    partition.on_epoch_answer(request, ErrorCode.NONE, EpochEntry(3, 9), 300)
    partition.on_fetch_answer(answer(ask(partition, 300), error=ErrorCode.NOT_LEADER_OR_FOLLOWER), 300)
    assert partition.next_deadline_ms() == 300 + FIRST_DELAY_MS


def test_a_new_epoch_starts_without_a_delay() -> None:
    """What the leader before refused is no reason to let the new one wait (R-90, R-104)."""
    partition = started()
    for now_ms in (0, 100, 200):
        partition.on_fetch_answer(answer(ask(partition, now_ms), error=ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms)
    partition.update(registration(leader=2, leader_epoch=6, partition_epoch=1), 201)
    request = ask(partition, 201)
    assert request.current_leader_epoch == 6
    partition.on_fetch_answer(answer(request, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), 201)
    assert partition.next_deadline_ms() == 201 + FIRST_DELAY_MS


@pytest.mark.parametrize("mode", [TruncationMode.FETCH, TruncationMode.EPOCH_REQUEST])
def test_fenced_follower_stops_until_new_metadata(mode: TruncationMode) -> None:
    """FENCED_LEADER_EPOCH in our own epoch: failed, nothing is asked any more. (FE-08)"""
    partition = follower(replica_log(3, 0, [(4, 0)]), mode=mode)
    partition.start(0)
    request = partition.next_request(0)
    error = ErrorCode.FENCED_LEADER_EPOCH
    if isinstance(request, EpochRequest):
        effects = partition.on_epoch_answer(request, error, EpochEntry(-1, -1), 0)
    else:
        effects = partition.on_fetch_answer(FetchAnswer(3, error, 0, 0), 0)
    assert events(effects) == ["fenced", "replica_failed"]
    assert of_kind(effects, PartitionFailed)
    assert partition.failed is not None
    assert (partition.next_request(10**6), partition.next_deadline_ms()) == (None, None)


def test_full_disk_is_asked_again() -> None:
    """Records that could not be written and left nothing behind: delayed, with the position and epochs of before."""
    partition = started(2, 0, ((4, 0),))
    partition.on_fetch_answer(answer(ask(partition), [header(2, leader_epoch=5)]), 0)
    assert partition.on_corrupt_answer(0) == []
    request = ask(partition, FIRST_DELAY_MS)
    assert (request.fetch_offset, request.last_fetched_epoch) == (2, 4)
    effects = partition.on_fetch_answer(answer(request, [header(2, leader_epoch=5)]), FIRST_DELAY_MS)
    assert WriteEpochs((EpochEntry(4, 0), EpochEntry(5, 2))) in effects
