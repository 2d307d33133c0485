"""`odradek chaos restart --broker N` while other brokers are down too, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.command_line import TIMED_OUT

from tests.cli.conftest import Run

pytestmark = pytest.mark.cluster


@pytest.mark.slow
def test_the_one_that_was_named_is_waited_for(odradek: Run, odradek_process: Run, place: Path) -> None:
    """A broker that was killed before is no reason to fail: it is named, with the command that starts it.

    How long the others are waited for is said by `--timeout`.
    """
    assert odradek_process("cluster", "up", "-d", "--timeout", "90", "--data", str(place)).code == 0
    for number in ("2", "3"):
        assert odradek("chaos", "kill", "--broker", number).code == 0
    restarted = odradek_process("chaos", "restart", "--broker", "2", "--wait", "--timeout", "90")
    assert restarted.code == 0, restarted
    started, down = restarted.err.splitlines()
    assert started.startswith("started broker 2 (pid ")
    assert down == "broker 3 is down since before; `odradek chaos restart --broker 3` starts it"
    cluster = LocalCluster.load(place)
    assert (cluster.running(2), cluster.running(3)) == (True, False)
    too_soon = odradek_process("chaos", "restart", "--wait", "--timeout", "0.001")
    assert too_soon.code == TIMED_OUT
    assert "the brokers are not ready after 0.001 s" in too_soon.err
    assert LocalCluster.load(place).running(3)
