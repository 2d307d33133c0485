"""What the auditor may not read: named in a note, and nothing is concluded from it.

A log that nobody has seen has no end, no damage and no missing records. So a replica of which the directory or a
segment cannot be read is taken out of its partition before the other checks, and an audit with such a note is
inconclusive at best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from odradek_audit.catalogue import FILE_CORRUPT
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import REFUSED, BatchTable, PartitionInputs, ReplicaInputs

NOT_COMPARED = "not-compared"


def without_unread(
    partition: PartitionInputs, tables: Mapping[str, BatchTable], sink: FindingSink
) -> tuple[PartitionInputs, list[str]]:
    """The partition without replicas whose logs cannot be read, and the names of those, each with a note."""
    why = {name: _what_and_why(inputs, tables[name]) for name, inputs in sorted(partition.replicas.items())}
    unread = [name for name in why if why[name]]
    left = {name: inputs for name, inputs in partition.replicas.items() if not why[name]}
    result = "compared without it" if len(left) > 1 else "nothing was compared"
    for name in unread:
        sink.note(NOT_COMPARED, name, f"replica {name}: {why[name]}; {result}")
    return replace(partition, replicas=left, unread=(*partition.unread, *unread)), unread


def _what_and_why(inputs: ReplicaInputs, table: BatchTable) -> str:
    """What of a replica's log cannot be read; empty when all of it can."""
    if inputs.refused:
        return f"the directory cannot be read: {inputs.refused}"
    refused = [problem.facts for problem in table.problems if problem.facts.problem == REFUSED]
    if not refused:
        return ""
    segments = sorted({facts.segment for facts in refused})
    more = f" and {len(segments) - 1} more" if len(segments) > 1 else ""
    return f"the file {segments[0]:020d}.log{more} cannot be read: {refused[0].detail}"


def file_not_read(replica: str, file: str, reason: str) -> str:
    """The sentence about a file beside the log."""
    return f"replica {replica}: the file {file} cannot be read: {reason}; it was not checked"


def note_file(inputs: ReplicaInputs, file: str, error: OSError, sink: FindingSink) -> None:
    """Name a file of a partition that may not be read."""
    sink.note(NOT_COMPARED, inputs.replica, file_not_read(inputs.replica, file, error.strerror or str(error)))


def report_corrupt(replica: str, file: str, reason: object, sink: FindingSink) -> None:
    """`file-corrupt`: a file beside the log that is none of its kind."""
    sink.report(FILE_CORRUPT, replica, f"replica {replica} has a file {file} that cannot be read: {reason}", file=file)
