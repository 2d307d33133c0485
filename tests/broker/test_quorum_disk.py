"""What a node of the quorum does on its disk when the disk is full, or when a snapshot is received twice."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from odradek_broker.core.quorum.messages import AppendRecords, QuorumState, Snapshot, SnapshotId, TruncateLog
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.quorum.disk import QuorumDisk, Spawn
from odradek_broker.runtime.quorum.flushed_end import FlushedEnd
from odradek_broker.runtime.quorum.opening import open_quorum_log
from odradek_broker.runtime.quorum.state_file import (
    OtherVoters,
    UnreadableQuorumState,
    read_quorum_state,
    write_quorum_state,
)
from odradek_broker.storage.metadata_snapshots import MetadataSnapshots
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.formats import FLUSHED_OFFSET_CHECKPOINT
from odradek_proto.transport.files import OsFiles

from tests.broker.crashing_disk import write_snapshot

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
    write_snapshot(files, snapshots, AT_3, iter([b"a", b"b", b"c"]), 7)
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


# --- `quorum-state`: what a node must not forget (R-201) -------------------------------------------------------------


GOOD = {"leaderEpoch": 3, "leaderId": 2, "votedId": -1, "data_version": 0}
VOTERS = (1, 2, 3)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """And a node without the file is new, or has lost its disk: it may have forgotten what it voted (R-217)."""
    files = OsFiles()
    assert read_quorum_state(files, str(tmp_path), VOTERS) == QuorumState(catching_up=True)
    for state in (QuorumState(7, leader_id=2, voted_id=3), QuorumState(8), QuorumState(9, catching_up=True)):
        write_quorum_state(files, str(tmp_path), state, VOTERS)
        assert read_quorum_state(files, str(tmp_path), VOTERS) == state
    files.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_vote_survives_a_power_loss(seed: int) -> None:
    """R-201, R-239: file and name are on the disk before anybody acts on what it says."""
    disk = SimDisk(random.Random(seed))
    files = SimFiles(disk, SimLoop(), random.Random(seed))
    files.makedirs("/data")
    files.fsync_dir("/")
    for state in (QuorumState(7, leader_id=2), QuorumState(8, voted_id=3)):
        write_quorum_state(files, "/data", state, VOTERS)
    files.detach()
    disk.power_loss(random.Random(seed))
    assert read_quorum_state(SimFiles(disk, SimLoop(), random.Random(seed)), "/data", VOTERS) == QuorumState(
        8, voted_id=3
    )


def test_the_fields_are_those_of_kafka(tmp_path: Path) -> None:
    """Version 0 of its QuorumStateData, so that people and tools read it."""
    files = OsFiles()
    write_quorum_state(files, str(tmp_path), QuorumState(7, leader_id=2), (1, 2))
    assert json.loads((tmp_path / "quorum-state").read_text()) == {
        "clusterId": "",
        "leaderId": 2,
        "leaderEpoch": 7,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}, {"voterId": 2}],
        "data_version": 0,
    }
    files.close()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps(GOOD | {"data_version": 1}),
        json.dumps(GOOD | {"leaderEpoch": "3"}),
        json.dumps(GOOD | {"leaderEpoch": -3}),
        json.dumps(GOOD | {"leaderEpoch": 2**31 - 1}),
        json.dumps(GOOD | {"leaderId": 2**31}),
        json.dumps(GOOD | {"votedId": -2}),
        json.dumps(GOOD | {"votedId": True}),
        json.dumps(GOOD | {"currentVoters": [1, 2, 3]}),
        "[" * 100_000,
    ],
)
def test_a_file_that_does_not_say_what_was_voted_stops_the_node(tmp_path: Path, content: str) -> None:
    """To guess would be to vote twice. The sentence says what to do, and where more is said."""
    (tmp_path / "quorum-state").write_text(content)
    files = OsFiles()
    with pytest.raises(UnreadableQuorumState, match=r"restore the file from a backup.*docs/troubleshooting\.md"):
        read_quorum_state(files, str(tmp_path), VOTERS)
    files.close()


@pytest.mark.parametrize(
    "state", [QuorumState(2**31 - 1), QuorumState(-1), QuorumState(3, leader_id=2**31), QuorumState(3, voted_id=-2)]
)
def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, state: QuorumState) -> None:
    """The old file stays, so that the node starts again."""
    files = OsFiles()
    write_quorum_state(files, str(tmp_path), QuorumState(7, leader_id=2), VOTERS)
    with pytest.raises(ValueError, match="could not be read again"):
        write_quorum_state(files, str(tmp_path), state, VOTERS)
    assert read_quorum_state(files, str(tmp_path), VOTERS) == QuorumState(7, leader_id=2)
    files.close()


def test_voters_that_the_file_does_not_know_stop_the_node(tmp_path: Path) -> None:
    """Two of the old ones and two of the new ones could each elect a leader. Kafka refuses to start, too."""
    files = OsFiles()
    write_quorum_state(files, str(tmp_path), QuorumState(7), (3, 1, 2))
    for voters in ((1, 2, 4), (1, 2), (1, 2, 3, 4, 5)):
        with pytest.raises(OtherVoters, match=r"names the voters \[.*was written among \[1, 2, 3\]"):
            read_quorum_state(files, str(tmp_path), voters)
    assert read_quorum_state(files, str(tmp_path), (2, 1, 3)) == QuorumState(7)
    files.close()
