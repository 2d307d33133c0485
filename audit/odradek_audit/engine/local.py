"""The local engine: the audit in plain Python, in this process or in several.

`audit` reads directories of this machine, in two passes; `audit_disk` reads any disk and looks at every batch of every
partition at once, so that the simulated world runs the same checks over its simulated disks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from odradek_audit.engine.partition import HistoryOfPartition, check_partition
from odradek_audit.engine.parts import DEFAULT_SPLIT_BYTES
from odradek_audit.engine.proof import PartProof, PartTask, prove_part
from odradek_audit.engine.settings import with_settings
from odradek_audit.engine.spooled import Key, SpooledEvents, SpooledHistory, Told, spooled
from odradek_audit.engine.two_passes import PassProgress
from odradek_audit.engine.workers import Run, processors, workers
from odradek_audit.inputs.disk import FileSystem, LocalDisk
from odradek_audit.inputs.facts import METADATA_TOPIC, BatchTable, PartitionInputs
from odradek_audit.inputs.history import History
from odradek_audit.inputs.layout import Layout, read_layout, reader_of
from odradek_audit.inputs.scan import scan_replica
from odradek_audit.inputs.stores import located
from odradek_audit.report import Report, finish
from odradek_audit.results import PartitionResult


@dataclass(frozen=True)
class AuditProgress:
    """How far an audit is: bytes of log read, of all that there are, and the partition at hand."""

    done_bytes: int
    total_bytes: int
    partition: str


ProgressCallback = Callable[[AuditProgress], None]
DEEP_BYTES = 256 * 1024 * 1024
"""Logs of so many bytes are decoded whole: 40 MB a second, of one replica of each partition."""
WORTH_PROCESSES = 64 * 1024 * 1024
"""Below this one process has finished before others have begun."""


def audit(
    replicas: Mapping[str, Path | str],
    *,
    history: History | Path | None = None,
    topics: Iterable[str] | None = None,
    settled: bool = False,
    deep: bool | None = None,
    progress: ProgressCallback | None = None,
    jobs: int | None = 1,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
) -> Report:
    """Audit log directories, by replica name: on this machine, or where `odradek_audit.inputs.stores` reads.

    `history` is what clients wrote down (`odradek_audit.inputs.history`); `topics` limits the audit; `settled` says
    that the cluster had time to truncate what must be truncated; `deep` that every batch is decoded, None where that is
    quickly done; `jobs` is how many processes read: one is this one,
    None as many as there are processors where that is worth it. Stores are read by one: their libraries do not live
    through a fork. Raises `CorruptHistory`, `OSError` for a history that cannot be read, and `ValueError` for a place
    that cannot be one. A `KeyboardInterrupt` ends the processes that it started.
    """
    started = time.monotonic()
    disk, directories = located(replicas)
    layout = with_settings(disk, read_layout(disk, directories, topics))
    partitions = {(partition.topic, partition.partition): partition for partition in layout.partitions}
    total, whole = layout_bytes(layout), is_deep(layout, deep)
    if not isinstance(disk, LocalDisk):
        jobs = 1
    elif jobs is None:
        jobs = processors() if total > WORTH_PROCESSES else 1
    with workers(jobs) as run, _told(history, partitions) as events:
        histories: dict[Key, Told | None] = {
            key: events.of(*key) if isinstance(events, SpooledHistory) else history_of(events, partition)
            for key, partition in partitions.items()
        }
        passes = PassProgress(disk, partitions, histories, settled, whole)
        results = _two_passes(passes, run, _Meter(total, progress), split_bytes)
    outline = events.outline if isinstance(events, SpooledHistory) else events
    report = finish("local", layout, results, outline)
    report.deep = whole
    report.seconds = time.monotonic() - started
    return report


def _told(
    history: History | Path | None, partitions: Container[Key]
) -> contextlib.AbstractContextManager[History | SpooledHistory | None]:
    return spooled(history, partitions) if isinstance(history, Path) else contextlib.nullcontext(history)


def _two_passes(passes: PassProgress, run: Run, meter: _Meter, split_bytes: int) -> list[PartitionResult]:
    for proofs in run(partial(prove_group, passes.disk), passes.tasks(split_bytes)):
        passes.add(proofs)
        meter.add(sum(task.size for task, _ in proofs), proofs[-1][0].topic)
    results, unproven = passes.conclude()
    meter.total += sum(partition_bytes(passes.partitions[key]) for key in unproven if passes.histories[key] is None)
    tasks = [
        BatchCheckInputs(partition, passes.histories[key], passes.settled, passes.deep)
        for key, partition in unproven.items()
    ]
    for result in run(partial(check_closely, passes.disk), tasks):
        key = (result.summary.topic, result.summary.partition)
        results[key] = result
        meter.add(partition_bytes(unproven[key]), result.summary.topic)
    meter.end()
    return list(results.values())


def prove_group(disk: FileSystem, group: Sequence[PartTask]) -> list[tuple[PartTask, PartProof]]:
    """The first pass over some parts; runs in a worker."""
    return [(task, prove_part(disk, task)) for task in group]


@dataclass(frozen=True)
class BatchCheckInputs:
    """What a worker needs to check one partition batch by batch, besides its batches."""

    inputs: PartitionInputs
    history: Told | None
    settled: bool
    deep: bool

    def check(
        self, tables: Mapping[str, BatchTable], disk: FileSystem, history: HistoryOfPartition | None = None
    ) -> PartitionResult:
        """A replica without a table has an empty log. `history` is one that came another way."""
        whole = {name: tables.get(name, BatchTable()) for name in self.inputs.replicas}
        reader = reader_of(disk, self.inputs)
        told = history or self.history
        if isinstance(told, SpooledEvents):
            told = told.read()
        return check_partition(self.inputs, whole, reader, history=told, settled=self.settled, deep=self.deep)


def check_closely(disk: FileSystem, task: BatchCheckInputs) -> PartitionResult:
    """The second pass over one partition; runs in a worker."""
    tables = {name: scan_replica(disk, inputs) for name, inputs in task.inputs.replicas.items()}
    return task.check(tables, disk)


class _Meter:
    """Counts the bytes that are done and tells whoever wants to know."""

    def __init__(self, total: int, progress: ProgressCallback | None) -> None:
        self.total = total
        self.done = 0
        self.progress = progress

    def add(self, size: int, name: str) -> None:
        self.done = min(self.done + size, self.total)
        if self.progress is not None:
            self.progress(AuditProgress(self.done, self.total, name))

    def end(self) -> None:
        self.add(self.total - self.done, "")


def audit_disk(
    disk: FileSystem,
    replicas: Mapping[str, str],
    *,
    history: History | None = None,
    topics: Iterable[str] | None = None,
    settled: bool = False,
) -> Report:
    """The same over any disk, in one pass; looks at no clock."""
    layout = with_settings(disk, read_layout(disk, replicas, topics))
    results = [
        check_closely(disk, BatchCheckInputs(partition, history_of(history, partition), settled, False))
        for partition in layout.partitions
    ]
    return finish("local", layout, results, history)


def is_deep(layout: Layout, deep: bool | None) -> bool:
    """Whether every batch is decoded: as somebody wants it, else where it takes seconds."""
    return layout_bytes(layout) <= DEEP_BYTES if deep is None else deep


def layout_bytes(layout: Layout) -> int:
    """Bytes of all segments of all replicas."""
    return sum(partition_bytes(partition) for partition in layout.partitions)


def partition_bytes(partition: PartitionInputs) -> int:
    """Bytes of all segments of a partition's replicas."""
    return sum(segment.size for inputs in partition.replicas.values() for segment in inputs.segments)


def history_of(history: History | None, partition: PartitionInputs) -> HistoryOfPartition | None:
    """The part of a history that concerns one partition; None for the metadata log and for topics that it does not
    name."""
    if history is None or partition.topic == METADATA_TOPIC or partition.topic not in history.topics:
        return None
    events = history.of(partition.topic, partition.partition)
    return HistoryOfPartition(events, history.sent_to(partition.topic, partition.partition))
