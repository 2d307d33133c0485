"""Answers that clients have not taken: small until a client has shown that it reads, and bounded all together."""

from __future__ import annotations

import asyncio
import random

import pytest
from odradek_broker.rpc.backpressure import (
    HIDDEN_BYTES,
    PROVEN_BYTES,
    SMALL_ANSWER_BYTES,
    ResponseBudget,
    SessionQuota,
)
from odradek_broker.rpc.produce_session import MAX_EMPTY_ITEMS, parse_produce
from odradek_proto.transport.frames import FrameError, pack_frame
from odradek_proto.v1 import broker_pb2 as pb

MOST = 8 * 1024 * 1024


def test_many_who_may_not_read_get_small_answers_until_they_have_shown_that_they_do() -> None:
    """What the kernel's buffers hold proves nothing; more than that lifts the bound, and gives room to the others."""
    shared = ResponseBudget(MOST)
    sessions = [SessionQuota(MOST, shared, trusted=False) for _ in range(1_000)]
    assert sessions[0].next_bytes == HIDDEN_BYTES // 8
    for session in sessions:
        session.took(session.next_bytes)
    assert shared.hidden_bytes <= HIDDEN_BYTES + len(sessions) * SMALL_ANSWER_BYTES
    last = sessions[-1]
    last.took(PROVEN_BYTES - 2 * SMALL_ANSWER_BYTES)
    last.took(SMALL_ANSWER_BYTES - 1)
    assert (last.trusted, last.next_bytes) == (False, SMALL_ANSWER_BYTES)
    last.took(1)
    assert (last.trusted, last.next_bytes) == (True, MOST)
    for session in sessions[100:]:
        session.end()
    for _ in range(50):  # those that stay share what the others have left, each with its next answers
        for session in sessions[:100]:
            session.took(session.next_bytes)
            if session.trusted:
                session.end()
    assert all(each.next_bytes > 5 * SMALL_ANSWER_BYTES for each in sessions[:100])
    for session in sessions:
        session.end()
    assert shared.hidden_bytes == 0


def test_followers_get_large_answers_at_once() -> None:
    """A follower that catches up is not slowed down."""
    assert SessionQuota(MOST, ResponseBudget(MOST), trusted=True).next_bytes == MOST


def test_sessions_without_proof_use_only_half_of_the_room() -> None:
    """A thousand newcomers that never read leave the other half to those who do."""
    unsent = ResponseBudget(100)
    unsent.add(50, trusted=False)
    assert not unsent.has_room(trusted=False)
    assert unsent.has_room(trusted=True)


async def test_whoever_waits_for_room_goes_on_when_an_answer_has_left() -> None:
    """In the order of arrival; those with proof and those without take turns."""
    unsent = ResponseBudget(100)
    unsent.add(100, trusted=True)
    order: list[str] = []

    async def wait(name: str, trusted: bool) -> None:
        await unsent.room(trusted=trusted)
        unsent.add(50, trusted=trusted)
        order.append(name)

    waiting = [asyncio.ensure_future(wait("new", False)), asyncio.ensure_future(wait("trusted", True))]
    await asyncio.wait(waiting, timeout=0)
    unsent.remove(50, trusted=True)
    await waiting[1]
    assert order == ["trusted"]
    unsent.remove(50, trusted=True)
    await waiting[0]
    assert order == ["trusted", "new"]


async def test_room_given_to_somebody_who_left_goes_to_the_next() -> None:
    """A session that ends while it waits does not swallow its turn."""
    unsent = ResponseBudget(100)
    unsent.add(100, trusted=True)
    first = asyncio.ensure_future(unsent.room(trusted=True))
    second = asyncio.ensure_future(unsent.room(trusted=True))
    await asyncio.wait((first, second), timeout=0)
    unsent.remove(100, trusted=True)
    first.cancel()
    await second


@pytest.mark.parametrize("seed", range(20))
async def test_nobody_waits_beside_free_room_whatever_the_others_do(seed: int) -> None:
    """Sessions come, wait, send, have nothing to send and are cancelled; in the end everybody who stayed had a turn."""
    rng = random.Random(seed)
    unsent = ResponseBudget(100)

    async def session(trusted: bool) -> None:
        for _ in range(rng.randint(1, 5)):
            if not unsent.has_room(trusted=trusted):
                await unsent.room(trusted=trusted)
            if rng.random() < 0.3:
                unsent.pass_on()
                continue
            size = rng.randint(1, 60)
            unsent.add(size, trusted=trusted)
            try:
                for _ in range(rng.randint(0, 3)):
                    await asyncio.sleep(0)
            finally:
                unsent.remove(size, trusted=trusted)

    sessions = []
    for _ in range(40):
        sessions.append(asyncio.ensure_future(session(rng.random() < 0.5)))
        await asyncio.sleep(0)
        if rng.random() < 0.5:
            rng.choice(sessions).cancel()
    done, waiting = await asyncio.wait(sessions, timeout=5)
    assert not waiting
    assert all(each.cancelled() or each.exception() is None for each in done)
    assert unsent.has_room(trusted=True)
    assert unsent.has_room(trusted=False)


def test_items_that_their_bytes_cannot_explain_are_no_frame() -> None:
    """An empty item costs its sender two bytes and the broker a hundred: a few get their error, many are refused."""
    header = pb.ProduceHeader()
    for _ in range(MAX_EMPTY_ITEMS):
        header.items.add()
    assert len(parse_produce(pack_frame(header.SerializeToString(), []))[0].items) == MAX_EMPTY_ITEMS
    header.items.add()
    with pytest.raises(FrameError, match="65 items for 0 bytes"):
        parse_produce(pack_frame(header.SerializeToString(), []))


def test_header_without_batches_stays_small() -> None:
    """A header is parsed only when its size fits the batches that it describes."""
    with pytest.raises(FrameError, match="a ProduceHeader of"):
        parse_produce(pack_frame(b"\x0a\x00" * 50_000, []))
