"""Simulated worlds for tests: three combined nodes on which nothing strikes by itself, and stories about them."""

from __future__ import annotations

import dataclasses
from asyncio import sleep as virtual_sleep  # on the simulated loop: no real time passes
from collections.abc import Awaitable, Callable
from typing import Any

from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.observe.tapped_network import observe
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.expansion import expand
from odradek_chaos.worlds.simulated.run.load import ClusterLoad
from odradek_chaos.worlds.simulated.world.world import World
from odradek_proto.values import replace


def new_world(seed: int = 1, settings: dict[str, Any] | None = None, **options: Any) -> World:
    """A world in which nobody runs yet; `settings` are those of its brokers that are not as the seed draws them."""
    loop = SimLoop(seed)
    plan = expand(loop.fork_rng("plan"), Options(shape="combined", **options))
    return World(loop, dataclasses.replace(plan, settings=replace(plan.settings, **(settings or {}))))


def play(world: World, story: Callable[[ClusterLoad], Awaitable[None]]) -> None:
    """A story that begins a second after the topic was created, and ends when all are dead, without a finding."""

    async def run() -> None:
        load = ClusterLoad(world, observe(world))
        world.cluster.start_all()
        await load.create_topic()
        await virtual_sleep(1)
        await story(load)
        for machine in (*world.cluster.machines.values(), *world.cluster.clients):
            machine.kill()
        await virtual_sleep(0.001)

    world.loop.run(run(), limit_s=60)
    world.loop.close()
    assert not world.findings.found
