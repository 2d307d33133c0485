"""Where a partition's bound comes from, in a clause: whose high watermark, or the history."""

from __future__ import annotations

from odradek_audit.results import PartitionSummary
from odradek_audit.words import plain


def bound_origin(partition: PartitionSummary) -> str:
    """The replicas whose checkpoint gives the bound; a mark above its log's end counts only up to that end."""
    if not partition.bound:
        return "no checkpoint and no client says that anything is replicated"
    marks = [
        replica.replica
        for replica in partition.replicas
        if min(replica.high_watermark or 0, replica.log_end) == partition.bound
    ]
    if not marks:
        return "one past the last record that a client of the history was told of"
    names = ", ".join(plain(name, 40) for name in marks)
    others = len(marks) < len(partition.replicas)
    word = "the largest high watermark" if others else "the high watermark"
    return f"{word}, in the checkpoint of replica{'s' if len(marks) > 1 else ''} {names}"
