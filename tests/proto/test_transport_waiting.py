"""Deadlines and back-offs: what everybody waits with."""

from __future__ import annotations

import random

import pytest
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.transport.backoff import SEARCHING, backoff_ms
from odradek_proto.transport.deadline import Deadline


@pytest.mark.parametrize(
    ("armed", "fires"),
    [
        ([50], [50]),
        ([50, 80], [50]),  # a later one is not of interest: the callback looks what is due
        ([50, 20], [20]),
        ([50, None, 20, 30], [20]),
        ([], []),
    ],
)
def test_a_deadline_fires_once_at_the_earliest_time(armed: list[int | None], fires: list[int]) -> None:
    """However often it is armed, and not again until it is armed again."""
    loop = SimLoop()
    clock = SimClock(loop, loop.fork_rng("clock"))
    heard: list[int] = []

    async def story() -> None:
        begun = clock.now_ms()
        deadline = Deadline(clock, lambda: heard.append(clock.now_ms() - begun))
        for at_ms in armed:
            deadline.arm(None if at_ms is None else begun + at_ms)
        await clock.sleep(200)
        assert not deadline.is_armed
        deadline.arm(clock.now_ms() + 10)
        deadline.cancel()
        await clock.sleep(200)

    loop.run_until_complete(story())
    assert heard == fires


def test_pauses_grow_to_their_limit() -> None:
    """One curve doubles; the other keeps each pause below a third of the time that has passed."""
    rng = random.Random(1)
    doubling = [backoff_ms(failure, 100, 1_000, rng) for failure in range(1, 9)]
    assert 80 <= doubling[0] <= 120
    assert all(800 <= pause <= 1_200 for pause in doubling[4:])
    searching = [backoff_ms(failure, 20, 1_000, random.Random(failure), SEARCHING) for failure in range(1, 20)]
    assert all(pause <= 30 + 0.45 * sum(searching[:at]) for at, pause in enumerate(searching))


def test_without_chance_a_pause_is_exact() -> None:
    """As a core needs it that decides by the time alone."""
    assert [backoff_ms(failure, 20, 300) for failure in range(7)] == [20, 20, 40, 80, 160, 300, 300]
