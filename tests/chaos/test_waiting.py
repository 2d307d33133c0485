"""Waiting for brokers ends when one of them has ended by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_chaos.harness.waiting import check_alive, wait_until_ready


def test_a_broker_that_ended_by_itself_is_named_with_its_last_words(tmp_path: Path) -> None:
    """Nobody waits until patience is over for a broker whose process is gone."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=2)
    cluster.log_file(2).write_text("odradek: the disk has gone\n")
    with pytest.raises(ClusterError, match=r"broker 2 has ended[^\n]*\n +odradek: the disk has gone"):
        check_alive(cluster, down={1})


def test_a_broker_that_was_killed_on_purpose_is_not_missed(tmp_path: Path) -> None:
    """Whoever kills says so, and is not told about it."""
    check_alive(LocalCluster.create(tmp_path / "cluster", brokers=2), down={1, 2})


def test_only_those_that_are_waited_for_are_missed(tmp_path: Path) -> None:
    """A broker that was down before somebody waited for another one has not ended under his eyes."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=3)
    with pytest.raises(ClusterError, match="broker 2 has ended"):
        asyncio.run(wait_until_ready(cluster, only=[2]))
