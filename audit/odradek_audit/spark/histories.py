"""A history of any size on Spark: workers read its lines from where it lies and bring those of a partition together.

The driver learns what it needs to put a report together: how many events there are, of which partitions, the longest
silences, and, of partitions of which no replica was found, what was acknowledged. Sends whose partition was not chosen
yet go to every partition of their topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek_audit.engine.partition import HistoryOfPartition
from odradek_audit.engine.spooled import Key
from odradek_audit.inputs.disk import FileSystem, LocalDisk
from odradek_audit.inputs.history import (
    NO_PARTITION,
    AcknowledgementGap,
    CorruptHistory,
    Event,
    History,
    PartitionHistory,
    decoded,
    is_torn,
)
from odradek_audit.inputs.line_parts import LinePart, line_parts, lines_of
from odradek_audit.inputs.stores import located

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark import RDD, SparkContext

CORRUPT: Key = ("", -2)
"""Where a line that is no event goes."""


class Outline(NamedTuple):
    """What the driver is told of one partition's events. `whole` of partitions that nobody has."""

    key: Key
    silences: list[AcknowledgementGap]
    whole: PartitionHistory | None
    corrupt: tuple[str, int] | None = None


class DistributedHistory(NamedTuple):
    """The events by partition, on the workers, and what the driver knows of them."""

    by_partition: RDD[tuple[Key, HistoryOfPartition]]
    outline: History
    named: frozenset[str]
    """Topics of which it has events."""


def distribute(context: SparkContext, place: Path | str, partitions: Mapping[Key, object]) -> DistributedHistory:
    """Read a history for the partitions that were found. Raises `CorruptHistory` and `OSError`."""
    disk, paths = located({"history": place})
    path = os.path.realpath(paths["history"]) if isinstance(disk, LocalDisk) else paths["history"]
    parts = line_parts(disk, path)
    counts = context.parallelize(parts, max(len(parts), 1)).map(lambda part: _count(disk, part)).collect()
    firsts, line = [], 1
    for lines, _ in counts:
        firsts.append(line)
        line += lines
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    known = frozenset(partitions)
    tasks = list(zip(parts, firsts, strict=True))
    wide = max(2 * context.defaultParallelism, len(parts) // 4, 1)
    events = context.parallelize(tasks, max(len(tasks), 1)).flatMap(lambda task: _keyed(disk, task, numbers))
    grouped = events.groupByKey(wide).map(lambda group: _gathered(group, known)).persist()
    outlines = grouped.map(lambda each: each[1]).collect()
    corrupt = [each.corrupt for each in outlines if each.corrupt is not None]
    if corrupt:
        reason, at = min(corrupt, key=lambda each: each[1])
        raise CorruptHistory(reason, at)
    outline = History()
    outline.count = sum(events for _, events in counts)
    outline.told_silences = [silence for each in outlines for silence in each.silences]
    outline.partitions = {each.key: each.whole for each in outlines if each.whole is not None}
    named = frozenset(topic for (topic, _), *_ in outlines)
    return DistributedHistory(grouped.map(lambda each: each[0]), outline, named)


def _count(disk: FileSystem, part: LinePart) -> tuple[int, int]:
    """Lines of a part, and how many of them are events."""
    lines = events = 0
    for line in lines_of(disk, part):
        lines += 1
        events += bool(line.strip()) and not is_torn(line.decode("utf-8", "surrogateescape"))
    return lines, events


def _keyed(
    disk: FileSystem, task: tuple[LinePart, int], numbers: Mapping[str, list[int]]
) -> Iterator[tuple[Key, Event | tuple[str, int]]]:
    part, first = task
    texts = (line.decode("utf-8", "surrogateescape") for line in lines_of(disk, part))
    try:
        for event in decoded(texts, first):
            if event.partition != NO_PARTITION:
                yield (event.topic, event.partition), event
            for number in numbers.get(event.topic, ()) if event.partition == NO_PARTITION else ():
                yield (event.topic, number), event
    except CorruptHistory as error:
        yield CORRUPT, (error.reason, error.line)


def _gathered(
    group: tuple[Key, Iterable[Event | tuple[str, int]]], known: frozenset[Key]
) -> tuple[tuple[Key, HistoryOfPartition], Outline]:
    """A partition's events in their order, and what the driver is told of them."""
    key, each = group
    if key == CORRUPT:
        reason, line = min(((error[0], error[1]) for error in each), key=lambda error: error[1])
        nothing = HistoryOfPartition(PartitionHistory(*key), {})
        return (key, nothing), Outline(key, [], None, (str(reason), int(line)))
    events = sorted((event for event in each if isinstance(event, Event)), key=lambda event: event.line)
    history = History(events)
    found = HistoryOfPartition(history.of(*key), history.sent_to(*key))
    return (key, found), Outline(key, history.silences, None if key in known else found.events)
