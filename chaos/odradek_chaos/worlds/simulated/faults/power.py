"""Machines that lose their power: peers hear nothing, disks forget what was not flushed, wholly or in part."""

from __future__ import annotations

from functools import partial

from odradek_chaos.worlds.simulated.faults.choices import ALL_MS, BROKER, DARK, MS, arguments
from odradek_chaos.worlds.simulated.faults.damage import OF_ITS_QUORUM, OF_LOST_METADATA, OF_THE_VOTER
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Guarantee, Nemesis


class Power(Nemesis):
    name = "power"
    owed = Guarantee.FLUSHED
    does = "cuts a machine's power: its disk loses unflushed data"
    deadly = True
    takes = DARK

    def choose(self) -> Choice:
        return {"broker": self.target(), "dark_ms": self.a_while_ms(50, 3_000)}

    async def act(self, choice: Choice) -> None:
        self.world.faults.power_loss(choice["broker"], choice["dark_ms"], self.name)


class PowerOne(Power):
    """The same, while all other machines are well and in every ISR: nothing may be lost, flushed or not."""

    name = "power-one"
    owed = Guarantee.QUIESCENT
    does = "cuts one machine's power while all others are healthy"


class Blackout(Nemesis):
    """All machines lose their power within 300 ms; who would lose it when the faults are over keeps it."""

    name = "blackout"
    owed = Guarantee.FLUSHED
    does = "cuts the power of all machines within 300 ms"
    deadly = True
    takes = arguments(off_ms=ALL_MS, on_ms=ALL_MS)

    def choose(self) -> Choice:
        dark_ms = self.a_while_ms(400, 2_000)
        machines = [str(broker_id) for broker_id in self.cluster.machines]
        return {
            "off_ms": {each: round(self.rng.uniform(0, 300), 3) for each in machines},
            "on_ms": {each: dark_ms + round(self.rng.uniform(0, 1_000)) for each in machines},
        }

    async def act(self, choice: Choice) -> None:
        self.world.faults.fault(self.name, **choice)
        for each, off_ms in choice["off_ms"].items():
            broker_id = int(each)
            self.world.faults.later(off_ms, partial(self._off, broker_id))
            self.world.faults.mend(choice["on_ms"][each], partial(self.world.faults.start, broker_id))

    def _off(self, broker_id: int) -> None:
        if self.world.faults.faulty:
            self.world.faults.power_off(broker_id)


class LyingFsync(Nemesis):
    """A disk that says it has flushed and has not, and then the power fails. Out of contract.

    A voter on it forgets votes, and what it helped to commit: a quorum stands on majorities of disks that do not lie.
    """

    name = "lying-fsync"
    owed = Guarantee.SAFETY
    does = "fsyncs that do nothing, then power losses"
    deadly = True
    takes = arguments(broker=BROKER, lies_ms=MS, dark_ms=MS)

    def choose(self) -> Choice:
        lies_ms = self.a_while_ms(100, 2_000)
        return {"broker": self.target(), "lies_ms": lies_ms, "dark_ms": self.a_while_ms(50, 1_500)}

    async def act(self, choice: Choice) -> None:
        broker_id = choice["broker"]
        disk = self.cluster.machines[broker_id].disk
        self.world.faults.fault(self.name, broker_id, lies_ms=choice["lies_ms"])
        self.world.exemptions.tampered_with(broker_id)
        for check in (*OF_THE_VOTER, "audit-file-corrupt"):
            self.world.exemptions.tolerate(check, broker_id)
        for check in (*OF_ITS_QUORUM, *OF_LOST_METADATA):
            self.world.exemptions.tolerate(check)
        disk.lying = True

        def fail() -> None:
            self.world.faults.power_loss(broker_id, choice["dark_ms"], self.name)
            disk.lying = False

        self.world.faults.mend(choice["lies_ms"], fail)
