"""Messages that are lost, repeated, late, or of which only some kinds come through."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.faults.choices import BROKER, MACHINE, MS, SHARE, arguments
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis

METADATA_FETCH = "/odradek.v1.Quorum/Fetch"


class Reset(Nemesis):
    """Break all streams between two machines."""

    name = "reset"
    does = "breaks all streams between two machines; messages in flight may be lost"
    takes = arguments(one=MACHINE, other=MACHINE)

    def choose(self) -> Choice:
        one = self.machine(self.target())
        return {"one": one, "other": self.anyone(one)}

    async def act(self, choice: Choice) -> None:
        self.world.faults.fault(self.name, link=f"{choice['one']}-{choice['other']}")
        self.cluster.fabric.reset(choice["one"], choice["other"])


class LoseCalls(Nemesis):
    """Lose unary calls between two machines, before or after they acted."""

    name = "drop-calls"
    does = "loses unary calls, before or after they were executed"
    takes = arguments(source=MACHINE, target=MACHINE, before=SHARE, after=SHARE, ms=MS)

    def choose(self) -> Choice | None:
        target = self.machine(self.target())
        before, after = self.rng.choice(((0.5, 0.0), (0.0, 0.5), (0.3, 0.3), (1.0, 0.0)))
        return {
            "source": self.anyone(target),
            "target": target,
            "before": before,
            "after": after,
            "ms": self.a_while_ms(100, 3_000),
        }

    async def act(self, choice: Choice) -> None:
        source, target, before, after = choice["source"], choice["target"], choice["before"], choice["after"]
        self.world.faults.fault(self.name, link=f"{source}>{target}", before=before, after=after, ms=choice["ms"])
        fabric = self.cluster.fabric
        fabric.drop_calls(source, target, before, after)
        self.world.faults.mend(choice["ms"], lambda: fabric.drop_calls(source, target))


class DuplicateCalls(Nemesis):
    """Deliver unary requests twice, as a client or a proxy that retries does; the second may come much later."""

    name = "duplicate-calls"
    does = "delivers unary requests twice, the second time late; commits of offsets, which have no number, once"
    takes = arguments(source=MACHINE, target=MACHINE, probability=SHARE, late_ms=MS, ms=MS)

    def choose(self) -> Choice:
        target = self.machine(self.target())
        return {
            "source": self.anyone(target),
            "target": target,
            "probability": self.rng.choice((0.3, 1.0)),
            "late_ms": self.a_while_ms(0, 1_500),
            "ms": self.a_while_ms(100, 4_000),
        }

    async def act(self, choice: Choice) -> None:
        source, target = choice["source"], choice["target"]
        self.world.faults.fault(self.name, link=f"{source}>{target}", late_ms=choice["late_ms"], ms=choice["ms"])
        link = self.cluster.fabric.link(source, target)
        link.duplicate_requests, link.duplicate_late_ms = choice["probability"], choice["late_ms"]

        def heal() -> None:
            link.duplicate_requests = 0.0

        self.world.faults.mend(choice["ms"], heal)


class StaleMetadata(Nemesis):
    """One broker reads no metadata for a while, and goes on with what it knows."""

    name = "stale-metadata"
    does = "keeps one broker from reading the metadata log for a while"
    takes = arguments(broker=BROKER, stale_ms=MS)

    def choose(self) -> Choice:
        return {"broker": self.target(), "stale_ms": self.a_while_ms(50, 5_000)}

    async def act(self, choice: Choice) -> None:
        machine = self.machine(choice["broker"])
        self.world.faults.fault(self.name, choice["broker"], stale_ms=choice["stale_ms"])
        held = self.cluster.fabric.held
        held[machine] = METADATA_FETCH
        self.world.faults.mend(choice["stale_ms"], lambda: held.pop(machine, None))
