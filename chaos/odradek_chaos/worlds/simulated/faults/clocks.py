"""Wall clocks that jump, which no decision of the protocol may look at, and monotonic clocks of different rates."""

from __future__ import annotations

import asyncio

from odradek_chaos.worlds.simulated.faults.choices import BROKER, MS, RATE, SKEWS, arguments
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis


class Skew(Nemesis):
    """A wall clock jumps, back or ahead, once or to and fro."""

    name = "skew"
    does = "makes a wall clock jump by up to 50 minutes, once or back and forth"
    takes = arguments(broker=BROKER, skews_ms=SKEWS, every_ms=MS)

    def choose(self) -> Choice:
        jumps = 1 if self.rng.random() < 0.7 else self.rng.randint(2, 8)
        skews = [self.rng.choice((-1, 1)) * self.a_while_ms(10, 3_000_000) for _ in range(jumps)]
        return {"broker": self.target(), "skews_ms": skews, "every_ms": self.a_while_ms(1, 200)}

    async def act(self, choice: Choice) -> None:
        machine = self.cluster.machines[choice["broker"]]
        self.world.faults.fault(self.name, choice["broker"], skews_ms=choice["skews_ms"])
        for skew_ms in choice["skews_ms"]:
            machine.skew_ms = skew_ms
            if machine.is_running:
                machine.ports.clock.skew_ms = skew_ms
            await asyncio.sleep(choice["every_ms"] / 1000)


class Drift(Nemesis):
    """A monotonic clock goes faster or slower than the others: all timeouts of that machine are shorter or longer."""

    name = "drift"
    does = "makes a monotonic clock run up to a fifth slower or a quarter faster for a while"
    takes = arguments(broker=BROKER, rate=RATE, drift_ms=MS)
    drawn = False
    beside = True

    def choose(self) -> Choice:
        rate = round(self.rng.uniform(0.8, 1.25), 3)
        return {"broker": self.target(), "rate": rate, "drift_ms": self.a_while_ms(100, 6_000)}

    async def act(self, choice: Choice) -> None:
        monotonic = self.cluster.machines[choice["broker"]].monotonic
        self.world.faults.fault(self.name, choice["broker"], rate=choice["rate"], drift_ms=choice["drift_ms"])
        monotonic.go_at(choice["rate"])
        self.world.faults.mend(choice["drift_ms"], lambda: monotonic.go_at(1.0))
