"""Which offsets of each replica a reader of `kafka-log` wants, and which segments and bytes hold them.

Segments outside of a range are not opened, and inside of one reading begins and ends at entries of the offset index,
each checked to be the start of a batch on the right side: an offset index that lies costs time and changes no result.
Times are turned into offsets as Kafka does it: the first record whose timestamp is not below. The time index says where
to begin to look, and is believed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from odradek_proto.formats import (
    PRODUCER_SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    decode_producer_snapshot,
    decode_transaction_index,
)
from odradek_proto.records import decode_records, read_header
from odradek_proto.topics import TopicPartition

from odradek_audit.checks.indexes import OFFSET_ENTRY, TIME_ENTRY
from odradek_audit.engine.proof import PartTask
from odradek_audit.inputs.disk import FileSystem, join
from odradek_audit.inputs.facts import BatchFacts, ReplicaInputs, SegmentFile
from odradek_audit.inputs.records import CONTROL_BIT, TRANSACTIONAL_BIT
from odradek_audit.inputs.scan import SegmentPart, scan_part, starts_batch

EARLIEST, LATEST = "earliest", "latest"
EVERY_OFFSET = 1 << 62
BEGIN, END = -2, -1  # in JSON, as Spark's source and Kafka write them
Offsets = Mapping[TopicPartition, int]


class OffsetRange(NamedTuple):
    """Offsets [start, end)."""

    start: int = 0
    end: int = EVERY_OFFSET

    def touches(self, first: int, last: int) -> bool:
        return first < self.end and last >= self.start

    def has(self, offset: int) -> bool:
        return self.start <= offset < self.end


class RangeOptions(NamedTuple):
    """What the options ask for. An offset that is not named is where the log begins or ends."""

    starting: Offsets
    ending: Offsets
    from_ms: int | None
    to_ms: int | None

    def span(self, disk: FileSystem, place: TopicPartition, inputs: ReplicaInputs) -> OffsetRange:
        """The offsets of one replica. Raises `OSError`."""
        start, end = self.starting.get(place, BEGIN), self.ending.get(place, END)
        if self.from_ms is not None:
            start = _at_time(disk, inputs, self.from_ms)
        if self.to_ms is not None:
            end = _at_time(disk, inputs, self.to_ms)
        return OffsetRange(*({BEGIN: 0, END: EVERY_OFFSET}.get(offset, offset) for offset in (start, end)))


def wanted_of(options: Mapping[str, str]) -> RangeOptions:
    """Read the options, by their names in lower case. Raises `ValueError` that names the option."""
    starting, ending = (
        _offsets(name, options.get(name.lower(), default), default)
        for name, default in (("startingOffsets", EARLIEST), ("endingOffsets", LATEST))
    )
    from_ms, to_ms = (_time(name, options.get(name.lower())) for name in ("startingTimestamp", "endingTimestamp"))
    for by_time, by_offset in ((from_ms, "startingOffsets"), (to_ms, "endingOffsets")):
        if by_time is not None and by_offset.lower() in options:
            raise ValueError(f"option {by_offset}: give it or a timestamp, not both")
    return RangeOptions(starting, ending, from_ms, to_ms)


def _offsets(name: str, text: str, default: str) -> Offsets:
    if text == default:
        return {}
    wrong = ValueError(f'option {name}={text}: must be {default}, or JSON such as {{"orders": {{"0": 23, "1": -2}}}}')
    try:
        raw = json.loads(text)
        found = {TopicPartition(topic, int(number)): at for topic, of in raw.items() for number, at in of.items()}
    except (ValueError, AttributeError) as error:
        raise wrong from error
    if not all(type(offset) is int and offset >= BEGIN for offset in found.values()):
        raise wrong
    return found


def _time(name: str, text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        raise ValueError(f"option {name}={text}: must be a number of milliseconds since 1970")
    return None if text is None else int(text)


# --- Segments and bytes -----------------------------------------------------------------------------------------------


def within(inputs: ReplicaInputs, span: OffsetRange) -> ReplicaInputs:
    """The replica with those segments alone that may hold offsets of a span."""
    ends = [following.base_offset - 1 for following in inputs.segments[1:]] + [EVERY_OFFSET]
    kept = [each for each, last in zip(inputs.segments, ends, strict=True) if span.touches(each.base_offset, last)]
    return replace(inputs, segments=tuple(kept))


def narrowed(disk: FileSystem, task: PartTask, span: OffsetRange) -> PartTask | None:
    """The part of a segment between the index entries around a span; None where they say that nothing of it is there.

    Raises `OSError`.
    """
    part = task.part
    if (span.start <= part.base_offset and span.end == EVERY_OFFSET) or not task.has_index:
        return task
    path = part.path.removesuffix(".log") + ".index"
    entries = [(part.base_offset + at, position) for at, position in _entries(disk, path, OFFSET_ENTRY)]
    before = [position for offset, position in entries if offset <= span.start]
    behind = [position for (offset, _), (_, position) in pairwise(entries) if offset >= span.end]
    start = next((at for at in reversed(before) if _base_offset(disk, part, at, span.start + 1) <= span.start), 0)
    end = next((at for at in behind if _base_offset(disk, part, at, -1) >= span.end), part.file_size)
    start, end = max(part.start, start), min(part.end, end)
    return task._replace(part=replace(part, start=start, end=end)) if start < end else None


def _entries(disk: FileSystem, path: str, layout: struct.Struct) -> list[tuple[int, int]]:
    """Entries of an index as they stand there; zeros at the end are room. Those that fall are left out."""
    data = disk.read(path, 0, disk.size(path))
    found: list[tuple[int, int]] = []
    for key, value in layout.iter_unpack(data[: len(data) - len(data) % layout.size]):
        if (key, value) != (0, 0) and (not found or (key > found[-1][0] and value > found[-1][1])):
            found.append((key, value))
    return found


def _base_offset(disk: FileSystem, part: SegmentPart, position: int, otherwise: int) -> int:
    """Of the batch that begins at a position of a segment's file; `otherwise` where none does."""
    if not starts_batch(disk, part, position):
        return otherwise
    return int.from_bytes(disk.read(part.path, position, 8), "big", signed=True)


def _at_time(disk: FileSystem, inputs: ReplicaInputs, time_ms: int) -> int:
    """The first offset whose record is not older; the log's end if there is none. Raises `OSError`."""
    for segment, following in zip(inputs.segments, [*inputs.segments[1:], None], strict=True):
        older = _older_to(disk, inputs, segment, time_ms)
        if following is not None and older + 1 >= following.base_offset:
            continue
        whole = SegmentPart.whole(inputs, segment)
        task = PartTask("", 0, inputs.replica, inputs.directory, whole, 0, segment.has_index, False)
        part = narrowed(disk, task, OffsetRange(older + 1))
        for facts in scan_part(disk, part.part) if part is not None else ():
            if not facts.problem and facts.last_offset > older and facts.max_timestamp >= time_ms:
                return _first_at(disk, whole.path, facts, time_ms)
    return EVERY_OFFSET


def _older_to(disk: FileSystem, inputs: ReplicaInputs, segment: SegmentFile, time_ms: int) -> int:
    """The last offset of a segment up to which its time index calls everything older."""
    if not segment.has_time_index:
        return segment.base_offset - 1
    entries = _entries(disk, join(inputs.directory, f"{segment.stem}.timeindex"), TIME_ENTRY)
    return max((segment.base_offset + at for time, at in entries if time < time_ms), default=segment.base_offset - 1)


def _first_at(disk: FileSystem, path: str, facts: BatchFacts, time_ms: int) -> int:
    data = disk.read(path, facts.position, facts.size)
    records = decode_records(data, read_header(data))
    return next((record.offset for record in records if record.timestamp >= time_ms), facts.last_offset + 1)


def index_rows(disk: FileSystem, inputs: ReplicaInputs, place: tuple[str, str, int]) -> Iterator[tuple[object, ...]]:
    """Entries of both indexes of every segment as they stand there, whether they are right or not."""
    for segment in inputs.segments:
        for kind, there, suffix, layout in (
            ("offset", segment.has_index, ".index", OFFSET_ENTRY),
            ("time", segment.has_time_index, ".timeindex", TIME_ENTRY),
        ):
            path = join(inputs.directory, segment.stem + suffix)
            data = disk.read(path, 0, disk.size(path)).rstrip(b"\0") if there else b""
            data += bytes(-len(data) % layout.size)
            for number, (key, value) in enumerate(layout.iter_unpack(data)):
                at = segment.base_offset + (key if kind == "offset" else value)
                position, time = (value, None) if kind == "offset" else (None, key)
                yield (*place, segment.stem + suffix, kind, number, at, position, time)


# --- What is committed ------------------------------------------------------------------------------------------------


class CommittedView(NamedTuple):
    """What a reader of committed records is not given: aborted transactions, and what lies at an open one or above."""

    aborted: tuple[tuple[int, int, int], ...]
    stable: int

    def shows(self, facts: BatchFacts) -> bool:
        if facts.attributes & CONTROL_BIT or facts.base_offset >= self.stable:
            return False
        return not facts.attributes & TRANSACTIONAL_BIT or not any(
            producer == facts.producer_id and first <= facts.base_offset <= last
            for producer, first, last in self.aborted
        )


def committed_of(disk: FileSystem, inputs: ReplicaInputs) -> CommittedView:
    """As the broker itself knows it when it has stopped: its transaction indexes and its newest producer snapshot.

    Raises `ValueError` where it did not stop cleanly, `CorruptFile` and `OSError`.
    """
    if not inputs.clean_shutdown:
        raise ValueError(
            f"option isolationLevel=read_committed: {inputs.directory} is of a broker that did not stop cleanly, so "
            "nobody has written down which transactions are open; leave the option out"
        )

    def read(offset: int, suffix: str) -> bytes:
        path = join(inputs.directory, f"{offset:020d}{suffix}")
        return disk.read(path, 0, disk.size(path))

    def aborted() -> Iterator[tuple[int, int, int]]:
        for base in inputs.transaction_indexes:
            for each in decode_transaction_index(read(base, TRANSACTION_INDEX_SUFFIX)):
                yield each.producer_id, each.first_offset, each.last_offset

    known = decode_producer_snapshot(read(max(inputs.snapshots), PRODUCER_SNAPSHOT_SUFFIX)) if inputs.snapshots else []
    begun = [each.current_txn_first_offset for each in known if each.current_txn_first_offset >= 0]
    return CommittedView(tuple(aborted()), min(begun, default=EVERY_OFFSET))
