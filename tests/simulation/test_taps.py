"""What is heard of requests and answers: who knew which epoch and when, and when a reader's end fell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from odradek_chaos.worlds.simulated.checks.exchanges import AnsweredRequest, EndOffsetReceived
from odradek_chaos.worlds.simulated.checks.requests import OtherEpochsRefused
from odradek_chaos.worlds.simulated.checks.state import ClusterState
from odradek_chaos.worlds.simulated.observe.taps import ClientTaps, ConsumerFetchTap, QuorumTap
from odradek_proto.transport.frames import pack_frame
from odradek_proto.v1 import broker_pb2, quorum_pb2


@pytest.mark.parametrize(("asked", "known_then", "found"), [(36, 0, 0), (36, 36, 0), (37, 36, 1), (35, 36, 1)])
def test_a_node_that_ends_while_it_answers_has_known_its_epoch(asked: int, known_then: int, found: int) -> None:
    """A fetch that waited until then is no request of an epoch that nobody knew; others still are."""
    heard: list[AnsweredRequest] = []
    taps: Any = SimpleNamespace(broker_id=1, quorum_epoch=36, watcher=SimpleNamespace(answered=heard.append))
    tap = QuorumTap(taps, "Fetch")
    tap.asked(quorum_pb2.QuorumFetchRequest(current_leader_epoch=asked).SerializeToString())
    taps.quorum_epoch = known_then
    tap.answered(quorum_pb2.QuorumFetchResponse().SerializeToString())
    (answered,) = heard
    assert len(list(OtherEpochsRefused().on_answered(ClusterState(), answered))) == found


OLD, NEW = 80, 82


def asks(epoch: int) -> bytes:
    header = broker_pb2.FetchHeader()
    header.partitions.add(topic="t", partition=0, current_leader_epoch=epoch)
    return pack_frame(header.SerializeToString(), [])


def says(epoch: int, end: int) -> bytes:
    header = broker_pb2.FetchAnswerHeader()
    header.partitions.add(topic="t", partition=0, request_leader_epoch=epoch, high_watermark=end)
    return pack_frame(header.SerializeToString(), [])


@pytest.fixture
def heard() -> list[EndOffsetReceived]:
    return []


@pytest.fixture
def tap(heard: list[EndOffsetReceived]) -> ConsumerFetchTap:
    """The tap at a reader's stream to a broker, which knows from elsewhere of the end 2,184."""
    watcher: Any = SimpleNamespace(end_heard=heard.append)
    taps = ClientTaps(watcher, {}, "r1")
    stream = ConsumerFetchTap(taps)
    stream.asked(asks(OLD))
    taps.heard(("t", 0), 81, 2184, 0, by_fetch=True)
    heard.clear()
    return stream


def test_an_answer_that_was_held_back_belongs_to_its_own_question(
    tap: ConsumerFetchTap, heard: list[EndOffsetReceived]
) -> None:
    """Cut off, killed and elected again, a broker is asked on a stream that holds an answer of its life before."""
    tap.asked(asks(NEW))
    tap.answered(says(OLD, 2154))
    assert [(each.leader_epoch, each.end, each.floor) for each in heard] == [(OLD, 2154, 0)]


def test_an_answer_below_what_was_known_when_it_was_asked_for_is_noticed(
    tap: ConsumerFetchTap, heard: list[EndOffsetReceived]
) -> None:
    """The floor is what the reader knew when it sent the request of that leader epoch."""
    tap.asked(asks(NEW))
    tap.answered(says(NEW, 2154))
    assert [(each.leader_epoch, each.end, each.floor) for each in heard] == [(NEW, 2154, 2184)]
