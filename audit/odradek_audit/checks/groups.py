"""`group-offset-beyond-log`: has a consumer group committed an offset that its topic's log does not reach, or one below
0 (C7)?

The commits are records of Kafka's `__consumer_offsets`: key `version int16 (0 or 1) | group | topic | partition int32`,
value `version int16 | offset int64 | ...`, strings with a length of two bytes; the newest of a key counts, and one
without a value takes it back. Commits inside of transactions are passed over, for some of them were aborted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from odradek_proto.records import Record

from odradek_audit.catalogue import BATCH_UNREADABLE, GROUP_OFFSET_BEYOND
from odradek_audit.findings import Finding, FindingSink
from odradek_audit.inputs.facts import BatchTable, SegmentReader
from odradek_audit.inputs.records import TRANSACTIONAL_BIT, iter_decoded
from odradek_audit.results import GroupOffset, PartitionResult
from odradek_audit.words import plural

CONSUMER_OFFSETS = "__consumer_offsets"
COMMIT_BYTES = 10
"""A commit has its version and its offset at least."""


def committed_offsets(table: BatchTable, replica: str, reader: SegmentReader, sink: FindingSink) -> list[GroupOffset]:
    """What groups have committed last, as one replica of a partition of `__consumer_offsets` has it. A commit without
    an offset is a finding: a coordinator cannot load the partition. Raises `OSError`."""
    newest: dict[tuple[str, str, int], GroupOffset] = {}
    for batch in iter_decoded(table, replica, reader):
        if table.attributes[batch.row] & TRANSACTIONAL_BIT:
            continue
        told = False
        for record in batch.records:
            key = _key(record.key or b"")
            if key is None:
                continue
            if record.value is None:
                newest.pop(key, None)
            elif len(record.value) < COMMIT_BYTES:
                told = told or _report_unreadable(table, batch.row, replica, key, record, sink)
            else:
                newest[key] = GroupOffset(*key, int(struct.unpack_from(">q", record.value, 2)[0]))
    return list(newest.values())


def _key(data: bytes) -> tuple[str, str, int] | None:
    try:
        (version,) = struct.unpack_from(">h", data)
        if version not in (0, 1):
            return None  # a group's members
        group, at = _string(data, 2)
        topic, at = _string(data, at)
        return group, topic, int(struct.unpack_from(">i", data, at)[0])
    except (struct.error, UnicodeDecodeError):
        return None


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


def _report_unreadable(
    table: BatchTable, row: int, replica: str, key: tuple[str, str, int], record: Record, sink: FindingSink
) -> bool:
    group, topic, partition = key
    sink.report(
        BATCH_UNREADABLE,
        replica,
        f"replica {replica} holds at offset {record.offset} of epoch {table.epoch[row]} a commit of the group {group} "
        f"for {topic}-{partition} of {plural(len(record.value or b''), 'byte')}, which name no offset: no coordinator "
        "can load it",
        **(table.place(row) | {"offset": record.offset, "end_offset": record.offset + 1}),
    )
    return True


def check_groups(results: Iterable[PartitionResult]) -> list[Finding]:
    """Commits behind the longest log that was read. A partition that nobody has is told elsewhere."""
    every = list(results)
    ends = {
        (each.summary.topic, each.summary.partition): max(replica.log_end for replica in each.summary.replicas)
        for each in every
        if each.summary.replicas and not each.summary.unread
    }
    return [
        Finding(
            GROUP_OFFSET_BEYOND.name,
            GROUP_OFFSET_BEYOND.severity,
            topic=commit.topic,
            partition=commit.partition,
            replica=each.summary.reference_replica,
            sentence=f"{commit.topic}-{commit.partition}: the group {commit.group} has committed offset "
            f"{commit.offset} ({each.summary.topic}-{each.summary.partition}), and the longest log that was read "
            f"ends at {end}",
            offset=max(min(end, commit.offset), 0),
            end_offset=max(commit.offset, 0),
            evidence={"group": commit.group},
        )
        for each in every
        for commit in each.committed
        if (end := ends.get((commit.topic, commit.partition), commit.offset)) < commit.offset or commit.offset < 0
    ]
