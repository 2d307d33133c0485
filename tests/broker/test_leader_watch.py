"""A node that knows no leader of the quorum says so, and says when it knows one again."""

from __future__ import annotations

import logging
from asyncio import sleep as virtual_sleep  # on the simulated loop: no real time passes

import pytest
from odradek_broker.config.log_levels import SERVER
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.runtime.membership.leader_watch import PATIENCE_MS, LeaderWatch
from odradek_chaos.worlds.simulated.cluster.cluster import CONTROLLER_PORT
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

from tests.broker.sim_brokers import SimBrokers

MINUTE_S = 60


class Nodes(SimBrokers):
    """Three nodes; what the first one says."""

    def __init__(self, roles: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger=SERVER)
        super().__init__(3, BrokerSettings(process_roles=roles), seed=11)
        self._caplog = caplog

    def lines(self) -> list[str]:
        return [line for line in self._caplog.messages if "leader of the quorum" in line and line.startswith("node 1 ")]


@pytest.mark.parametrize("roles", ["controller", pytest.param("broker,controller", marks=pytest.mark.slow)])
def test_a_node_without_a_leader_of_the_quorum_says_so(roles: str, caplog: pytest.LogCaptureFixture) -> None:
    """After some seconds once, with the voters that it cannot reach, once a minute then, and once when it is over."""
    nodes = Nodes(roles, caplog)

    async def told() -> None:
        nodes.start_all()
        await nodes.loop.sleep(2_000)
        assert nodes.lines() == []
        for node_id in (2, 3):
            nodes.machines[node_id].kill()
        await nodes.loop.sleep(PATIENCE_MS - 1_000)
        assert nodes.lines() == []
        await nodes.loop.sleep(5_000)
        voters = ", ".join(f"{node_id} at b{node_id}:{CONTROLLER_PORT}" for node_id in (2, 3))
        assert nodes.lines() == [f"node 1 has known no leader of the quorum for 5 s: cannot reach the voters {voters}"]
        await nodes.loop.sleep(MINUTE_S * 1000)
        assert len(nodes.lines()) == 2
        nodes.start(2)
        await nodes.loop.sleep(5_000)
        assert nodes.lines()[2:][0].startswith("node 1 knows a leader of the quorum again: node ")
        await nodes.loop.sleep((MINUTE_S + 10) * 1000)
        assert len(nodes.lines()) == 3

    nodes.play(told())


def test_a_controller_that_never_found_the_others_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Also when there was no leader from the start on."""
    nodes = Nodes("controller", caplog)

    async def told() -> None:
        nodes.start(1)
        await nodes.loop.sleep(20_000)
        assert len(nodes.lines()) == 1

    nodes.play(told())


def test_a_watch_that_was_stopped_says_nothing_more() -> None:
    """A controller that ends resigns on its way, and then nobody leads."""
    loop = SimLoop(seed=1)
    said: list[str] = []
    watch = LeaderWatch(
        node_id=1,
        clock=SimClock(loop, loop.fork_rng("clock")),
        silent=dict[int, str],
        may_speak=lambda: True,
        say=said.append,
    )

    async def told() -> None:
        watch.start()
        watch.on_leader_changed(1, 1)
        watch.stop()
        watch.on_leader_changed(-1, 1)
        await virtual_sleep(2 * PATIENCE_MS / 1000)

    loop.run(told(), limit_s=60)
    loop.close()
    assert said == []
