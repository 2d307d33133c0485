"""Clients that die or freeze. What they were not told may be in the log or not; what they were told must be there."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.faults.choices import CLIENT, CRASHING, MS, arguments
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis


class ClientCrash(Nemesis):
    """A writer or the reader dies; another begins in its place, with a producer id, or a position, of its own."""

    name = "client-crash"
    does = "kills a writer or the reader; a new one begins"
    heavy = True
    takes = arguments(client=CRASHING, down_ms=MS)

    def choose(self) -> Choice | None:
        if not self.world.faults.client_names:
            return None
        return {"client": self.rng.choice(self.world.faults.client_names), "down_ms": self.a_while_ms(1, 1_500)}

    async def act(self, choice: Choice) -> None:
        self.world.faults.fault(self.name, client=choice["client"], down_ms=choice["down_ms"])
        self.world.faults.crash_client(choice["client"], choice["down_ms"])


class ZombieClient(Nemesis):
    """A client freezes, sometimes for longer than its requests wait, and goes on as if nothing had happened."""

    name = "zombie-client"
    does = "freezes a client for up to 6 s, three times its request timeout"
    takes = arguments(client=CLIENT, ms=MS)

    def choose(self) -> Choice | None:
        if not self.cluster.clients:
            return None
        return {"client": self.rng.choice([c.name for c in self.cluster.clients]), "ms": self.a_while_ms(100, 6_000)}

    async def act(self, choice: Choice) -> None:
        self.world.faults.fault(self.name, client=choice["client"], ms=choice["ms"])
        for machine in self.cluster.clients:
            if machine.name == choice["client"]:
                machine.pause()
                self.world.faults.mend(choice["ms"], machine.resume)
