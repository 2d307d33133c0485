"""Followers of the quorum: what they append, what they cut off, when they say how far they are (R-207, R-210)."""

from __future__ import annotations

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.messages import WriteEpochs
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.messages import (
    AppendFetched,
    BeginEpoch,
    Fail,
    Fetch,
    FlushLog,
    QuorumFetchAnswer,
    QuorumHighWatermarkAdvanced,
    SendRequest,
    TruncateLog,
)
from odradek_broker.core.quorum.roles import Follower
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch, read_header
from odradek_proto.values import replace

from tests.broker.quorum_core import NOW, core_with, leader_with, of


def follower(high_watermark: int = 0) -> tuple[QuorumCore, SendRequest]:
    """A follower of node 2 in epoch 6, with epochs 1@0, 3@3, 5@6 and a log end offset of 9; and its fetch in flight."""
    core = core_with(epochs=[(1, 0), (3, 3), (5, 6)], log_end_offset=9, high_watermark=high_watermark)
    (send,) = of(core.on_request(BeginEpoch(2, 6), "begin", NOW), SendRequest)
    return core, send


def records(base_offset: int, count: int, epoch: int, high_watermark: int = 0) -> QuorumFetchAnswer:
    data = encode_batch([(0, None, b"x", ())] * count, base_offset=base_offset, leader_epoch=epoch)
    return QuorumFetchAnswer(ErrorCode.NONE, 2, 6, high_watermark, 0, None, data, [read_header(data)])


def test_a_follower_asks_from_the_end_of_its_log() -> None:
    """R-208: with the epoch of its last record, by which the leader sees whether the logs agree."""
    _, send = follower(high_watermark=4)
    assert send.peer_id == 2
    assert send.request == Fetch(1, 6, 9, 5, 4, 500, 1 << 20)


def test_the_next_fetch_waits_for_the_flush() -> None:
    """R-207: its offset says that everything below is on the disk."""
    core, send = follower()
    effects = core.on_answer(send, records(9, 2, 6), NOW)
    kinds = [type(effect) for effect in effects if isinstance(effect, WriteEpochs | AppendFetched | FlushLog)]
    assert kinds == [WriteEpochs, AppendFetched, FlushLog], "the epoch is noted before its first record (R-60)"
    assert not of(effects, SendRequest)
    assert not of(core.on_time(NOW + 100), SendRequest)
    (again,) = of(core.on_flushed(11, NOW + 101), SendRequest)
    assert isinstance(again.request, Fetch)
    assert (again.request.fetch_offset, again.request.last_epoch) == (11, 6)


def test_records_of_a_known_epoch_write_no_epochs() -> None:
    """The file is written when an epoch begins, not with each answer."""
    core, send = follower()
    effects = core.on_answer(send, records(9, 2, 5), NOW)
    kinds = [type(effect) for effect in effects if isinstance(effect, WriteEpochs | AppendFetched | FlushLog)]
    assert kinds == [AppendFetched, FlushLog]


def test_a_diverging_answer_cuts_the_log_and_asks_again() -> None:
    """RA-07: the leader's epoch 3 ended at 5, ours at 6."""
    core, send = follower()
    effects = core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, -1, 0, EpochEntry(3, 5)), NOW)
    assert [cut.offset for cut in of(effects, TruncateLog)] == [5]
    assert core.log.epochs.entries == (EpochEntry(1, 0), EpochEntry(3, 3))
    (again,) = of(effects, SendRequest)
    assert isinstance(again.request, Fetch)
    assert (again.request.fetch_offset, again.request.last_epoch) == (5, 3)


def test_an_epoch_that_only_the_leader_has_cuts_to_the_end_of_the_one_before() -> None:
    """R-210: what the follower has behind its end of epoch 3 the leader does not have."""
    core, send = follower()
    effects = core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, -1, 0, EpochEntry(4, 20)), NOW)
    assert [cut.offset for cut in of(effects, TruncateLog)] == [6]


def test_a_diverging_answer_moves_no_high_watermark() -> None:
    """KAFKA-14704, R-28: what is left after the first cut may still be other than what the leader has committed."""
    core, send = follower(high_watermark=3)
    effects = core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 12, 0, EpochEntry(4, 20)), NOW)
    assert [cut.offset for cut in of(effects, TruncateLog)] == [6]
    assert not of(effects, QuorumHighWatermarkAdvanced)
    (again,) = of(effects, SendRequest)
    effects = core.on_answer(again, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 12, 0, EpochEntry(2, 4)), NOW)
    assert not of(effects, Fail)
    assert [cut.offset for cut in of(effects, TruncateLog)] == [3]
    assert core.log.high_watermark == 3


def test_cutting_below_the_high_watermark_is_fatal() -> None:
    """R-210: it was promised; never silently."""
    core, send = follower(high_watermark=6)
    effects = core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, -1, 0, EpochEntry(3, 5)), NOW)
    assert of(effects, Fail)
    assert not of(effects, TruncateLog)


def test_the_high_watermark_never_passes_the_log_nor_falls() -> None:
    """R-210."""
    core, send = follower(high_watermark=4)
    effects = core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 30), NOW)
    assert of(effects, QuorumHighWatermarkAdvanced) == [QuorumHighWatermarkAdvanced(4, 9)]
    (again,) = of(effects, SendRequest)
    assert not of(core.on_answer(again, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 5), NOW), QuorumHighWatermarkAdvanced)
    assert core.log.high_watermark == 9


def test_records_that_do_not_follow_are_never_written() -> None:
    """No sound leader sends them."""
    for answer in (records(10, 1, 6), records(8, 2, 6), records(9, 1, 4), records(9, 1, 7)):
        core, send = follower()
        effects = core.on_answer(send, answer, NOW)
        assert of(effects, Fail)
        assert not of(effects, AppendFetched)


def test_an_answer_to_an_older_role_is_ignored() -> None:
    """R-213: what the old leader said of its log says nothing of the new one's."""
    core, send = follower()
    core.on_request(BeginEpoch(3, 7), "begin", NOW)
    effects = core.on_answer(send, records(9, 2, 6), NOW)
    assert not of(effects, AppendFetched)
    assert core.log.log_end_offset == 9


def test_an_error_is_followed_by_a_growing_pause() -> None:
    """A leader that refuses is not asked a thousand times a second."""
    core, send = follower()
    refusal = QuorumFetchAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, -1, 6)
    core.on_answer(send, refusal, NOW)
    assert not of(core.on_time(NOW + 19), SendRequest)
    (again,) = of(core.on_time(NOW + 20), SendRequest)
    core.on_answer(again, refusal, NOW + 20)
    assert not of(core.on_time(NOW + 59), SendRequest)
    assert of(core.on_time(NOW + 60), SendRequest)
    assert isinstance(core.role, Follower)


def test_a_pause_is_short_again_after_an_answer() -> None:
    """Only errors one after the other make it grow."""
    core, send = follower()
    refusal = QuorumFetchAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, -1, 6)
    core.on_answer(send, refusal, NOW)
    (send,) = of(core.on_time(NOW + 20), SendRequest)
    (send,) = of(core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6), NOW + 20), SendRequest)
    core.on_answer(send, refusal, NOW + 30)
    assert not of(core.on_time(NOW + 49), SendRequest)
    assert of(core.on_time(NOW + 50), SendRequest)


def test_an_answer_of_an_older_epoch_is_ignored() -> None:
    """R-213: whoever gave it does not know yet that it leads no more."""
    core, send = follower()
    effects = core.on_answer(send, replace(records(9, 2, 5, high_watermark=9), epoch=5), NOW)
    assert not of(effects, AppendFetched)
    assert not of(effects, QuorumHighWatermarkAdvanced)


def test_an_epoch_that_went_on_at_the_leader_is_cut_where_ours_ended() -> None:
    """R-210: the smaller of both ends. What we have behind our end of epoch 3 is of an epoch that it never had."""
    core, send = follower()
    effects = core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, -1, 0, EpochEntry(3, 8)), NOW)
    assert [cut.offset for cut in of(effects, TruncateLog)] == [6]
    assert core.log.epochs.entries == (EpochEntry(1, 0), EpochEntry(3, 3))


def test_a_flush_from_before_a_cut_says_nothing_of_what_came_then() -> None:
    """R-207: 9 was flushed, 5 was cut, and 6 and 7 are other records: the next leader must not count them yet."""
    core, send = follower()
    effects = core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, -1, 0, EpochEntry(3, 5)), NOW)
    (send,) = of(effects, SendRequest)
    core.on_answer(send, records(5, 2, 6), NOW)
    effects = core.on_request(BeginEpoch(3, 7), "begin", NOW)
    assert not of([*effects, *core.on_time(NOW + 100)], SendRequest)
    assert [send.peer_id for send in of(core.on_flushed(7, NOW + 101), SendRequest)] == [3]


def test_a_leader_that_follows_flushes_first_what_it_appended() -> None:
    """R-207: its record may be the leader's, too, who would count it as being on two disks."""
    core = leader_with(epochs=[(1, 0)], log_end_offset=10, epoch=5)
    effects = core.on_request(BeginEpoch(3, 7), "begin", NOW)
    assert not [
        send for send in of([*effects, *core.on_time(NOW + 100)], SendRequest) if isinstance(send.request, Fetch)
    ]
    assert not of(core.on_flushed(10, NOW + 101), SendRequest), "that flush began before"
    (send,) = of(core.on_flushed(11, NOW + 102), SendRequest)
    assert isinstance(send.request, Fetch)
    assert (send.peer_id, send.request.fetch_offset) == (3, 11)
