"""A node that knows no leader of the quorum says so, and says when it knows one again."""

from __future__ import annotations

import logging
from asyncio import sleep as virtual_sleep  # on the simulated loop: no real time passes

import pytest
from odradek_broker.config.log_levels import SERVER
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.runtime.membership.leader_watch import PATIENCE_MS, LeaderWatch
from odradek_chaos.worlds.simulated.cluster.cluster import CONTROLLER_PORT, SimCluster
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

MINUTE_S = 60


class Story:
    """Three nodes; what the first one says."""

    def __init__(self, roles: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger=SERVER)
        self.loop = SimLoop(seed=11)
        self.cluster = SimCluster(self.loop, brokers=3, settings=BrokerSettings(process_roles=roles))
        self._caplog = caplog

    def lines(self) -> list[str]:
        return [line for line in self._caplog.messages if "leader of the quorum" in line and line.startswith("node 1 ")]

    async def told(self) -> None:
        for node_id in (1, 2, 3):
            self.cluster.start(node_id)
        await self.loop.sleep(2_000)
        assert self.lines() == []
        for node_id in (2, 3):
            self.cluster.machines[node_id].kill()
        await self.loop.sleep(PATIENCE_MS - 1_000)
        assert self.lines() == []
        await self.loop.sleep(5_000)
        voters = ", ".join(f"{node_id} at b{node_id}:{CONTROLLER_PORT}" for node_id in (2, 3))
        assert self.lines() == [f"node 1 has known no leader of the quorum for 5 s: cannot reach the voters {voters}"]
        await self.loop.sleep(MINUTE_S * 1000)
        assert len(self.lines()) == 2
        self.cluster.start(2)
        await self.loop.sleep(5_000)
        assert self.lines()[2:][0].startswith("node 1 knows a leader of the quorum again: node ")
        await self.loop.sleep((MINUTE_S + 10) * 1000)
        assert len(self.lines()) == 3
        for node_id in (1, 2):
            self.cluster.machines[node_id].kill()
        await self.loop.sleep(1_000)


@pytest.mark.parametrize("roles", ["controller", pytest.param("broker,controller", marks=pytest.mark.slow)])
def test_a_node_without_a_leader_of_the_quorum_says_so(roles: str, caplog: pytest.LogCaptureFixture) -> None:
    """After some seconds once, with the voters that it cannot reach, once a minute then, and once when it is over."""
    story = Story(roles, caplog)
    story.loop.run(story.told(), limit_s=600)
    story.loop.close()


def test_a_controller_that_never_found_the_others_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Also when there was no leader from the start on."""
    story = Story("controller", caplog)

    async def told() -> None:
        story.cluster.start(1)
        await story.loop.sleep(20_000)
        assert len(story.lines()) == 1
        story.cluster.machines[1].kill()
        await story.loop.sleep(1_000)

    story.loop.run(told(), limit_s=600)
    story.loop.close()


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
