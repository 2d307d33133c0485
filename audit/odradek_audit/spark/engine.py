"""The Spark engine: the same checks, with the reading spread over segments and parts of segments.

Two passes (`two_passes`). The workers condense parts of segments, and the driver puts the proofs of each partition
together. Of partitions in doubt the workers read every batch again, Spark brings the tables of each together in the
order of its replicas' files, and `check_partition` runs on a worker for one partition after the other. What comes back
to the driver is proofs, findings and summaries. A history that is a file is read by the workers and joined there
(`histories`); one in memory travels as a broadcast.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from odradek_audit.engine.local import (
    AuditProgress,
    BatchCheckInputs,
    ProgressCallback,
    history_of,
    is_deep,
    layout_bytes,
    prove_group,
)
from odradek_audit.engine.partition import HistoryOfPartition
from odradek_audit.engine.parts import DEFAULT_SPLIT_BYTES, in_groups, part_tasks
from odradek_audit.engine.proof import PartProof, PartTask
from odradek_audit.engine.settings import with_settings
from odradek_audit.engine.spooled import Key
from odradek_audit.engine.two_passes import PassProgress
from odradek_audit.inputs.disk import FileSystem
from odradek_audit.inputs.facts import METADATA_TOPIC, BatchTable, PartitionInputs
from odradek_audit.inputs.history import History, PartitionHistory
from odradek_audit.inputs.layout import read_layout
from odradek_audit.inputs.scan import readable
from odradek_audit.inputs.stores import located
from odradek_audit.report import Report, finish
from odradek_audit.results import PartitionResult
from odradek_audit.spark.histories import DistributedHistory, distribute
from odradek_audit.spark.launch import polled

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

ROWS_PER_PIECE = 8192
Packed = tuple[str, int, int, bytes]
"""Replica, segment and position of a stretch of batches, and the packed table of them."""


def audit(
    spark: SparkSession,
    replicas: Mapping[str, Path | str],
    *,
    history: History | Path | str | None = None,
    topics: Iterable[str] | None = None,
    settled: bool = False,
    deep: bool | None = None,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    progress: ProgressCallback | None = None,
) -> Report:
    """Audit log directories that the driver and all workers can read under the same path or URI.

    Arguments, result and what is raised are those of `odradek_audit.engine.local.audit`.
    """
    started = time.monotonic()
    disk, directories = located(replicas)
    layout = with_settings(disk, read_layout(disk, directories, topics))
    context = spark.sparkContext
    partitions = {(partition.topic, partition.partition): partition for partition in layout.partitions}
    distributed = distribute(context, history, partitions) if isinstance(history, str | Path) else None
    events = history if isinstance(history, History) else distributed.outline if distributed is not None else None
    histories = {
        key: _to_come(partition, distributed) if distributed is not None else history_of(events, partition)
        for key, partition in partitions.items()
    }
    passes = PassProgress(disk, partitions, histories, settled, is_deep(layout, deep))
    done = context.accumulator(0)
    with _told(done, layout_bytes(layout), progress):
        passes.add(_first_pass(context, disk, passes.tasks(split_bytes), done))
        results, unproven = passes.conclude()
        tasks = {
            key: BatchCheckInputs(inputs, passes.histories[key], settled, passes.deep)
            for key, inputs in unproven.items()
        }
        results.update(_second_pass(context, disk, tasks, split_bytes, done, distributed))
    for key, task in tasks.items():
        if key not in results:  # no replica has a single byte: nothing to distribute
            results[key] = task.check({}, disk)
    report = finish("spark", layout, results.values(), events)
    report.deep = passes.deep
    report.seconds = time.monotonic() - started
    return report


def _to_come(partition: PartitionInputs, distributed: DistributedHistory) -> HistoryOfPartition | None:
    """Stands for a partition's history that the workers have; None where there is none."""
    if partition.topic == METADATA_TOPIC or partition.topic not in distributed.named:
        return None
    return HistoryOfPartition(PartitionHistory(partition.topic, partition.partition), {})


def _told(
    done: Accumulator[int], total: int, progress: ProgressCallback | None
) -> contextlib.AbstractContextManager[None]:
    if progress is None:
        return contextlib.nullcontext()
    return polled(lambda: min(done.value, total), lambda value: progress(AuditProgress(value, total, "")))


def _first_pass(
    context: SparkContext, disk: FileSystem, groups: list[list[PartTask]], done: Accumulator[int]
) -> list[tuple[PartTask, PartProof]]:
    """Condense every part. An RDD and no data frame: what comes back is small, and planning a query with a Python data
    source costs more than reading a gigabyte."""
    if not groups:
        return []

    def prove(group: list[PartTask]) -> list[tuple[PartTask, PartProof]]:
        proofs = prove_group(disk, group)
        done.add(sum(task.size for task in group))
        return proofs

    return context.parallelize(groups, len(groups)).flatMap(prove).collect()


def _second_pass(
    context: SparkContext,
    disk: FileSystem,
    tasks: Mapping[Key, BatchCheckInputs],
    split_bytes: int,
    done: Accumulator[int],
    distributed: DistributedHistory | None,
) -> dict[Key, PartitionResult]:
    """Read the partitions in doubt into tables of their batches, bring those of a partition together, check them."""
    groups = list(in_groups(part_tasks(disk, [task.inputs for task in tasks.values()], split_bytes), split_bytes))
    if not groups and (distributed is None or not tasks):
        return {}
    broadcast = context.broadcast(dict(tasks))

    def scan(group: list[PartTask]) -> Iterator[tuple[Key, Packed]]:
        for task in group:
            yield from pack_part(disk, task)
            done.add(task.size)

    def check(grouped: tuple[Key, Iterable[Packed]]) -> tuple[Key, PartitionResult]:
        key, pieces = grouped
        return key, broadcast.value[key].check(unpacked(pieces), disk)

    def check_with(
        grouped: tuple[Key, tuple[Iterable[Packed], Iterable[HistoryOfPartition]]],
    ) -> Iterator[tuple[Key, PartitionResult]]:
        key, (pieces, histories) = grouped
        if key in broadcast.value:
            yield key, broadcast.value[key].check(unpacked(pieces), disk, next(iter(histories), None))

    wide = max(1, min(len(tasks), 4 * context.defaultParallelism))
    packed = context.parallelize(groups, max(len(groups), 1)).flatMap(scan)
    if distributed is None:
        return dict(packed.groupByKey(wide).map(check).collect())
    return dict(packed.cogroup(distributed.by_partition, wide).flatMap(check_with).collect())


def pack_part(disk: FileSystem, task: PartTask) -> Iterator[tuple[Key, Packed]]:
    """The batches of a part as packed tables of some thousand, by their partition."""
    key, part = (task.topic, task.partition), task.part
    position, table = part.start, BatchTable()
    for scanned in readable(disk, part):
        if len(table) + len(table.problems) >= ROWS_PER_PIECE:
            yield key, (task.replica, part.base_offset, position, table.pack())
            position, table = scanned.position, BatchTable()
        table.add(scanned)
    yield key, (task.replica, part.base_offset, position, table.pack())


def unpacked(pieces: Iterable[Packed]) -> dict[str, BatchTable]:
    """Tables by replica, out of their pieces in any order."""
    tables: dict[str, BatchTable] = {}
    for replica, _, _, packed in sorted(pieces, key=lambda piece: piece[:3]):
        tables.setdefault(replica, BatchTable()).extend_packed(packed)
    return tables
