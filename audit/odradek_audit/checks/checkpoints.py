"""`checkpoint-order`, `file-corrupt`, `identity-mismatch`: the small files of a replica, against its log and the
other replicas.

A high watermark that is behind is no violation: its file is written every five seconds. One that is ahead of the
log is: the replica has counted records that it does not have. The same holds for the recovery point, which must
never run ahead of an fsync (R-238).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from odradek_audit.catalogue import CHECKPOINT_ORDER, FILE_CORRUPT, IDENTITY_MISMATCH
from odradek_audit.checks.unread import NOT_COMPARED, file_not_read
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BatchTable, PartitionInputs, ReplicaInputs, log_end_offset

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"


def check_files(inputs: ReplicaInputs, sink: FindingSink) -> None:
    """No small file that cannot be read; one that may not be read is no corrupt one."""
    for problem in inputs.problems:
        if problem.refused:
            sink.note(NOT_COMPARED, inputs.replica, file_not_read(inputs.replica, problem.file, problem.reason))
            continue
        sink.report(
            FILE_CORRUPT,
            inputs.replica,
            f"replica {inputs.replica} has a file {problem.file} that cannot be read: {problem.reason}",
            file=problem.file,
        )


def check_checkpoints(inputs: ReplicaInputs, table: BatchTable, sink: FindingSink) -> None:
    """I-8: log start <= high watermark <= log end, recovery point <= log end."""
    log_end = log_end_offset(inputs, table)
    last_epoch = table.epoch[-1] if len(table) else -1
    high_watermark, recovery_point = inputs.high_watermark, inputs.recovery_point
    if high_watermark is not None and high_watermark > log_end:
        _report(inputs, sink, HIGH_WATERMARKS, "high watermark", high_watermark, "log end offset", log_end, last_epoch)
    if recovery_point is not None and recovery_point > log_end:
        _report(inputs, sink, RECOVERY_POINTS, "recovery point", recovery_point, "log end offset", log_end, last_epoch)
    if inputs.log_start_checkpoint is not None and inputs.log_start_checkpoint > log_end:
        start = inputs.log_start_checkpoint
        _report(inputs, sink, LOG_STARTS, "log start offset", start, "log end offset", log_end, last_epoch)
        return
    if high_watermark is None:
        return
    if inputs.log_start_checkpoint is not None and inputs.log_start_checkpoint > high_watermark:
        start = inputs.log_start_checkpoint
        _report(inputs, sink, LOG_STARTS, "log start offset", start, "high watermark", high_watermark, last_epoch)
    elif inputs.clean_shutdown and inputs.segments and inputs.log_start > high_watermark:
        start = inputs.log_start
        _report(inputs, sink, HIGH_WATERMARKS, "log start offset", start, "high watermark", high_watermark, last_epoch)


def _report(
    inputs: ReplicaInputs, sink: FindingSink, file: str, above: str, larger: int, below: str, smaller: int, epoch: int
) -> None:
    sink.report(
        CHECKPOINT_ORDER,
        inputs.replica,
        f"replica {inputs.replica} has the {above} {larger}, above its {below} {smaller} ({file})",
        offset=smaller,
        end_offset=larger,
        epoch=epoch,
        file=file,
    )


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
