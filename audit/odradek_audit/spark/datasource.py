"""`spark.read.format("kafka-log")`: log directories of odradek and of Kafka as a Spark data source.

    spark.read.format("kafka-log").load("/copies/cluster")                       every broker's directory below
    spark.read.format("kafka-log").option("replicas", "1=/copies/b1,2=/copies/b2").option("view", "batches").load()

| option | meaning |
|---|---|
| `path` | a broker's log directory, or a directory with one such directory for each broker; a URI, wildcards, |
| | or several of them |
| `replicas` | `name=directory`, separated by commas, instead of `path` |
| `view` | `records` (default), `batches` (headers and CRC, nothing is decompressed), `segments`, `indexes`, |
| | `epochs`, `checkpoints` |
| `topics` | names, separated by commas |
| `startingOffsets`, `endingOffsets` | of records, batches, segments and indexes: `earliest` and `latest`, or JSON |
| `startingTimestamp`, `endingTimestamp` | instead: milliseconds, from the first record that is not older (to) |
| `isolationLevel` | of records: `read_uncommitted` (default), or `read_committed` |
| `splitBytes` | about how much one task reads, 64 MiB by default; larger segments are cut |
| `onCorrupt` | `fail` (default), `record` (go on; the view `batches` has a row for it), `stop` |

The class has no `pushFilters`: with it every read fails unless spark.sql.python.filterPushdown.enabled is set, which
is off by default; the ranges of the options open only their segments (`ranges`). Other options are refused. Every
worker must be able to read the directories under the same path or URI (`inputs.stores`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek_proto.topics import TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from odradek_audit.engine.parts import DEFAULT_SPLIT_BYTES, SMALLEST_SPLIT_BYTES, in_groups, part_tasks
from odradek_audit.engine.proof import PartTask
from odradek_audit.inputs.disk import FileSystem
from odradek_audit.inputs.facts import BatchFacts, PartitionInputs, ReplicaInputs
from odradek_audit.inputs.layout import find_brokers, parse_replicas, read_layout
from odradek_audit.inputs.scan import SegmentPart, scan_part
from odradek_audit.inputs.stores import located
from odradek_audit.spark.ranges import CommittedView, OffsetRange, committed_of, index_rows, narrowed, wanted_of, within
from odradek_audit.spark.rows import SCHEMAS, CorruptLog, Place, batch_rows, record_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "kafka-log"
ON_CORRUPT = ("fail", "record", "stop")
ISOLATION = ("read_uncommitted", "read_committed")
OPTIONS = (
    "path",
    "replicas",
    "view",
    "topics",
    "splitBytes",
    "onCorrupt",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "isolationLevel",
)
Row = tuple[Any, ...]


class ReplicaRequest(NamedTuple):
    """What is wanted of one replica's log."""

    span: OffsetRange
    committed: CommittedView | None
    """None: everything is."""

    def shows(self, facts: BatchFacts) -> bool:
        if facts.problem and facts.base_offset < 0:
            return True
        inside = self.span.touches(facts.base_offset, facts.last_offset)
        return inside and (self.committed is None or bool(facts.problem) or self.committed.shows(facts))


class LogPartition(InputPartition):
    """What one task reads: parts of segments, together about `splitBytes`, and what of each replica is wanted."""

    def __init__(
        self, parts: Sequence[PartTask], asked: Mapping[Place, ReplicaRequest], rows: Sequence[Row] = ()
    ) -> None:
        super().__init__(None)
        self.parts = list(parts)
        self.asked = {place: asked[place] for place in {_place_of(part) for part in parts}}
        self.rows = list(rows)


class KafkaLogDataSource(DataSource):
    """The data source; see the module's text for its options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMAS[_one_of(self.options, "view", tuple(SCHEMAS))]

    def reader(self, schema: StructType) -> KafkaLogReader:
        return KafkaLogReader(dict(self.options))


class KafkaLogReader(DataSourceReader):
    """Plans on the driver, reads on the workers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        lowered = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(lowered)
        self.view = _one_of(lowered, "view", tuple(SCHEMAS))
        self.on_corrupt = _one_of(lowered, "oncorrupt", ON_CORRUPT)
        self.split_bytes = _split_bytes(lowered.get("splitbytes", str(DEFAULT_SPLIT_BYTES)))
        self.topics = [name.strip() for name in lowered["topics"].split(",")] if lowered.get("topics") else None
        self.isolation = _one_of(lowered, "isolationlevel", ISOLATION)
        self.wanted = wanted_of(lowered)
        self.disk, self.replicas = _replicas(lowered)

    def partitions(self) -> Sequence[InputPartition]:
        layout = read_layout(self.disk, self.replicas, self.topics)
        refused = [f"{each.directory}: {each.refused}" for _, each in _replicas_of(layout.partitions) if each.refused]
        if layout.unreadable or refused:
            raise OSError("; ".join([*layout.unreadable.values(), *refused]))
        asked, partitions = self._asked(layout.partitions)
        if self.view in ("epochs", "checkpoints", "segments"):
            return [LogPartition([], {}, list(_side_rows(self.view, partitions)))]
        if self.view == "indexes":
            return [LogPartition([], {}, list(index_rows(self.disk, inputs, _place(partition, inputs))))
                    for partition, inputs in _replicas_of(partitions)] or [LogPartition([], {})]  # fmt: skip
        tasks = part_tasks(self.disk, partitions, self.split_bytes)
        needed = (narrowed(self.disk, task, asked[_place_of(task)].span) for task in tasks)
        groups = in_groups((task for task in needed if task is not None), self.split_bytes)
        return [LogPartition(group, asked) for group in groups] or [LogPartition([], {})]

    def _asked(
        self, partitions: Iterable[PartitionInputs]
    ) -> tuple[dict[Place, ReplicaRequest], list[PartitionInputs]]:
        """What is wanted of each replica, and the partitions with the segments that may hold it."""
        found: dict[Place, ReplicaRequest] = {}
        kept = []
        for partition in partitions:
            replicas = {}
            for name, inputs in partition.replicas.items():
                span = self.wanted.span(self.disk, TopicPartition(partition.topic, partition.partition), inputs)
                committed = self.isolation == "read_committed" and self.view == "records"
                found[_place(partition, inputs)] = ReplicaRequest(
                    span, committed_of(self.disk, inputs) if committed else None
                )
                replicas[name] = within(inputs, span)
            kept.append(replace(partition, replicas=replicas))
        return found, kept

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches, or tuples for the small views. Raises `CorruptLog` and `OSError` with
        onCorrupt=fail."""
        assert isinstance(partition, LogPartition), partition
        yield from partition.rows
        disk = self.disk
        for entry in partition.parts:
            place = _place_of(entry)
            asked = partition.asked[place]
            facts = filter(asked.shows, _guarded(scan_part(disk, entry.part), entry.part, self.on_corrupt))
            if self.view == "batches":
                yield from batch_rows(place, facts)
            else:
                yield from record_rows(disk, entry.part.path, place, facts, self.on_corrupt, asked.span.has)


def _place_of(task: PartTask) -> Place:
    return task.replica, task.topic, task.partition


def _place(partition: PartitionInputs, inputs: ReplicaInputs) -> Place:
    return inputs.replica, partition.topic, partition.partition


def _guarded(facts: Iterator[BatchFacts], part: SegmentPart, on_corrupt: str) -> Iterator[BatchFacts]:
    """Stop or fail at the first bad batch if so asked. A file that vanished is a row like other unreadable bytes."""
    try:
        for fact in facts:
            if fact.problem and on_corrupt == "fail":
                raise CorruptLog(f"{part.path}, byte {fact.position}: {fact.problem} {fact.detail}".rstrip())
            if fact.problem and on_corrupt == "stop":
                return
            yield fact
    except OSError as error:
        if on_corrupt == "fail":
            raise
        yield BatchFacts(part.base_offset, part.start, part.end - part.start, problem="unreadable", detail=str(error))


def _side_rows(view: str, partitions: Iterable[PartitionInputs]) -> Iterator[Row]:
    for partition, inputs in _replicas_of(partitions):
        place = _place(partition, inputs)
        if view == "segments":
            for segment in inputs.segments:
                file = f"{segment.stem}.log"
                yield (*place, segment.base_offset, file, segment.size, segment.has_index, segment.has_time_index)
        elif view == "epochs":
            for entry in inputs.epochs or ():
                yield (*place, entry.epoch, entry.start_offset)
        else:
            numbers = (inputs.log_start, inputs.high_watermark, inputs.recovery_point, inputs.cleaned_to)
            yield (*place, *numbers, inputs.clean_shutdown, inputs.topic_id, inputs.cluster_id)


def _replicas_of(partitions: Iterable[PartitionInputs]) -> Iterator[tuple[PartitionInputs, ReplicaInputs]]:
    for partition in partitions:
        for name in sorted(partition.replicas):
            yield partition, partition.replicas[name]


def _refuse_unknown(lowered: Mapping[str, str]) -> None:
    known = {name.lower() for name in (*OPTIONS, "paths")}  # Spark writes several paths into one option
    if unknown := sorted(name for name in lowered if name not in known):
        raise ValueError(f"option {', '.join(unknown)}: {FORMAT} knows {', '.join(OPTIONS)}")


def _one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = options.get(name, allowed[0])
    if value not in allowed:
        raise ValueError(f"option {name}={value}: must be one of {', '.join(allowed)}")
    return value


def _split_bytes(text: str) -> int:
    if not text.isdecimal() or int(text) < SMALLEST_SPLIT_BYTES:
        raise ValueError(f"option splitBytes={text}: must be a number of at least {SMALLEST_SPLIT_BYTES} bytes")
    return int(text)


def _replicas(options: Mapping[str, str]) -> tuple[FileSystem, dict[str, str]]:
    if options.get("replicas"):
        return located(parse_replicas(options["replicas"].split(",")))
    given = json.loads(options["paths"]) if options.get("paths") else [options["path"]] if options.get("path") else []
    if not given:
        raise ValueError("give the directories: load(path), or option replicas=1=/copies/b1,2=/copies/b2")
    disk, places = located({str(number): place for number, place in enumerate(given, start=1)})
    return disk, find_brokers(disk, list(places.values())) or places
