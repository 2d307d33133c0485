"""What a header, a marker or a missing file says that its log contradicts, alike on all replicas: one finding each,
beside a near miss."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.findings import Finding
from odradek_audit.inputs.history import DELIVER, SEND, CorruptHistory, Event, History, decode_event, encode_event
from odradek_proto.compression import Codec
from odradek_proto.headers import LOG_APPEND_TIME
from odradek_proto.records import ControlType, encode_batch, end_transaction_value, read_header
from odradek_proto.topics import TopicPartition

from tests.audit.acknowledged import write_history
from tests.audit.corruption.places import places_of, rewrite_batch
from tests.audit.sample import SampleBatch, SampleLog, SamplePartition, WriteCluster, commits_of, committed
from tests.audit.test_audit_two_passes import same_without, unproven

ATTRIBUTES, MAX_TIMESTAMP = slice(21, 23), slice(35, 43)
ALL = ("1", "2", "3")


def told(findings: list[Finding]) -> list[tuple[str, tuple[str, ...], int]]:
    return [(finding.check, finding.replicas, finding.offset) for finding in findings]


def changed_everywhere(replicas: dict[str, Path], batch: int, field: slice, change: Callable[[int], int]) -> int:
    """Change a field of a batch's header on all replicas, with a right CRC; returns the batch's offset."""
    offsets = [change_field(path / "t-0", batch, field, change) for path in replicas.values()]
    return offsets[0]


def change_field(directory: Path, batch: int, field: slice, change: Callable[[int], int]) -> int:
    def rewritten(data: bytearray) -> None:
        value = change(int.from_bytes(data[field], "big", signed=True))
        data[field] = value.to_bytes(field.stop - field.start, "big", signed=True)

    place = places_of(directory)[batch]
    rewrite_batch(place, rewritten)
    return place.header.base_offset


def log_of_codec(codec: Codec) -> SampleLog:
    log = SampleLog()
    for _ in range(3):
        log.append([b"value" * 20] * 5, codec=codec)
    return log


@pytest.mark.parametrize("bit", [7, 11, 15])
def test_a_reserved_bit_is_found_at_its_batch(write_cluster: WriteCluster, log: SampleLog, bit: int) -> None:
    """Any of them, the sign among them."""
    replicas = write_cluster(log, log, log)
    mask = (1 << bit) - (1 << 16 if bit == 15 else 0)
    offset = changed_everywhere(replicas, 20, ATTRIBUTES, lambda attributes: attributes | mask)
    assert told(same_without(replicas).findings) == [("header-mismatch", ALL, offset)]


def test_bits_that_have_a_meaning_are_none(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Near miss: a delete horizon, the time of the append."""
    replicas = write_cluster(log, log, log)
    changed_everywhere(replicas, 20, ATTRIBUTES, lambda attributes: attributes | 0x40 | LOG_APPEND_TIME)
    assert (same_without(replicas).findings, unproven(replicas)) == ([], set())


@pytest.mark.parametrize(
    ("codec", "change", "found"),
    [
        (Codec.GZIP, -1, True),
        (Codec.GZIP, 1, True),
        (Codec.NONE, -1, True),
        (Codec.NONE, 1, False),  # a client's own word, and no reader misses a record
    ],
)
def test_a_largest_timestamp_that_is_no_records(
    write_cluster: WriteCluster, codec: Codec, change: int, found: bool
) -> None:
    """Who looks for a time would pass over a record, or retention would keep it."""
    log = log_of_codec(codec)
    replicas = write_cluster(log, log, log)
    offset = changed_everywhere(replicas, 0, MAX_TIMESTAMP, lambda time: time + change)
    decoded = ("1",)  # alone
    assert told(same_without(replicas).findings) == ([("header-mismatch", decoded, offset)] if found else [])


def test_the_time_of_the_append_is_no_records(write_cluster: WriteCluster) -> None:
    """Near miss: the broker's time counts, whatever the records say."""
    log = log_of_codec(Codec.GZIP)
    replicas = write_cluster(log, log, log)
    changed_everywhere(replicas, 0, MAX_TIMESTAMP, lambda time: time + 5)
    changed_everywhere(replicas, 0, ATTRIBUTES, lambda attributes: attributes | LOG_APPEND_TIME)
    assert same_without(replicas).findings == []


def marked_as(number: int) -> SampleLog:
    """A transaction, and a marker of this kind behind it."""
    log = SampleLog().append([b"a"], producer_id=7, transactional=True)
    last = log.end(ControlType.COMMIT, 7).batches[-1]
    header = read_header(last.data)
    data = encode_batch(
        [(header.max_timestamp, struct.pack(">hh", 0, number), end_transaction_value(0), ())],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=-1,
        transactional=True,
        control=True,
    )
    log.batches[-1] = SampleBatch.of(data)
    return log


@pytest.mark.parametrize(("number", "found"), [(ControlType.COMMIT, False), (5, True), (77, True)])
def test_a_marker_of_no_kind_is_named(write_cluster: WriteCluster, number: int, found: bool) -> None:
    """Readers pass over it; near miss: the one that is meant."""
    log = marked_as(number)
    findings = same_without(write_cluster(log, log, log)).findings
    assert [finding.check for finding in findings] == (["header-mismatch"] if found else [])
    assert all(f"kind {number}" in finding.sentence for finding in findings)


@pytest.mark.parametrize(("marker_epoch", "found"), [(2, True), (3, False), (4, False)])
def test_a_marker_of_an_older_epoch_is_found(write_cluster: WriteCluster, marker_epoch: int, found: bool) -> None:
    """Near misses: the transaction's epoch, and the next one (KIP-890)."""
    log = SampleLog().append([b"a"], producer_id=7, producer_epoch=3, transactional=True)
    log.end(ControlType.COMMIT, 7, producer_epoch=marker_epoch)
    log.append([b"b"], producer_id=7, producer_epoch=4, transactional=True)
    log.end(ControlType.COMMIT, 7, producer_epoch=4)
    expected = [("producer-epoch-not-monotonic", ALL, 1)] if found else []
    assert told(same_without(write_cluster(log, log, log)).findings) == expected


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_transaction_indexes_that_all_replicas_lack_are_missed(write_cluster: WriteCluster, kind: ControlType) -> None:
    """Readers of committed records would be given aborted ones. Near miss: where none was aborted there is no file."""
    log = SampleLog().append([b"a"], producer_id=7, transactional=True).end(kind, 7).fill(3)
    replicas = write_cluster(log, log, log, clean_shutdown=True)
    indexes = [path for each in replicas.values() for path in (each / "t-0").glob("*.txnindex")]
    for path in indexes:
        path.unlink()
    expected = [("transaction-mismatch", ALL, 1)] if indexes else []
    assert (told(same_without(replicas).findings), len(indexes)) == (expected, 3 * len(expected))


@pytest.mark.parametrize(("offset", "found"), [(-1, True), (-(1 << 40), True), (0, False)])
def test_a_commit_of_no_offset_is_found(write_cluster: WriteCluster, log: SampleLog, offset: int, found: bool) -> None:
    """No reader can begin there; near miss: the first offset."""
    commits = SamplePartition(commits_of(committed(offset)))
    sample = {TopicPartition("t", 0): SamplePartition(log), TopicPartition("__consumer_offsets", 0): commits}
    findings = same_without(write_cluster(sample, sample)).findings
    assert told(findings) == ([("group-offset-beyond-log", ("1",), 0)] if found else [])
    assert all(f"offset {offset}" in finding.sentence for finding in findings)


@pytest.mark.parametrize(
    ("offset", "isolation", "found"),
    [(0, "read_committed", True), (2, "read_committed", False), (0, "read_uncommitted", False), (0, "", False)],
)
def test_a_reader_of_committed_records_was_given_an_aborted_one(
    write_cluster: WriteCluster, tmp_path: Path, offset: int, isolation: str, found: bool
) -> None:
    """Near misses: the producer's next transaction, which was committed; a reader of everything; one of which the
    history does not say what it reads."""
    log = SampleLog().append([b"v0"], producer_id=7, transactional=True).end(ControlType.ABORT, 7)
    log.append([b"v2"], producer_id=7, transactional=True).end(ControlType.COMMIT, 7)
    events = [
        *(Event(SEND, "t", 0, value, client="w") for value in (b"v0", b"v2")),
        Event(DELIVER, "t", 0, b"v%d" % offset, offset, client="r", isolation=isolation),
    ]
    path = write_history(tmp_path / "history.jsonl", events)
    replicas = write_cluster(log, log, log)
    findings = audit(replicas, history=path).findings
    assert told(findings) == ([("aborted-delivered", ("1",), 0)] if found else [])
    assert findings == audit(replicas, history=History(events)).findings


def test_an_isolation_that_nobody_has_is_refused() -> None:
    """Read as something else it could hide what was given."""
    line = encode_event(Event(DELIVER, "t", 0, b"v", 0, isolation="read_committed"))
    with pytest.raises(CorruptHistory, match="isolation is read_committed or read_uncommitted"):
        decode_event(line.replace("read_committed", "serializable"), 1)
