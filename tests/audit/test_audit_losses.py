"""Acknowledged records that no replica has: said first and in one sentence, whatever was owed."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from odradek_audit.checks.losses import Acknowledgement, summed
from odradek_audit.cli.commands import app
from odradek_audit.engine.local import audit
from odradek_audit.inputs.history import (
    ACK,
    ACKS_ALL,
    ACKS_LEADER,
    SEND,
    Event,
    History,
    PartitionHistory,
    value_digest,
)
from odradek_audit.report.headlines import verdict_sentences
from odradek_audit.report.losses import loss_table
from odradek_audit.report.page import page
from odradek_audit.results import Loss, LossCause
from odradek_proto.topics import TopicPartition
from typer.testing import CliRunner

from tests.audit.acknowledged import VALUES, log_of, told, write_history
from tests.audit.sample import SamplePartition, WriteCluster

UNKNOWN_LOSS: dict[str, Any] = {
    "story": "no truncation there was written down",
    "cause": LossCause.PERHAPS_LEADER_CHANGE,
}
NO_EVENTS = "no replica has an event file (odradek-events.jsonl; Kafka writes none)"


def words(text: str) -> str:
    """The page's text after its style, in one line."""
    body = text[text.index("<body") :]
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", body).split()))


@pytest.mark.parametrize(("acks", "exit_code"), [(ACKS_ALL, 3), (ACKS_LEADER, 0)])
def test_records_gone_from_every_replica_are_counted(
    write_cluster: WriteCluster, acks: str | int, exit_code: int
) -> None:
    """How many, where, from which offset; only what was owed is a finding."""
    short = log_of(*VALUES[:2])
    report = audit(write_cluster(short, short), history=History(told(acks)))
    assert report.losses == [
        Loss("t", 0, str(acks), records=3, first_offset=2, end_offset=5, values=("c", "e"), **UNKNOWN_LOSS)
    ]
    assert report.exit_code == exit_code
    assert json.loads(json.dumps(report.summary()))["losses"] == [
        {
            "topic": "t",
            "partition": 0,
            "acks": str(acks),
            "records": 3,
            "first_offset": 2,
            "end_offset": 5,
            "acknowledged_ms": [-1, -1],
            "values": ["c", "e"],
            "high_watermark": -1,
            **UNKNOWN_LOSS,
        }
    ]


def test_record_that_another_replica_has_is_not_gone(write_cluster: WriteCluster) -> None:
    """The former leader still has offset 3: lost to the cluster, and not gone from every replica."""
    leader = SamplePartition(log_of(*VALUES[:2]).append([b"x"], epoch=4, producer_id=6))
    former = SamplePartition(log_of(*VALUES[:4]), high_watermark=2)
    report = audit(write_cluster(leader, former), history=History([*told(ACKS_LEADER), Event(SEND, "t", 0, b"x")]))
    assert [(loss.records, loss.first_offset, loss.end_offset) for loss in report.losses] == [(1, 4, 5)]


def test_record_that_stands_elsewhere_is_not_gone(write_cluster: WriteCluster) -> None:
    """A producer that sends again after a failover may have its record at another offset than it was told."""
    moved = log_of(b"a", b"b", b"d", b"c", b"e")
    assert audit(write_cluster(moved, moved), history=History(told(ACKS_LEADER))).losses == []


def test_records_below_the_log_start_are_not_gone(write_cluster: WriteCluster) -> None:
    """Retention took them, which is what it is for."""
    kept = SamplePartition(log_of(*VALUES), log_start=2)
    assert audit(write_cluster(kept, kept), history=History(told(ACKS_LEADER))).losses == []


def test_partition_without_any_replica_is_gone_as_a_whole(write_cluster: WriteCluster) -> None:
    """acks=1 records of a partition whose directory no replica has."""
    whole = log_of(*VALUES)
    report = audit(write_cluster(whole, whole), history=History([*told(ACKS_ALL), *told(ACKS_LEADER, "other")]))
    assert report.losses == [
        Loss("other", 0, "1", records=5, first_offset=0, end_offset=5, values=("a", "e"), **UNKNOWN_LOSS)
    ]


@pytest.mark.parametrize(
    ("acks", "word", "owed"),
    [
        (ACKS_ALL, "FINDINGS", "1 finding in 1 partition"),
        (
            ACKS_LEADER,
            "RECORDS LOST",
            f"Whether a change of leader cost 1 record of t-0, which acks=1 allows, cannot be told: {NO_EVENTS}.",
        ),
    ],
)
def test_page_says_it_before_anything_else(write_cluster: WriteCluster, acks: str | int, word: str, owed: str) -> None:
    """Number, partition, offset and that no replica has them are the first sentence under the verdict's word."""
    short = log_of(*VALUES[:4])
    report = audit(write_cluster(short, short), history=History(told(acks)))
    told_to_be = f"1 record of t-0 that was acknowledged with acks={acks} is gone, offset 4 (value 'e')"
    first = f"{told_to_be}: none of the 2 replicas that were read has it."
    assert " ".join(verdict_sentences(report)).startswith(first)
    said = words(page(report))
    assert f"{word} {first}" in said
    assert owed in said


def test_command_says_it_first_and_in_its_last_line(write_cluster: WriteCluster, tmp_path: Path) -> None:
    """Above the table and in the verdict, so that neither the top nor the end of the output hides it."""
    short = log_of(*VALUES[:2])
    replicas = write_cluster(short, short)
    history = write_history(tmp_path / "history.jsonl", told(ACKS_LEADER))
    options = [part for name, path in replicas.items() for part in ("--replica", f"{name}={path}")]
    ran = CliRunner().invoke(app, ["run", *options, "--history", str(history)], env={"COLUMNS": "300"})
    lines = ran.output.strip().splitlines()
    assert lines[0].startswith(
        "LOST: 3 records of t-0 that were acknowledged with acks=1 are gone, from offset 2 (value 'c') to 4 (value "
        "'e'): none of the 2 replicas that were read has them."
    )
    assert lines[-1].startswith("The replicas agree, and 3 acknowledged records are gone from every one of them.")
    assert ran.exit_code == 0


def test_many_losses_are_added_up(write_cluster: WriteCluster) -> None:
    """How many in all, once; then what they consist of, the gravest first, and these numbers add up."""
    whole = log_of(*VALUES)
    gap = whole.without(2)
    events = [*told(ACKS_ALL, "kept"), *told(ACKS_LEADER), *told(ACKS_ALL, "owed")]
    for number in range(4):
        events += told(ACKS_LEADER, f"gone{number}")[: 2 + 2 * number]
    both = {TopicPartition("t", 0): SamplePartition(gap), TopicPartition("kept", 0): SamplePartition(whole)}
    report = audit(write_cluster(both, both), history=History(events))
    said = verdict_sentences(report)
    assert said[:3] == [
        "16 acknowledged records are gone: none of the 2 replicas that were read has them.",
        "5 of them (owed-0, from offset 0 to 4) were acknowledged with acks=all, which promises that no change of "
        "leader loses them.",
        "1 of them (t-0, offset 2) is missing where every replica's log goes on behind it. No change of leader "
        "explains it: it is damage, or a defect.",
    ]
    assert said[3].startswith("Whether a change of leader cost 10 of them (gone0-0, gone1-0, gone2-0, gone3-0)")
    assert said[4].endswith(
        "2 findings in 2 partitions. 10 of the lost records, acknowledged with acks=1, are not counted as findings; "
        "the 1 of t-0 is."
    )
    assert [len(re.findall("are gone:", " ".join(said)))] == [1]


@pytest.mark.parametrize(("acks", "findings"), [(ACKS_ALL, 3), (ACKS_LEADER, 0)])
def test_records_acknowledged_without_an_offset_are_counted(
    write_cluster: WriteCluster, acks: str | int, findings: int
) -> None:
    """They are looked for by value, on every replica; nobody can say where they stood."""
    events = [event._replace(offset=-1) for event in told(acks)]
    short = log_of(*VALUES[:2])
    report = audit(write_cluster(short, short), history=History(events))
    assert [finding.check for finding in report.findings] == ["acknowledged-lost"] * findings
    assert report.losses == [
        Loss("t", 0, str(acks), records=3, first_offset=-1, end_offset=-1, cause=LossCause.PERHAPS_LEADER_CHANGE)
    ]
    said = f"3 records of t-0 that were acknowledged with acks={acks} are gone: none of the 2 replicas"
    assert " ".join(verdict_sentences(report)).startswith(said)


def test_offsets_known_and_unknown_are_told_apart(write_cluster: WriteCluster) -> None:
    """Of a partition that nobody has, five records with their offsets and two without."""
    whole = log_of(*VALUES)
    unnamed = [Event(ACK, "other", 0, value, -1, ACKS_LEADER) for value in (b"y", b"z")]
    report = audit(write_cluster(whole, whole), history=History([*told(ACKS_LEADER, "other"), *unnamed]))
    assert report.losses == [
        Loss("other", 0, "1", 5, 0, 5, values=("a", "e"), **UNKNOWN_LOSS),
        Loss("other", 0, "1", 2, -1, -1, cause=LossCause.PERHAPS_LEADER_CHANGE),
    ]


def test_losses_with_others_between_are_not_told_as_a_whole_range(write_cluster: WriteCluster) -> None:
    """Two of three offsets are gone, and the sentence does not claim the one between."""
    log = log_of(*VALUES).without(1, 3)
    said = " ".join(verdict_sentences(audit(write_cluster(log, log), history=History(told(ACKS_LEADER)))))
    gone = "2 records of t-0 that were acknowledged with acks=1 are gone"
    assert said.startswith(f"{gone}, between offsets 1 (value 'b') and 3 (value 'd'): ")


@pytest.mark.parametrize("order", [1, -1])
def test_record_that_a_loss_names_does_not_depend_on_their_order(order: int) -> None:
    """Of values that were acknowledged at one offset, which no log can hold together, it is always the same one."""
    gone = [Acknowledgement("1", 7, value) for value in VALUES]
    history = PartitionHistory("t", 0, labels={value: value.decode() for value in VALUES})
    assert summed(history, gone[::order]) == [Loss("t", 0, "1", 5, 7, 8, values=("a", "a"))]


def test_records_of_both_acks_at_one_offset_keep_their_values_and_times() -> None:
    """The offset of a lost acks=1 record was given to another one, with acks=all, and both are gone."""
    history = PartitionHistory("t", 0, labels={value: value.decode() for value in VALUES})
    gone = [
        Acknowledgement(ACKS_ALL, 7, b"b", 900),
        Acknowledgement(str(ACKS_LEADER), 7, b"a", 100),
        Acknowledgement(ACKS_ALL, 90, b"c", 950),
    ]
    assert summed(history, gone) == [
        Loss("t", 0, ACKS_ALL, 1, 7, 8, (900, 900), ("b", "b")),
        Loss("t", 0, ACKS_ALL, 1, 90, 91, (950, 950), ("c", "c")),
        Loss("t", 0, str(ACKS_LEADER), 1, 7, 8, (100, 100), ("a", "a")),
    ]


def test_a_lost_record_does_not_lend_its_key() -> None:
    """What a cleaner may have taken is judged by the key of the record that was owed, whoever was told later."""
    owed = Event(ACK, "t", 0, b"a", 7, key=b"owed", acks=ACKS_ALL)
    lost = Event(ACK, "t", 0, b"b", 7, key=b"lost", acks=ACKS_LEADER)
    one, two = (History(events).of("t", 0).keys for events in ([owed, lost], [lost, owed]))
    assert one == two == {7: value_digest(b"owed")}


def test_every_loss_has_a_line_below_the_verdict_in_the_order_of_the_acknowledgements() -> None:
    """With its offsets, whether all are lost, the cause, and a link to its story, of which the gravest is first."""
    losses = [
        Loss("a", 0, "1", 3, 10, 13, (1_000, 2_000), cause=LossCause.LEADER_CHANGE),
        Loss("a", 1, "1", 1, 7, 8, (3_000, 3_000), cause=LossCause.GAP),
        Loss("b", 0, "all", 4, 20, 30, (500, 600), cause=LossCause.UNEXPLAINED),
        Loss("c", 0, "1", 2, -1, -1),
    ]
    rows = [re.sub("<[^>]+>", "|", row) for row in str(loss_table(losses)).split("<tr>")[2:]]
    cells = [[cell for cell in row.split("|") if cell] for row in rows]
    assert [(each[0], "".join(each[1:3]), each[3], each[-1]) for each in cells] == [
        ("2 lost", "c-0", "not known", "see its story"),
        ("4 lost", "b-0", "20 to 29, not all", "nothing that was read explains it"),
        ("3 lost", "a-0", "10 to 12", "a change of leader"),
        ("1 lost", "a-1", "7", "missing in every replica: damage, or a defect"),
    ]
    stories = re.findall(r'href="#loss-(\d)"', str(loss_table(losses)))
    assert stories == ["4", "1", "3", "2"]
