"""`spark.read.format("kafka-log")`: log directories of odradek and of Kafka as a Spark data source.

    spark.read.format("kafka-log").load("/copies/cluster")                       every broker's directory below
    spark.read.format("kafka-log").option("replicas", "1=/copies/b1,2=/copies/b2").option("view", "batches").load()

| option | meaning |
|---|---|
| `path` | a broker's log directory, or a directory with one such directory for each broker; a URI, wildcards, |
| | or several of them |
| `replicas` | `name=directory`, separated by commas, instead of `path` |
| `view` | `records` (default), `batches` (headers and CRC, nothing is decompressed), `segments`, `epochs`, |
| | `checkpoints` |
| `topics` | names, separated by commas |
| `splitBytes` | about how much one task reads, 64 MiB by default; larger segments are cut |
| `onCorrupt` | `fail` (default), `record` (go on; the view `batches` has a row for it), `stop` |

The class has no `pushFilters`: with it every read fails unless spark.sql.python.filterPushdown.enabled is set, which is
off by default. Every worker must be able to read the directories under the same path or URI (`inputs.stores`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from odradek_audit.engine.parts import DEFAULT_SPLIT_BYTES, SMALLEST_SPLIT_BYTES, in_groups, part_tasks
from odradek_audit.engine.proof import PartTask
from odradek_audit.inputs.disk import Disk
from odradek_audit.inputs.facts import BatchFacts, PartitionInputs, ReplicaInputs
from odradek_audit.inputs.layout import Layout, find_brokers, parse_replicas, read_layout
from odradek_audit.inputs.scan import SegmentPart, scan_part
from odradek_audit.inputs.stores import located
from odradek_audit.spark.rows import SCHEMAS, CorruptLog, batch_rows, record_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "kafka-log"
ON_CORRUPT = ("fail", "record", "stop")


class LogPartition(InputPartition):
    """What one task reads: parts of segments, together about `splitBytes`."""

    def __init__(self, parts: Sequence[PartTask], rows: Sequence[tuple[Any, ...]] = ()) -> None:
        super().__init__(None)
        self.parts = list(parts)
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
        self.view = _one_of(lowered, "view", tuple(SCHEMAS))
        self.on_corrupt = _one_of(lowered, "oncorrupt", ON_CORRUPT)
        self.split_bytes = _split_bytes(lowered.get("splitbytes", str(DEFAULT_SPLIT_BYTES)))
        self.topics = [name.strip() for name in lowered["topics"].split(",")] if lowered.get("topics") else None
        self.disk, self.replicas = _replicas(lowered)

    def partitions(self) -> Sequence[InputPartition]:
        layout = read_layout(self.disk, self.replicas, self.topics)
        refused = [f"{each.directory}: {each.refused}" for _, each in _replicas_of(layout) if each.refused]
        if layout.unreadable or refused:
            raise OSError("; ".join([*layout.unreadable.values(), *refused]))
        if self.view not in ("records", "batches"):
            return [LogPartition([], list(_side_rows(self.view, layout)))]
        return plan(self.disk, layout, self.split_bytes) or [LogPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches, or tuples for the small views. Raises `CorruptLog` and `OSError` with
        onCorrupt=fail."""
        assert isinstance(partition, LogPartition), partition
        yield from partition.rows
        disk = self.disk
        for entry in partition.parts:
            facts = _guarded(scan_part(disk, entry.part), entry.part, self.on_corrupt)
            if self.view == "batches":
                yield from batch_rows(entry.replica, entry.topic, entry.partition, facts)
            else:
                path = entry.part.path
                yield from record_rows(disk, path, entry.replica, entry.topic, entry.partition, facts, self.on_corrupt)


def plan(disk: Disk, layout: Layout, split_bytes: int) -> list[LogPartition]:
    """Tasks that read about `split_bytes` each: big segments are cut, small ones put together."""
    return [LogPartition(group) for group in in_groups(part_tasks(disk, layout.partitions, split_bytes), split_bytes)]


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


def _side_rows(view: str, layout: Layout) -> Iterator[tuple[Any, ...]]:
    for partition, inputs in _replicas_of(layout):
        place = (inputs.replica, partition.topic, partition.partition)
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


def _replicas_of(layout: Layout) -> Iterator[tuple[PartitionInputs, ReplicaInputs]]:
    for partition in layout.partitions:
        for name in sorted(partition.replicas):
            yield partition, partition.replicas[name]


def _one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = options.get(name, allowed[0])
    if value not in allowed:
        raise ValueError(f"option {name}={value}: must be one of {', '.join(allowed)}")
    return value


def _split_bytes(text: str) -> int:
    if not text.isdecimal() or int(text) < SMALLEST_SPLIT_BYTES:
        raise ValueError(f"option splitBytes={text}: must be a number of at least {SMALLEST_SPLIT_BYTES} bytes")
    return int(text)


def _replicas(options: Mapping[str, str]) -> tuple[Disk, dict[str, str]]:
    if options.get("replicas"):
        return located(parse_replicas(options["replicas"].split(",")))
    given = json.loads(options["paths"]) if options.get("paths") else [options["path"]] if options.get("path") else []
    if not given:
        raise ValueError("give the directories: load(path), or option replicas=1=/copies/b1,2=/copies/b2")
    disk, places = located({str(number): place for number, place in enumerate(given, start=1)})
    return disk, find_brokers(disk, list(places.values())) or places
