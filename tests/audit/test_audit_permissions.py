"""What the auditor may not read is named, and nothing is concluded from it: neither damage nor agreement nor a loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from odradek_audit.cli.commands import app
from odradek_audit.engine.local import BatchCheckInputs, audit, audit_disk, history_of
from odradek_audit.engine.parts import part_tasks
from odradek_audit.findings import Finding, Note
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.history import ACKS_ALL, ACKS_LEADER, History
from odradek_audit.inputs.layout import read_layout
from odradek_audit.report import Report
from odradek_audit.spark import engine as spark
from odradek_proto.formats import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from odradek_proto.topics import TopicPartition
from typer.testing import CliRunner

from tests.audit.acknowledged import VALUES, log_of, told, write_history
from tests.audit.corruption.places import flip_bit
from tests.audit.permissions import unreadable
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster

SEGMENT = f"{0:020d}.log"
DENIED = "Permission denied"


@pytest.fixture
def replicas(write_cluster: WriteCluster) -> dict[str, Path]:
    """Five records of t-0 and u-0 on three brokers that stopped cleanly; 1 leads t-0, the others lag."""
    whole, short = SamplePartition(log_of(*VALUES, epoch=1)), SamplePartition(log_of(*VALUES[:2], epoch=1))
    t, u = TopicPartition("t", 0), TopicPartition("u", 0)
    others = {t: short, u: whole}
    return write_cluster({t: whole, u: whole}, others, others, clean_shutdown=True)


def by_spark(replicas: Mapping[str, Path], history: History | None) -> list[str]:
    """What the functions that run on Spark's workers report of t-0."""
    layout = read_layout(LocalDisk(), {name: str(path) for name, path in replicas.items()}, ["t"])
    (inputs,) = layout.partitions
    pieces = [packed for task in part_tasks(LocalDisk(), [inputs]) for _, packed in spark.pack_part(LocalDisk(), task)]
    result = BatchCheckInputs(inputs, history_of(history, inputs), False, False).check(
        spark.unpacked(pieces), LocalDisk()
    )
    return sentences(result.findings, result.notes)


def sentences(findings: Iterable[Finding], notes: Iterable[Note], topic: str = "t") -> list[str]:
    """What is said of a topic."""
    said = [each.sentence for each in findings if each.topic == topic]
    return said + [each.sentence for each in notes if each.topic == topic]


def judged(replicas: Mapping[str, Path], *paths: Path, history: History | None = None, mode: int = 0) -> Report:
    """The audit of replicas of which some paths may not be read; every way to it says the same."""
    with unreadable(*paths, mode=mode):
        report = audit(replicas, history=history)
        close = audit_disk(LocalDisk(), {name: str(path) for name, path in replicas.items()}, history=history)
        assert (close.findings, close.notes, close.partitions) == (report.findings, report.notes, report.partitions)
        assert by_spark(replicas, history) == sentences(report.findings, report.notes)
    return report


@pytest.mark.parametrize("acks", [None, ACKS_ALL, ACKS_LEADER])
@pytest.mark.parametrize(("file", "mode"), [("", 0), ("", 0o444), (SEGMENT, 0)])
def test_a_log_that_may_not_be_read_is_not_judged(
    replicas: dict[str, Path], file: str, mode: int, acks: str | int | None
) -> None:
    """Neither its end nor its checkpoints, nor what clients were told: the others do not have it, and it may."""
    history = None if acks is None else History(told(acks))
    report = judged(replicas, replicas["1"] / "t-0" / file, history=history, mode=mode)
    assert (report.findings, report.losses, report.exit_code) == ([], [], 1)
    what = f"the file {file}" if file else "the directory"
    first, *others = [note for note in report.notes if note.topic == "t"]
    assert first.sentence == f"t-0: replica 1: {what} cannot be read: {DENIED}; compared without it"
    assert [note.kind for note in (first, *others)][: 1 + (acks == ACKS_ALL)] == ["not-compared"] * (
        1 + (acks == ACKS_ALL)
    )
    assert any(first.sentence in reason for reason in report.inconclusive)
    t, u = report.partitions
    assert ([each.replica for each in t.replicas], t.unread) == (["2", "3"], ["1"])
    assert ([each.replica for each in u.replicas], u.unread) == (["1", "2", "3"], [])
    assert t.compared_records == 2
    assert report.absent == {}


def test_what_others_hold_wrongly_is_found_all_the_same(replicas: dict[str, Path]) -> None:
    """The verdict is findings then, and says what was not compared; an offset above nobody's end is not among them."""
    segment = replicas["2"] / "t-0" / SEGMENT
    flip_bit(segment, -1)
    report = judged(replicas, replicas["1"] / "t-0", history=History(told(ACKS_ALL)))
    assert {(finding.check, finding.replica) for finding in report.findings} == {("crc-mismatch", "2")}
    assert (report.exit_code, bool(report.inconclusive)) == (3, True)


@pytest.mark.parametrize("history", [None, History(told(ACKS_ALL))])
@pytest.mark.parametrize("left", [1, 0])
def test_a_partition_of_which_no_two_can_be_read_was_not_compared(
    replicas: dict[str, Path], left: int, history: History | None
) -> None:
    """Alone, and not at all: nothing is called lost."""
    report = judged(replicas, *(replicas[name] / "t-0" for name in ("1", "2", "3")[left:]), history=history)
    assert (report.findings, report.losses, report.exit_code) == ([], [], 1)
    said = [note.sentence for note in report.notes if note.topic == "t"]
    assert all("nothing was compared" in sentence for sentence in said[: 3 - left]), said
    assert not any("only replica" in sentence for sentence in said), said


@pytest.mark.parametrize("topic", ["t", "gone"])
def test_a_brokers_whole_directory_that_may_not_be_read_may_have_the_records(
    replicas: dict[str, Path], topic: str
) -> None:
    """Records that the others lack are not called lost, also of a partition that only it may have."""
    report = judged(replicas, replicas["1"], history=History(told(ACKS_ALL, topic)))
    assert (report.findings, report.losses, report.exit_code) == ([], [], 1)
    assert f"{replicas['1']} cannot be read: {DENIED}" in report.inconclusive


def test_a_brokers_directory_that_is_not_there_has_no_records(replicas: dict[str, Path], tmp_path: Path) -> None:
    """It was looked for: what the others lack is lost, as on a disk that is gone."""
    report = audit({**replicas, "1": tmp_path / "none"}, history=History([*told(ACKS_ALL), *told(ACKS_ALL, "gone")]))
    assert [(finding.check, finding.topic) for finding in report.findings] == [
        *(("acknowledged-lost", "t") for _ in VALUES[2:]),
        ("acknowledged-lost", "gone"),
    ]


@pytest.mark.parametrize(
    "file",
    [
        META_PROPERTIES,
        REPLICATION_OFFSET_CHECKPOINT,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        f"u-0/{PARTITION_METADATA}",
        f"u-0/{LEADER_EPOCH_CHECKPOINT}",
        f"u-0/{SEGMENT.replace('.log', '.index')}",
        f"u-0/{SEGMENT.replace('.log', '.timeindex')}",
        f"u-0/{SEGMENT.replace('.log', '.snapshot')}",
    ],
)
def test_a_small_file_that_may_not_be_read_is_not_called_corrupt(replicas: dict[str, Path], file: str) -> None:
    """It is named with its replica; the logs are compared all the same, and the result is not fine."""
    path = replicas["2"] / file
    path.write_bytes(path.read_bytes() if path.exists() else b"")
    report = judged(replicas, path)
    assert (report.findings, report.exit_code) == ([], 1)
    place = "u-0: " if "/" in file else ""
    said = f"{place}replica 2: the file {path.name} cannot be read: {DENIED}; it was not checked"
    assert [note.sentence for note in report.notes if note.kind != "behind"] == [said]
    assert report.partitions[1].compared_records == 10


def test_gaps_are_not_judged_while_the_cleaners_checkpoint_may_not_be_read(write_cluster: WriteCluster) -> None:
    """Nobody knows which of them it made."""
    log = log_of(*VALUES).without(2)
    made = write_cluster(log, log)
    (made["2"] / CLEANER_OFFSET_CHECKPOINT).write_bytes(b"")
    assert {name for finding in audit(made).findings for name in finding.replicas} == {"1", "2"}
    report = judged(made, made["2"] / CLEANER_OFFSET_CHECKPOINT)
    assert {finding.replica for finding in report.findings} == {"1"}


def test_a_damaged_file_beside_a_log_that_may_not_be_read_is_found(replicas: dict[str, Path]) -> None:
    """It was seen, whatever was not."""
    (replicas["1"] / "t-0" / PARTITION_METADATA).write_bytes(b"nonsense")
    report = judged(replicas, replicas["1"] / "t-0" / SEGMENT)
    assert [(finding.check, finding.file) for finding in report.findings] == [("file-corrupt", PARTITION_METADATA)]


def test_the_table_the_page_and_the_exit_code_tell_of_it(replicas: dict[str, Path], tmp_path: Path) -> None:
    """No end of a log that nobody has read, no directory that is called missing, no word of a loss; code 1."""
    history, out = write_history(tmp_path / "history.jsonl", told(ACKS_ALL)), tmp_path / "out"
    given = [f"--replica={name}={path}" for name, path in replicas.items()]
    with unreadable(replicas["1"] / "t-0"):
        result = CliRunner().invoke(app, ["run", *given, "--history", str(history), "--out", str(out)])
    assert result.exit_code == 1, result.output
    row = next(line for line in result.output.splitlines() if line.startswith("t-0 ") and line.split()[1] == "1")
    assert row.split() == ["t-0", "1", "?", "?", "?", "?", "?", "?"]
    assert f"note: t-0: replica 1: the directory cannot be read: {DENIED}; compared without it" in result.output
    assert "may have them" in result.output
    assert "Inconclusive." in result.output
    page = (out / "report.html").read_text()
    for text in (page, result.output):
        assert DENIED in text
        for wrong in ("has no directory", "No directory", "ends at 0", "LOST", "-lost", "Errno"):
            assert wrong not in text, wrong
    assert "on 2 to 3 of 3 replicas" in page


@pytest.mark.parametrize("place", ["b2", "b2/t-0", "lost+found"])
def test_data_with_a_directory_that_may_not_be_read(replicas: dict[str, Path], tmp_path: Path, place: str) -> None:
    """--data names the broker's directory and ends; a partition's leaves the others; a file system's own is no
    broker's."""
    (tmp_path / place).mkdir(exist_ok=True)
    with unreadable(tmp_path / place):
        result = CliRunner().invoke(app, ["run", "--data", str(tmp_path)])
    wanted = {"b2": 2, "b2/t-0": 1, "lost+found": 0}
    assert result.exit_code == wanted[place], result.output
    if place == "b2":
        assert f"--data {tmp_path}: {tmp_path / place}: {DENIED}" in result.output


def test_the_view_of_spark_refuses_a_directory_that_may_not_be_read(replicas: dict[str, Path]) -> None:
    """A table without a replica's records would look like all there is."""
    pytest.importorskip("pyspark")
    from odradek_audit.spark.datasource import KafkaLogReader

    named = ",".join(f"{name}={path}" for name, path in replicas.items())
    with unreadable(replicas["1"] / "t-0"), pytest.raises(OSError, match=DENIED):
        KafkaLogReader({"replicas": named, "view": "batches"}).partitions()


def test_a_segment_that_is_gone_for_another_reason_is_damage_as_before(
    write_cluster: WriteCluster, log: SampleLog
) -> None:
    """Only permission excuses: a name that is no file stays a finding."""
    made = write_cluster(log, log)
    segment = made["2"] / "t-0" / SEGMENT
    segment.unlink()
    segment.mkdir()
    assert "file-corrupt" in {finding.check for finding in audit(made).findings}
