"""A short form of `python -m tests.cluster.watching`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.watching import PATIENCE_S, Watched, watch_a_cluster
from tests.seeds import unless_torture

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SECONDS = unless_torture(20, 40)  # two kills, or four


def test_every_sample_of_a_watch_is_a_moment_that_can_be(tmp_path: Path) -> None:
    """Under load, while leaders die: no follower is ever shown beyond its leader, and it goes on while one is dead."""
    watched = watch_a_cluster(tmp_path / "cluster", SECONDS, seed=1)
    assert not watched.impossible
    assert not watched.unfinished, watched.summary()
    assert min(watched.kills, watched.with_a_broker_down, watched.replicas) > 0, watched.summary()


def test_watch_without_a_sample_in_time_is_told(tmp_path: Path) -> None:
    """By its summary, with what was seen until then."""
    watched = watch_a_cluster(tmp_path / "cluster", -PATIENCE_S, seed=1)
    assert watched.summary().startswith("0 samples ")
    assert watched.summary().endswith("; not all that was to be seen came within 120 s more than the time given")


def test_a_follower_beyond_its_leader_is_found() -> None:
    """In its log end offset or its high watermark; not where it does not follow this leader yet."""
    leader = {"broker": 1, "role": "leader", "follows": True, "log_end_offset": 10, "high_watermark": 8}
    found = []
    for changes in ({}, {"log_end_offset": 11}, {"high_watermark": 9}, {"log_end_offset": 11, "follows": False}):
        follower = {**leader, "broker": 2, "role": "follower", **changes}
        watched = Watched()
        watched.take({"brokers": [], "partitions": [{"leader": 1, "replicas": [leader, follower]}]})
        found.append((len(watched.impossible), watched.beyond_without_following))
    assert found == [(0, 0), (1, 0), (1, 0), (0, 1)]
