"""Damage to a disk, and errors of it: each is legal, and is counted only when it was there."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.disk.inodes import SECTOR
from odradek_chaos.worlds.simulated.faults.catalogue import nemesis
from odradek_chaos.worlds.simulated.world.world import TOPIC
from odradek_proto.transport.ports import File

from tests.simulation.worlds import new_world

SEGMENT = f"{LOG_DIRECTORY}/{TOPIC}-0/00000000000000000000.log"
INDEX = f"{LOG_DIRECTORY}/{TOPIC}-0/00000000000000000000.index"
CHECKPOINT = f"{LOG_DIRECTORY}/replication-offset-checkpoint"
PLACES = [0.5] * 6
DOWN: dict[str, Any] = {"broker": 1, "down_ms": 1_000}


class Bench:
    """A world in which nobody runs, and the files of its first broker."""

    def __init__(self) -> None:
        self.world = new_world()
        self.disk = self.world.cluster.machines[1].disk
        self.files = SimFiles(self.disk, self.world.loop, self.world.loop.fork_rng("files"))
        self.files.makedirs(f"{LOG_DIRECTORY}/{TOPIC}-0")

    def write(self, path: str, content: bytes, *, offset: int = 0, flush: bool = True) -> None:
        file = self.files.open(path, create=True)
        file.pwritev([content], offset)
        if flush:
            file.fsync()

    def inject(self, name: str, **choice: Any) -> int:
        """How often that kind is counted afterwards."""
        work = nemesis(self.world, name).act({**DOWN, **choice})
        self.world.loop.run(work)
        counted = dict(self.world.faults.counts)
        assert counted.keys() <= {name}
        return counted.get(name, 0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("flush", [True, False], ids=["flushed", "unflushed"])
def test_only_a_tail_that_was_not_flushed_is_torn(bench: Bench, flush: bool) -> None:
    """Where everything was flushed there is nothing to tear, and such a kill is no torn tail."""
    bench.write(SEGMENT, b"flushed ")
    bench.write(SEGMENT, b"or not", offset=8, flush=flush)
    assert bench.inject("torn-tail", places=PLACES) == (0 if flush else 1)
    assert bench.disk.read(SEGMENT) == (b"flushed or not" if flush else b"flushed or ")


def test_a_disk_that_stands_in_another_machine_is_not_damaged(bench: Bench) -> None:
    """Its own broker would come up with the damage, and another one would be watched for it."""
    bench.write(SEGMENT, b"a batch", flush=False)
    bench.world.exemptions.swapped(1, 2)
    assert bench.inject("torn-tail", places=PLACES) == 0
    assert bench.disk.read(SEGMENT) == b"a batch"
    bench.world.exemptions.swapped(1, 2)
    assert bench.inject("torn-tail", places=PLACES) == 1


def test_a_log_that_was_cut_is_not_made_longer(bench: Bench) -> None:
    """It was flushed when it was longer: no interrupted write puts zeros there."""
    bench.write(SEGMENT, b"flushed, then cut")
    bench.files.open(SEGMENT).truncate(7)
    assert bench.inject("torn-tail", places=PLACES) == 0
    assert bench.disk.read(SEGMENT) == b"flushed"


@pytest.mark.parametrize("content", [b"index", b""], ids=["with an index", "without"])
def test_an_index_that_is_not_there_is_not_flipped(bench: Bench, content: bytes) -> None:
    """A kill alone flips nothing, and nothing is tolerated after it."""
    bench.write(INDEX, content)
    assert bench.inject("flip-index", places=PLACES) == bool(content)
    assert (bench.disk.read(INDEX) != content) == bool(content)
    assert bool(bench.world.exemptions.tolerated) == bool(content)


@pytest.mark.parametrize("later", [b"8", b"5"], ids=["another", "the same"])
def test_a_checkpoint_that_says_the_same_is_not_stale(bench: Bench, later: bytes) -> None:
    """What comes back is counted when it is something else than what stood there."""
    bench.write(CHECKPOINT, b"5")
    bench.world.faults.later(10, lambda: bench.write(CHECKPOINT, later))
    assert bench.inject("stale-checkpoint", age_ms=20) == (later != b"5")
    assert bench.disk.read(CHECKPOINT) == b"5"


@pytest.mark.parametrize("name", [f"{TOPIC}-0", "odradek-events.jsonl"])
def test_a_disk_without_partitions_is_not_wiped(bench: Bench, name: str) -> None:
    """Directories of partitions and their checkpoints go, and nothing else."""
    bench.files.remove_tree(f"{LOG_DIRECTORY}/{TOPIC}-0")
    bench.write(f"{LOG_DIRECTORY}/{name}", b"content")
    is_wiped = name.startswith(TOPIC)
    assert bench.inject("wipe", places=PLACES) == is_wiped
    assert bench.files.exists(f"{LOG_DIRECTORY}/{name}") != is_wiped


@pytest.mark.parametrize("path", [".log", ".index"])
def test_an_io_error_is_counted_when_an_operation_fails(bench: Bench, path: str) -> None:
    """Not when nobody reads or writes such a file meanwhile; and once, however often it fails."""
    bench.write(SEGMENT, b"content")
    counted = bench.inject("io-error", operation="read", path=path, times=2, ms=1_000)
    assert counted == 0
    file = bench.files.open(SEGMENT)
    for _ in range(2 if path == ".log" else 0):
        with pytest.raises(OSError, match="Input/output error"):
            file.pread(0, 7)
    assert file.pread(0, 7) == b"content"
    assert bench.world.faults.counts["io-error"] == (path == ".log")


def after_a_failed_fsync(bench: Bench) -> File:
    """A file of one flushed sector and one that was dirty when an fsync failed."""
    bench.write(SEGMENT, b"a" * SECTOR)
    file = bench.files.open(SEGMENT)
    file.pwritev([b"b" * SECTOR], SECTOR)
    bench.disk.inject("fsync", SEGMENT)
    with pytest.raises(OSError, match="Input/output error"):
        file.fsync()
    return file


@pytest.mark.parametrize("again", [False, True], ids=["left alone", "written anew"])
def test_what_a_failed_fsync_left_dirty_is_never_written_but_anew(bench: Bench, again: bool) -> None:
    """The next fsync succeeds: what came since is durable then, and not what the kernel takes for clean (Linux)."""
    file, inode = after_a_failed_fsync(bench), bench.disk.file(SEGMENT)
    file.pwritev([b"c" * SECTOR], 2 * SECTOR)
    if again:
        file.pwritev([b"b" * SECTOR], SECTOR)
    file.fsync()
    there = b"b" if again else b"\0"
    assert inode.durable() == b"a" * SECTOR + there * SECTOR + b"c" * SECTOR
    assert inode.is_durable_up_to(3 * SECTOR) == again
    assert inode.is_durable_up_to(SECTOR)


def test_a_sector_that_is_appended_to_is_written_as_a_whole(bench: Bench) -> None:
    """What an fsync left dirty in it gets to the disk with what follows; its neighbours do not."""
    bench.write(SEGMENT, b"ab")
    file, inode = bench.files.open(SEGMENT), bench.disk.file(SEGMENT)
    file.pwritev([b"cd"], 2)
    bench.disk.inject("fsync", SEGMENT)
    with pytest.raises(OSError, match="Input/output error"):
        file.fsync()
    file.fsync()
    assert inode.durable() == b"ab\0\0"
    file.pwritev([b"ef"], 4)
    assert inode.durable() == b"ab\0\0"
    file.fsync()
    assert inode.durable() == b"abcdef"


def test_a_cut_and_a_power_loss_end_what_a_failed_fsync_left(bench: Bench) -> None:
    """What is gone need not be written, and what a machine finds when it comes up is on its disk."""
    file, inode = after_a_failed_fsync(bench), bench.disk.file(SEGMENT)
    file.truncate(SECTOR)
    file.fsync()
    assert inode.durable() == b"a" * SECTOR
    file.pwritev([b"d"], SECTOR)
    file.fsync()
    assert inode.durable() == b"a" * SECTOR + b"d"
    after_a_failed_fsync(bench)
    inode.lose_power(Random(1))
    file.pwritev([b"e" * SECTOR], 0)
    file.fsync()
    assert inode.durable() == bench.disk.read(SEGMENT)
