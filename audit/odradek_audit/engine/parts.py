"""Cuts segments into parts that different workers can read: at the entries of the offset index, or along the headers.

A boundary is only taken where a whole batch with a right CRC begins, so that an index that lies changes nothing of
what is read: the parts of a segment give together exactly the batches that one reader would give.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from odradek_proto.records import HEADER_SIZE, CorruptBatch, read_header

from odradek_audit.checks.indexes import OFFSET_ENTRY
from odradek_audit.checks.transactions import is_judged
from odradek_audit.engine.proof import COMPARED, EVERYTHING, NOTHING, READ, SAMPLE, PartTask
from odradek_audit.inputs.disk import FileSystem, join
from odradek_audit.inputs.facts import PartitionInputs, ReplicaInputs, SegmentFile
from odradek_audit.inputs.scan import SegmentPart, starts_batch

DEFAULT_SPLIT_BYTES = 64 * 1024 * 1024
SMALLEST_SPLIT_BYTES = 4096
SMALLEST_TASK_BYTES = 4 * 1024 * 1024
"""A task costs about as much as reading this twice: smaller parts are put together."""
TRIES = 8
"""Index entries that are tried for one boundary before the headers are walked instead."""


def split_segment(
    disk: FileSystem, inputs: ReplicaInputs, segment: SegmentFile, split_bytes: int = DEFAULT_SPLIT_BYTES
) -> list[SegmentPart]:
    """Parts of about `split_bytes` each that cover a segment's file without overlap. Raises `OSError`."""
    assert split_bytes >= SMALLEST_SPLIT_BYTES, split_bytes
    whole = SegmentPart.whole(inputs, segment)
    if segment.size <= split_bytes + split_bytes // 2:
        return [whole]
    positions = _index_positions(disk, inputs, segment)
    boundaries = [0]
    while segment.size - boundaries[-1] > split_bytes + split_bytes // 2:
        boundary = _boundary(disk, whole, positions, boundaries[-1], boundaries[-1] + split_bytes)
        if boundary is None:
            break
        boundaries.append(boundary)
    ends = [*boundaries[1:], segment.size]
    return [replace(whole, start=start, end=end) for start, end in zip(boundaries, ends, strict=True)]


def _index_positions(disk: FileSystem, inputs: ReplicaInputs, segment: SegmentFile) -> list[int]:
    if not segment.has_index:
        return []
    path = join(inputs.directory, f"{segment.stem}.index")
    try:
        data = disk.read(path, 0, disk.size(path))
    except OSError:
        return []
    usable = len(data) - len(data) % OFFSET_ENTRY.size
    return sorted({position for _, position in OFFSET_ENTRY.iter_unpack(data[:usable]) if 0 < position < segment.size})


def _boundary(disk: FileSystem, whole: SegmentPart, positions: list[int], previous: int, target: int) -> int | None:
    """The first place at or behind `target` where a batch begins, as far as index or headers can tell."""
    place = bisect_left(positions, target)
    for candidate in positions[place : place + TRIES]:
        if starts_batch(disk, whole, candidate):
            return candidate
    position = previous
    while position < target:
        try:
            position += read_header(disk.read(whole.path, position, HEADER_SIZE)).size
        except CorruptBatch:
            return None
    return position if starts_batch(disk, whole, position) else None


def part_tasks(
    disk: FileSystem,
    partitions: Iterable[PartitionInputs],
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    *,
    deep: bool = False,
) -> Iterator[PartTask]:
    """Every part of every segment of all replicas of some partitions. Segments that cannot be read are one part, whose
    reader will say so. Records are decoded of one replica, the one with the most bytes: of all batches (`deep`) or
    some."""
    for partition in partitions:
        sizes = {name: sum(file.size for file in each.segments) for name, each in partition.replicas.items()}
        decoded = min(sizes, key=lambda name: (-sizes[name], name), default="")
        for name in sorted(partition.replicas):
            inputs = partition.replicas[name]
            decode = NOTHING if name != decoded else EVERYTHING if deep else SAMPLE
            for segment, following in zip_longest(inputs.segments, inputs.segments[1:]):
                stop = following.base_offset if following is not None else 1 << 62
                inside = tuple(offset for offset in inputs.snapshots if segment.base_offset < offset < stop)
                try:
                    parts = split_segment(disk, inputs, segment, split_bytes)
                except OSError:
                    parts = [SegmentPart.whole(inputs, segment)]
                for part in parts:
                    yield PartTask(
                        partition.topic,
                        partition.partition,
                        name,
                        inputs.directory,
                        part,
                        inputs.log_start,
                        segment.has_index,
                        segment.has_time_index,
                        decode,
                        inside,
                        COMPARED if is_judged(inputs, segment) else READ,
                        segment.base_offset in inputs.transaction_indexes,
                    )


def in_groups(tasks: Iterable[PartTask], split_bytes: int = DEFAULT_SPLIT_BYTES) -> Iterator[list[PartTask]]:
    """Parts put together until they are worth a task of their own."""
    enough = max(split_bytes, SMALLEST_TASK_BYTES)
    group: list[PartTask] = []
    size = 0
    for task in tasks:
        group.append(task)
        size += task.size
        if size >= enough:
            yield group
            group, size = [], 0
    if group:
        yield group
