"""`checkpoint-order`, `file-corrupt`, `identity-mismatch`: the small files of a replica, against its log and the
other replicas.

A high watermark that is behind is no violation: its file is written every five seconds. One that is ahead of the
log is: the replica has counted records that it does not have. The same holds for the recovery point, which must
never run ahead of an fsync (R-238). The cleaner's excuses gaps, so after a clean stop it lies in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from odradek_proto.formats import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)

from odradek_audit.catalogue import CHECKPOINT_ORDER, IDENTITY_MISMATCH, OFFSET_GAP, REPLICA_BEHIND
from odradek_audit.checks.unread import NOT_COMPARED, file_not_read, report_corrupt
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import CLEANED_EVERYWHERE, BatchTable, PartitionInputs, ReplicaInputs, log_end_offset
from odradek_audit.words import plural


def check_files(inputs: ReplicaInputs, sink: FindingSink) -> None:
    """No small file that cannot be read; one that may not be read is no corrupt one."""
    for problem in inputs.problems:
        if problem.refused:
            sink.note(NOT_COMPARED, inputs.replica, file_not_read(inputs.replica, problem.file, problem.reason))
            continue
        report_corrupt(inputs.replica, problem.file, problem.reason, sink)


def check_checkpoints(inputs: ReplicaInputs, table: BatchTable, sink: FindingSink) -> None:
    """I-8: log start <= high watermark <= log end, recovery point <= log end."""
    log_end = log_end_offset(inputs, table)
    high_watermark, recovery_point, log_start = (
        inputs.high_watermark,
        inputs.recovery_point,
        inputs.log_start_checkpoint,
    )

    def report(file: str, above: str, larger: int, below: str = "log end offset", smaller: int = log_end) -> None:
        sink.report(
            CHECKPOINT_ORDER,
            inputs.replica,
            f"replica {inputs.replica} has the {above} {larger}, above its {below} {smaller} ({file})",
            offset=smaller,
            end_offset=larger,
            epoch=table.epoch[-1] if len(table) else -1,
            file=file,
        )

    beyond = recovery_point is not None and recovery_point > log_end
    if high_watermark is not None and high_watermark > log_end:
        above = f"recovery point {recovery_point} and the high watermark" if beyond else "high watermark"
        report(REPLICATION_OFFSET_CHECKPOINT, above, high_watermark)
    elif recovery_point is not None and beyond:
        report(RECOVERY_POINT_CHECKPOINT, "recovery point", recovery_point)
    if log_end < inputs.cleaned_to < CLEANED_EVERYWHERE and inputs.clean_shutdown:
        report(CLEANER_OFFSET_CHECKPOINT, "cleaner's offset", inputs.cleaned_to)
    if log_start is not None and log_start > log_end:
        report(LOG_START_OFFSET_CHECKPOINT, "log start offset", log_start)
    elif high_watermark is None:
        return
    elif log_start is not None and log_start > high_watermark:
        report(LOG_START_OFFSET_CHECKPOINT, "log start offset", log_start, "high watermark", high_watermark)
    elif inputs.clean_shutdown and inputs.segments and inputs.log_start > high_watermark:
        report(REPLICATION_OFFSET_CHECKPOINT, "log start offset", inputs.log_start, "high watermark", high_watermark)


def check_log_start(inputs: ReplicaInputs, sink: FindingSink) -> None:
    """A2: the first segment did not go without its epochs. Retention cuts the leader epoch file with the log."""
    if not inputs.segments or not inputs.epochs:
        return
    first, said = inputs.log_start, inputs.epochs[0].start_offset
    explained = (
        inputs.log_start_checkpoint is not None and inputs.log_start_checkpoint >= inputs.segments[0].base_offset
    )
    if said >= first or explained:
        return
    if not inputs.clean_shutdown:
        sink.note(
            "log-start",
            inputs.replica,
            f"replica {inputs.replica} begins at offset {first}, and its {LEADER_EPOCH_CHECKPOINT} at {said}: "
            "retention just before the broker died, or a segment that is missing",
            offset=said,
            end_offset=first,
        )
        return
    sink.report(
        OFFSET_GAP,
        inputs.replica,
        f"replica {inputs.replica} has no records from offset {said} to {first - 1}: its log begins at {first}, its "
        f"{LEADER_EPOCH_CHECKPOINT} at {said}, and it stopped cleanly, so retention would have cut both",
        offset=said,
        end_offset=first,
        epoch=inputs.epochs[0].epoch,
        file=LEADER_EPOCH_CHECKPOINT,
    )


def check_ends(
    partition: PartitionInputs, tables: Mapping[str, BatchTable], bound: int, sink: FindingSink, *, settled: bool
) -> None:
    """B4: replicas that lack the end of what is replicated and of which nothing else was found, or begin later."""
    if partition.unread:
        return
    starts = {name: partition.replicas[name].log_start for name in sorted(partition.replicas)}
    ends = {name: log_end_offset(partition.replicas[name], tables[name]) for name in starts}
    explained = {finding.replica for finding in sink.findings}
    explained.update(note.replica for note in sink.notes if note.kind in ("truncation-pending", "torn-tail"))
    bound = min(bound, max(ends.values()))  # what all lack is lost, which is told elsewhere
    for name, start in starts.items():
        end = ends[name]
        if min(starts.values()) < start:
            first = min(starts.values())
            sink.note(
                "log-start-differs",
                name,
                f"replica {name} begins at offset {start}, another one at {first}: not compared below",
                offset=first,
                end_offset=start,
            )
        if end >= bound or name in explained:
            continue
        said = f"replica {name} ends at offset {end}, {plural(bound - end, 'offset')} below what is known as replicated"
        if settled:
            found = f"{said} ({bound}), although the cluster had time to recover"
            sink.report(REPLICA_BEHIND, name, found, offset=end, end_offset=bound)
        else:
            sink.note("behind", name, f"{said}: it left the ISR, or lost its end", offset=end, end_offset=bound)


def check_identity(partition: PartitionInputs, sink: FindingSink) -> None:
    """A8: one topic id. The replica that differs from the majority is named."""
    values = {name: partition.replicas[name].topic_id for name in sorted(partition.replicas)}
    for replica, value, usual in odd_ones(values):
        sink.report(
            IDENTITY_MISMATCH,
            replica,
            f"replica {replica} has the topic id {value}, others have {usual} (partition.metadata)",
            file="partition.metadata",
        )


def odd_ones(values: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Who has another value than most, of values by name: (name, its value, the usual one). Empty values do not
    count."""
    known = Counter(value for value in values.values() if value)
    if len(known) < 2:
        return []
    usual = min(known, key=lambda value: (-known[value], value))
    return [(name, value, usual) for name, value in values.items() if value and value != usual]
