"""The protocol before Kafka 0.11 at one replica: what a follower takes over and cuts, and when it hears of a commit."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.messages import FetchRequest, OffsetsRequest, RestartLog, Truncate, TruncationMode
from odradek_proto.errors import ErrorCode

from tests.scripts.in_memory import header, registration, replica_log
from tests.scripts.roles import answer, append, ask, fetch, follower, leader, of_kind, take

OLD = TruncationMode.HIGH_WATERMARK


def test_the_high_watermark_in_memory_is_the_one_to_cut_at() -> None:
    """At process start it is what the log was opened with, later what the last answer said, up or down (L-2)."""
    partition = follower(replica_log(9, 2), mode=OLD)
    assert [cut.offset for cut in of_kind(partition.start(0), Truncate)] == [2]
    partition.on_truncated(2, 0)
    take(partition, partition.on_fetch_answer(answer(ask(partition), [header(2, 6)], high_watermark=5), 0))
    later = registration(leader=2, leader_epoch=6, partition_epoch=1)
    assert [cut.offset for cut in of_kind(partition.update(later, 0), Truncate)] == [5]


@pytest.mark.parametrize(("told", "expected"), [(1, 1), (4, 4), (5, 5), (9, 5)])
def test_the_followers_high_watermark_is_that_of_the_answer_within_its_log(told: int, expected: int) -> None:
    """The smaller one of the own log end offset, here 5, and what the leader says; it may fall (L-3)."""
    partition = follower(replica_log(3, 3), mode=OLD, previous_leader=0)
    partition.start(0)
    take(partition, partition.on_fetch_answer(answer(ask(partition), [header(3, 2)], high_watermark=told), 0))
    assert partition.log.high_watermark == expected


@pytest.mark.parametrize(
    ("start", "end", "cut", "anew"),
    [(0, 6, [6], []), (4, 6, [6], []), (12, 20, [], [12])],
    ids=["ends below", "begins above our start", "begins above our end"],
)
def test_who_is_ahead_of_its_leader_cuts_at_the_leaders_end(
    start: int, end: int, cut: list[int], anew: list[int]
) -> None:
    """Out of range: the leader's log ends below ours, or begins above it (L-8). Nobody compares what is kept."""
    partition = follower(replica_log(9, 8, [(3, 0)]), mode=OLD, previous_leader=0)
    partition.start(0)
    assert partition.on_fetch_answer(answer(ask(partition), error=ErrorCode.OFFSET_OUT_OF_RANGE), 0) is not None
    question = partition.next_request(0)
    assert isinstance(question, OffsetsRequest)
    assert question.current_leader_epoch == -1
    effects = partition.on_offsets_answer(question, ErrorCode.NONE, start, end, 0)
    assert [each.offset for each in of_kind(effects, Truncate)] == cut
    assert [each.offset for each in of_kind(effects, RestartLog)] == anew
    if cut:
        partition.on_truncated(cut[0], 0)
    else:
        partition.on_restarted(anew[0], 0)
    offset = (cut + anew)[0]
    request = partition.next_request(0)
    assert isinstance(request, FetchRequest)
    assert (request.fetch_offset, partition.log.high_watermark) == (offset, min(8, offset) if cut else offset)


def test_an_answer_carries_the_high_watermark_from_before_its_fetch() -> None:
    """The fetch that commits a record does not say so; the next one does (L-11, R-24)."""
    partition = leader(metadata=registration(replicas=[0, 1]), mode=OLD)
    append(partition)
    told = []
    for _ in range(2):
        decision, _ = partition.fetch_by_follower(fetch(1, 1, epoch=-1), 0)
        told.append((decision.high_watermark, partition.log.high_watermark))
    assert told == [(0, 1), (1, 1)]
