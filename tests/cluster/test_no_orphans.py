"""A harness that ends leaves no broker behind, whoever ends it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from odradek_broker.local.cluster import LocalCluster

from tests.waiting import until

pytestmark = pytest.mark.cluster

TIMEOUT_S = 120


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_brokers_of_a_harness_end_with_it(tmp_path: Path, number: signal.Signals) -> None:
    """Told to end it stops them; killed it cannot, and they notice."""
    directory = tmp_path / "cluster"
    line = [sys.executable, "-m", "odradek.cli", "chaos", "rounds", "--rounds", "1000", "--data", str(directory)]
    harness = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def pids() -> list[int]:
        try:
            return [node["pid"] for node in json.loads((directory / "cluster.json").read_text())["nodes"]]
        except (OSError, ValueError):
            return []

    try:
        until(pids, lambda found: len(found) == 3 and all(found), TIMEOUT_S)
        cluster = LocalCluster.load(directory)
        assert any(cluster.running(node_id) for node_id in cluster.nodes)
        harness.send_signal(number)
        harness.wait(TIMEOUT_S)

        def running() -> list[int]:
            cluster.refresh()
            return [node_id for node_id in cluster.nodes if cluster.running(node_id)]

        assert until(running, lambda found: not found, TIMEOUT_S) == []
    finally:
        harness.kill()
        if LocalCluster.exists(directory):
            LocalCluster.load(directory).kill_all()
