"""A history that is kept in a file while it is compared: the same as one in memory, for each partition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_audit.engine import spooled
from odradek_audit.engine.local import audit
from odradek_audit.inputs.history import ACK, DELIVER, ERROR, SEND, CorruptHistory, Event, History, encode_event
from odradek_proto.topics import TopicPartition

from tests.audit.sample import SampleLog, SamplePartition, WriteCluster

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
    path = tmp_path_factory.mktemp("history") / "history.jsonl"
    path.write_text("".join(encode_event(event) + "\n" for event in written))
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
    path = tmp_path / "history.jsonl"
    lines = [
        encode_event(Event(kind, "t", partition, value, offset, client="w"))
        for partition in (0, 1)
        for offset, value in enumerate((b"a", b"b", b"c"))
        for kind in (SEND, ACK)
    ]
    path.write_text("".join(line + "\n" for line in lines))
    with spooled.spooled(path, {("t", 0), ("t", 1)}) as found:
        assert (found.outline.partitions, found.outline.open_sends) == ({}, {})
    there, here = audit(replicas, history=path), audit(replicas, history=History.read(path))
    assert there.history_events == len(lines)
    assert {finding.check for finding in there.findings} == {"acknowledged-lost"}
    assert (there.findings, there.losses, there.partitions) == (here.findings, here.losses, here.partitions)
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(CorruptHistory, match=f"line {len(lines) + 1}:"):
        audit(replicas, history=path)
