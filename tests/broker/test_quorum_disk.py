"""What a node of the quorum does on its disk when the disk is full, or when a snapshot is received twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import TypeVar

from odradek_broker.core.quorum.messages import AppendRecords, Snapshot, SnapshotId, TruncateLog
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.quorum.disk import QuorumDisk, Spawn
from odradek_broker.runtime.quorum.flushed_end import FlushedEnd
from odradek_broker.runtime.quorum.opening import open_quorum_log
from odradek_broker.storage.metadata_snapshots import MetadataSnapshots, SnapshotWriter
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.formats import FLUSHED_OFFSET_CHECKPOINT

T = TypeVar("T")
AT_3 = SnapshotId(3, 1)
DIRECTORY = "/data/__cluster_metadata-0"


class SlowFiles(SimFiles):
    """Threads that wait for each other: the next piece of work meets whatever `meanwhile` has done, and the loop hears
    of it when `afterwards` is done."""

    meanwhile: Callable[[], None] | None = None
    afterwards: Callable[[], None] | None = None

    async def offload(self, function: Callable[[], T]) -> T:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        result = function()
        afterwards, self.afterwards = self.afterwards, None
        if afterwards is not None:
            afterwards()
        return result


def load(snapshot: SnapshotId, records: Iterator[bytes]) -> list[bytes]:
    return list(records)


def opened(
    disk: SimDisk,
    spawn: Spawn = lambda work: work.close(),
    on_flushed: Callable[[int], None] = lambda _: None,
) -> tuple[SlowFiles, QuorumDisk]:
    files = SlowFiles(disk, SimLoop(), random.Random(0))
    files.makedirs("/data")
    log = open_quorum_log(files, "/data", load, 0, LogSettings(retention_ms=-1))
    return files, QuorumDisk(
        files,
        "/data",
        log,
        load=load,
        voters=(1,),
        spawn=spawn,
        on_flushed=on_flushed,
        counters=Counters(),
    )


def sent() -> bytes:
    """A snapshot as another node would send it."""
    files = SimFiles(SimDisk(random.Random(0)), SimLoop(), random.Random(0))
    files.makedirs("/other")
    snapshots = MetadataSnapshots(files, "/other")
    writer = SnapshotWriter(files, snapshots, AT_3, iter([b"a", b"b", b"c"]), 7)
    writer.begin()
    while writer.write_some():
        pass
    writer.finish()
    return snapshots.read(AT_3, 0, 1 << 20)


def parts(disk: SimDisk) -> list[str]:
    return [path for path, _ in disk.walk(DIRECTORY) if path.endswith(".part")]


def test_a_snapshot_that_finds_no_room_is_given_up_wherever_that_happens() -> None:
    """A full disk costs the snapshot alone, its header included: no error comes out, and nothing of it stays."""
    size = len(sent())
    for room in range(size):
        disk = SimDisk(random.Random(room))
        _, quorum = opened(disk)
        disk.quota = disk.used + room
        assert asyncio.run(quorum.take(AT_3, iter([b"a", b"b", b"c"]), 7)) is None
        assert parts(disk) == []
        disk.quota = None
        assert asyncio.run(quorum.take(AT_3, iter([b"a", b"b", b"c"]), 7)) == Snapshot(AT_3, size, 7)


def test_a_flush_says_nothing_of_what_was_appended_after_a_cut() -> None:
    """The thread has ended, and before the loop hears of it a leader's records take the place of what was flushed."""
    flushes: list[Coroutine[object, object, None]] = []
    flushed: list[int] = []
    disk = SimDisk(random.Random(0))
    files, quorum = opened(disk, flushes.append, flushed.append)
    log = quorum.log
    log.carry_out(AppendRecords(0, 1, (b"a", b"b")), 1, 0)
    log.carry_out(AppendRecords(2, 1, (b"c", b"d")), 1, 0)

    def cut_and_append() -> None:
        log.carry_out(TruncateLog(2, "another leader"), 1, 0)
        log.carry_out(AppendRecords(2, 2, (b"e", b"f")), 1, 0)

    quorum.flush()
    files.afterwards = cut_and_append
    asyncio.run(flushes.pop())
    assert flushed == [2]


def test_a_cut_is_told_to_a_checkpoint_that_could_not_be_written_anew() -> None:
    """A full disk leaves the older one; it must not name what the log does not have any more."""
    disk = SimDisk(random.Random(0))
    files = SimFiles(disk, SimLoop(), random.Random(0))
    files.makedirs("/data")
    FlushedEnd(files, "/data").begin(10)
    disk.quota = disk.used
    full = FlushedEnd(files, "/data")
    full.begin(12)
    full.rise(14)
    full.fall(8)
    assert FlushedEnd(files, "/data").found == 8
    files.remove(f"/data/{FLUSHED_OFFSET_CHECKPOINT}")
    disk.quota = disk.used
    none = FlushedEnd(files, "/data")
    none.begin(12)
    none.rise(14)
    none.fall(8)
    none.close(8)
    assert FlushedEnd(files, "/data").found == 0


def test_a_check_that_ends_late_leaves_the_next_download_alone() -> None:
    """Of the same snapshot, from another leader: its file has been begun anew, and nobody waits for the old check."""
    disk, data = SimDisk(random.Random(0)), sent()
    files, quorum = opened(disk)
    quorum.receive(AT_3, 0, data)
    files.meanwhile = lambda: quorum.receive(AT_3, 0, data[:50])
    assert asyncio.run(quorum.check(AT_3)) is None
    quorum.receive(AT_3, 50, data[50:])
    assert asyncio.run(quorum.check(AT_3)) == Snapshot(AT_3, len(data), 7)
    assert asyncio.run(quorum.install(AT_3)) == (Snapshot(AT_3, len(data), 7), [b"a", b"b", b"c"])
    assert parts(disk) == []


def test_a_check_that_ends_when_another_one_has_installed_its_snapshot_finds_nothing() -> None:
    """The file has its name by then: that is no damage, and no reason to stop."""
    disk, data = SimDisk(random.Random(0)), sent()
    files, quorum = opened(disk)

    def install() -> None:
        quorum.receive(AT_3, 0, data)
        quorum.snapshots.complete(AT_3)

    files.meanwhile = install
    assert asyncio.run(quorum.check(AT_3)) is None
    assert quorum.snapshots.read(AT_3, 0, 1 << 20) == data


def test_a_damaged_snapshot_is_thrown_away() -> None:
    """Who reads it to its end says what is wrong with it."""
    disk, data = SimDisk(random.Random(0)), bytearray(sent())
    _, quorum = opened(disk)
    data[-1] ^= 1
    quorum.receive(AT_3, 0, bytes(data))
    assert isinstance(asyncio.run(quorum.check(AT_3)), str)
    assert parts(disk) == []
