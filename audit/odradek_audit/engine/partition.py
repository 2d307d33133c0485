"""All checks of one partition, in one pure function: both engines and the simulated world call this."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from odradek_audit.checks.against_history import check_history
from odradek_audit.checks.agreement import check_agreement
from odradek_audit.checks.checkpoints import check_checkpoints, check_ends, check_files, check_identity, check_log_start
from odradek_audit.checks.compaction import check_compaction
from odradek_audit.checks.companions import check_companions
from odradek_audit.checks.decoding import check_decoding, check_timestamp_types
from odradek_audit.checks.epochs import check_epoch_cache
from odradek_audit.checks.groups import CONSUMER_OFFSETS, committed_offsets
from odradek_audit.checks.indexes import check_indexes
from odradek_audit.checks.metadata import check_metadata
from odradek_audit.checks.producers import check_sequences
from odradek_audit.checks.references import damaged_replicas
from odradek_audit.checks.snapshots import check_snapshots
from odradek_audit.checks.structure import check_structure
from odradek_audit.checks.transactions import check_transactions
from odradek_audit.checks.unread import without_unread
from odradek_audit.engine.conclusion import (
    bound_of,
    explained,
    note_alone,
    partition_summary,
    reference_replica_of,
    summary_of,
)
from odradek_audit.evidence.excerpts import attach_excerpts
from odradek_audit.evidence.folding import fold
from odradek_audit.findings import FindingSink, sorted_findings
from odradek_audit.inputs.facts import (
    METADATA_TOPIC,
    BatchTable,
    Bounds,
    PartitionInputs,
    ReplicaInputs,
    SegmentReader,
    log_end_offset,
)
from odradek_audit.inputs.history import PartitionHistory
from odradek_audit.results import GroupOffset, Loss, PartitionResult, PartitionSummary, Replayed


@dataclass(frozen=True)
class HistoryOfPartition:
    """The history's events of one partition, and how often each value was sent where it could reach it."""

    events: PartitionHistory
    sent: Mapping[bytes, int]


def check_partition(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    reader: SegmentReader,
    *,
    history: HistoryOfPartition | None = None,
    settled: bool = False,
    deep: bool = False,
) -> PartitionResult:
    """Run every check over one partition.

    `tables` holds the batches of each replica of `partition.replicas`. `reader` gives bytes again: for indexes, for the
    first record that differs and, with a history, for the reference replica's records. `settled` says that the cluster
    had time to truncate what must be truncated; `deep` that the records of every batch are decoded. Raises nothing
    because of what the bytes say; an `OSError` becomes a note.
    """
    sink = FindingSink(partition.topic, partition.partition)
    for name in sorted(partition.replicas):
        check_files(partition.replicas[name], sink)
    partition, unread = without_unread(partition, tables, sink)
    if not partition.replicas:
        return _nothing_read(partition, unread, sink)
    for name in sorted(partition.replicas):
        check_checkpoints(partition.replicas[name], tables[name], sink)
        if partition.topic != METADATA_TOPIC:
            check_log_start(partition.replicas[name], sink)
    given, partition = partition, _believed(partition, tables)
    for name in sorted(partition.replicas):
        _check_replica(partition, partition.replicas[name], tables[name], reader, sink)
    check_identity(partition, sink)
    reference_replica = reference_replica_of(partition, tables, damaged_replicas(sink))
    bounds = Bounds(history.events.acknowledged_end, history.events.delivered_end) if history else Bounds()
    bound = bound_of(partition, bounds)
    compared = check_agreement(partition, tables, reference_replica, bound, reader, sink, settled=settled)
    cleaned = check_compaction(partition, tables, reference_replica, bound, reader, sink)
    check_companions(partition, sink)
    replayed = Replayed()
    if partition.topic == METADATA_TOPIC:
        replayed = check_metadata(partition, reference_replica, tables, reader, sink)
    else:
        check_ends(partition, tables, bound, sink, settled=settled)
    checked: dict[str, int] = {}
    losses: list[Loss] = []
    if history is not None:
        try:
            checked, losses = check_history(
                partition, tables, reference_replica, history.events, history.sent, reader, sink, given=given
            )
        except OSError as error:
            sink.note("not-compared", reference_replica, f"the history was not compared: {error}")
    else:
        cleaned_to = partition.cleaned_to(partition.replicas[reference_replica])
        table = tables[reference_replica]
        check_decoding(table, reference_replica, reader, sink, deep=deep, cleaned_to=cleaned_to)
    committed = _committed(partition, tables, reference_replica, reader, sink)
    if len(partition.replicas) < 2 and not unread:
        note_alone(reference_replica, sink)
    summary = replace(
        partition_summary(partition, bound, compared, reference_replica, cleaned),
        replicas=[summary_of(given.replicas[name], tables[name]) for name in sorted(given.replicas)],
        history=checked,
        suppressed=dict(sorted(sink.suppressed.items())),
        losses=losses,
        unread=unread,
    )
    findings = attach_excerpts(
        partition, tables, reader, sorted_findings(fold(sink.findings, len(partition.replicas))), reference_replica
    )
    return PartitionResult(explained(findings), sink.notes, summary, committed, replayed)


def _committed(
    partition: PartitionInputs, tables: Mapping[str, BatchTable], replica: str, reader: SegmentReader, sink: FindingSink
) -> tuple[GroupOffset, ...]:
    if partition.topic != CONSUMER_OFFSETS:
        return ()
    with suppress(OSError):  # it is told by the checks
        return tuple(committed_offsets(tables[replica], replica, reader, sink))
    return ()


def _nothing_read(partition: PartitionInputs, unread: list[str], sink: FindingSink) -> PartitionResult:
    """The result where no replica's log can be read."""
    summary = PartitionSummary(partition.topic, partition.partition, 0, 0, 0, 0, 0, "", unread=unread)
    return PartitionResult(explained(sorted_findings(sink.findings)), sink.notes, summary)


def _check_replica(
    partition: PartitionInputs, inputs: ReplicaInputs, table: BatchTable, reader: SegmentReader, sink: FindingSink
) -> None:
    check_structure(partition, inputs, table, sink)
    check_timestamp_types(inputs, partition.settings, table, sink)
    check_epoch_cache(inputs, table, sink, partition.cleaned_to(inputs))
    check_indexes(inputs, table, reader, sink)
    check_transactions(partition, inputs, table, reader, sink)
    if not partition.cleaned_to(inputs):
        check_sequences(inputs, table, sink)
        check_snapshots(inputs, table, reader, sink)


def _believed(partition: PartitionInputs, tables: Mapping[str, BatchTable]) -> PartitionInputs:
    """Without checkpoints that cannot be true: they are a finding, and what is compared must not hang on them."""
    replicas = dict(partition.replicas)
    for name, inputs in partition.replicas.items():
        log_end = log_end_offset(inputs, tables[name])
        if (inputs.log_start_checkpoint or 0) > log_end:
            inputs = replace(inputs, log_start_checkpoint=None)
        if (inputs.high_watermark or 0) > log_end:
            inputs = replace(inputs, high_watermark=log_end)
        replicas[name] = inputs
    return replace(partition, replicas=replicas)
