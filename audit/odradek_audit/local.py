"""The local engine: the audit in plain Python, one partition after the other. For everything up to some gigabytes,
and for tests.

`audit` reads directories of this machine; `audit_disk` reads any disk, so that the simulated world runs the same
audit over its simulated disks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from odradek_audit.checks.facts import BatchFacts, BatchTable, PartitionInputs, ReplicaInputs
from odradek_audit.checks.partition import HistoryOfPartition, PartitionResult, check_partition
from odradek_audit.disk import Disk, LocalDisk, join
from odradek_audit.history import History
from odradek_audit.layout import METADATA_TOPIC, Layout, read_layout, reader_of
from odradek_audit.report import Report, finish
from odradek_audit.scan import SegmentPart, scan_part


@dataclass(frozen=True)
class Progress:
    """How far an audit is: bytes of log read, of all that there are, and the partition at hand."""

    done_bytes: int
    total_bytes: int
    partition: str


ProgressCallback = Callable[[Progress], None]


def audit(
    replicas: Mapping[str, Path],
    *,
    history: History | Path | None = None,
    topics: Iterable[str] | None = None,
    settled: bool = False,
    progress: ProgressCallback | None = None,
) -> Report:
    """Audit log directories of this machine, by replica name.

    `history` is what clients wrote down (`odradek_audit.history`); `topics` limits the audit; `settled` says that
    the cluster had time to truncate what must be truncated. Raises `CorruptHistory`, and `OSError` for a history
    that cannot be read.
    """
    started = time.monotonic()
    events = History.read(history) if isinstance(history, Path) else history
    report = audit_disk(
        LocalDisk(),
        {name: str(path) for name, path in replicas.items()},
        history=events,
        topics=topics,
        settled=settled,
        progress=progress,
    )
    report.seconds = time.monotonic() - started
    return report


def audit_disk(
    disk: Disk,
    replicas: Mapping[str, str],
    *,
    history: History | None = None,
    topics: Iterable[str] | None = None,
    settled: bool = False,
    progress: ProgressCallback | None = None,
) -> Report:
    """The same over any disk; looks at no clock."""
    wanted = None if topics is None else list(topics)
    layout = read_layout(disk, replicas, wanted)
    results = list(_results(disk, layout, history, settled, progress))
    return finish("local", layout, results, history, wanted, 0.0)


def _results(
    disk: Disk, layout: Layout, history: History | None, settled: bool, progress: ProgressCallback | None
) -> Iterator[PartitionResult]:
    total = layout_bytes(layout)
    done = 0
    for partition in layout.partitions:
        tables: dict[str, BatchTable] = {}
        for name, inputs in partition.replicas.items():
            if progress is not None:
                progress(Progress(done, total, partition.name))
            tables[name] = BatchTable(scan_replica(disk, inputs))
            done += sum(segment.size for segment in inputs.segments)
        yield check_partition(
            partition,
            tables,
            reader_of(disk, partition),
            history=history_of(history, partition),
            settled=settled,
        )
    if progress is not None:
        progress(Progress(total, total, ""))


def scan_replica(disk: Disk, inputs: ReplicaInputs) -> Iterator[BatchFacts]:
    """All batches of a replica, segment by segment. A segment that cannot be read is unreadable bytes."""
    for segment in inputs.segments:
        path = join(inputs.directory, f"{segment.stem}.log")
        try:
            yield from scan_part(disk, SegmentPart(path, segment.base_offset, segment.size, 0, segment.size))
        except OSError as error:
            yield BatchFacts(segment.base_offset, 0, segment.size, problem="unreadable", detail=str(error))


def layout_bytes(layout: Layout) -> int:
    """Bytes of all segments of all replicas."""
    return sum(
        segment.size
        for partition in layout.partitions
        for inputs in partition.replicas.values()
        for segment in inputs.segments
    )


def history_of(history: History | None, partition: PartitionInputs) -> HistoryOfPartition | None:
    """The part of a history that concerns one partition; None for the metadata log and for topics that it does not
    name."""
    if history is None or partition.topic == METADATA_TOPIC or partition.topic not in history.topics:
        return None
    events = history.of(partition.topic, partition.partition)
    return HistoryOfPartition(events, history.sent_to(partition.topic, partition.partition))
