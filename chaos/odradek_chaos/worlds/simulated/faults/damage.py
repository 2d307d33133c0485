"""Disks that say something else than what was written: flipped bits, torn tails, old checkpoints, missing directories.

The bounded kinds damage one copy while the others are well, so that nothing may be lost (docs/guarantees.md), and an
operator replaces what cannot be repaired. `flip-any` and `new-disk` have no bound: they are for safety alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from odradek_proto.headers import HEADER_SIZE, LENGTH_END

from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.inodes import Directory
from odradek_chaos.worlds.simulated.faults.choices import DAMAGE, DOWN, MS, arguments
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Guarantee, Nemesis
from odradek_chaos.worlds.simulated.world.copies import has_caught_up

CHECKPOINTS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
EPOCHS = "leader-epoch-checkpoint"
CRC_BEGIN = 17  # of a batch: the CRC, and behind it all that it covers
UNCOVERED = (*range(8), *range(12, 16))  # bytes of a batch's header
AT_FULL_PACE = 5  # strikes of a kind that makes a broker copy everything


class Damage(Nemesis):
    """Kills a broker and does something to its disk before it comes back. When there is nothing to do it is a kill."""

    deadly = True
    takes = DAMAGE

    def choose(self) -> Choice:
        return {"broker": self.target(), "down_ms": self.a_while_ms(1, 1_500), "places": self.places()}

    def places(self) -> list[float]:
        """Where to strike, as fractions: of the number of files, of a file's length, and the bit."""
        return [round(self.rng.random(), 6) for _ in range(6)]

    async def act(self, choice: Choice) -> None:
        broker_id = choice["broker"]
        if self.world.exemptions.has_foreign_disk(broker_id):
            return  # what is damaged there is not its own
        disk = self.cluster.machines[broker_id].disk
        self.world.faults.kill(broker_id, choice["down_ms"], self.name)
        if not self.damage(disk, broker_id, choice["places"]):
            self.world.faults.take_back(self.name)

    def damage(self, disk: SimDisk, broker_id: int, places: list[float]) -> bool:
        """Returns whether anything on the disk is different now."""
        raise NotImplementedError

    def files(self, disk: SimDisk, *endings: str) -> list[str]:
        """Paths of the topic's files that end so and hold something."""
        topic = f"{LOG_DIRECTORY}/{self.world.partitions[0].topic}-"
        return [
            path
            for path, inode in disk.walk(LOG_DIRECTORY)
            if path.startswith(topic) and path.endswith(endings) and inode.data
        ]


def flip(disk: SimDisk, path: str, place: float, bit: float) -> int:
    """Turn a bit over at a fraction of the file; returns the offset."""
    offset = int(place * len(disk.file(path).data))
    disk.flip(path, offset, int(bit * 8))
    return offset


class TornTail(Damage):
    """The last segment ends inside of a batch, as when a crash interrupts a write; only what was not flushed is cut."""

    name = "torn-tail"
    owed = Guarantee.QUIESCENT
    does = "kills a broker and cuts an unflushed tail within a batch"

    def damage(self, disk: SimDisk, broker_id: int, places: list[float]) -> bool:
        last: dict[str, str] = {}
        is_torn = False
        for path in self.files(disk, ".log"):
            last[path.rpartition("/")[0]] = path  # by name, so the active segment comes last
        for path, place in zip(last.values(), places, strict=False):
            inode = disk.file(path)
            cut = inode.durable_size + int(place * (len(inode.data) - inode.durable_size))
            if cut < len(inode.data):
                disk.used -= len(inode.data) - cut
                inode.truncate(cut)
                is_torn = True
            inode.fsync()
        return is_torn


class StaleCheckpoint(Damage):
    """The checkpoints of a while ago come back, all of one moment."""

    name = "stale-checkpoint"
    owed = Guarantee.QUIESCENT
    does = "kills a broker and restores older checkpoints"
    takes = arguments(**DOWN, age_ms=MS)

    def choose(self) -> Choice:
        return {"broker": self.target(), "down_ms": self.a_while_ms(1, 1_500), "age_ms": self.a_while_ms(20, 1_500)}

    async def act(self, choice: Choice) -> None:
        broker_id = choice["broker"]
        disk = self.cluster.machines[broker_id].disk
        old = {
            path: bytes(inode.data)
            for path, inode in disk.walk(LOG_DIRECTORY)
            if path.endswith((*CHECKPOINTS, EPOCHS)) and "__cluster_metadata" not in path
        }
        await asyncio.sleep(choice["age_ms"] / 1000)
        self.world.faults.kill(broker_id, choice["down_ms"], self.name)
        is_stale = False
        for path, content in old.items():
            inode = disk.find(path)
            if inode is not None and not isinstance(inode, Directory):
                is_stale |= inode.data != content
                inode.data = bytearray(content)
                inode.saved.clear()
                inode.forgotten.clear()
                inode.durable_size = len(content)
        if not is_stale:
            self.world.faults.take_back(self.name)


class FlipIndex(Damage):
    """Whoever reads through a damaged index must notice; nobody looks for damage where he does not read."""

    name = "flip-index"
    owed = Guarantee.QUIESCENT
    does = "flips bits in indexes of a broker that is down"

    def damage(self, disk: SimDisk, broker_id: int, places: list[float]) -> bool:
        found = self.files(disk, ".index", ".timeindex", ".snapshot")
        if found:
            path = found[int(places[0] * len(found))]
            flip(disk, path, places[1], places[2])
            unseen = "audit-file-corrupt" if path.endswith(".snapshot") else "audit-index-unsound"
            self.world.exemptions.tolerate(unseen, broker_id)
        return bool(found)


class FlipLog(Damage):
    """One copy of one partition is damaged under a running broker; later an operator replaces the copy."""

    name = "flip-log"
    owed = Guarantee.QUIESCENT
    does = "flips bits in one copy of a log; an operator replaces the copy later"
    copies = True

    async def act(self, choice: Choice) -> None:
        broker_id, places = choice["broker"], choice["places"]
        disk = self.cluster.machines[broker_id].disk
        found = self.files(disk, ".log")
        if not found:
            return
        path = found[int(places[0] * len(found))]
        partition = path.split("/")[2]
        offset = flip(disk, path, places[1], places[2])
        self.world.faults.fault(self.name, broker_id, path=path, offset=offset)
        self.world.operator.replace_copy(broker_id, partition, choice["down_ms"])


class FlipCopy(Damage):
    """One copy of a partition is damaged while its broker is down, among kills, cuts and losses of power.

    The next damage of that partition waits until this broker is in sync again in a new incarnation. Whatever else goes
    on, all that was acknowledged is in another copy, which leads, and the damaged one fetches it from there (R-146).
    Only bytes that the start reads, of a log that was not closed cleanly: what lies below is found by who reads it.
    """

    name = "flip-copy"
    does = "kills a broker and flips a bit of its copy of one partition, while no other copy of it is damaged"
    copies = True

    def damage(self, disk: SimDisk, broker_id: int, places: list[float]) -> bool:
        if disk.find(f"{LOG_DIRECTORY}/.kafka_cleanshutdown") is not None:
            return False
        paths = [path for path, _ in disk.walk(LOG_DIRECTORY) if path.endswith(".log")]
        last = {path.split("/")[2]: path for path in paths}  # by name, so the active segment comes last
        written = [path for partition, path in last.items() if self.world.copies.are_sound(partition)]
        found = [path for path in self.files(disk, ".log") if path in written]
        if not found:
            return False
        path = found[int(places[0] * len(found))]
        data = disk.file(path).data
        offset = int(places[1] * len(data))
        if places[3] < 0.5:  # of a batch's header, what no CRC covers: base offset or leader epoch
            starts = list(batch_starts(data))
            offset = starts[int(places[1] * len(starts))] + UNCOVERED[int(places[4] * len(UNCOVERED))]
        disk.flip(path, min(offset, len(data) - 1), int(places[2] * 8))
        self.world.copies.damaged(path.split("/")[2], broker_id)
        return True


def batch_starts(data: bytes | bytearray) -> Iterator[int]:
    """Where the batches of a segment begin, as far as their lengths go; 0 at least."""
    position = 0
    while position == 0 or position + LENGTH_END <= len(data):
        yield position
        position += LENGTH_END + max(int.from_bytes(data[position + 8 : position + LENGTH_END], "big", signed=True), 0)


class Wipe(Damage):
    """The partition directories and their checkpoints are gone: the replica starts anew, outside of every ISR first.

    All of a log is copied each time, and it grows: later injections are rarer, or a long run would do little else.
    """

    name = "wipe"
    owed = Guarantee.QUIESCENT
    does = "deletes all partition directories of one broker while it is down"
    copies = True

    @property
    def pace_ms(self) -> float:
        injections = sum(injection.name == self.name for injection in self.world.faults.injected)
        return self._pace_ms * max(1.0, injections / AT_FULL_PACE)

    def damage(self, disk: SimDisk, broker_id: int, places: list[float]) -> bool:
        directory = disk.directory(LOG_DIRECTORY)
        topic = f"{self.world.partitions[0].topic}-"
        gone = [name for name in directory.entries if name.startswith(topic) or name in CHECKPOINTS]
        directory.change(*((name, None) for name in gone))
        directory.fsync()
        return bool(gone)


class FlipAny(Damage):
    """A bit of any file. Whatever happens: no two leaders of an epoch, nothing damaged served or replicated."""

    name = "flip-any"
    owed = Guarantee.SAFETY
    does = "flips bits in any file of any broker, running or not"
    copies = True

    async def act(self, choice: Choice) -> None:
        broker_id, places = choice["broker"], choice["places"]
        disk = self.cluster.machines[broker_id].disk
        found = [path for path, inode in disk.walk(LOG_DIRECTORY) if inode.data]
        if not found:
            return
        path = found[int(places[0] * len(found))]
        self.world.faults.fault(self.name, broker_id, path=path, offset=flip(disk, path, places[1], places[2]))
        self.world.exemptions.damaged_bytes(broker_id, path.split("/")[2])
        if places[3] < 0.5:
            self.world.faults.kill(broker_id, choice["down_ms"], self.name)


OF_THE_VOTER = ("epochs-never-fall", "epoch-persisted-before-use")  # it has forgotten what it was
OF_ITS_QUORUM = ("majority-reached-high-watermark",)  # of whoever leads it
OF_LOST_METADATA = (  # what a majority had committed, and some of it did not keep
    "metadata-committed-equal",
    "metadata-high-watermark-never-falls",
    "metadata-images-equal",
)
METADATA_DIRECTORY = f"{LOG_DIRECTORY}/__cluster_metadata-0"


class FlipMetadata(Damage):
    """A voter comes back with a damaged metadata log, and lacks what it may have acknowledged.

    The next one is struck when it has caught up: of a second loss before nothing is promised (R-217). Only bytes that
    the CRC covers: nothing else tells that an epoch was another one.
    """

    name = "flip-metadata"
    does = "kills a voter and flips a bit of its metadata log, once all voters have caught up"
    drawn = False
    share = 0.15

    def target(self) -> int:
        return self.rng.choice(self.cluster.shape.voters)

    async def act(self, choice: Choice) -> None:
        if self.world.copies.voters_are_sound():
            await super().act(choice)

    def damage(self, disk: SimDisk, broker_id: int, places: list[float]) -> bool:
        paths = [path for path, _ in disk.walk(METADATA_DIRECTORY) if path.endswith(".log")]
        found = [path for path in paths if len(disk.file(path).data) >= HEADER_SIZE]
        if not found:
            return False
        data = disk.file(path := found[-1]).data
        starts = [each for each in batch_starts(data) if len(data) - each >= HEADER_SIZE]
        place = int(places[0] * len(starts))
        begin, end = starts[place] + CRC_BEGIN, [*starts, len(data)][place + 1]
        disk.flip(path, begin + int(places[1] * (end - begin)), int(places[2] * 8))
        self.world.copies.voter_damaged(broker_id)
        return True


class NewDisk(Damage):
    """An empty disk under an old name, the vote of a voter included. It waits until the other voters have everything:
    of a second loss before the first one is made good nothing is promised (R-217).
    """

    name = "new-disk"
    owed = Guarantee.SAFETY
    does = "gives a broker an empty disk, without its votes, while the other voters have everything"
    copies = True

    async def act(self, choice: Choice) -> None:
        others = [machine.disk for each, machine in self.cluster.machines.items() if each != choice["broker"]]
        if all(has_caught_up(other) for other in others):
            await super().act(choice)

    def damage(self, disk: SimDisk, broker_id: int, places: list[float]) -> bool:
        self.world.exemptions.tampered_with(broker_id)
        self.world.state.lost_disks[broker_id] = None
        for check in OF_THE_VOTER:
            self.world.exemptions.tolerate(check, broker_id)
        for check in OF_ITS_QUORUM:
            self.world.exemptions.tolerate(check)
        for name in list(disk.root.entries):
            disk.root.change((name, None))
        disk.root.fsync()
        return True
