"""`odradek log` on files written here: what it prints, and that it finds damage."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from odradek_proto import formats
from odradek_proto.control import ControlType, encode_control_batch, leader_change_value
from odradek_proto.metadata_snapshots import (
    encode_snapshot_footer,
    encode_snapshot_header,
    encode_snapshot_records,
    snapshot_file_name,
)
from odradek_proto.records import encode_batch, stamped_prefix
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.files import OsFiles
from odradek_proto.v1.metadata_messages import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

from tests.audit.permissions import unreadable
from tests.cli.conftest import Run

NAME = "00000000000000000000.log"
META_PROPERTIES = "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\n"


def batch(base_offset: int, values: list[bytes], epoch: int = 0) -> bytes:
    """A batch of records with these values, as a leader stamps it."""
    raw = encode_batch([(1735689600000 + number, b"k", value, ()) for number, value in enumerate(values)])
    return stamped_prefix(base_offset, len(raw) - 12, epoch) + raw[16:]


def replica(directory: Path, *batches: bytes) -> Path:
    """A partition's directory with one segment."""
    directory.mkdir(parents=True)
    (directory / NAME).write_bytes(b"".join(batches))
    return directory


def all_find(odradek: Run, commands: Iterable[Sequence[object]], *said: str) -> None:
    """Each ends with code 3, and says all of this."""
    for words in commands:
        outcome = odradek("log", *map(str, words), code=3)
        assert all(each in outcome.out for each in said), (words, outcome)


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return replica(tmp_path / "b1/orders-0", batch(0, [b"a", b"b"]), batch(2, [b"c"], epoch=1))


def test_a_dump_has_kafkas_names(odradek: Run, healthy: Path) -> None:
    """Batches and records come with the names and values that kafka-dump-log prints."""
    outcome = odradek("log", "dump", str(healthy), "--records", "--output", "jsonl", code=0)
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    first = rows[0]
    assert {
        "baseOffset": 0,
        "lastOffset": 1,
        "count": 2,
        "partitionLeaderEpoch": 0,
        "isControl": False,
    }.items() <= first.items()
    assert {"position": 0, "CreateTime": 1735689600001, "magic": 2, "compresscodec": "none"}.items() <= first.items()
    assert first["isvalid"] is True
    assert first["file"] == str(healthy / NAME)
    assert [row["payload"] for row in rows if "valueSize" in row] == ["a", "b", "c"]
    assert [row["partitionLeaderEpoch"] for row in rows if "baseOffset" in row] == [0, 1]


def test_a_dump_for_people_is_one_line_a_batch(odradek: Run, healthy: Path) -> None:
    """Without --json the lines are those of kafka-dump-log."""
    lines = odradek("log", "dump", str(healthy / NAME)).out.splitlines()
    assert lines[0] == f"Dumping {healthy / NAME}"
    assert lines[1].startswith("baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 ")
    assert lines[1].endswith("isvalid: true")


def test_the_small_files_are_read(odradek: Run, tmp_path: Path) -> None:
    """Indexes, epoch files and checkpoints come out as rows."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / "00000000000000000000.index").write_bytes(formats.encode_offset_index([(5, 4100)]) + bytes(80))
    (directory / "00000000000000000000.timeindex").write_bytes(formats.encode_time_index([(1735689600000, 5)]))
    (directory / "leader-epoch-checkpoint").write_bytes(formats.encode_leader_epochs([(0, 0), (3, 6)]))
    (tmp_path / "replication-offset-checkpoint").write_bytes(
        formats.encode_offset_checkpoint({TopicPartition("orders", 0): 7})
    )
    rows = json.loads(odradek("log", "dump", str(tmp_path), "--json").out)
    found = [{key: value for key, value in row.items() if key != "file"} for row in rows]
    assert found == [
        {"relativeOffset": 5, "position": 4100},
        {"timestamp": 1735689600000, "relativeOffset": 5},
        {"epoch": 0, "startOffset": 0},
        {"epoch": 3, "startOffset": 6},
        {"topic": "orders", "partition": 0, "offset": 7},
    ]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "torn"),
        (lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:], "CRC"),
        (lambda data: data + b"nonsense" * 10, "no whole header|magic|length"),
        (lambda data: data + batch(9, [b"x"], epoch=1), "offset 3 was expected"),
        (lambda data: data + batch(3, [b"x"], epoch=0), "leader epoch 0 after 1"),
    ],
)
def test_damage_is_found(odradek: Run, healthy: Path, damage: Callable[[bytes], bytes], said: str) -> None:
    """`log verify` names the byte and the offset of what is wrong, code 3; an undamaged copy stays silent."""
    odradek("log", "verify", str(healthy), code=0)
    file = healthy / NAME
    file.write_bytes(damage(file.read_bytes()))
    outcome = odradek("log", "verify", str(healthy), code=3)
    assert re.search(said, outcome.out), outcome.out
    assert "byte" in outcome.out


def test_a_segment_that_is_named_is_verified_alone(odradek: Run, healthy: Path) -> None:
    """What is wrong beside it belongs to others, and so does what is missing between two that are named."""
    (healthy / f"{9:020}.log").write_bytes(batch(9, [b"x"], epoch=1))
    (healthy / f"{12:020}.log").write_bytes(AB[:-1])
    first, second, torn = sorted(healthy.glob("*.log"))
    sound = odradek("log", "verify", str(first), str(second), code=0)
    assert sound.out == "4 records in 3 batches of 2 segments: no problems\n"
    outcome = odradek("log", "verify", str(torn), code=3)
    assert str(torn) in outcome.out
    assert outcome.out.endswith("0 records in 0 batches of 1 segment: 1 problem\n")
    for places in ([healthy], [healthy, second]):
        both = odradek("log", "verify", *map(str, places), code=3)
        assert both.out.endswith(" of 1 partition: 3 problems\n"), both.out
    (elsewhere := healthy.parent / f"{40:020}.log").write_bytes(batch(40, [b"x"], epoch=1))
    both = odradek("log", "verify", str(healthy), str(elsewhere), code=3)
    assert both.out.endswith(" of 1 partition and 1 segment: 3 problems\n"), both.out


def test_a_file_that_is_no_segment_stands_for_its_directory(odradek: Run, tmp_path: Path) -> None:
    """Alone, beside others, and beside directories and segments: what is named is not left out without a word."""
    sound = replica(tmp_path / "a-0", batch(0, [b"a"]))
    torn = replica(tmp_path / "b-0", AB[:-1])
    lost = without_segments(tmp_path / "broker")
    for directory in (sound, torn):
        (directory / NAME.replace(".log", ".index")).write_bytes(b"")
    index, emptied = torn / NAME.replace(".log", ".index"), lost / NAME.replace(".log", ".index")
    for places, said in (
        ([index], "1 partition: 1 problem"),
        ([sound, index], "2 partitions: 1 problem"),
        ([sound / NAME, index], "1 partition and 1 segment: 1 problem"),
        ([torn / NAME, index], "1 partition: 1 problem"),
        ([index, emptied], "2 partitions: 2 problems"),
        ([sound, emptied], "2 partitions: 1 problem"),
    ):
        outcome = odradek("log", "verify", *map(str, places), code=3)
        assert outcome.out.endswith(f" of {said}\n"), (places, outcome)
    (notes := tmp_path / "notes.txt").touch()
    for beside in ([], [sound], [sound / NAME]):
        outcome = odradek("log", "verify", *map(str, beside), str(notes), code=2)
        assert (outcome.out, f"there is no segment in {notes}" in outcome.err) == ("", True), outcome


def test_a_preallocated_end_is_no_damage(odradek: Run, healthy: Path) -> None:
    """Zeros behind the last batch are what a preallocated file has."""
    file = healthy / NAME
    file.write_bytes(file.read_bytes() + bytes(4096))
    odradek("log", "verify", str(healthy), code=0)


AB, C = batch(0, [b"a", b"b"]), batch(2, [b"c"], epoch=1)
DAMAGED, UNREADABLE = AB[:-1] + bytes([AB[-1] ^ 1]), b"\x22" * 100


@pytest.mark.parametrize(
    ("first", "second", "code", "said"),
    [
        (AB + C, AB, 0, "goes on from offset 2"),  # a shorter log is only noted
        (AB + C, AB + batch(2, [b"C"], epoch=2), 3, "offset 2: leader epoch 1 here, 2 there"),
        (AB + C, b"", 1, "nothing could be compared"),  # there is no problem and no proof
        (UNREADABLE, UNREADABLE, 3, r"magic 34, not 2[^$]*1 problem"),  # what is no batch is not alike
        (DAMAGED, DAMAGED, 3, "CRC"),  # that both are alike does not make it right
        (AB, DAMAGED, 3, r"other bytes, though both say CRC \d+: it is wrong there"),
    ],
)
def test_a_difference_between_replicas_is_named(
    odradek: Run, tmp_path: Path, first: bytes, second: bytes, code: int, said: str
) -> None:
    """The first batch that differs, with its offset, and the copy that its own CRC does not fit."""
    replicas = [replica(tmp_path / f"b{number}/orders-0", log) for number, log in enumerate((first, second), 1)]
    for places in (replicas, [each.parent for each in replicas]):
        outcome = odradek("log", "diff", *map(str, places), code=code)
        assert re.search(said, outcome.out if code == 3 else outcome.err), outcome


def test_two_partitions_that_are_compared_are_told(odradek: Run, tmp_path: Path) -> None:
    """By their names, and of one name by the ids of their topics; of two replicas nothing is said."""
    log = batch(0, [b"a"])
    one, other, third = (replica(tmp_path / place, log) for place in ("b1/orders-0", "b2/orders-1", "b3/orders-0"))
    said = f"{one} is of orders-0 and {other} of orders-1: these are no replicas of one partition"
    assert said in odradek("log", "diff", str(one), str(other), code=0).err
    for number, place in enumerate((one, third), 1):
        (place / "partition.metadata").write_bytes(formats.encode_partition_metadata(bytes([number]) * 16))
    said = f"{one} and {third} are of two topics of one name: the ids in partition.metadata differ"
    assert said in odradek("log", "diff", str(one), str(third), code=0).err
    (third / "partition.metadata").write_bytes((one / "partition.metadata").read_bytes())
    assert odradek("log", "diff", str(one), str(third), code=0).err == ""


def test_other_files_are_refused(odradek: Run, tmp_path: Path) -> None:
    """A file of no known kind, an empty directory and a missing path are each named, and nothing else is said."""
    (notes := tmp_path / "notes.txt").write_text("root:x:0:0\n")
    (empty := tmp_path / "empty").mkdir()
    for verb, path, said in (
        ("dump", notes, "no file of a log directory"),
        ("dump", empty, "no file of a log directory"),
        ("dump", tmp_path / "none", "there is nothing at"),
        ("verify", notes, f"there is no segment in {notes}"),
    ):
        outcome = odradek("log", verb, str(path), code=2)
        assert (outcome.out, said in outcome.err) == ("", True), outcome


def test_a_pipe_among_the_segments_is_reported_and_not_waited_for(odradek: Run, healthy: Path, tmp_path: Path) -> None:
    """verify, dump and diff name a pipe that stands under a segment's name, and end."""
    other = replica(tmp_path / "b2/orders-0", batch(0, [b"a", b"b"]), batch(2, [b"c"], epoch=1))
    pipe = healthy / "00000000000000000009.log"
    os.mkfifo(pipe)
    commands = (["verify", healthy], ["dump", healthy], ["diff", healthy, other])
    all_find(odradek, commands, "it is no regular file")
    pipe.rename(first := healthy / NAME)
    outcome = odradek("log", "verify", str(healthy), code=3)
    assert "offset -1" not in outcome.out, "the place in a log is not known"
    first.rename(named := healthy / "fifo.log")
    for verb, path in (("verify", named), ("verify", pipe), ("dump", pipe)):
        if not path.exists():
            os.mkfifo(path)
        outcome = odradek("log", verb, str(path), code=2)
        assert (outcome.out, f"{path}: it is no regular file" in outcome.err) == ("", True), outcome


def without_segments(log_directory: Path) -> Path:
    """What is left of a replica when only its segment was removed."""
    directory = replica(log_directory / "orders-0", batch(0, [b"a"]))
    (directory / NAME).unlink()
    (directory / NAME.replace(".log", ".index")).write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_bytes(formats.encode_leader_epochs([(0, 0)]))
    return directory


def test_a_replica_without_segments_is_a_finding(odradek: Run, tmp_path: Path) -> None:
    """verify, diff and dump name its directory, alone and among sound ones, although its small files are sound."""
    lost = without_segments(tmp_path / "b1")
    other = replica(tmp_path / "b2/orders-0", batch(0, [b"a"]))
    for log_directory in (lost.parent, other.parent):
        replica(log_directory / "orders-1", batch(0, [b"a"]))
    commands = (["verify", lost.parent], ["verify", lost], ["diff", lost.parent, other.parent], ["diff", other, lost])
    all_find(odradek, commands, f"{lost}: no segment (.log) is there", "1 problem")
    for words in (["dump", lost.parent, "--segments"], ["dump", lost.parent, "--json"], ["dump", lost]):
        outcome = odradek("log", *map(str, words), code=3)
        assert f"{lost}: no segment (.log) is there" in outcome.err, (words, outcome)


def test_a_directory_of_a_partition_without_any_file_is_a_finding(odradek: Run, tmp_path: Path) -> None:
    """In a broker's log directory its name is enough; among the directories of brokers `broker-3` is no partition."""
    replica(tmp_path / "broker-3/orders-1", batch(0, [b"a"]))
    (tmp_path / "broker-3/meta.properties").write_text(META_PROPERTIES)
    odradek("log", "verify", str(tmp_path), code=0)
    (tmp_path / "broker-3/orders-0").mkdir()
    outcome = odradek("log", "verify", str(tmp_path), code=3)
    assert "broker-3/orders-0: no segment (.log) is there" in outcome.out


def test_deleted_and_new_partitions_miss_no_segment(odradek: Run, healthy: Path) -> None:
    """A partition that is being deleted loses file by file; a new one has an empty segment, also behind a snapshot."""
    log_directory = healthy.parent
    (log_directory / "meta.properties").write_text(META_PROPERTIES)
    deleted = log_directory / f"gone-0.{7:032x}-delete"
    deleted.mkdir()
    (deleted / NAME.replace(".log", ".index")).write_bytes(b"")
    (replica(log_directory / "new-0") / "partition.metadata").write_text(
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    metadata = log_directory / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / "00000000000000000012-0000000003.checkpoint").write_bytes(batch(0, [b"a"]))
    (metadata / "00000000000000000012.log").write_bytes(b"")
    copy = shutil.copytree(log_directory, log_directory.with_name("copy"))
    for words in (["verify", log_directory], ["dump", log_directory], ["diff", log_directory, copy]):
        outcome = odradek("log", *map(str, words))
        assert (outcome.code, "no segment" in outcome.out + outcome.err) == (0, False), (words, outcome)


def segments(directory: Path, *, emptied: tuple[int, ...] = ()) -> Path:
    """A partition of records a, b | c | d and a new active segment; the contents of some segments are gone."""
    directory.mkdir(parents=True)
    contents = {0: batch(0, [b"a", b"b"]), 2: batch(2, [b"c"]), 3: batch(3, [b"d"]), 4: b""}
    for base_offset, content in contents.items():
        file = directory / formats.segment_file_name(base_offset)
        file.write_bytes(b"" if base_offset in emptied else content)
    return directory


@pytest.mark.parametrize(
    ("emptied", "missing"),
    [((0,), "0 to 1"), ((2,), "2 to 2"), ((3,), "3 to 3"), ((0, 2), "0 to 1"), ((0, 2, 3), "0 to 1")],
)
def test_an_emptied_segment_is_a_finding(odradek: Run, tmp_path: Path, emptied: tuple[int, ...], missing: str) -> None:
    """verify and diff, on either side, name the offsets that the segment's name and the next one's promise."""
    sound = segments(tmp_path / "b1/orders-0")
    damaged = segments(tmp_path / "b2/orders-0", emptied=emptied)
    for words in (["verify", sound], ["diff", sound, sound.parent]):
        odradek("log", *map(str, words), code=0)
    commands = (["verify", damaged.parent], ["diff", sound, damaged], ["diff", damaged, sound])
    first = formats.segment_file_name(emptied[0])
    all_find(odradek, commands, f"offsets {missing} are missing ({first} holds no batch)")


def test_a_first_segment_that_lost_its_start_is_a_finding(odradek: Run, tmp_path: Path) -> None:
    """Its name says where it began, although what is left is whole."""
    damaged = replica(tmp_path / "b1/orders-0", batch(2, [b"c"]))
    outcome = odradek("log", "verify", str(damaged), code=3)
    assert "offset 0 was expected: offsets 0 to 1 are missing\n" in outcome.out


@pytest.mark.parametrize(
    ("topic", "checkpoint"),
    [
        ("orders", "cleaner-offset-checkpoint"),
        ("orders", formats.LOG_START_OFFSET_CHECKPOINT),
        ("__consumer_offsets", ""),
    ],
)
def test_offsets_that_were_cleaned_or_deleted_are_not_missed(
    odradek: Run, tmp_path: Path, topic: str, checkpoint: str
) -> None:
    """Kafka's cleaner empties segments below its checkpoint and in its own topics; below the log start offset no
    reader gets a record."""
    first, second = (segments(tmp_path / f"b{node}/{topic}-0", emptied=(0,)) for node in (1, 2))
    for directory in (first, second):
        if checkpoint:
            entries = {TopicPartition(topic, 0): 2}
            (directory.parent / checkpoint).write_bytes(formats.encode_offset_checkpoint(entries))
    for words in (["verify", first], ["diff", first, second]):
        odradek("log", *map(str, words), code=0)
    if checkpoint:
        (first.parent / checkpoint).write_bytes(formats.encode_offset_checkpoint({TopicPartition(topic, 0): 1}))
        odradek("log", "verify", str(first), code=3)


def test_a_diff_of_whole_clusters_is_refused(odradek: Run, tmp_path: Path) -> None:
    """Several brokers have the partition, so there is no one pair to compare; the message names their directories."""
    for cluster in ("one", "two"):
        for node in (1, 2):
            replica(tmp_path / cluster / f"broker-{node}/orders-0", batch(0, [b"a"]))
    one, two = tmp_path / "one", tmp_path / "two"
    for left, right in ((one, two), (one / "broker-1", two), (one, two / "broker-2")):
        outcome = odradek("log", "diff", str(left), str(right))
        assert (outcome.code, outcome.out) == (2, ""), outcome
        several = one if left == one else two
        assert f"{several / 'broker-1'}, {several / 'broker-2'}" in outcome.err
    odradek("log", "diff", str(one / "broker-1"), str(two / "broker-2"), code=0)


def test_a_directory_under_a_segments_name_is_no_segment(odradek: Run, tmp_path: Path) -> None:
    """A partition that has no other one misses its segment, alone and among sound ones."""
    replica(tmp_path / "b1/orders-1", batch(0, [b"a"]))
    lost = tmp_path / "b1/orders-0"
    (lost / NAME).mkdir(parents=True)
    said = (f"{lost}: no segment (.log) is there", "1 problem\n")
    all_find(odradek, (["verify", lost], ["verify", lost.parent]), *said)
    odradek("log", "dump", str(lost.parent), code=3)


def test_a_partition_behind_a_symbolic_link_is_read(odradek: Run, tmp_path: Path) -> None:
    """Another disk may hold a partition; a link that leads round in a circle does no harm."""
    sound = replica(tmp_path / "b1/orders-0", batch(0, [b"a"]), batch(1, [b"b"]))
    moved = replica(tmp_path / "disk/moved", batch(0, [b"a"]), batch(1, [b"c"]))
    replica(tmp_path / "b2/orders-1", batch(0, [b"a"]))
    link = tmp_path / "b2/orders-0"
    link.symlink_to(moved)
    (tmp_path / "b2/round-0").symlink_to(tmp_path / "b2")
    assert "3 records in 3 batches of 2 partitions: no problems" in odradek("log", "verify", str(link.parent)).out
    assert f"Dumping {link / NAME}" in odradek("log", "dump", str(link.parent)).out
    odradek("log", "diff", str(sound.parent), str(link.parent), code=3)
    (moved / NAME).write_bytes(batch(1, [b"c"]))
    outcome = odradek("log", "verify", str(link.parent))
    assert (outcome.code, "offsets 0 to 0 are missing" in outcome.out) == (3, True), outcome
    (link.parent / formats.LOG_START_OFFSET_CHECKPOINT).write_bytes(
        formats.encode_offset_checkpoint({TopicPartition("orders", 0): 1})
    )
    odradek("log", "verify", str(link.parent), code=0)


def test_the_vote_of_a_quorum_node_is_read(odradek: Run, tmp_path: Path) -> None:
    """`quorum-state` comes out with the names that it has in the file; what is no such JSON is not valid."""
    state = tmp_path / "__cluster_metadata-0/quorum-state"
    state.parent.mkdir()
    written = {"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "currentVoters": [{"voterId": 1}], "data_version": 0}
    state.write_text(json.dumps(written))
    assert json.loads(odradek("log", "dump", str(state), "--output", "jsonl").out) == {"file": str(state), **written}
    assert "leaderId: 1 leaderEpoch: 2 votedId: -1" in odradek("log", "dump", str(state)).out
    for damaged in (b"", b"[1]", b"{", b"\xff", b"[" * 100_000):
        state.write_bytes(damaged)
        outcome = odradek("log", "dump", str(state))
        assert (outcome.code, "isvalid: false" in outcome.out) == (3, True), (damaged[:9], outcome)


def test_a_broker_that_uses_the_directory_is_named(odradek: Run, tmp_path: Path) -> None:
    """verify and diff say so on standard error and in JSON, whichever of its directories is named; a lock file that
    nobody holds, and a copy, are silent."""
    one, two = (replica(tmp_path / name / "orders-0", batch(0, [b"a"])) for name in ("b1", "b2"))
    (two.parent / ".lock").touch()
    files = OsFiles()
    lock = files.lock(str(one.parent / ".lock"))
    try:
        locks = Path("/proc/locks")
        if not locks.exists() or f" {os.getpid()} " not in locks.read_text(encoding="ascii"):
            pytest.skip("this system does not tell who holds which lock")
        for words in (["verify", one], ["verify", one.parent], ["verify", one / NAME, two], ["diff", one, two]):
            outcome = odradek("log", *map(str, words), "--json", code=0)
            assert f"(process {os.getpid()} uses {one.parent})" in outcome.err, words
            assert json.loads(outcome.out)["in_use"] == [str(one.parent)]
        outcome = odradek("log", "verify", str(two), "--json")
        assert (outcome.err, json.loads(outcome.out)["in_use"]) == ("", [])
    finally:
        lock.close()
        files.close()
    assert odradek("log", "verify", str(one)).err == ""


def test_a_directory_that_may_not_be_read_is_not_called_empty(odradek: Run, tmp_path: Path) -> None:
    """It is named with its cause, code 1 and nothing else: what nobody has seen is neither gone nor sound, and no
    directory is to be removed for it. So it is with a broker's directory, a link's target, a segment."""
    sound = replica(tmp_path / "b1/orders-0", batch(0, [b"a"]))
    hidden = replica(tmp_path / "b2/orders-0", batch(0, [b"a"]))
    for place in (sound.parent, hidden.parent):
        replica(place / "orders-1", batch(0, [b"a"]))
        (place / "meta.properties").write_text(META_PROPERTIES)
    replica(tmp_path / "b3/orders-1", batch(0, [b"a"]))
    (tmp_path / "b3/orders-0").symlink_to(hidden)
    commands: list[tuple[Path, list[Path | str]]] = [
        *((hidden, [verb, place]) for verb in ("verify", "dump") for place in (hidden.parent, hidden)),
        (hidden, ["dump", "--segments", hidden.parent]),
        (hidden, ["diff", sound.parent, hidden.parent]),
        (hidden, ["diff", hidden, sound]),
        (hidden.parent, ["verify", tmp_path / "b1", tmp_path / "b2"]),
        (hidden.parent, ["dump", tmp_path]),
        (hidden / NAME, ["verify", hidden.parent]),
        (hidden / NAME, ["diff", sound, hidden]),
    ]
    for path, words in commands:
        with unreadable(path):
            outcome = odradek("log", *map(str, words))
        assert (outcome.code, "problem" in outcome.out, "no segment" in outcome.err) == (1, False, False), outcome
        assert outcome.err.startswith(f"odradek: {path} cannot be read: Permission denied\n  try: "), outcome
    with unreadable(hidden):
        outcome = odradek("log", "verify", str(tmp_path / "b3"))
        assert (outcome.code, f"{tmp_path / 'b3/orders-0'} cannot be read" in outcome.err) == (1, True), outcome


def test_a_directory_of_names_alone_is_not_called_empty(odradek: Run, healthy: Path) -> None:
    """One that may be listed and not entered tells names and nothing of what they are."""
    for verb in ("verify", "dump"):
        with unreadable(healthy, mode=0o444):
            outcome = odradek("log", verb, str(healthy.parent))
        assert (outcome.code, "cannot be read: Permission denied" in outcome.err) == (1, True), outcome


def test_a_checkpoint_that_may_not_be_read_leaves_open_what_is_missing(odradek: Run, tmp_path: Path) -> None:
    """What was deleted on purpose stands in it, so no offset is called missing."""
    directory = segments(tmp_path / "b1/orders-0", emptied=(0,))
    checkpoint = directory.parent / formats.LOG_START_OFFSET_CHECKPOINT
    checkpoint.write_bytes(formats.encode_offset_checkpoint({TopicPartition("orders", 0): 2}))
    odradek("log", "verify", str(directory), code=0)
    with unreadable(checkpoint):
        outcome = odradek("log", "verify", str(directory))
    assert (outcome.code, outcome.out) == (1, ""), outcome
    assert f"{checkpoint} cannot be read: Permission denied" in outcome.err


def test_what_a_file_system_keeps_for_itself_is_not_looked_into(odradek: Run, healthy: Path) -> None:
    """A disk's own `lost+found` may be root's alone, and holds no partition."""
    (kept := healthy.parent / "lost+found").mkdir()
    for verb in ("verify", "dump"):
        with unreadable(kept):
            odradek("log", verb, str(healthy.parent), code=0)


TOPIC_ID = bytes(range(16))
RECORDS = [
    MetadataRecord(topic=TopicRecord(name="orders", topic_id=TOPIC_ID)),
    MetadataRecord(
        partition_change=PartitionChangeRecord(topic_id=TOPIC_ID, partition=2, isr=[1, 3], isr_changed=True)
    ),
    MetadataRecord(config=ConfigRecord(resource_type="topic", resource_name="orders", name="retention.ms")),
    MetadataRecord(register_broker=RegisterBrokerRecord(broker_id=3, endpoints={"GRPC": "host:1"}, fenced=True)),
]
VALUES = [record.SerializeToString() for record in RECORDS]


def snapshot(directory: Path) -> Path:
    path = directory / snapshot_file_name(813, 4)
    parts = [encode_snapshot_header(4, 7_000), encode_snapshot_records(VALUES, 1, 4, 7_000)]
    path.write_bytes(b"".join([*parts, encode_snapshot_footer(5, 4, 7_000)]))
    return path


def record_rows(odradek: Run, path: Path, *options: str) -> list[dict[str, Any]]:
    outcome = odradek("log", "dump", str(path), "--output", "jsonl", *options, code=0)
    return [row for line in outcome.out.splitlines() if "valueSize" in (row := json.loads(line))]


def test_a_snapshot_is_dumped_field_by_field(odradek: Run, tmp_path: Path) -> None:
    """Header, records, footer; what is not set is left out, an id is in Kafka's text form."""
    rows = record_rows(odradek, snapshot(tmp_path), "--cluster-metadata")
    assert (rows[0]["controlType"], rows[0]["lastContainedLogTimestamp"]) == ("SNAPSHOT_HEADER", 7_000)
    assert rows[-1]["controlType"] == "SNAPSHOT_FOOTER"
    shown = [json.loads(row["payload"]) for row in rows[1:-1]]
    assert shown[0] == {"type": "TOPIC_RECORD", "data": {"name": "orders", "topic_id": "AAECAwQFBgcICQoLDA0ODw"}}
    assert shown[1]["type"] == "PARTITION_CHANGE_RECORD"
    assert {"partition": 2, "isr": [1, 3], "isr_changed": True}.items() <= shown[1]["data"].items()
    assert "leader" not in shown[1]["data"], "the record does not speak of the leader"
    assert "value" not in shown[2]["data"], "no value: it was taken back"
    assert shown[3]["data"]["endpoints"] == {"GRPC": "host:1"}


def test_the_metadata_log_is_dumped_field_by_field(odradek: Run, tmp_path: Path) -> None:
    """Kafka's name of the option works as well; control records have their type."""
    change = leader_change_value(1, (1, 2, 3), (1, 2))
    control = encode_control_batch(ControlType.LEADER_CHANGE, change, timestamp=1, base_offset=0, leader_epoch=1)
    records = encode_batch([(1, None, value, ()) for value in VALUES], base_offset=1, leader_epoch=1)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(control + records)
    rows = record_rows(odradek, path, "--cluster-metadata-decoder")
    assert rows[0]["controlType"] == "LEADER_CHANGE"
    types = [json.loads(row["payload"])["type"] for row in rows[1:]]
    assert types == ["TOPIC_RECORD", "PARTITION_CHANGE_RECORD", "CONFIG_RECORD", "REGISTER_BROKER_RECORD"]


def test_a_damaged_snapshot_is_a_finding(odradek: Run, tmp_path: Path) -> None:
    """Also under the name that a node gives it when it sets it aside."""
    path = snapshot(tmp_path)
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    aside = path.with_name(path.name + ".damaged")
    aside.write_bytes(data)
    outcome = odradek("log", "dump", str(aside), "--output", "jsonl", code=3)
    assert "CRC" in outcome.out


def test_a_record_of_the_future_is_a_finding(odradek: Run, tmp_path: Path) -> None:
    """It is shown where it stands, and the rest is shown, too."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(encode_batch([(1, None, b"\xfa\x01\x00", ()), (1, None, VALUES[0], ())], leader_epoch=1))
    outcome = odradek("log", "dump", str(path), "--cluster-metadata", "--output", "jsonl", code=3)
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [row["isvalid"] for row in rows if "error" in row] == [False]
    assert "TOPIC_RECORD" in outcome.out
