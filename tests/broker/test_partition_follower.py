"""What a follower asks, and what it makes of the answers (A7)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.follower import FIRST_DELAY_MS, FetchPhase
from odradek_broker.core.partition.messages import (
    AdvanceLogStart,
    AppendBatches,
    FetchAnswer,
    HighWatermarkAdvanced,
    OffsetsRequest,
    PartitionFailed,
    RequestReady,
    RestartLog,
    Transition,
    Truncate,
    WriteEpochs,
)
from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader

from tests.scripts.roles import answer, ask, events, follower, header, of_kind, replica_log, started, take


def diverging(offset: int, epoch: int, end: int) -> FetchAnswer:
    return FetchAnswer(offset, ErrorCode.NONE, 160, 0, (), EpochEntry(epoch, end), 5)


# --- Records -------------------------------------------------------------------------------------------------------


def test_fetch_names_offset_and_epochs() -> None:
    """Every fetch carries the log end offset, the newest epoch, the leader epoch and the log start offset (R-79)."""
    partition = follower(replica_log(9, 6, [(2, 3), (4, 8)], log_start_offset=3))
    assert RequestReady() in partition.start(0)
    request = ask(partition)
    assert (request.fetch_offset, request.last_fetched_epoch, request.current_leader_epoch) == (9, 4, 5)
    assert request.log_start_offset == 3


def test_one_request_at_a_time() -> None:
    """While a request is out there is no other (R-72)."""
    partition = started()
    ask(partition)
    assert partition.next_request(0) is None
    assert partition.next_deadline_ms() is None


def test_a_log_start_that_has_not_moved_is_not_moved_again() -> None:
    """The leader says it with each answer (R-162)."""
    partition = started(9, 8, ((4, 0),))
    counts = []
    for log_start in (3, 3, 2, 4):
        effects = partition.on_fetch_answer(answer(ask(partition), high_watermark=8, log_start=log_start), 0)
        counts.append(len(of_kind(effects, AdvanceLogStart)))
    assert counts == [1, 0, 0, 1]
    assert [bool(partition.on_log_start_advanced(offset, 0)) for offset in (4, 5, 5)] == [False, True, False]


def test_epochs_below_the_log_start_are_forgotten_on_the_disk_too() -> None:
    """The epoch that holds the first record begins with it (R-64)."""
    partition = started(9, 8, ((0, 0), (4, 5)))
    effects = partition.on_log_start_advanced(7, 0)
    assert effects == [AdvanceLogStart(7), WriteEpochs((EpochEntry(4, 7),))]


def test_records_of_a_known_epoch_write_no_epochs() -> None:
    """The file is written when an epoch begins, not with each answer."""
    partition = started(2, 0, ((4, 0),))
    batches = [header(2, 3, leader_epoch=4)]
    assert partition.on_fetch_answer(answer(ask(partition), batches), 0) == [AppendBatches(batches)]


def test_records_are_appended_before_the_bounds_move() -> None:
    """Epochs, data, high watermark, log start offset, next request, in this order (R-60, R-81, R-162, R-222)."""
    partition = started(2, 0, ((4, 0),))
    batches = [header(2, 3, leader_epoch=4), header(5, 1, leader_epoch=5)]
    effects = partition.on_fetch_answer(answer(ask(partition), batches, high_watermark=9, log_start=1), 0)
    assert effects == [WriteEpochs((EpochEntry(4, 0), EpochEntry(5, 5))), AppendBatches(batches)]
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (2, 0)
    effects = take(partition, effects)
    assert effects[:2] == [HighWatermarkAdvanced(0, 6), AdvanceLogStart(1)]
    assert effects[-1] == RequestReady()
    assert (partition.log.log_end_offset, partition.log.log_start_offset) == (6, 1)
    assert ask(partition).last_fetched_epoch == 5


def test_empty_answer_is_processed_and_loses_nothing() -> None:
    """High watermark and log start offset of an empty answer count. (FE-20, R-82)

    And the next fetch names the last fetched epoch again (R-81, KAFKA-15510).
    """
    partition = started(8, 2, ((4, 0),))
    effects = partition.on_fetch_answer(answer(ask(partition), high_watermark=7, log_start=3), 0)
    assert of_kind(effects, HighWatermarkAdvanced) == [HighWatermarkAdvanced(2, 7)]
    assert partition.log.log_start_offset == 3
    assert ask(partition).last_fetched_epoch == 4


def test_high_watermark_may_fall() -> None:
    """A new leader may know less; consumers are not woken by that (R-27)."""
    partition = started(8, 6, ((4, 0),))
    effects = partition.on_fetch_answer(answer(ask(partition), high_watermark=3), 0)
    assert (partition.log.high_watermark, of_kind(effects, HighWatermarkAdvanced)) == (3, [])


def test_high_watermark_stays_within_the_log() -> None:
    """3 records: 0, then 1 as told, 3 for 5; 6 with the next 3; a cut to 3: 3; begun anew at 4: 4 (R-30, LG-01)."""
    partition = started()
    log = partition.log
    three = [header(0, 3, leader_epoch=4)]
    take(partition, partition.on_fetch_answer(answer(ask(partition), three, high_watermark=0), 0))
    assert (log.high_watermark, log.log_end_offset) == (0, 3)
    for told, expected in ((1, 1), (5, 3)):
        partition.on_fetch_answer(answer(ask(partition), high_watermark=told), 0)
        assert log.high_watermark == expected
    more = [header(3, 3, leader_epoch=4)]
    take(partition, partition.on_fetch_answer(answer(ask(partition), more, high_watermark=6), 0))
    assert log.high_watermark == 6
    ask(partition)
    assert of_kind(partition.on_fetch_answer(diverging(6, 4, 3), 0), Truncate)
    partition.on_truncated(3, 0)
    assert (log.high_watermark, log.log_end_offset) == (3, 3)
    partition.on_fetch_answer(answer(ask(partition), error=ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    question = partition.next_request(0)
    assert isinstance(question, OffsetsRequest)
    assert of_kind(partition.on_offsets_answer(question, ErrorCode.NONE, 4, 9, 0), RestartLog)
    partition.on_restarted(4, 0)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 4, 4)


def test_high_watermark_never_falls_below_the_own_log_start() -> None:
    """This replica may have deleted more than a new leader knows to be committed (R-27, R-164)."""
    partition = follower(replica_log(9, 8, [(4, 0)], log_start_offset=6))
    partition.start(0)
    partition.on_fetch_answer(answer(ask(partition), high_watermark=2), 0)
    assert (partition.log.log_start_offset, partition.log.high_watermark) == (6, 6)


def test_log_start_never_passes_the_high_watermark() -> None:
    """Whatever an answer says, nothing is dropped that is not known to be committed (R-160, R-162)."""
    partition = started(9, 4, ((4, 0),))
    effects = partition.on_fetch_answer(answer(ask(partition), high_watermark=5, log_start=7), 0)
    assert of_kind(effects, AdvanceLogStart) == [AdvanceLogStart(5)]
    assert (partition.log.log_start_offset, partition.log.high_watermark) == (5, 5)


def test_batches_without_an_epoch_leave_no_entry() -> None:
    """They are appended, and the epochs stay as they are (R-61, KAFKA-7897)."""
    partition = started(2, 0, ((4, 0),))
    batches = [header(2, 3), header(5, leader_epoch=5)]
    effects = partition.on_fetch_answer(answer(ask(partition), batches), 0)
    assert effects == [WriteEpochs((EpochEntry(4, 0), EpochEntry(5, 5))), AppendBatches(batches)]


def test_nothing_is_asked_while_the_disk_is_busy() -> None:
    """The next request speaks of where the log ends: not before records are written, or a cut is made (R-72)."""
    partition = started(9, 8, ((4, 0),))
    effects = partition.on_fetch_answer(answer(ask(partition), [header(9, leader_epoch=5)]), 0)
    assert partition.next_request(0) is None
    take(partition, effects)
    partition.on_fetch_answer(diverging(ask(partition).fetch_offset, 4, 7), 0)
    assert (partition.next_request(0), partition.next_deadline_ms()) == (None, None)
    partition.on_truncated(7, 0)
    assert ask(partition).fetch_offset == 7


def test_answer_to_something_else_is_dropped() -> None:
    """Another offset, another epoch, nothing in flight: no effect (R-80)."""
    partition = started(8, 2, ((4, 0),))
    request = ask(partition)
    late = answer(request, high_watermark=5)
    assert partition.on_fetch_answer(FetchAnswer(7, ErrorCode.NONE, 5, 0), 0) == []
    assert partition.on_fetch_answer(FetchAnswer(8, ErrorCode.NONE, 5, 0, current_leader_epoch=4), 0) == []
    assert partition.log.high_watermark == 2
    partition.on_fetch_answer(late, 0)
    assert partition.on_fetch_answer(late, 0) == []


def test_corrupt_answer_appends_nothing_and_is_asked_again() -> None:
    """A corrupt batch: nothing of the answer is appended, the next fetch after the delay succeeds. (FE-13)"""
    partition = started()
    ask(partition)
    assert partition.on_corrupt_answer(100) == []
    assert partition.next_request(100) is None
    assert partition.next_deadline_ms() == 100 + FIRST_DELAY_MS
    assert ask(partition, 100 + FIRST_DELAY_MS).fetch_offset == 0


@pytest.mark.parametrize(
    "batches",
    [
        [header(2, 3, leader_epoch=5), header(4, 1, leader_epoch=5)],  # offsets go back
        [header(2, 3, leader_epoch=6)],  # an epoch that the leader of epoch 5 cannot have
    ],
)
def test_misplaced_batches_are_not_appended(batches: list[BatchHeader]) -> None:
    """Whatever does not fit is treated as corrupt (R-86, R-221)."""
    partition = started(2, 0, ((4, 0),))
    request = ask(partition)
    assert partition.on_fetch_answer(answer(request, batches), 0) == []
    assert (partition.log.log_end_offset, partition.failed) == (2, None)


@pytest.mark.parametrize("first", [0, 3])
def test_a_gap_is_damage_unless_the_log_was_compacted(first: int) -> None:
    """No CRC covers the base offset: what does not follow is asked for again, not stored with a hole (R-221, R-86)."""
    partition = started()
    received = [header(first, leader_epoch=5), header(9, leader_epoch=5)]
    assert partition.on_fetch_answer(answer(ask(partition), received), 0) == []
    assert partition.log.log_end_offset == 0
    partition.log.gaps = True
    take(partition, partition.on_fetch_answer(answer(ask(partition, 5_000), received), 5_000))
    assert partition.log.log_end_offset == 10


@pytest.mark.parametrize("epochs", [(3,), (4, 5, 4), (6,)])
def test_an_epoch_that_falls_or_is_above_the_leaders_is_damage(epochs: tuple[int, ...]) -> None:
    """No CRC covers the leader epoch either; one that falls would drop the epochs above it (R-60, R-86)."""
    partition = started(9, 8, ((4, 0),))
    received = [header(9 + place, leader_epoch=epoch) for place, epoch in enumerate(epochs)]
    assert partition.on_fetch_answer(answer(ask(partition), received), 0) == []
    assert partition.log.epochs.entries == ((4, 0),)


def test_batch_below_the_log_end_fails_unless_the_log_is_empty() -> None:
    """Empty at 5: a batch at 3 fails; one of 4 to 6 restarts the log at 4; later ones below the end fail. (PA-27)"""
    refused = follower(replica_log(5, 5, log_start_offset=5))
    refused.start(0)
    effects = refused.on_fetch_answer(answer(ask(refused), [header(3, 1, leader_epoch=5)]), 0)
    assert of_kind(effects, PartitionFailed)
    partition = follower(replica_log(5, 5, log_start_offset=5))
    partition.start(0)
    batches = [header(4, 3, leader_epoch=5)]
    effects = partition.on_fetch_answer(answer(ask(partition), batches, high_watermark=7, log_start=5), 0)
    assert [effect.offset for effect in of_kind(effects, RestartLog)] == [4]
    effects = partition.on_restarted(4, 0)
    assert effects == [WriteEpochs((EpochEntry(5, 4),)), AppendBatches(batches)]
    take(partition, effects)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (5, 7)
    effects = partition.on_fetch_answer(answer(ask(partition), [header(6, 3, leader_epoch=5)]), 0)
    assert of_kind(effects, PartitionFailed)


@pytest.mark.parametrize("last", [4, 5, 6])
def test_an_empty_log_begins_anew_where_a_batch_reaches_its_start(last: int) -> None:
    """Empty at 5: a batch from 3 on that ends below 5 fails, one that holds 5 restarts the log at 3 (R-85)."""
    partition = follower(replica_log(5, 5, log_start_offset=5))
    partition.start(0)
    batch = header(3, last - 2, leader_epoch=5)
    effects = partition.on_fetch_answer(answer(ask(partition), [batch], high_watermark=5, log_start=5), 0)
    assert [each.offset for each in of_kind(effects, RestartLog)] == ([] if last < 5 else [3])
    assert bool(of_kind(effects, PartitionFailed)) == (last < 5)


def test_position_waits_for_the_flush_before_ack() -> None:
    """With odradek.fsync=before-ack a follower tells its position only after its flush."""
    partition = follower(replica_log(), flush_before_ack=True)
    partition.start(0)
    effects = partition.on_fetch_answer(answer(ask(partition), [header(0, 4, leader_epoch=5)]), 0)
    assert RequestReady() not in take(partition, effects)
    assert partition.next_request(0) is None
    assert partition.on_flushed(3, 0) == []
    assert partition.on_flushed(4, 0) == [RequestReady()]
    assert ask(partition).fetch_offset == 4


def test_a_flush_that_ends_within_a_back_off_is_news_all_the_same() -> None:
    """The stream broke while the disk was busy: only now does the partition have a deadline that can be waited for."""
    partition = follower(replica_log(), flush_before_ack=True)
    partition.start(0)
    take(partition, partition.on_fetch_answer(answer(ask(partition), [header(0, 4, leader_epoch=5)]), 0))
    partition.on_transport_error(0)
    assert (partition.next_request(0), partition.next_deadline_ms()) == (None, None)
    assert partition.on_flushed(4, 1) == [RequestReady()]
    assert (partition.next_request(1), partition.next_deadline_ms()) == (None, FIRST_DELAY_MS)
    assert partition.next_request(FIRST_DELAY_MS) is not None


# --- Divergence on fetch -------------------------------------------------------------------------------------------


def test_divergence_cuts_step_by_step_and_moves_no_bound() -> None:
    """(4,140): 140; (3,130), which we never had, while our 2 ends at 129: 129; (2,120): 120. (FE-15, FE-19)

    The high watermark of such an answer, 160, is not taken over (R-28, KAFKA-14704).
    """
    partition = started(200, 115, ((1, 0), (2, 119), (4, 129)))
    for epoch, end, cut in ((4, 140, 140), (3, 130, 129), (2, 120, 120)):
        effects = partition.on_fetch_answer(diverging(ask(partition).fetch_offset, epoch, end), 0)
        assert [effect.offset for effect in of_kind(effects, Truncate)] == [cut]
        assert events(effects) == ["truncated"]
        assert RequestReady() in partition.on_truncated(cut, 0)
        assert (partition.phase, partition.log.log_end_offset, partition.log.high_watermark) == (
            FetchPhase.FETCHING,
            cut,
            115,
        )


def test_divergence_takes_no_records_with_it() -> None:
    """One truncation to 3 with the high watermark as it was; the next answers bring the end and the bound. (FE-03)"""
    partition = started(5, 1, ((0, 0), (4, 3)))
    ask(partition)
    effects = partition.on_fetch_answer(diverging(5, 0, 3), 0)
    assert [effect.offset for effect in of_kind(effects, Truncate)] == [3]
    partition.on_truncated(3, 0)
    assert (partition.log.high_watermark, ask(partition).last_fetched_epoch) == (1, 0)


def test_divergence_by_the_last_epoch() -> None:
    """The last record differs by epoch: last fetched epoch 4, then 2 after the cut, then 5 after the fetch. (FE-02)"""
    partition = started(3, 0, ((0, 0), (2, 1), (4, 2)))
    assert ask(partition).last_fetched_epoch == 4
    partition.on_fetch_answer(diverging(3, 2, 2), 0)
    effects = partition.on_truncated(2, 0)
    assert of_kind(effects, WriteEpochs) == [WriteEpochs((EpochEntry(0, 0), EpochEntry(2, 1)))]
    request = ask(partition)
    assert (request.fetch_offset, request.last_fetched_epoch) == (2, 2)
    take(partition, partition.on_fetch_answer(answer(request, [header(2, leader_epoch=5)]), 0))
    assert ask(partition).last_fetched_epoch == 5


def test_epoch_without_records_is_dropped_without_a_truncation() -> None:
    """A former leader that wrote nothing names an epoch that nobody knows: only the entry goes (KAFKA-10706, R-68)."""
    partition = started(9, 9, ((2, 0), (4, 9)))
    assert ask(partition).last_fetched_epoch == 4
    effects = partition.on_fetch_answer(diverging(9, 2, 12), 0)
    assert effects == [WriteEpochs((EpochEntry(2, 0),)), RequestReady()]
    assert ask(partition).last_fetched_epoch == 2


def test_divergence_that_changes_nothing_is_not_asked_in_circles() -> None:
    """An answer that leaves nothing to cut delays the next fetch."""
    partition = started(9, 9, ((2, 0),))
    ask(partition)
    assert partition.on_fetch_answer(diverging(9, 2, 12), 50) == []
    assert partition.next_deadline_ms() == 50 + FIRST_DELAY_MS


def test_storage_may_cut_lower_than_asked() -> None:
    """A batch that spans the offset goes whole; the follower goes on from where the log really ends (R-230)."""
    partition = started(9, 8, ((2, 0),))
    ask(partition)
    partition.on_fetch_answer(diverging(9, 2, 7), 0)
    partition.on_truncated(5, 0)
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (5, 5)
    assert ask(partition).fetch_offset == 5


def test_what_was_flushed_is_cut_with_the_log() -> None:
    """Records that took the place of those that were cut are not flushed because those were (R-30, R-230)."""
    partition = follower(replica_log(9, 8, [(4, 0)]), flush_before_ack=True)
    partition.start(0)
    partition.on_fetch_answer(diverging(ask(partition).fetch_offset, 4, 5), 0)
    partition.on_truncated(5, 0)
    take(partition, partition.on_fetch_answer(answer(ask(partition), [header(5, 2, leader_epoch=5)]), 0))
    assert partition.next_request(0) is None
    assert partition.on_flushed(7, 0) == [RequestReady()]


def test_a_log_that_began_anew_has_nothing_to_flush() -> None:
    """It is empty, so its start may be told at once; and no producer is known in it (R-67, R-231)."""
    partition = follower(replica_log(3, 2, [(4, 0)]), flush_before_ack=True)
    partition.log.producers.update(header(0, producer_id=9, producer_epoch=0, sequence=0))
    partition.start(0)
    partition.on_fetch_answer(answer(ask(partition), error=ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    question = partition.next_request(0)
    assert isinstance(question, OffsetsRequest)
    partition.on_offsets_answer(question, ErrorCode.NONE, 7, 9, 0)
    partition.on_restarted(7, 0)
    assert ask(partition).fetch_offset == 7
    assert list(partition.log.producers.entries()) == []


def test_a_cut_below_the_own_log_start_takes_it_along() -> None:
    """After an unclean election the leader may end below it; the log is empty then (R-30)."""
    log = replica_log(9, 8, [(2, 5)], log_start_offset=5)
    partition = follower(log)
    partition.start(0)
    partition.on_fetch_answer(diverging(ask(partition).fetch_offset, 2, 3), 0)
    partition.on_truncated(3, 0)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 3, 3)


def test_a_cut_below_the_high_watermark_is_written_down_before_it_happens() -> None:
    """From where to where, and what was committed: the evidence of an unclean election (R-92)."""
    partition = started(9, 8, ((2, 0),))
    announced, order = partition.on_fetch_answer(diverging(ask(partition).fetch_offset, 2, 5), 0)
    assert isinstance(announced, Transition)
    assert (announced.event, announced.facts["from"], announced.facts["to"]) == ("truncated", 9, 5)
    assert (announced.facts["high_watermark"], announced.facts["leader_epoch"]) == (8, 5)
    assert isinstance(order, Truncate)
    assert order.offset == 5
