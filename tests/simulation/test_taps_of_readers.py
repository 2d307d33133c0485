"""What the tap at a reader takes for an end that fell: only answers to the question that the reader asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from odradek_chaos.worlds.simulated.checks.exchanges import EndHeard
from odradek_chaos.worlds.simulated.observe.taps import ClientTaps, ConsumerFetchTap
from odradek_proto.transport.frames import pack_frame
from odradek_proto.v1 import broker_pb2

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
def heard() -> list[EndHeard]:
    return []


@pytest.fixture
def tap(heard: list[EndHeard]) -> ConsumerFetchTap:
    """The tap at a reader's stream to a broker, which knows from elsewhere of the end 2,184."""
    watcher: Any = SimpleNamespace(end_heard=heard.append)
    taps = ClientTaps(watcher, {}, "r1")
    stream = ConsumerFetchTap(taps)
    stream.asked(asks(OLD))
    taps.heard(("t", 0), 81, 2184, 0, by_fetch=True)
    heard.clear()
    return stream


def test_an_answer_that_was_held_back_belongs_to_its_own_question(tap: ConsumerFetchTap, heard: list[EndHeard]) -> None:
    """Cut off, killed and elected again, a broker is asked on a stream that holds an answer of its life before."""
    tap.asked(asks(NEW))
    tap.answered(says(OLD, 2154))
    assert [(each.leader_epoch, each.end, each.floor) for each in heard] == [(OLD, 2154, 0)]


def test_an_answer_below_what_was_known_when_it_was_asked_for_is_noticed(
    tap: ConsumerFetchTap, heard: list[EndHeard]
) -> None:
    """The floor is what the reader knew when it sent the request of that leader epoch."""
    tap.asked(asks(NEW))
    tap.answered(says(NEW, 2154))
    assert [(each.leader_epoch, each.end, each.floor) for each in heard] == [(NEW, 2154, 2184)]
