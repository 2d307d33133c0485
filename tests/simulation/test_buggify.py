"""What a seed draws at the product's chance points."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.plan.buggify import POINTS, Buggify


def test_a_seed_draws_some_points_and_always_the_same() -> None:
    """Another seed draws others; over a few seeds every point is drawn."""
    drawn = [Buggify(SimLoop(seed), "drawn").drawn() for seed in range(30)]
    assert drawn[0] == Buggify(SimLoop(0), "drawn").drawn()
    assert drawn[0] != drawn[1]
    assert 0 < len(drawn[0]) < len(POINTS)
    assert {point for points in drawn for point in points} == set(POINTS)


def test_a_point_strikes_as_often_as_it_says_and_never_in_peace() -> None:
    """What is owed cleanly is owed by the product as it is."""
    buggify = Buggify(SimLoop(1), "all")
    struck = sum(buggify.fires("cache-forgets", 0.3) for _ in range(2_000))
    assert 500 < struck < 700
    assert buggify.points["cache-forgets"] == struck
    buggify.fires_now = False
    assert not any(buggify.fires("cache-forgets", 1.0) for _ in range(10))


def test_no_point_strikes_when_none_may() -> None:
    """The option for whoever wants to see the faults alone."""
    buggify = Buggify(SimLoop(1), "none")
    assert buggify.drawn() == []
    assert not any(buggify.fires(point, 1.0) for point in POINTS)
