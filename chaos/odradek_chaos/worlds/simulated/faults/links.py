"""Links that are cut, held up and slow. A cut loses nothing, as TCP does: what was sent waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from odradek_chaos.worlds.simulated.faults.choices import (
    BROKER,
    COUNT,
    CUT,
    MACHINE,
    MACHINES,
    MS,
    SLOW,
    WAYS,
    arguments,
)
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis
from odradek_chaos.worlds.simulated.net.links import uniform

Ways = Sequence[Sequence[str]]  # pairs (source, target)


class CutNemesis(Nemesis):
    """Cuts directed links for a while."""

    takes = CUT

    def cut(self, ways: Ways, cut_ms: float, **facts: object) -> None:
        self.world.faults.fault(self.name, links=[f"{a}>{b}" for a, b in ways], cut_ms=cut_ms, **facts)
        for source, target in ways:
            self.cluster.fabric.cut(source, target, both_ways=False)

        def heal() -> None:
            for source, target in ways:
                self.cluster.fabric.heal(source, target, both_ways=False)

        self.world.faults.mend(cut_ms, heal)

    def names(self) -> list[str]:
        return [machine.name for machine in self.cluster.machines.values()]

    async def act(self, choice: Choice) -> None:
        self.cut(choice["ways"], choice["cut_ms"], kind=choice["kind"])


def both(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]


class Cut(CutNemesis):
    """Cut links: of one machine to all others, of a pair, of one direction, or only from the controller to a broker."""

    name = "cut"
    does = "cuts one machine off, a pair, one direction, or controller to broker only"

    def choose(self) -> Choice:
        kind = self.rng.choice(("alone", "pair", "one-way", "controller-deaf"))
        one, other = self.two()
        ways: Ways
        if kind == "alone":
            me = self.machine(self.target())
            clients = [machine.name for machine in self.cluster.clients] if self.rng.random() < 0.5 else []
            ways = [way for name in (*self.names(), *clients) if name != me for way in both(me, name)]
        elif kind == "controller-deaf" and self.cluster.controller() > 0:
            controller = self.cluster.controller()
            deaf = self.rng.choice([each for each in self.cluster.machines if each != controller])
            ways = [(self.machine(controller), self.machine(deaf))]
        elif kind == "pair":
            ways = both(self.machine(one), self.machine(other))
        else:
            ways = [(self.machine(one), self.machine(other))]
        return {"kind": kind, "ways": ways, "cut_ms": self.a_while_ms(10, 5_000)}


class Bridge(CutNemesis):
    """Two machines hear nothing of each other, and the third hears both.

    Each client hears the third, too, and one of the two.
    """

    name = "bridge"
    does = "cuts two brokers off from each other, but not from the third"

    def choose(self) -> Choice:
        left, right = (self.machine(each) for each in self.two())
        ways = both(left, right)
        for place, client in enumerate(self.cluster.clients):
            ways += both(client.name, left if place % 2 else right)
        return {"kind": self.name, "ways": ways, "cut_ms": self.a_while_ms(50, 4_000)}


class Ring(CutNemesis):
    """Each broker is heard by the next one only, so that each sees another majority."""

    name = "ring"
    does = "each broker receives from only one other: three majorities in a ring"

    def choose(self) -> Choice:
        ring = self.names()
        self.rng.shuffle(ring)
        ways = [(name, ring[place - 1]) for place, name in enumerate(ring)]
        return {"kind": self.name, "ways": ways, "cut_ms": self.a_while_ms(50, 4_000)}


class Swizzle(CutNemesis):
    """Stop the links of a random subset one by one, and restore them in another order (FoundationDB's swizzle-clog)."""

    name = "swizzle"
    does = "stops links one by one, heals them in another order"
    takes = arguments(cut=MACHINES, heal=MACHINES, step_ms=MS, cut_ms=MS)

    def choose(self) -> Choice:
        names = [*self.names(), *(client.name for client in self.cluster.clients)]
        chosen = self.rng.sample(names, self.rng.randint(1, len(self.names())))
        healed = list(chosen)
        self.rng.shuffle(healed)
        return {
            "cut": chosen,
            "heal": healed,
            "step_ms": self.a_while_ms(5, 500),
            "cut_ms": self.a_while_ms(50, 2_500),
        }

    async def act(self, choice: Choice) -> None:
        fabric, everybody = self.cluster.fabric, [*self.names(), *(client.name for client in self.cluster.clients)]
        self.world.faults.fault(self.name, **choice)
        step_s = choice["step_ms"] / 1000
        for name in choice["cut"]:
            for other in everybody:
                if other != name and self.world.faults.faulty:
                    fabric.cut(name, other)
            await asyncio.sleep(step_s)
        await asyncio.sleep(choice["cut_ms"] / 1000)
        for name in choice["heal"]:
            for other in everybody:
                if other != name:
                    fabric.heal(name, other)
            await asyncio.sleep(step_s)


class Flap(CutNemesis):
    """Links of one machine that go down and up again, as a loose cable or a flapping port makes them.

    They stay up long enough to connect, to ask for votes and to fetch a little, and seldom long enough to catch up.
    """

    name = "flap"
    does = "takes links of one machine down and up again, up to 30 times"
    takes = arguments(ways=WAYS, times=COUNT, cut_ms=MS, up_ms=MS)
    drawn = False

    def choose(self) -> Choice:
        me = self.machine(self.target())
        others = [name for name in self.names() if name != me]
        peers = self.rng.choice((others, [self.rng.choice(others)]))
        ways = [way for other in peers for way in both(me, other)]
        return {
            "ways": self.rng.choice((ways, ways[::2], ways[1::2])),
            "times": self.rng.randint(2, 30),
            "cut_ms": self.a_while_ms(5, 1_500),
            "up_ms": self.a_while_ms(2, 600),
        }

    async def act(self, choice: Choice) -> None:
        for _ in range(choice["times"]):
            if not self.world.faults.faulty:
                return
            self.cut(choice["ways"], choice["cut_ms"])
            await asyncio.sleep((choice["cut_ms"] + choice["up_ms"]) / 1000)


class Unreachable(Nemesis):
    """A grey failure: nobody reaches a broker, while its own connections, and so its heartbeats, go on.

    It lasts longer than other cuts, so that the leaderships move to those that can be reached (R-147).
    """

    name = "unreachable"
    does = "blocks connections to a broker for up to 15 s, while its own connections work"
    takes = arguments(broker=BROKER, cut_ms=MS)
    drawn = False
    beside = True

    def choose(self) -> Choice:
        return {"broker": self.target(), "cut_ms": self.a_while_ms(100, 15_000)}

    async def act(self, choice: Choice) -> None:
        target, fabric = self.machine(choice["broker"]), self.cluster.fabric
        self.world.faults.fault(self.name, choice["broker"], cut_ms=choice["cut_ms"])
        machines = (*self.cluster.machines.values(), *self.cluster.clients)
        others = [machine.name for machine in machines if machine.name != target]
        fabric.make_unreachable(target, others)

        def heal() -> None:
            for other in others:
                fabric.heal(other, target, both_ways=False)

        self.world.faults.mend(choice["cut_ms"], heal)


class Stall(Nemesis):
    """Hold up one direction for a moment, as a full queue does."""

    name = "stall"
    does = "delays one direction for a moment"
    takes = arguments(source=MACHINE, target=MACHINE, stall_ms=MS)

    def choose(self) -> Choice:
        source = self.machine(self.target())
        return {"source": source, "target": self.anyone(source), "stall_ms": self.a_while_ms(5, 800)}

    async def act(self, choice: Choice) -> None:
        source, target = choice["source"], choice["target"]
        self.world.faults.fault(self.name, link=f"{source}>{target}", stall_ms=choice["stall_ms"])
        self.cluster.fabric.stall(source, target, choice["stall_ms"])


class Slow(Nemesis):
    """Make one direction slow for a while."""

    name = "slow"
    does = "makes one direction slow for a while"
    takes = SLOW

    def choose(self) -> Choice:
        source = self.machine(self.target())
        return {"ways": [(source, self.anyone(source))], **self.how_slow()}

    def how_slow(self) -> Choice:
        return {"slow_ms": self.a_while_ms(100, 3_000), "delay_ms": self.a_while_ms(5, 400)}

    async def act(self, choice: Choice) -> None:
        delay_ms, slow_ms, ways = choice["delay_ms"], choice["slow_ms"], choice["ways"]
        self.world.faults.fault(self.name, links=[f"{a}>{b}" for a, b in ways], delay_ms=delay_ms, slow_ms=slow_ms)
        links = [self.cluster.fabric.link(source, target) for source, target in ways]
        for link in links:
            link.delay = uniform(delay_ms / 2, delay_ms)

        def heal() -> None:
            for link in links:
                link.delay = self.world.faults.usual_delay

        self.world.faults.mend(slow_ms, heal)


class SlowFollower(Slow):
    """One broker hears the others late: it falls out of the ISR, or holds the high watermark back."""

    name = "slow-follower"
    does = "slows all links to one broker"

    def choose(self) -> Choice:
        me = self.machine(self.target())
        others = [machine.name for machine in self.cluster.machines.values() if machine.name != me]
        return {"ways": [(other, me) for other in others], **self.how_slow()}
