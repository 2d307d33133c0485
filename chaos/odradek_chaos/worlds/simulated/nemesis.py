"""Nemeses: tasks of the world, each with its own pace and its own chance, that break things and mend them again.

Several run at the same time and know nothing of each other, so their faults overlap. A nemesis begins a fault and has
the world end it later; whatever has not ended when the faults stop is ended by `World.heal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import ClassVar

from odradek_chaos.worlds.simulated.cluster import SimCluster
from odradek_chaos.worlds.simulated.links import uniform
from odradek_chaos.worlds.simulated.world import World


class Nemesis:
    """Strikes at random times while the world is faulty."""

    name: ClassVar[str]

    def __init__(self, world: World, rng: Random, pace_ms: float) -> None:
        self.world = world
        self.rng = rng
        self._pace_ms = pace_ms

    @property
    def cluster(self) -> SimCluster:
        return self.world.cluster

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / self._pace_ms) / 1000)
            if not self.world.faulty:
                return
            await self.strike()

    async def strike(self) -> None:
        raise NotImplementedError

    def target(self) -> int:
        """A broker by its part: leader of a partition, follower of one, active controller, or anybody."""
        part = self.rng.choice(("leader", "leader", "follower", "controller", "anybody"))
        leader = self.cluster.leader_of(self.rng.choice(self.world.partitions))
        everybody = list(self.cluster.machines)
        if part == "leader" and leader > 0:
            return leader
        if part == "follower" and leader > 0:
            return self.rng.choice([broker_id for broker_id in everybody if broker_id != leader])
        if part == "controller" and self.cluster.controller() > 0:
            return self.cluster.controller()
        return self.rng.choice(everybody)

    def machine(self, broker_id: int) -> str:
        return self.cluster.machines[broker_id].name

    def two(self) -> tuple[int, int]:
        one, other = self.rng.sample(list(self.cluster.machines), 2)
        return one, other

    def anyone(self, besides: str = "") -> str:
        """A machine, of a broker or of a client."""
        names = [machine.name for machine in (*self.cluster.machines.values(), *self.cluster.clients)]
        return self.rng.choice([name for name in names if name != besides])

    def a_while_ms(self, shortest: float, longest: float) -> float:
        """Mostly short, sometimes long."""
        return shortest + (longest - shortest) * self.rng.random() ** 3


class Kill(Nemesis):
    name = "kill"

    async def strike(self) -> None:
        self.world.kill(self.target(), self.a_while_ms(1, 3_000))


class DoubleKill(Nemesis):
    """Kill a leader, and its successor as soon as it leads: what B2b needs, by chance instead of by script.

    Before the first blow the leader's answers may be held up, so that its followers lag behind in what they know of
    the high watermark.
    """

    name = "double-kill"

    async def strike(self) -> None:
        tp = self.rng.choice(self.world.partitions)
        first = self.cluster.leader_of(tp)
        if first <= 0:
            return
        if self.rng.random() < 0.5:
            held_ms = self.rng.uniform(5, 60)
            self.world.fault("hold-answers", first, held_ms=round(held_ms))
            for other in self.cluster.machines.values():
                if other is not self.cluster.machines[first]:
                    self.cluster.fabric.stall(self.machine(first), other.name, held_ms + 1)
            await asyncio.sleep(held_ms / 1000)
        self.world.kill(first, self.a_while_ms(1, 1_500), self.name)
        for _ in range(1_000):
            await asyncio.sleep(0.001)
            second = self.cluster.leader_of(tp)
            if not self.world.faulty:
                return
            if second > 0 and second != first:
                await asyncio.sleep(self.rng.choice((0, 0.002, 0.02)))
                self.world.kill(second, self.a_while_ms(1, 1_500), self.name)
                return


class Stop(Nemesis):
    """A graceful shutdown (SIGTERM) and a restart."""

    name = "stop"

    async def strike(self) -> None:
        broker_id = self.target()
        self.world.fault(self.name, broker_id)
        machine = self.cluster.machines[broker_id]
        stopped, down_ms = machine.incarnation, self.a_while_ms(1, 3_000)
        self.cluster.stop(broker_id)

        def start_again() -> None:
            if not machine.is_running:
                self.world.later(down_ms, lambda: self.world.start(broker_id))
            elif machine.incarnation == stopped:
                self.world.later(20, start_again)

        start_again()


class Pause(Nemesis):
    name = "pause"

    async def strike(self) -> None:
        broker_id, pause_ms = self.target(), self.a_while_ms(20, 6_000)
        self.world.fault(self.name, broker_id, pause_ms=round(pause_ms))
        machine = self.cluster.machines[broker_id]
        machine.pause()
        self.world.later(pause_ms, machine.resume)


class Cut(Nemesis):
    """Cut links: of one machine to all others, of a pair, of one direction, or only from the controller to a broker."""

    name = "cut"

    async def strike(self) -> None:
        kind = self.rng.choice(("alone", "pair", "one-way", "controller-deaf"))
        one, other = self.two()
        links: Sequence[tuple[str, str]]
        both_ways = kind in ("alone", "pair")
        if kind == "alone":
            me = self.machine(self.target())
            brokers = [machine.name for machine in self.cluster.machines.values() if machine.name != me]
            clients = [machine.name for machine in self.cluster.clients] if self.rng.random() < 0.5 else []
            links = [(me, name) for name in (*brokers, *clients)]
        elif kind == "controller-deaf" and self.cluster.controller() > 0:
            controller = self.cluster.controller()
            broker_id = self.rng.choice([each for each in self.cluster.machines if each != controller])
            links = [(self.machine(controller), self.machine(broker_id))]
        else:
            links = [(self.machine(one), self.machine(other))]
        cut_ms = self.a_while_ms(10, 5_000)
        self.world.fault(self.name, kind=kind, links=[f"{a}>{b}" for a, b in links], cut_ms=round(cut_ms))
        for source, target in links:
            self.cluster.fabric.cut(source, target, both_ways)

        def mend() -> None:
            for source, target in links:
                self.cluster.fabric.heal(source, target, both_ways)

        self.world.later(cut_ms, mend)


class Stall(Nemesis):
    """Hold up one direction for a moment, as a full queue does."""

    name = "stall"

    async def strike(self) -> None:
        source = self.machine(self.target())
        target, stall_ms = self.anyone(source), self.a_while_ms(5, 800)
        self.world.fault(self.name, link=f"{source}>{target}", stall_ms=round(stall_ms))
        self.cluster.fabric.stall(source, target, stall_ms)


class Reset(Nemesis):
    name = "reset"

    async def strike(self) -> None:
        one = self.machine(self.target())
        other = self.anyone(one)
        self.world.fault(self.name, link=f"{one}-{other}")
        self.cluster.fabric.reset(one, other)


class Slow(Nemesis):
    """Make one direction slow for a while."""

    name = "slow"

    async def strike(self) -> None:
        source = self.machine(self.target())
        target, slow_ms = self.anyone(source), self.a_while_ms(100, 3_000)
        delay_ms = self.a_while_ms(5, 400)
        self.world.fault(self.name, link=f"{source}>{target}", delay_ms=round(delay_ms), slow_ms=round(slow_ms))
        link = self.cluster.fabric.link(source, target)
        link.delay = uniform(delay_ms / 2, delay_ms)
        low_ms, high_ms = self.world.plan.link_ms

        def mend() -> None:
            link.delay = uniform(low_ms, high_ms)

        self.world.later(slow_ms, mend)


class LoseCalls(Nemesis):
    """Lose unary calls between two machines, before or after they acted."""

    name = "lose-calls"

    async def strike(self) -> None:
        source = self.anyone()
        target, lossy_ms = self.machine(self.target()), self.a_while_ms(100, 3_000)
        if source == target:
            return
        before, after = self.rng.choice(((0.5, 0.0), (0.0, 0.5), (0.3, 0.3), (1.0, 0.0)))
        self.world.fault(self.name, link=f"{source}>{target}", before=before, after=after, ms=round(lossy_ms))
        fabric = self.cluster.fabric
        fabric.lose_calls(source, target, before, after)
        self.world.later(lossy_ms, lambda: fabric.lose_calls(source, target))


class Skew(Nemesis):
    """A wall clock jumps, back or ahead."""

    name = "skew"

    async def strike(self) -> None:
        machine = self.cluster.machines[self.target()]
        skew_ms = round(self.rng.choice((-1, 1)) * self.a_while_ms(10, 3_000_000))
        self.world.fault(self.name, int(machine.name[1:]), skew_ms=skew_ms)
        machine.skew_ms = skew_ms
        if machine.is_running:
            machine.ports.clock.skew_ms = skew_ms


class Power(Nemesis):
    """One machine loses its power: its peers hear nothing, its disk forgets what was not flushed."""

    name = "power"

    async def strike(self) -> None:
        broker_id, dark_ms = self.target(), self.a_while_ms(50, 3_000)
        self.world.fault(self.name, broker_id, dark_ms=round(dark_ms))
        self.cluster.machines[broker_id].power_loss()
        self.world.later(dark_ms, lambda: self.world.start(broker_id))


class Blackout(Nemesis):
    """All machines lose their power within 300 ms."""

    name = "blackout"

    async def strike(self) -> None:
        dark_ms = self.a_while_ms(400, 2_000)
        self.world.fault(self.name, dark_ms=round(dark_ms))
        for broker_id, machine in self.cluster.machines.items():
            self.world.later(self.rng.uniform(0, 300), machine.power_loss)
            self.world.later(dark_ms + self.rng.uniform(0, 1_000), partial(self.world.start, broker_id))


KINDS: dict[str, type[Nemesis]] = {
    kind.name: kind
    for kind in (Kill, DoubleKill, Pause, Cut, Stall, Reset, Slow, LoseCalls, Skew, Stop, Power, Blackout)
}


def nemeses_of(world: World) -> list[Nemesis]:
    """The nemeses of the plan, each with chance of its own."""
    return [
        KINDS[name](world, world.loop.fork_rng(f"nemesis {name}"), pace_ms)
        for name, pace_ms in world.plan.paces_ms.items()
    ]
