"""The log against a history: one hand-made history for each anomaly, with its near miss, and anomalies planted by
chance."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_audit.cli.commands import app
from odradek_audit.engine import spooled
from odradek_audit.engine.local import audit
from odradek_audit.inputs.history import (
    ACK,
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    DELIVER,
    ERROR,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    SEND,
    CorruptHistory,
    Event,
    History,
    decode_event,
    encode_event,
    read_events,
)
from odradek_proto.topics import TopicPartition
from typer.testing import CliRunner

from tests.audit.acknowledged import VALUES, log_of, told, write_history
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster, write_log_directory


def send(value: str, partition: int = 0) -> Event:
    return Event(SEND, "t", partition, value.encode(), client="w")


def ack(value: str, offset: int, acks: str | int = ACKS_ALL) -> Event:
    return Event(ACK, "t", 0, value.encode(), offset, acks, client="w")


def failed(value: str, definite: bool) -> Event:
    return Event(ERROR, "t", 0, value.encode(), client="w", definite=definite)


def deliver(value: str, offset: int) -> Event:
    return Event(DELIVER, "t", 0, value.encode(), offset, client="r")


def abc(producer_id: int = 5) -> SampleLog:
    """Three records, written by an idempotent producer."""
    log = SampleLog()
    for value in (b"a", b"b", b"c"):
        log.append([value], producer_id=producer_id)
    return log


GOOD = [send("a"), ack("a", 0), send("b"), ack("b", 1), send("c"), ack("c", 2), deliver("a", 0), deliver("b", 1)]

CASES = [
    ("acknowledged-lost", [*GOOD, send("d"), ack("d", 3)], 3),
    ("acknowledged-lost", [*GOOD[:-3], ack("x", 2)], 2),
    ("delivered-lost", [*GOOD, deliver("z", 2)], 2),
    ("delivered-lost", [*GOOD, deliver("d", 7)], 7),
    ("phantom", [event for event in GOOD if event.value != b"b"], 1),
    ("failed-present", [*GOOD[:4], send("c"), failed("c", True)], 2),
    ("failed-present", [*GOOD[:4], send("c", -1), failed("c", True)._replace(partition=-1)], 2),
    ("reordered", [send("c"), ack("c", 2), send("a"), ack("a", 0), send("b"), ack("b", 1)], 0),
]
NEAR_MISSES = [
    ("everything told is there", GOOD),
    ("a lost acks=1 record", [*GOOD, send("d"), ack("d", 3, ACKS_LEADER)]),
    (
        "an acks=1 record that a new leader never had, and the next one in its place",
        [*GOOD[:4], send("d"), ack("d", 3, ACKS_LEADER), send("c"), ack("c", 2, ACKS_LEADER)],
    ),
    ("a send without an answer", [*GOOD, send("d")]),
    ("an unknown error whose record is there", [*GOOD[:4], send("c"), failed("c", False)]),
    ("a definite error, then a second attempt", [*GOOD[:4], send("c"), failed("c", True), send("c"), ack("c", 2)]),
    ("overlapping sends in another order", [send("c"), send("a"), send("b"), ack("c", 2), ack("a", 0), ack("b", 1)]),
    ("sends whose partition was not known yet", [send("a", -1), send("b", -1), send("c", -1), ack("a", 0)]),
    ("an acknowledgement without an offset", [*GOOD[:4], send("c"), ack("c", -1)]),
    ("deliveries alone", [deliver("a", 0), deliver("c", 2)]),
]


@pytest.mark.parametrize(("check", "events", "offset"), CASES)
def test_anomaly_is_found(write_cluster: WriteCluster, check: str, events: list[Event], offset: int) -> None:
    """The check names the offset; the log itself is healthy."""
    report = audit(write_cluster(abc(), abc()), history=History(events))
    found = {(finding.check, finding.offset, finding.partition) for finding in report.findings}
    assert (check, offset, 0) in found, report.findings


@pytest.mark.parametrize(("name", "events"), NEAR_MISSES)
def test_near_miss_is_silent(write_cluster: WriteCluster, name: str, events: list[Event]) -> None:
    """What clients may be told without a broken promise is no finding."""
    report = audit(write_cluster(abc(), abc()), history=History(events))
    assert [finding.sentence for finding in report.findings] == [], name
    assert report.exit_code == 0


def test_what_nobody_sent_in_the_place_of_a_lost_record_is_told_with_the_loss(write_cluster: WriteCluster) -> None:
    """One changed value is one finding."""
    events = [event._replace(value=b"x") if event.value == b"b" else event for event in GOOD[:-1]]
    replicas = write_cluster(abc(), abc())
    (finding,) = audit(replicas, history=History(events)).findings
    assert (finding.check, finding.offset, finding.evidence["phantom"]) == ("acknowledged-lost", 1, True)
    assert "replica 1 holds another value there, which the history never sent" in finding.sentence


def test_duplicate_of_an_idempotent_producer_is_found(write_cluster: WriteCluster) -> None:
    """One value at two offsets; without a producer id it is a note, and sent twice it is right."""
    twice, plain = abc().append([b"b"], producer_id=5), abc(-1).append([b"b"])
    found = audit(write_cluster(twice, twice), history=History(GOOD))
    assert [(f.check, f.offset, f.evidence["first_offset"]) for f in found.findings] == [("duplicated", 3, 1)]
    noted = audit(write_cluster(plain, plain), history=History(GOOD))
    assert (noted.findings, [note.kind for note in noted.notes]) == ([], ["repeated-without-idempotence"])
    assert audit(write_cluster(twice, twice), history=History([*GOOD, send("b")])).findings == []


def test_lost_record_names_who_still_has_it(write_cluster: WriteCluster) -> None:
    """The new leader lacks it, the old one would cut it off: the sentence says where it can be saved."""
    leader = SamplePartition(abc().append([b"e"], epoch=4, producer_id=6))
    former = SamplePartition(abc().append([b"d"], producer_id=5), high_watermark=3)
    history = History([*GOOD, send("d"), ack("d", 3), send("e")])
    findings = audit(write_cluster(leader, former), history=history).findings
    lost = next(finding for finding in findings if finding.check == "acknowledged-lost")
    assert (lost.replica, lost.offset, lost.epoch, lost.other_replica) == ("1", 3, 4, "2")


def test_acknowledged_offset_raises_the_bound(write_cluster: WriteCluster) -> None:
    """A difference above every checkpoint, but below an acknowledgement, is a violation."""
    one = SamplePartition(abc().append([b"x"], epoch=1), high_watermark=0)
    other = SamplePartition(abc().append([b"y"], epoch=1), high_watermark=0)
    replicas = write_cluster(one, other)
    assert {finding.check for finding in audit(replicas).findings} == {"epoch-fork"}
    history = History([*GOOD, send("x"), ack("x", 3), send("y")])
    assert {finding.check for finding in audit(replicas, history=history).findings} == {"log-matching"}


def test_partition_that_nobody_has_is_lost(write_cluster: WriteCluster) -> None:
    """Acknowledged records of a partition without a directory are lost, all of them."""
    history = History([*GOOD, Event(SEND, "gone", 0, b"q"), Event(ACK, "gone", 0, b"q", 0)])
    findings = audit(write_cluster(abc(), abc()), history=history).findings
    assert [(finding.check, finding.topic) for finding in findings] == [("acknowledged-lost", "gone")]


def test_records_below_the_log_start_are_not_judged(write_cluster: WriteCluster) -> None:
    """Retention may remove what was acknowledged and delivered."""
    short = SamplePartition(abc().since(2), epochs=[(0, 2)])
    assert audit(write_cluster(short, short), history=History(GOOD)).findings == []


any_event = st.builds(
    Event,
    type=st.sampled_from([SEND, ACK, ERROR, DELIVER]),
    topic=st.just("t"),
    partition=st.integers(0, 9),
    value=st.binary(max_size=20),
    offset=st.integers(0, 2**62),
    acks=st.sampled_from([ACKS_ALL, 1, 0]),
    client=st.text(max_size=5),
    time_ms=st.integers(0, 2**40),
    key=st.none() | st.binary(max_size=9),
    tombstone=st.booleans(),
    isolation=st.sampled_from(["", READ_COMMITTED, READ_UNCOMMITTED]),
)


@given(event=any_event)
def test_events_survive_their_line(event: Event) -> None:
    """What is written is read again, whatever bytes the value has."""
    read = decode_event(encode_event(event), 1)
    value = b"" if event.tombstone else event.value
    kept = event._replace(line=1, value=value, definite=event.definite and event.type == ERROR)
    if event.type in (SEND, ERROR):
        kept = kept._replace(offset=-1)
    if event.type in (ERROR, DELIVER):
        kept = kept._replace(acks=ACKS_ALL)
    assert read == kept


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"type": "ack"}',
        '{"type": "ack", "topic": "t", "value": "x"}',
        '{"type": "x", "topic": "t"}',
        '{"type": "send", "topic": "t", "partition": "0", "value": "x"}',
        '{"type": "send", "topic": "t", "value_b64": "!"}',
        '{"type": "ack", "topic": "t", "partition": 0, "value": "x", "acks": "ALL"}',
    ],
)
def test_bad_line_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    """A history that cannot be trusted is not guessed at; only a half-written last line is left out, and a whole one
    without its newline is not half-written."""
    path = tmp_path / "history.jsonl"
    path.write_text(encode_event(send("a")) + "\n" + line + "\n")
    with pytest.raises(CorruptHistory, match="line 2"):
        list(read_events(path))
    path.write_text(encode_event(send("a")) + "\n" + line)
    with pytest.raises(CorruptHistory, match="line 2") if line != "{" else nullcontext():
        assert len(list(read_events(path))) == 1


@pytest.mark.parametrize(
    ("written", "acks"),
    [
        ("", ACKS_ALL),
        *((each, ACKS_ALL) for each in ('"all"', "-1", '"-1"')),
        *((each, ACKS_LEADER) for each in ("1", '"1"')),
        *((each, ACKS_NONE) for each in ("0", '"0"')),
    ],
)
def test_acks_are_kafkas(written: str, acks: str | int) -> None:
    """The names and numbers that Kafka's producers know; a line without any is of acks=all."""
    field = f', "acks": {written}' if written else ""
    assert decode_event(f'{{"type": "send", "topic": "t", "value": "x"{field}}}', 1).acks == acks


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("acks", each) for each in ("null", '"ALL"', '"quorum"', '""', "2", "-2", "true", "false", "1.0", "[1]")),
        *(("time_ms", each) for each in ("1e400", "-1e400", "Infinity", "NaN")),
        *(("offset", each) for each in (10**30, 2**63 - 1, -2, -5, "true", "null")),
        *(("partition", each) for each in (10**30, 2**31, -2)),
        *(("topic", each) for each in ('"\\ud800"', '"a\udcffb"')),
        ("client", '"\\udfff"'),
    ],
)
@pytest.mark.parametrize("kind", [SEND, ACK])
def test_fields_that_no_log_can_have_are_refused(tmp_path: Path, kind: str, field: str, value: str | int) -> None:
    """A number that no offset, partition or time can be, text that is no UTF-8, and acks that nobody knows: each is
    refused with its line, and never read as something else, which would hide what was lost."""
    path = tmp_path / "history.jsonl"
    good = f'"type": "{kind}", "topic": "t", "partition": 0, "offset": 0, "value": "x"'
    bad = f'{good}, "{field}": {value}'
    path.write_bytes(f"{{{good}}}\n{{{bad}}}\n".encode(errors="surrogateescape"))
    with pytest.raises(CorruptHistory, match="line 2") as refused:
        list(read_events(path))
    assert field in refused.value.reason


def test_a_refused_line_is_wrong_usage_of_the_command(tmp_path: Path) -> None:
    """With the number of the line."""
    path = tmp_path / "history.jsonl"
    path.write_text(encode_event(send("x")) + "\n{}\n")
    result = CliRunner().invoke(app, ["run", f"--replica=1={tmp_path}", "--history", str(path), "--engine", "local"])
    assert (result.exit_code, "line 2" in result.output) == (2, True), result.output


def test_the_largest_fields_are_read(write_cluster: WriteCluster, tmp_path: Path) -> None:
    """The last partition and the last offset that there can be: what was acknowledged there is lost, and told. A time
    is nothing that is computed with."""
    events = [ack("x", 2**63 - 2)._replace(time_ms=10**400), ack("y", 2**63 - 2)._replace(partition=2**31 - 1)]
    history = write_history(tmp_path / "history.jsonl", events)
    given = [f"--replica={name}={path}" for name, path in write_cluster(abc(), abc()).items()]
    result = CliRunner().invoke(app, ["run", *given, "--history", str(history), "--out", str(tmp_path / "out")])
    assert result.exit_code == 3, result.output
    assert result.output.count("acknowledged-lost:") == 2


def test_another_writers_records_are_one_finding_for_each_stretch(write_cluster: WriteCluster) -> None:
    """Not one for each record: whoever writes to a topic a second time has only the second history at hand."""
    log = SampleLog()
    for values in ([b"x0", b"x1"], [b"x2"], [b"a"], [b"x3"]):
        log.append(values, producer_id=1)
    found = audit(write_cluster(log, log), history=History([send("a"), ack("a", 3)])).findings
    assert [(each.check, each.offset, each.end_offset, each.evidence["records"]) for each in found] == [
        ("phantom", 0, 3, 3),
        ("phantom", 4, 5, 1),
    ]
    assert "holds 3 values at offsets 0 to 2, from 'x0' in epoch 0 to 'x2' in epoch 0, which the" in found[0].sentence


@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=8),
    anomaly=st.sampled_from(["none", "lose", "duplicate", "phantom", "replace"]),
    data=st.data(),
)
def test_planted_anomaly_is_found(sizes: list[int], anomaly: str, data: st.DataObject) -> None:
    """A correct log and its history agree; one planted anomaly is found at its offset, and nothing else is."""
    batches: list[list[bytes]] = []
    for number, size in enumerate(sizes):
        batches.append([b"%d-%d" % (number, place) for place in range(size)])
    values = [value for batch in batches for value in batch]
    told = [send(value.decode()) for value in values]
    told += [ack(value.decode(), offset) for offset, value in enumerate(values)]
    at = data.draw(st.integers(0, len(values) - 1))
    expected: set[tuple[str, int]] = set()
    if anomaly == "lose":
        expected = {("acknowledged-lost", len(values) - size) for size in range(1, len(batches[-1]) + 1)}
        batches.pop()
    elif anomaly == "duplicate":
        batches.append([values[at]])
        expected = {("duplicated", len(values))}
    elif anomaly == "phantom":
        batches.append([b"never sent"])
        expected = {("phantom", len(values))}
    elif anomaly == "replace":
        told[len(values) + at] = ack("something else", at)
        expected = {("acknowledged-lost", at)}
    log = SampleLog()
    for batch in batches:
        log.append(batch, producer_id=1)
    with tempfile.TemporaryDirectory() as name:
        sample = {TopicPartition("t", 0): SamplePartition(log)}
        replicas = {str(node): write_log_directory(Path(name) / str(node), node, sample) for node in (1, 2)}
        findings = audit(replicas, history=History(told)).findings
    assert {(finding.check, finding.offset) for finding in findings} == expected


def test_an_acknowledgement_that_is_told_twice_changes_nothing(write_cluster: WriteCluster) -> None:
    """A client's history may repeat lines, and tombstones have all one value: nothing was reordered."""
    log, events = log_of(*VALUES), told(ACKS_ALL)
    report = audit(write_cluster(log, log), history=History([*events, *events[:2]]))
    assert [finding.sentence for finding in report.findings] == []


# --- On the disk ------------------------------------------------------------------------------------------------------


WALL_MS = 1_795_264_699_000
KNOWN = {("t", 0), ("t", 1), ("u", 0)}
PLACES = (*sorted(KNOWN), ("t", 7), ("gone", 0), ("t", -1), ("u", -1))

events = st.builds(
    Event,
    type=st.sampled_from([SEND, ACK, ERROR, DELIVER]),
    topic=st.just("t"),
    partition=st.just(0),
    value=st.binary(max_size=2),
    offset=st.integers(-1, 9),
    acks=st.sampled_from(["all", 1, 0]),
    client=st.sampled_from(["w", "r\u00e9"]),
    time_ms=st.sampled_from([0, WALL_MS, WALL_MS + 400, WALL_MS + 9_000]),
    definite=st.booleans(),
    key=st.none() | st.binary(max_size=2),
    isolation=st.sampled_from(["", "read_committed"]),
)


def placed(event: Event, place: tuple[str, int]) -> Event:
    """The event of a partition, as a line can have it: only what is not written yet may be without one."""
    if event.type in (ACK, DELIVER) and place[1] < 0:
        return event._replace(topic=place[0], partition=0, offset=max(event.offset, 0))
    offset = max(event.offset, 0) if event.type == DELIVER else event.offset
    return event._replace(topic=place[0], partition=place[1], offset=offset)


@given(st.lists(st.builds(placed, events, st.sampled_from(PLACES))), st.sampled_from([1, 2, 5, 100]))
def test_each_partition_reads_what_a_history_in_memory_has(
    tmp_path_factory: pytest.TempPathFactory, written: list[Event], together: int
) -> None:
    """However many events are written together; what nobody has is in the outline, as are the silences."""
    path = write_history(tmp_path_factory.mktemp("history") / "history.jsonl", written)
    whole = History.read(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spooled, "TOGETHER", together)
        with spooled.spooled(path, KNOWN) as found:
            kept = Path(found.path)
            for key in KNOWN:
                told = found.of(*key)
                assert (told is not None) == (key[0] in whole.topics)
                if told is not None:
                    read = told.read()
                    assert (read.events, read.sent) == (whole.of(*key), whole.sent_to(*key))
            outline = found.outline
    assert not kept.exists()
    assert (outline.count, outline.silences) == (whole.count, whole.silences)
    unknown = {key: replace(each, order=[]) for key, each in whole.partitions.items() if key not in KNOWN}
    assert {key: replace(each, order=[]) for key, each in outline.partitions.items()} == unknown  # nobody judges order


def test_no_event_of_what_is_audited_stays_in_memory(write_cluster: WriteCluster, tmp_path: Path) -> None:
    """The report is told how many there were, and findings are those of a history in memory; a wrong line is told by
    its number, and leaves no file."""
    log = SampleLog().append([b"a"], producer_id=1).append([b"b"], producer_id=1)
    replicas = write_cluster(
        {TopicPartition("t", 0): SamplePartition(log), TopicPartition("t", 1): SamplePartition(log)}
    )
    first = told(ACKS_ALL, values=VALUES[:3])
    lines = [*first, *(event._replace(partition=1) for event in first)]
    path = write_history(tmp_path / "history.jsonl", lines)
    with spooled.spooled(path, {("t", 0), ("t", 1)}) as found:
        assert (found.outline.partitions, found.outline.open_sends) == ({}, {})
    there, here = audit(replicas, history=path), audit(replicas, history=History.read(path))
    assert there.history_events == len(lines)
    assert {finding.check for finding in there.findings} == {"acknowledged-lost"}
    assert (there.findings, there.losses, there.partitions) == (here.findings, here.losses, here.partitions)
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(CorruptHistory, match=f"line {len(lines) + 1}:"):
        audit(replicas, history=path)
