"""The checks: pure functions over decoded batches of one partition's replicas. docs/checks.md has a section on each.

`check_partition` runs them all. The plain engine, Spark and the simulated world call this one function, so that
they cannot disagree. `odradek_audit.local.audit_disk` wraps it for a whole (simulated) disk.
"""

from odradek_audit.checks.against_history import check_history
from odradek_audit.checks.agreement import check_agreement
from odradek_audit.checks.checkpoints import check_checkpoints, check_identity
from odradek_audit.checks.epochs import check_epoch_cache, epochs_of_log
from odradek_audit.checks.facts import (
    BatchFacts,
    BatchTable,
    EpochEntry,
    PartitionInputs,
    PartitionSummary,
    ReplicaInputs,
    ReplicaSummary,
    SegmentFile,
    SegmentReader,
    log_end_offset,
)
from odradek_audit.checks.indexes import check_indexes
from odradek_audit.checks.partition import HistoryOfPartition, PartitionResult, check_partition
from odradek_audit.checks.producers import check_sequences
from odradek_audit.checks.structure import check_structure
from odradek_audit.findings import CHECKS, Check, Finding, FindingSink, Note, Severity

__all__ = [
    "CHECKS",
    "BatchFacts",
    "BatchTable",
    "Check",
    "EpochEntry",
    "Finding",
    "FindingSink",
    "HistoryOfPartition",
    "Note",
    "PartitionInputs",
    "PartitionResult",
    "PartitionSummary",
    "ReplicaInputs",
    "ReplicaSummary",
    "SegmentFile",
    "SegmentReader",
    "Severity",
    "check_agreement",
    "check_checkpoints",
    "check_epoch_cache",
    "check_history",
    "check_identity",
    "check_indexes",
    "check_partition",
    "check_sequences",
    "check_structure",
    "epochs_of_log",
    "log_end_offset",
]
