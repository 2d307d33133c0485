"""The rules of snapshots in the quorum's core: when one is taken, what stays, who is sent one, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from odradek_broker.core.partition.epochs import EpochCache, EpochEntry
from odradek_broker.core.partition.messages import ReplicaLog, WriteEpochs
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.messages import (
    AnswerFetches,
    CheckSnapshot,
    Effect,
    Fail,
    Fetch,
    FetchSnapshot,
    FetchSnapshotAnswer,
    InstallSnapshot,
    QuorumConfig,
    QuorumFetchAnswer,
    QuorumReply,
    QuorumState,
    ReceiveChunk,
    ReplyChunk,
    SegmentSize,
    SendRequest,
    Snapshot,
    SnapshotId,
    StartLogAt,
    TakeSnapshot,
    VoteAnswer,
)
from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from tests.broker.quorum_core import METADATA, NOW, answered, fetch, of

AT_10, AT_20 = SnapshotId(10, 2), SnapshotId(20, 4)
KEPT = (Snapshot(AT_10, 1_000, 5_000), Snapshot(AT_20, 1_500, 9_000))


def core_of(
    state: QuorumState,
    *,
    epochs: Sequence[tuple[int, int]] = (),
    log: tuple[int, int, int] = (0, 0, 0),
    kept: Sequence[Snapshot] = (),
    **config: int,
) -> QuorumCore:
    """Node 1 of three. `log` is (log start offset, high watermark, log end offset)."""
    cache = EpochCache(EpochEntry(*entry) for entry in epochs)
    start, high, end = log
    replica = ReplicaLog(METADATA, bytes(16), start, end, high, cache, ProducerStates(), end)
    return QuorumCore(QuorumConfig(1, (1, 2, 3), **config), replica, state, random.Random(7), kept)


def leader(**config: int) -> QuorumCore:
    """It leads epoch 6; its log starts at a snapshot and holds epochs 3 and 5: 10 to 29, of epoch 3 up to 24."""
    core = core_of(QuorumState(6, voted_id=1), epochs=[(3, 10), (5, 25)], log=(10, 20, 30), kept=KEPT, **config)
    for send in of(core.start(NOW), SendRequest)[:1]:
        core.on_answer(send, VoteAnswer(ErrorCode.NONE, -1, 6, granted=True), NOW)
    assert core.leader_id == 1
    return core


def follower(*, high_watermark: int = 4) -> tuple[QuorumCore, SendRequest]:
    """It follows node 2 in epoch 6, and has sent its first fetch."""
    core = core_of(QuorumState(6, leader_id=2), epochs=[(1, 0)], log=(0, high_watermark, 8))
    (send,) = of(core.start(NOW), SendRequest)
    return core, send


@pytest.mark.parametrize(
    ("offset", "last_epoch", "snapshot"),
    [
        (0, 0, AT_20),  # an empty log: the quickest way
        (5, 1, AT_20),  # below the log start
        (10, 1, AT_20),  # at the log start, with another record before it
        (12, 1, AT_20),  # an epoch from before the log start
        (10, 2, None),  # at the log start, with the snapshot's last record
        (30, 5, None),
        (15, 3, None),
    ],
)
def test_who_is_sent_a_snapshot(offset: int, last_epoch: int, snapshot: SnapshotId | None) -> None:
    """R-208: whoever the log cannot serve, and nobody else; it is always the newest one."""
    answer = answered(fetch(leader(), 2, offset, last_epoch, wait_ms=0, known=-1))
    assert answer.error is ErrorCode.NONE
    assert answer.snapshot == snapshot
    assert answer.diverging is None


def test_a_divergence_above_the_log_start_is_told_as_such() -> None:
    """Epoch 4 has no record here: epoch 3 ends at 25, and the log reaches back to that."""
    answer = answered(fetch(leader(), 2, 28, 4))
    assert (answer.snapshot, answer.diverging) == (None, EpochEntry(3, 25))


def ask(core: QuorumCore, piece: FetchSnapshot) -> Effect:
    """The answer to a fetch of a piece, or the order to send it."""
    effects = core.on_request(piece, "piece", NOW)
    return next(effect for effect in effects if isinstance(effect, QuorumReply | ReplyChunk))


PIECE = FetchSnapshot(2, 6, AT_20, 0, 100)


@pytest.mark.parametrize(
    ("piece", "error"),
    [
        (replace(PIECE, epoch=-1), ErrorCode.INVALID_REQUEST),
        (replace(PIECE, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (replace(PIECE, epoch=5), ErrorCode.FENCED_LEADER_EPOCH),
        (replace(PIECE, epoch=7), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (replace(PIECE, snapshot=SnapshotId(15, 3)), ErrorCode.SNAPSHOT_NOT_FOUND),
        (replace(PIECE, snapshot=SnapshotId(20, 3)), ErrorCode.SNAPSHOT_NOT_FOUND),
        (replace(PIECE, position=1_500), ErrorCode.POSITION_OUT_OF_RANGE),
        (replace(PIECE, position=-1), ErrorCode.INVALID_REQUEST),
        (replace(PIECE, max_bytes=0), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_leader_refuses_to_send(piece: FetchSnapshot, error: ErrorCode) -> None:
    """Fenced epochs first, then what is asked for (KIP-630)."""
    assert isinstance(ask(leader(), PIECE), ReplyChunk)
    reply = ask(leader(), piece)
    assert isinstance(reply, QuorumReply)
    assert reply.answer.error is error


def test_a_follower_sends_nobody_a_snapshot() -> None:
    """And says who leads."""
    core = core_of(QuorumState(6, leader_id=2), epochs=[(3, 10)], log=(10, 20, 30), kept=KEPT)
    core.start(NOW)
    reply = ask(core, PIECE)
    assert isinstance(reply, QuorumReply)
    assert (reply.answer.error, reply.answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


def test_a_fetch_of_a_snapshot_keeps_a_leader_in_office_and_commits_nothing() -> None:
    """R-211: the voter lives. How far it is nobody knows."""
    core = leader(fetch_timeout_ms=2_000)
    core.on_flushed(31, NOW)
    for after_ms in (1_000, 2_000, 3_000, 4_000):
        core.on_request(FetchSnapshot(2, 6, AT_20, 0, 100), f"piece {after_ms}", NOW + after_ms)
    assert core.leader_id == 1
    assert core.log.high_watermark == 20
    core.on_time(NOW + 7_000)
    assert core.leader_id == -1, "nobody asked for three seconds"


def test_whoever_is_sent_for_a_snapshot_keeps_a_leader_in_office() -> None:
    """R-211: the voter lives, and that it is far behind is no reason to resign."""
    core = leader(fetch_timeout_ms=2_000)
    for now_ms in range(NOW, NOW + 9_000, 1_000):
        answer = answered(fetch(core, 2, 0, 0, wait_ms=0, now_ms=now_ms))
        assert answer.snapshot == AT_20
        core.on_time(now_ms)
    assert core.leader_id == 1


def test_a_snapshot_is_put_together_checked_and_installed() -> None:
    """Piece by piece at the right place; nothing changes before it was read to its end."""
    core, send = follower()
    effects = core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 30, 20, snapshot=AT_20), NOW)
    for position, data in ((0, b"ab"), (2, b"cd")):
        (send,) = of(effects, SendRequest)
        assert send.request == FetchSnapshot(1, 6, AT_20, position, 1_048_576)
        effects = core.on_answer(send, FetchSnapshotAnswer(ErrorCode.NONE, 2, 6, AT_20, position, 4, data), NOW)
        assert of(effects, ReceiveChunk) == [ReceiveChunk(AT_20, position, data)]
    assert of(effects, CheckSnapshot) == [CheckSnapshot(AT_20)]
    assert of(effects, SendRequest) == []
    assert core.log.log_end_offset == 8
    assert core.on_time(NOW + 60_000) == [], "it is this node that keeps the leader waiting"
    effects = core.on_snapshot_checked(AT_20, Snapshot(AT_20, 4, 9_000), NOW + 60_000)
    assert [type(effect) for effect in effects if not hasattr(effect, "facts")] == [
        InstallSnapshot,
        WriteEpochs,
        SendRequest,
    ]
    (send,) = of(effects, SendRequest)
    assert isinstance(send.request, Fetch)
    assert (send.request.fetch_offset, send.request.last_epoch) == (20, 4)
    log = core.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.flushed_offset) == (20, 20, 20, 20)


@pytest.mark.parametrize(
    "answer",
    [
        FetchSnapshotAnswer(ErrorCode.NONE, 2, 6, AT_20, 2, 4, b"cd"),
        FetchSnapshotAnswer(ErrorCode.NONE, 2, 6, AT_10, 0, 4, b"ab"),
        FetchSnapshotAnswer(ErrorCode.NONE, 2, 6, AT_20, 0, 4, b""),
        FetchSnapshotAnswer(ErrorCode.NONE, 2, 6, AT_20, 0, 4, b"abcde"),
        FetchSnapshotAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, 2, 6, AT_20, 0, 4, b"ab"),
    ],
    ids=["another place", "another snapshot", "nothing", "more than its size", "an error"],
)
def test_a_piece_that_does_not_fit_is_asked_for_again(answer: FetchSnapshotAnswer) -> None:
    """Nothing of it is written, and the next request is for the same place."""
    core, send = follower()
    (send,) = of(
        core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 30, 20, snapshot=AT_20), NOW), SendRequest
    )
    effects = core.on_answer(send, answer, NOW)
    assert of(effects, ReceiveChunk) == []
    assert of(effects, CheckSnapshot) == []
    (again,) = of(core.on_time(NOW + 1_000), SendRequest)
    assert again.request == send.request


def test_a_snapshot_below_the_own_high_watermark_is_fatal() -> None:
    """It would take back what was promised (R-210)."""
    core, send = follower()
    core.log.high_watermark = 8
    answer = QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 30, 7, snapshot=SnapshotId(7, 1))
    assert of(core.on_answer(send, answer, NOW), Fail)


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_a_snapshot_that_is_gone_is_asked_for_anew(error: ErrorCode) -> None:
    """The leader has a newer one by now: an ordinary fetch says which."""
    core, send = follower()
    (send,) = of(
        core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 30, 20, snapshot=AT_20), NOW), SendRequest
    )
    core.on_answer(send, FetchSnapshotAnswer(error, 2, 6, AT_20, 0), NOW)
    (send,) = of(core.on_time(NOW + 1_000), SendRequest)
    assert isinstance(send.request, Fetch)
    assert send.request.fetch_offset == 8


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND], ids=["damaged", "gone"])
def test_a_snapshot_that_never_comes_whole_is_asked_for_more_and_more_seldom(error: ErrorCode) -> None:
    """The leader's disk has damaged it, and offers it for hours. Every try sends all of it, and is written down."""
    core, send = follower()
    now_ms, tries = NOW, 0
    while now_ms < NOW + 60_000:
        (send,) = of(
            core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 30, 20, snapshot=AT_20), now_ms), SendRequest
        )
        effects = core.on_answer(send, FetchSnapshotAnswer(error, 2, 6, AT_20, 0, 2, b"ab"), now_ms)
        if of(effects, CheckSnapshot):
            effects = core.on_snapshot_checked(AT_20, "its CRC is wrong", now_ms)
        tries += 1
        while not (sends := of(effects, SendRequest)):
            now_ms = max(now_ms, core.next_deadline_ms() or 0)
            effects = core.on_time(now_ms)
        (send,) = sends
    assert core.leader_id == 2
    assert tries < 70


def test_what_was_checked_for_an_older_leader_is_not_installed() -> None:
    """Meanwhile the node follows somebody else, who may send records."""
    core, send = follower()
    (send,) = of(
        core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, 30, 20, snapshot=AT_20), NOW), SendRequest
    )
    core.on_answer(send, FetchSnapshotAnswer(ErrorCode.NONE, 2, 6, AT_20, 0, 2, b"ab"), NOW)
    core.on_request(FetchSnapshot(3, 9, AT_20, 0, 1), "of a later epoch", NOW)
    core.on_answer(send, FetchSnapshotAnswer(ErrorCode.NONE, 3, 9, AT_20, 0, 2, b"ab"), NOW)
    assert of(core.on_snapshot_checked(AT_20, Snapshot(AT_20, 2, 9_000), NOW), InstallSnapshot) == []
    assert core.log.log_end_offset == 8


def test_a_snapshot_is_due_after_bytes_or_time() -> None:
    """`metadata.log.max.record.bytes.between.snapshots`, `metadata.log.max.snapshot.interval.ms`; one at a time."""
    core = leader(snapshot_max_bytes=100, snapshot_max_interval_ms=5_000)
    assert of(core.on_applied(99, NOW), TakeSnapshot) == []
    assert len(of(core.on_applied(1, NOW), TakeSnapshot)) == 1
    assert of(core.on_applied(500, NOW), TakeSnapshot) == [], "one is on its way"
    effects = core.on_snapshot_taken(None, (), NOW + 10, 0)
    assert len(of(effects, TakeSnapshot)) == 1, "what came meanwhile is enough for the next one"
    core.on_snapshot_taken(None, (), NOW + 10, 0)
    core.on_applied(1, NOW + 100)
    assert of(core.on_time(NOW + 1_000), TakeSnapshot) == []
    late = core_of(QuorumState(6), snapshot_max_bytes=100, snapshot_max_interval_ms=5_000)
    late.start(NOW)
    late.on_applied(1, NOW + 100)
    assert of(late.on_time(NOW + 5_099), TakeSnapshot) == []
    assert len(of(late.on_time(NOW + 5_100), TakeSnapshot)) == 1


SEGMENTS = (SegmentSize(18, 400), SegmentSize(26, 400))
AT_28 = Snapshot(SnapshotId(28, 5), 1_600, 12_000)


@pytest.mark.parametrize(
    ("retention", "wall_ms", "kept", "first_epoch"),
    [
        ({"retention_bytes": 4_900, "retention_ms": -1}, 0, [10, 20, 28], EpochEntry(3, 10)),
        ({"retention_bytes": 4_899, "retention_ms": -1}, 0, [20, 28], EpochEntry(3, 18)),
        ({"retention_bytes": 2_000, "retention_ms": -1}, 0, [28], EpochEntry(5, 26)),
        ({"retention_bytes": 0, "retention_ms": -1}, 0, [28], EpochEntry(5, 26)),
        ({"retention_bytes": -1, "retention_ms": 4_000}, 9_000, [10, 20, 28], EpochEntry(3, 10)),
        ({"retention_bytes": -1, "retention_ms": 4_000}, 9_001, [20, 28], EpochEntry(3, 18)),
        ({"retention_bytes": -1, "retention_ms": 4_000}, 1 << 40, [28], EpochEntry(5, 26)),
    ],
)
def test_old_snapshots_go_and_the_log_below_them(
    retention: dict[str, int], wall_ms: int, kept: list[int], first_epoch: EpochEntry
) -> None:
    """By size or age, the oldest first; one stays. Epochs are kept as far as there are segments."""
    core = leader(**retention)
    effects = core.on_snapshot_taken(AT_28, SEGMENTS, NOW, wall_ms)
    assert core.latest_snapshot == AT_28.id
    moved = [effect.snapshot.end_offset for effect in of(effects, StartLogAt)]
    assert moved == ([kept[0]] if kept[0] > 10 else [])
    assert core.log.log_start_offset == kept[0]
    assert core.log.epochs.entries[0] == first_epoch
    assert bool(of(effects, WriteEpochs)) is (first_epoch != EpochEntry(3, 10))
    sent = answered(fetch(core, 3, 0, 0))
    assert sent.snapshot == AT_28.id


def test_a_fetch_whose_records_went_within_the_turn_is_sent_the_snapshot() -> None:
    """R-208: what it was to be sent when it came is not in the log any more."""
    core = leader(retention_bytes=0, retention_ms=-1)
    effects = core.on_request(Fetch(2, 6, 15, 3, 20, 500, 1 << 20), "fetch", NOW)
    assert of(effects, AnswerFetches)
    core.on_snapshot_taken(AT_28, SEGMENTS, NOW, 0)
    assert core.log.log_start_offset == 28
    assert answered(core.answer_fetches(NOW)).snapshot == AT_28.id


def test_a_snapshot_goes_without_the_log_while_its_segment_holds_newer_records() -> None:
    """Records go by whole segments: one that reaches from before the snapshot to behind it stays, epochs and all."""
    epochs = [(1, 0), (3, 10), (5, 25)]
    core = core_of(QuorumState(6), epochs=epochs, log=(0, 20, 30), kept=KEPT, retention_bytes=3_000)
    core.start(NOW)
    effects = core.on_snapshot_taken(AT_28, [SegmentSize(30, 400)], NOW, 0)
    assert [effect.snapshot.end_offset for effect in of(effects, StartLogAt)] == [28]
    assert of(effects, WriteEpochs) == []
    assert core.log.epochs.entries == tuple(EpochEntry(*entry) for entry in epochs)


def test_a_log_that_is_cut_back_to_its_snapshot_knows_the_epoch_below() -> None:
    """R-208, R-210: by that the leader sees that both agree there, and sends records and no snapshot again."""
    core = core_of(QuorumState(6, leader_id=2), epochs=[(4, 10)], log=(10, 10, 15), kept=KEPT[:1])
    (send,) = of(core.start(NOW), SendRequest)
    effects = core.on_answer(send, QuorumFetchAnswer(ErrorCode.NONE, 2, 6, -1, 0, EpochEntry(2, 10)), NOW)
    assert of(effects, WriteEpochs) == [WriteEpochs((EpochEntry(2, 10),))]
    (again,) = of(effects, SendRequest)
    assert isinstance(again.request, Fetch)
    assert (again.request.fetch_offset, again.request.last_epoch) == (10, 2)
