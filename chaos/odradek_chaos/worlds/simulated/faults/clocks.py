"""Wall clocks that jump. No decision of the protocol may look at them."""

from __future__ import annotations

import asyncio

from odradek_chaos.worlds.simulated.faults.choices import BROKER, MS, SKEWS, arguments
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis, Owed


class Skew(Nemesis):
    """A wall clock jumps, back or ahead, once or to and fro."""

    name = "skew"
    owed = Owed.ALWAYS
    does = "lets a wall clock jump by up to 50 minutes, once or to and fro"
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
