"""Nemeses: tasks of the world, each with its own pace and its own chance, that break things and mend them again.

Several run at the same time and know nothing of each other, so their faults overlap. An injection has two halves.
`choose` makes all its choices, by chance and by what the cluster looks like, and gives them as plain values; `act`
carries them out and chooses nothing. So a run can write its injections down, and any subset of them can be replayed.
Whatever has not ended when the faults stop is ended by `World.heal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import Any, ClassVar

from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.faults.choices import Argument
from odradek_chaos.worlds.simulated.plan.script import Injection
from odradek_chaos.worlds.simulated.world.world import World

Choice = dict[str, Any]  # JSON values by name
QUIESCENCE_LOOKS, QUIESCENCE_LOOK_S = 400, 0.02  # how long a fault that must be alone waits for its moment


class Guarantee(Enum):
    """What acks=all with min.insync.replicas=2 is owed under a kind of fault (docs/guarantees.md)."""

    ALWAYS = "always"  # no loss, and all is well again in time
    QUIESCENT = "quiescent"  # the same, since it strikes one machine alone while the others are well and in every ISR
    FLUSHED = "flushed"  # the same only with odradek.fsync=before-ack
    SAFETY = "safety"  # out of contract: replicas may lose records or stay away, and must not lie about it


class Nemesis:
    """Strikes at random times while the world is faulty. What it is stands in its attributes."""

    name: ClassVar[str]
    owed: ClassVar[Guarantee] = Guarantee.ALWAYS
    does: ClassVar[str]  # in a few words, for people
    takes: ClassVar[Mapping[str, Argument]]  # what an injection has to be told
    deadly: ClassVar[bool] = False  # it ends processes, so it makes elections
    heavy: ClassVar[bool] = False  # it has a slower pace of its own
    drawn: ClassVar[bool] = True  # a seed may take it among its three
    beside: ClassVar[bool] = False  # a seed may take it beside them; else it strikes only when it is named
    share: ClassVar[float] = 0.0  # of the seeds that have it in addition, whatever else they take
    copies: ClassVar[bool] = False  # whole logs are copied after it: batch by batch long runs would do little else

    def __init__(self, world: World, rng: Random, pace_ms: float) -> None:
        self.world = world
        self.rng = rng
        self._pace_ms = pace_ms

    @property
    def cluster(self) -> SimCluster:
        return self.world.cluster

    @property
    def pace_ms(self) -> float:
        """The mean time to the next injection."""
        return self._pace_ms

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / self.pace_ms) / 1000)
            if not self.world.faults.faulty:
                return
            await self.inject()

    async def inject(self) -> None:
        """Choose, write it down, act. Holds back while a fault that must be alone is going on."""
        quiescence = self.world.quiescence
        if quiescence.is_reserved:
            return
        if self.owed is Guarantee.QUIESCENT and not await self._wait_for_quiescence():
            return
        choice = self.choose()
        if choice is None:
            quiescence.release()
            return
        self.world.faults.injected.append(Injection(self.world.loop.now_us, self.name, choice))
        self.world.faults.pending += 1  # one that strikes again and again is not over between two blows
        try:
            await self.act(choice)
        finally:
            self.world.faults.pending -= 1

    async def _wait_for_quiescence(self) -> bool:
        """Keep the others from striking, and wait until what they did is over."""
        quiescence = self.world.quiescence
        quiescence.reserve()
        for _ in range(QUIESCENCE_LOOKS):
            if quiescence.is_quiescent():
                quiescence.inject()
                return True
            await asyncio.sleep(QUIESCENCE_LOOK_S)
            if not self.world.faults.faulty:
                break
        quiescence.release()
        return False

    async def replay(self, injections: list[Injection]) -> None:
        """Carry out these, each at its time."""
        for injection in injections:
            await asyncio.sleep(max(0, injection.at_us - self.world.loop.now_us) / 1e6)
            if not self.world.faults.faulty:
                return
            self.world.faults.injected.append(injection)
            await self.act(injection.choice)

    def choose(self) -> Choice | None:
        """All choices of one injection; None when there is nothing to strike at."""
        raise NotImplementedError

    async def act(self, choice: Choice) -> None:
        """Do it. Nothing here may draw a random number."""
        raise NotImplementedError

    # --- choosing

    def target(self) -> int:
        """A broker by its part: leader of a partition, follower of one, active controller, or anybody."""
        part = self.rng.choice(("leader", "leader", "follower", "controller", "anybody"))
        leader = self.cluster.leader_of(self.rng.choice(self.world.partitions))
        everybody = list(self.cluster.machines)
        if part == "leader" and leader > 0:
            return leader
        if part == "follower" and leader > 0:
            return self.rng.choice([broker_id for broker_id in self.cluster.shape.brokers if broker_id != leader])
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

    def a_while_ms(self, shortest: float, longest: float) -> int:
        """Mostly short, sometimes long."""
        return round(shortest + (longest - shortest) * self.rng.random() ** 3)
