"""Disks that are full, slow, fail, or are plugged into the wrong machine."""

from __future__ import annotations

import asyncio
from functools import partial

from odradek_chaos.worlds.simulated.faults.choices import BROKER, COUNT, MS, OPERATION, TEXT, TWO, arguments
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis


class FullDisk(Nemesis):
    """Few bytes are left for a while. Appends fail and nothing of them counts; only a start may end for it."""

    name = "disk-full"
    does = "leaves a disk a few hundred bytes for a while"
    takes = arguments(broker=BROKER, left_bytes=COUNT, full_ms=MS)

    def choose(self) -> Choice:
        return {
            "broker": self.target(),
            "left_bytes": self.a_while_ms(0, 3_000),
            "full_ms": self.a_while_ms(20, 3_000),
        }

    async def act(self, choice: Choice) -> None:
        broker_id, left_bytes, faults = choice["broker"], choice["left_bytes"], self.world.faults
        faults.fault(self.name, broker_id, left_bytes=left_bytes, full_ms=choice["full_ms"])
        faults.mend(
            choice["full_ms"], faults.fill(broker_id, left_bytes, self.world.exemptions.tampered_with(broker_id))
        )


class IoError(Nemesis):
    """The next operation of a kind fails with EIO. After a failed fsync what was dirty never reaches the disk.

    It counts as an injection when an operation has failed.
    """

    name = "io-error"
    does = "fails a read, a write or an fsync"
    deadly = True
    takes = arguments(broker=BROKER, operation=OPERATION, path=TEXT, times=COUNT, ms=MS)

    def choose(self) -> Choice:
        return {
            "broker": self.target(),
            "operation": self.rng.choice(("read", "write", "fsync")),
            "path": self.rng.choice((".log", ".log", ".index", "checkpoint", "__cluster_metadata", f"/{self.topic}-")),
            "times": self.rng.choice((1, 1, 5)),
            "ms": self.a_while_ms(50, 2_000),
        }

    @property
    def topic(self) -> str:
        return self.world.partitions[0].topic

    async def act(self, choice: Choice) -> None:
        broker_id = choice["broker"]
        disk = self.cluster.machines[broker_id].disk
        self.world.faults.fault(self.name, broker_id, operation=choice["operation"], path=choice["path"])
        mended = self.world.exemptions.tampered_with(broker_id)
        self.world.faults.take_back(self.name)
        count = partial(self.world.faults.count, self.name)
        disk.inject(choice["operation"], choice["path"], choice["times"], on_first=count)

        def end() -> None:
            disk.injections.clear()
            mended()

        self.world.faults.mend(choice["ms"], end)


class SlowDisk(Nemesis):
    """All that is done away from the event loop takes long: fsyncs, cold reads, recovery."""

    name = "slow-disk"
    does = "makes fsyncs and cold reads slow for a while"
    takes = arguments(broker=BROKER, delay_ms=MS, slow_ms=MS)

    def choose(self) -> Choice:
        return {"broker": self.target(), "delay_ms": self.a_while_ms(10, 600), "slow_ms": self.a_while_ms(100, 4_000)}

    async def act(self, choice: Choice) -> None:
        disk = self.cluster.machines[choice["broker"]].disk
        self.world.faults.fault(self.name, choice["broker"], delay_ms=choice["delay_ms"], slow_ms=choice["slow_ms"])
        disk.slow_ms = choice["delay_ms"]

        def heal() -> None:
            disk.slow_ms = 0.0

        self.world.faults.mend(choice["slow_ms"], heal)


class SwapDisks(Nemesis):
    """Two machines come up with each other's disk. Both must refuse to run; then the disks are put right."""

    name = "swap-disks"
    does = "starts two brokers on each other's disk, then swaps the disks back"
    deadly = True
    takes = arguments(brokers=TWO, wrong_ms=MS, down_ms=MS)

    def choose(self) -> Choice:
        return {"brokers": list(self.two()), "wrong_ms": self.a_while_ms(20, 500), "down_ms": self.a_while_ms(1, 800)}

    async def act(self, choice: Choice) -> None:
        one, other = choice["brokers"]
        self.world.faults.fault(self.name, one, other=other, wrong_ms=choice["wrong_ms"])
        for broker_id in (one, other):
            self.world.faults.begin_outage(broker_id)
        self._swap(one, other)
        try:
            for broker_id in (one, other):
                self.cluster.start(broker_id)
                self.world.exemptions.foreign_disk(broker_id)
            await asyncio.sleep(choice["wrong_ms"] / 1000)
        finally:
            for broker_id in (one, other):
                node = self.cluster.nodes.get(broker_id)
                if self.cluster.machines[broker_id].is_running and node is not None and node.addresses():
                    sentence = "listens on the disk of another broker"
                    self.world.findings.report("wrong-disk-accepted", sentence, broker_id)
                self.cluster.machines[broker_id].kill()
            self._swap(one, other)
            for broker_id in (one, other):
                self.world.faults.end_outage(broker_id, choice["down_ms"])

    def _swap(self, one: int, other: int) -> None:
        first, second = self.cluster.machines[one], self.cluster.machines[other]
        first.disk, second.disk = second.disk, first.disk
        self.world.exemptions.swapped(one, other)
