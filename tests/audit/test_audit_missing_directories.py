"""Partitions without a directory on a replica that has counted records of them, and what looks much like it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from odradek_audit.cli.commands import app
from odradek_audit.engine.local import audit
from odradek_audit.inputs.brokers import absent_brokers
from odradek_audit.inputs.facts import METADATA_TOPIC
from odradek_audit.inputs.history import ACK, SEND, Event, History
from odradek_proto.formats import (
    CLEAN_SHUTDOWN,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)
from odradek_proto.topics import TopicPartition
from typer.testing import CliRunner

from tests.audit.sample import SampleLog, SamplePartition, WriteCluster, write_log_directory

LOST, OTHER = TopicPartition("orders", 0), TopicPartition("t", 0)
COUNTED = "counted-without-directory"


@pytest.fixture
def replicas(write_cluster: WriteCluster, log: SampleLog) -> dict[str, Path]:
    """Three brokers that stopped cleanly, with two partitions, and `orders-0` removed from the second."""
    sample = {LOST: SamplePartition(log), OTHER: SamplePartition(log)}
    made = write_cluster(sample, sample, sample, clean_shutdown=True)
    shutil.rmtree(made["2"] / str(LOST))
    return made


def set_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Change entries of a checkpoint."""
    known = decode_offset_checkpoint(path.read_bytes())
    path.write_bytes(encode_offset_checkpoint({**known, **offsets}))


def test_counted_records_without_a_directory_are_found(replicas: dict[str, Path]) -> None:
    """The finding names replica, offsets and file; what the other replicas hold is compared all the same."""
    report = audit(replicas, settled=True)
    assert [(f.check, f.topic, f.partition, f.replica, f.offset, f.end_offset, f.file) for f in report.findings] == [
        ("checkpoint-order", "orders", 0, "2", 0, 260, REPLICATION_OFFSET_CHECKPOINT)
    ]
    assert "has counted records that it does not have" in report.findings[0].sentence
    assert "was removed" in report.findings[0].cause
    assert report.exit_code == 3
    assert report.compared_records == 260 + 2 * 260


def test_the_finding_begins_at_the_log_start_offset(replicas: dict[str, Path]) -> None:
    """What the replica's own log start offset had given up is not missed; if that is all, nothing is."""
    starts = replicas["2"] / LOG_START_OFFSET_CHECKPOINT
    set_offsets(starts, {LOST: 80})
    assert [(finding.offset, finding.end_offset) for finding in audit(replicas).findings] == [(80, 260)]
    set_offsets(starts, {LOST: 260})
    assert audit(replicas).findings == []


def test_output_page_and_summary_tell_of_it(replicas: dict[str, Path], tmp_path: Path) -> None:
    """Exit code 3; the page's first lines and the advice speak of a directory that is gone."""
    out = tmp_path / "out"
    given = [f"--replica={name}={path}" for name, path in replicas.items()]
    result = CliRunner().invoke(app, ["run", *given, "--out", str(out)])
    assert result.exit_code == 3, result.output
    assert "checkpoint-order: orders-0: replica 2 has no directory" in result.output
    page = (out / "report.html").read_text()
    assert "Replica 2 has no directory of orders-0, and its replication-offset-checkpoint counts 260 records." in page
    assert "another replica leads: it copies the partition from the leader" in page
    assert str(replicas["2"] / REPLICATION_OFFSET_CHECKPOINT) in page


def test_what_was_not_compared_is_no_agreement_of_three(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path
) -> None:
    """A partition with two replicas on three brokers is fine, and the verdict says on how many it was compared."""
    both = {LOST: SamplePartition(log), OTHER: SamplePartition(log)}
    made = write_cluster(both, {OTHER: SamplePartition(log)}, both, clean_shutdown=True)
    out = tmp_path / "out"
    given = [f"--replica={name}={path}" for name, path in made.items()]
    result = CliRunner().invoke(app, ["run", *given, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "The replicas agree where they were compared, on 2 to 3 of 3 replicas." in result.output
    note = "replica 2 has no directory of 1 partition, compared without it: orders-0"
    assert f"note: {note}" in result.output
    notes = json.loads((out / "summary.json").read_text())["notes"]
    assert [(each["kind"], each["replica"], each["sentence"]) for each in notes] == [("no-directory", "2", note)]
    page = (out / "report.html").read_text()
    assert "compared on 2 to 3 of 3 replicas: where there are copies they are equal" in page
    assert "Replica 2 has no directory of orders-0." in page
    assert "all are equal" not in page


def test_after_an_unclean_stop_it_is_a_note(replicas: dict[str, Path]) -> None:
    """A broker that was killed may have given the replica up and not yet have written the checkpoint anew."""
    (replicas["2"] / CLEAN_SHUTDOWN).unlink()
    report = audit(replicas, settled=True)
    assert (report.findings, report.exit_code) == ([], 0)
    assert [
        (note.topic, note.replica, note.offset, note.end_offset) for note in report.notes if note.kind == COUNTED
    ] == [("orders", "2", 0, 260)]


def test_a_deleted_topic_is_no_finding(replicas: dict[str, Path]) -> None:
    """Near miss: the brokers have written their checkpoints without it."""
    for path in replicas.values():
        shutil.rmtree(path / str(LOST), ignore_errors=True)
        marks = path / REPLICATION_OFFSET_CHECKPOINT
        left = decode_offset_checkpoint(marks.read_bytes())
        del left[LOST]
        marks.write_bytes(encode_offset_checkpoint(left))
    report = audit(replicas)
    assert (report.findings, report.notes, report.exit_code) == ([], [], 0)


@pytest.mark.parametrize(
    ("broker", "offsets", "aside", "notes"),
    [
        *(("2", None, suffix, {"no-directory"}) for suffix in ("delete", "stray", "future")),
        ("1", None, "delete", {"no-directory", COUNTED, "one-replica"}),  # another one deletes it, this may be ahead
        ("2", {OTHER: 260}, "", {"no-directory"}),  # reassigned away, and stopped cleanly since
        ("2", {OTHER: 260, LOST: 0}, "", {"no-directory"}),
    ],
)
def test_what_was_given_up_is_no_finding(
    replicas: dict[str, Path], broker: str, offsets: Mapping[TopicPartition, int] | None, aside: str, notes: set[str]
) -> None:
    """A directory's name says so, or the checkpoint, which has no entry any more, or one of nothing."""
    if aside:
        shutil.rmtree(replicas[broker] / str(LOST), ignore_errors=True)
        (replicas[broker] / f"{LOST}.{7:032x}-{aside}").mkdir()
    if offsets is not None:
        (replicas[broker] / REPLICATION_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(offsets))
    report = audit(replicas)
    assert (report.findings, {note.kind for note in report.notes}) == ([], notes)


def test_topics_left_out_and_the_metadata_log_are_no_finding(replicas: dict[str, Path], log: SampleLog) -> None:
    """`--topics` limits this check like any other; a broker need not have the metadata log."""
    report = audit(replicas, topics=["t"])
    assert (report.findings, report.notes) == ([], [])
    metadata = TopicPartition(METADATA_TOPIC, 0)
    for name in ("1", "3"):
        shutil.copytree(replicas[name] / str(OTHER), replicas[name] / str(metadata))
    set_offsets(replicas["2"] / REPLICATION_OFFSET_CHECKPOINT, {metadata: 260})
    assert {finding.topic for finding in audit(replicas).findings} == {"orders"}


def test_a_lost_partition_is_still_told_by_the_history(replicas: dict[str, Path]) -> None:
    """Gone everywhere: the checkpoints say so, and what clients were told does."""
    for path in replicas.values():
        shutil.rmtree(path / str(LOST), ignore_errors=True)
    history = History([Event(SEND, "orders", 0, b"a"), Event(ACK, "orders", 0, b"a", 1)])
    assert [(f.check, f.replica, f.end_offset) for f in audit(replicas, history=history).findings] == [
        *(("checkpoint-order", name, 260) for name in ("1", "2", "3")),
        ("acknowledged-lost", "", 2),
    ]


def lost_everywhere(write_cluster: WriteCluster, log: SampleLog, *, clean_shutdown: bool) -> dict[str, Path]:
    """Three brokers that counted three partitions of a topic, and `orders-1` removed from all of them."""
    sample = {TopicPartition("orders", number): SamplePartition(log) for number in range(3)}
    made = write_cluster(sample, sample, sample, clean_shutdown=clean_shutdown)
    for path in made.values():
        shutil.rmtree(path / "orders-1")
    return made


def test_a_partition_of_a_living_topic_that_nobody_has_is_found(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path
) -> None:
    """While others of the topic's partitions are there, too, as if only that one had gone."""
    made = lost_everywhere(write_cluster, log, clean_shutdown=True)
    report = audit(made, settled=True)
    assert [(f.check, f.topic, f.partition, f.replica, f.offset, f.end_offset) for f in report.findings] == [
        ("checkpoint-order", "orders", 1, name, 0, 260) for name in ("1", "2", "3")
    ]
    assert "nor has any other replica that was read" in report.findings[0].sentence
    assert report.exit_code == 3
    assert audit(made, topics=["t"]).findings == []
    out = tmp_path / "out"
    given = [f"--replica={name}={path}" for name, path in made.items()]
    assert CliRunner().invoke(app, ["run", *given, "--out", str(out)]).exit_code == 3
    page = (out / "report.html").read_text()
    assert "Replica 1 has no directory of orders-1, as no other has" in page
    assert "put back the directory" in page
    assert "it copies the partition from the leader" not in page


def test_a_partition_that_nobody_has_is_a_note_after_a_kill(write_cluster: WriteCluster, log: SampleLog) -> None:
    """A topic that was deleted just before may leave entries where a broker was killed."""
    report = audit(lost_everywhere(write_cluster, log, clean_shutdown=False), settled=True)
    assert (report.findings, report.exit_code) == ([], 0)
    notes = [note for note in report.notes if note.kind == COUNTED]
    assert [(note.topic, note.partition, note.replica) for note in notes] == [
        ("orders", 1, name) for name in ("1", "2", "3")
    ]
    assert "unless the topic was deleted just before" in notes[0].sentence


@pytest.mark.parametrize("suffix", ["delete", "stray", "future"])
def test_a_partition_set_aside_by_all_is_no_finding(write_cluster: WriteCluster, log: SampleLog, suffix: str) -> None:
    """One broker's directory that was given up is enough to say that the partition was not just lost."""
    made = lost_everywhere(write_cluster, log, clean_shutdown=True)
    (made["1"] / f"orders-1.{7:032x}-{suffix}").mkdir()
    assert audit(made).findings == []


def test_a_topic_that_is_nowhere_is_named(write_cluster: WriteCluster, log: SampleLog) -> None:
    """`--topics` with a name that no replica knows says so; what was found is compared all the same."""
    made = write_cluster(log, log)
    given = [f"--replica={name}={path}" for name, path in made.items()]
    result = CliRunner().invoke(app, ["run", *given, "--topics", "t,nope,t,none"])
    assert result.exit_code == 0, result.output
    for topic in ("nope", "none"):
        said = f"note: topic {topic} was asked for, and no replica that was read has a partition of it"
        assert result.output.count(said) == 1
    assert "topic t was asked for" not in result.output
    alone = CliRunner().invoke(app, ["run", *given, "--topics", "nope"])
    assert alone.exit_code == 1
    assert "note: topic nope was asked for" in alone.output
    assert [note.kind for note in audit(made, topics=iter(["nope"])).notes] == ["no-topic"]


def cluster_file(place: Path, text: str | None = None) -> None:
    """What `odradek cluster up` writes down of three brokers, of whose directories there may be fewer."""
    nodes = [{"node_id": node, "log_directory": f"/home/me/cluster/b{node}"} for node in (1, 2, 3)]
    (place / "cluster.json").write_text(json.dumps({"nodes": nodes}) if text is None else text)


def test_a_broker_of_the_cluster_without_a_directory_is_named(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path
) -> None:
    """`cluster.json` says which brokers there are; the copy may lie elsewhere than the cluster did."""
    made = write_cluster(log, log, log)
    cluster_file(tmp_path)
    run = ["run", "--data", str(tmp_path)]
    assert "note:" not in CliRunner().invoke(app, run).output
    (made["2"] / "meta.properties").unlink()
    assert "of cluster.json" not in CliRunner().invoke(app, run).output
    shutil.rmtree(made["3"])
    result = CliRunner().invoke(app, [*run, "--json"])
    assert result.exit_code == 0, result.output
    notes = json.loads(result.stdout)["notes"]
    sentence = "broker 3 of cluster.json has no log directory (b3) there: not compared"
    assert [(note["kind"], note["replica"]) for note in notes] == [("no-broker", "3"), ("no-identity", "b2")]
    assert notes[0]["sentence"] == sentence


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": [3, {"node_id": "x"}]}', '{"nodes": 3}', "\udcff"])
def test_a_cluster_file_that_says_nothing_is_named(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path, text: str
) -> None:
    """In a note: the audit goes on without it."""
    replicas = write_cluster(log, log)
    (tmp_path / "cluster.json").write_bytes(text.encode(errors="surrogateescape"))
    (note,) = absent_brokers(tmp_path, replicas)
    assert note.sentence.startswith("cluster.json cannot be read, so nobody knows which brokers it should be")


def link_elsewhere(path: Path, partition: TopicPartition) -> None:
    """Move a partition's directory to another disk, with a symbolic link where it was."""
    moved = path.parent / "other-disk" / path.name / str(partition)
    moved.parent.mkdir(parents=True)
    (path / str(partition)).rename(moved)
    (path / str(partition)).symlink_to(moved)


def test_a_partition_behind_a_symbolic_link_is_named(write_cluster: WriteCluster, log: SampleLog) -> None:
    """It is not followed, nor is it missed: that a directory was moved to another disk loses nothing."""
    sample = {LOST: SamplePartition(log), OTHER: SamplePartition(log)}
    made = write_cluster(sample, sample, sample, clean_shutdown=True)
    link_elsewhere(made["2"], LOST)
    report = audit(made, settled=True)
    assert (report.findings, report.exit_code) == ([], 0)
    said = "orders-0: replica 2 has a symbolic link in place of the directory, which the audit does not follow"
    assert [(note.kind, note.replica, note.sentence) for note in report.notes] == [
        ("linked", "2", f"{said}: compared without it")
    ]
    assert audit(made, topics=["t"]).notes == []


def test_a_partition_that_all_have_behind_links_was_not_compared(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Nothing of it was read, so the audit is inconclusive; what a history says of it is not called lost."""
    sample = {LOST: SamplePartition(log), OTHER: SamplePartition(log)}
    made = write_cluster(sample, sample, clean_shutdown=True)
    for path in made.values():
        link_elsewhere(path, LOST)
    history = History([Event(SEND, "orders", 0, b"a"), Event(ACK, "orders", 0, b"a", 1)])
    report = audit(made, history=history)
    assert (report.findings, report.losses, report.exit_code) == ([], [], 1)
    assert [(note.kind, note.replica) for note in report.notes] == [("not-compared", "1"), ("not-compared", "2")]


# --- Copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("checkpoints_first", "expected"), [(True, []), (False, ["checkpoint-order"])])
def test_checkpoints_are_copied_before_the_logs(
    write_cluster: WriteCluster, tmp_path: Path, checkpoints_first: bool, expected: list[str]
) -> None:
    """As docs/audit-kafka.md has it; the other way round the copy counts records that it does not have."""
    before, after = SampleLog().fill(40), SampleLog().fill(60)
    replicas = write_cluster(*[SamplePartition(after, segment_bytes=9000)] * 3)
    states = [
        write_log_directory(tmp_path / name, 2, {TopicPartition("t", 0): SamplePartition(log, segment_bytes=9000)})
        for name, log in (("then", before), ("now", after))
    ]
    checkpoints, logs = states if checkpoints_first else states[::-1]
    copy = tmp_path / "copy"
    shutil.copytree(logs, copy)
    for file in checkpoints.glob("*-checkpoint"):
        shutil.copyfile(file, copy / file.name)
    last = max((copy / "t-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-37])  # it was growing while it was copied
    report = audit(replicas | {"2": copy})
    assert [finding.check for finding in report.findings] == expected
