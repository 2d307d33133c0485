"""What both passes say at the end of a partition: which replica the others were compared with, up to where they owe
each other equality, and the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from odradek_audit.catalogue import CHECKS
from odradek_audit.checks.epochs import epochs_of_log
from odradek_audit.checks.walking import ComparisonCount
from odradek_audit.findings import Finding, FindingSink
from odradek_audit.inputs.facts import (
    BatchTable,
    Bounds,
    PartitionInputs,
    ReplicaInputs,
    choose_reference_replica,
    log_end_offset,
)
from odradek_audit.results import SHOWN_EPOCHS, PartitionSummary, ReplicaSummary


def partition_summary(
    partition: PartitionInputs,
    bound: int,
    compared: Sequence[ComparisonCount],
    reference_replica: str,
    cleaned: int = 0,
) -> PartitionSummary:
    """What was compared of a partition; `cleaned` is how many copies of records below where the cleaner has been."""
    return PartitionSummary(
        topic=partition.topic,
        partition=partition.partition,
        bound=bound,
        compared_from=min((entry.start for entry in compared), default=0),
        compared_to=max((entry.end for entry in compared), default=0),
        compared_batches=sum(entry.batches for entry in compared),
        compared_records=sum(entry.records for entry in compared) + cleaned,
        reference_replica=reference_replica,
    )


def note_alone(replica: str, sink: FindingSink) -> None:
    """There was one replica only."""
    sink.note("one-replica", replica, f"only replica {replica} was given, so nothing was compared")


def explained(findings: Iterable[Finding]) -> list[Finding]:
    """Findings with their suspected causes."""
    return [CHECKS[finding.check].explained(finding) for finding in findings]


def reference_replica_of(partition: PartitionInputs, tables: Mapping[str, BatchTable], damaged: frozenset[str]) -> str:
    return choose_reference_replica(
        [
            (
                name,
                _newest_epoch(partition.replicas[name], tables[name]),
                log_end_offset(partition.replicas[name], tables[name]),
            )
            for name in sorted(partition.replicas)
        ],
        damaged,
    )


def _newest_epoch(inputs: ReplicaInputs, table: BatchTable) -> int:
    """The newest epoch that a replica knows: its last batch's, or an entry of its epoch file at the end of its log.

    Entries that contradict the log do not count: a damaged file must not make its replica the one to follow.
    """
    in_log = max((entry.epoch for entry in epochs_of_log(inputs, table)), default=-1)
    log_end = log_end_offset(inputs, table)
    at_end = [entry.epoch for entry in inputs.epochs or () if entry.start_offset == log_end]
    return max([in_log, *at_end])


def bound_of(partition: PartitionInputs, bounds: Bounds) -> int:
    """Below which offset the replicas owe each other equality."""
    marks = [entry.high_watermark or 0 for entry in partition.replicas.values()]
    return max([*marks, bounds.acknowledged_end, bounds.delivered_end])


def summary_of(inputs: ReplicaInputs, table: BatchTable) -> ReplicaSummary:
    """What was read of one replica."""
    return ReplicaSummary(
        replica=inputs.replica,
        log_start=inputs.log_start,
        log_end=log_end_offset(inputs, table),
        high_watermark=inputs.high_watermark,
        recovery_point=inputs.recovery_point,
        last_epoch=table.epoch[-1] if len(table) else -1,
        batches=len(table),
        records=table.records(),
        bytes=sum(table.size),
        segments=len(inputs.segments),
        unread_bytes=sum(problem.facts.size for problem in table.problems),
        epochs=[list(entry) for entry in epochs_of_log(inputs, table)[-SHOWN_EPOCHS:]],
        epoch_file=None if inputs.epochs is None else [list(entry) for entry in inputs.epochs[-SHOWN_EPOCHS:]],
    )
