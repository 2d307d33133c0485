"""`odradek cluster health` about brokers whose clocks differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from odradek.cli.checkup.clocks import Ahead, says_apart
from odradek_broker.testing import Cluster

from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("clocks", "said"),
    [
        ({}, ""),
        ({1: Ahead(90_000, 1)}, ""),
        ({1: Ahead(90_000, 1), 2: Ahead(90_400, 1)}, ""),
        ({1: Ahead(0, 1), 2: Ahead(2_600, 400)}, "the clock of broker 2 is 2.6 s ahead of that of broker 1: "),
        ({1: Ahead(0, 300), 2: Ahead(2_600, 400)}, ""),
        ({1: Ahead(100, 1), 2: Ahead(-9_900, 1), 3: Ahead(0, 1)}, "the clock of broker 1 is 10.0 s ahead"),
    ],
)  # fmt: skip
def test_clocks_of_brokers_are_compared_with_each_other(clocks: dict[int, Ahead], said: str) -> None:
    """This machine's may be wrong; what round trips may explain is not said."""
    assert "".join(says_apart(clocks)).startswith(said)
    assert bool(says_apart(clocks)) is bool(said)


def test_health_names_a_broker_whose_clock_is_ahead(
    odradek: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As metadata responses have it."""
    with Cluster(3, directory=tmp_path / "cluster") as cluster:
        assert odradek("cluster", "health", "-b", cluster.bootstrap).code == 0
        node = cluster._cluster._member(2).node
        assert node is not None
        clock = node._clock
        real = clock.wall_ms
        monkeypatch.setattr(clock, "wall_ms", lambda: real() + 3_600_000)
        sick = odradek("cluster", "health", "--json", "-b", cluster.bootstrap)
        assert sick.code == 3
        (problem,) = json.loads(sick.out)["problems"]
        assert problem.startswith("the clock of broker 2 is 3600.")
