"""`quorum-state`: what a node must not forget (R-201)."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from odradek_broker.core.quorum.messages import QuorumState
from odradek_broker.runtime.quorum.state_file import (
    OtherVoters,
    UnreadableQuorumState,
    read_quorum_state,
    write_quorum_state,
)
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.transport.files import OsFiles

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
