"""The Spark engine: the same checks, with the reading spread over segments and parts of segments.

The workers read headers and CRCs (the view `digests` of `kafka-log`), Spark brings the digests of each partition
together in the order of its replicas' files, and `check_partition` runs on a worker for one partition after the
other. What comes back to the driver is findings and summaries. The history travels as a broadcast.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek_audit.checks.facts import BatchTable, PartitionInputs, PartitionSummary, ReplicaSummary
from odradek_audit.checks.partition import HistoryOfPartition, PartitionResult, check_partition
from odradek_audit.datasource import FORMAT, KafkaLogDataSource
from odradek_audit.disk import LocalDisk
from odradek_audit.findings import Finding, Note
from odradek_audit.history import History
from odradek_audit.layout import Layout, read_layout, reader_of
from odradek_audit.local import history_of
from odradek_audit.parts import DEFAULT_SPLIT_BYTES
from odradek_audit.report import PARQUET_FILE, Report, finish
from odradek_audit.report.files import remove
from odradek_audit.report.parquet import DDL, rows

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@dataclass(frozen=True)
class Task:
    """What a worker needs to check one partition, besides its batches."""

    inputs: PartitionInputs
    history: HistoryOfPartition | None
    settled: bool


def audit(
    spark: SparkSession,
    replicas: Mapping[str, Path],
    *,
    history: History | Path | None = None,
    topics: Iterable[str] | None = None,
    settled: bool = False,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
) -> Report:
    """Audit log directories that the driver and all workers can read under the same path.

    Arguments and result are those of `odradek_audit.local.audit`. Raises `CorruptHistory`, and `OSError` for a
    history that cannot be read.
    """
    started = time.monotonic()
    events = History.read(history) if isinstance(history, Path) else history
    wanted = None if topics is None else list(topics)
    layout = read_layout(LocalDisk(), {name: str(path) for name, path in replicas.items()}, wanted)
    tasks = {
        (partition.topic, partition.partition): Task(partition, history_of(events, partition), settled)
        for partition in layout.partitions
    }
    results = _run(spark, layout, tasks, wanted, split_bytes) if tasks else {}
    for key, task in tasks.items():
        if key not in results:  # no replica has a single byte: nothing to distribute
            results[key] = run_task(task, {})
    report = finish("spark", layout, results.values(), events, wanted, 0.0)
    report.seconds = time.monotonic() - started
    return report


def _run(
    spark: SparkSession,
    layout: Layout,
    tasks: Mapping[tuple[str, int], Task],
    topics: list[str] | None,
    split_bytes: int,
) -> dict[tuple[str, int], PartitionResult]:
    spark.dataSource.register(KafkaLogDataSource)
    paths = ",".join(f"{name}={directory.path}" for name, directory in sorted(layout.directories.items()))
    reader = spark.read.format(FORMAT).option("replicas", paths).option("view", "digests")
    reader = reader.option("splitBytes", str(split_bytes)).option("onCorrupt", "record")
    if topics is not None:
        reader = reader.option("topics", ",".join(topics))
    context = spark.sparkContext
    wide = max(1, min(len(tasks), 4 * context.defaultParallelism))
    digests = (
        reader.load()
        .repartition(wide, "topic", "partition")
        .sortWithinPartitions("topic", "partition", "replica", "segment", "position")
    )
    broadcast = context.broadcast(dict(tasks))

    def check(rows: Iterable[Row]) -> Iterable[tuple[str, int, str]]:
        for key, tables in group_tables(rows):
            yield (*key, result_to_json(run_task(broadcast.value[key], tables)))

    # The rows are few and large, so an RDD costs nothing here; mapInArrow would ask for pandas.
    found = digests.rdd.mapPartitions(check).collect()
    return {(topic, partition): result_from_json(text) for topic, partition, text in found}


def write_findings(spark: SparkSession, report: Report, directory: Path) -> None:
    """Write `findings.parquet`, a directory with one part, in the schema of `report.parquet`. Raises `OSError`.

    Spark's workers must see `directory` under the same path as the driver, which writes the other files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    remove(directory / PARQUET_FILE)
    frame = spark.createDataFrame(list(rows(report.findings)), DDL)
    frame.coalesce(1).write.parquet(f"file:{(directory / PARQUET_FILE).resolve()}")


def group_tables(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, int], dict[str, BatchTable]]]:
    """Sorted rows as the tables of one partition after the other; one partition's digests are in memory at a time."""
    current: tuple[str, int] | None = None
    tables: dict[str, BatchTable] = {}
    for row in rows:
        key = (row["topic"], row["partition"])
        if key != current:
            if current is not None:
                yield current, tables
            current, tables = key, {}
        tables.setdefault(row["replica"], BatchTable()).extend_packed(bytes(row["packed"]))
    if current is not None:
        yield current, tables


def run_task(task: Task, tables: Mapping[str, BatchTable]) -> PartitionResult:
    """Check one partition whose batches are at hand; a replica without a table has an empty log."""
    tables = {name: tables.get(name) or BatchTable() for name in task.inputs.replicas}
    reader = reader_of(LocalDisk(), task.inputs)
    return check_partition(task.inputs, tables, reader, history=task.history, settled=task.settled)


def result_to_json(result: PartitionResult) -> str:
    """A result as text, for the way from a worker to the driver."""
    return json.dumps(
        {
            "findings": [asdict(finding) for finding in result.findings],
            "notes": [asdict(note) for note in result.notes],
            "summary": asdict(result.summary),
        }
    )


def result_from_json(text: str) -> PartitionResult:
    """Undo `result_to_json`."""
    raw: dict[str, Any] = json.loads(text)
    summary = raw["summary"]
    summary["replicas"] = [ReplicaSummary(**replica) for replica in summary["replicas"]]
    return PartitionResult(
        [Finding.from_json(json.dumps(finding)) for finding in raw["findings"]],
        [Note(**note) for note in raw["notes"]],
        PartitionSummary(**summary),
    )
