"""Every check of the audit: its name, what it means, and the functions that say its cause and its headline (`wording`).

A check is one `Check` here and one function in `checks`, which `engine.partition` calls, or `report.model` for what
concerns more than one partition. The order is that of gravity: what is gone, then what is wrong, then what only
misleads.
"""

from __future__ import annotations

from odradek_audit import wording
from odradek_audit.findings import Check, CheckKind, Finding, Severity

# The order in this file is the order of gravity, by which `gravity` sorts: a new check stands at its gravity, not last.
ACKNOWLEDGED_LOST = Check(
    "acknowledged-lost",
    CheckKind.LOST,
    Severity.CRITICAL,
    "an acknowledged acks=all record is not in the log",
    ("S-2", "S-3", "D1", "D4", "I-12"),
    cause=wording.cause_of_loss,
    headline=wording.headline_of_loss,
    told_in_runs=True,
)
DELIVERED_LOST = Check(
    "delivered-lost",
    CheckKind.LOST,
    Severity.CRITICAL,
    "a record that a consumer was given is not in the log",
    ("S-4",),
    cause=wording.cause_of_loss,
    headline=wording.headline_of_loss,
    told_in_runs=True,
)
METADATA_ELECTION = Check(
    "metadata-election",
    CheckKind.METADATA,
    Severity.CRITICAL,
    "a leader was elected from outside of the ISR, and nothing says that the election was unclean",
    ("C3",),
    cause="the controller elected a replica that may lack acknowledged records; or the metadata log was changed",
)
METADATA_LEADER_EPOCH = Check(
    "metadata-leader-epoch",
    CheckKind.METADATA,
    Severity.CRITICAL,
    "a leader was elected in a leader epoch that another one had, or wrote in one that nobody was given",
    ("C1", "C2"),
    cause=wording.cause_of_leader_epoch,
)
METADATA_ISR = Check(
    "metadata-isr",
    CheckKind.METADATA,
    Severity.CRITICAL,
    "an ISR holds who may not be in it",
    ("C4",),
    cause="the controller took a change that was decided on an older state, or kept a broker that had been dead; or "
    "the metadata log was changed",
)
METADATA_SNAPSHOT = Check(
    "metadata-snapshot",
    CheckKind.METADATA,
    Severity.CRITICAL,
    "a snapshot of the metadata says something else than the metadata log",
    ("C4",),
    cause="the snapshot was changed, or is of another cluster, or its node had made another state of the same records",
)
LOG_MATCHING = Check(
    "log-matching",
    CheckKind.AGREEMENT,
    Severity.CRITICAL,
    "two replicas differ where they must agree",
    ("I-1", "I-3", "B1", "B5"),
    cause=wording.cause_of_difference,
    headline=wording.headline_of_difference,
)
COMPACTION_MISMATCH = Check(
    "compaction-mismatch",
    CheckKind.AGREEMENT,
    Severity.CRITICAL,
    "replicas of a compacted log hold other records, or other newest values of a key",
    ("B1", "K-89"),
    cause="a copy was changed after it was written, or its cleaner took what it must keep",
)
EPOCH_FORK = Check(
    "epoch-fork",
    CheckKind.AGREEMENT,
    Severity.CRITICAL,
    "one (offset, epoch) holds different bytes on two replicas",
    ("I-2", "S-8", "B2"),
    cause=wording.cause_of_fork,
    headline=wording.headline_of_difference,
)
CRC_MISMATCH = Check(
    "crc-mismatch",
    CheckKind.STRUCTURE,
    Severity.CRITICAL,
    "a batch's bytes do not have the CRC-32C that its header names",
    ("I-9", "A1"),
    cause=wording.cause_of_crc,
    headline=wording.headline_of_crc,
)
BATCH_UNREADABLE = Check(
    "batch-unreadable",
    CheckKind.STRUCTURE,
    Severity.CRITICAL,
    "bytes where a batch should begin are no batch",
    ("A1",),
    cause="the file was overwritten here, or a write never reached the disk as a whole",
    headline=wording.headline_of_unreadable,
)
TORN_TAIL = Check(
    "torn-tail",
    CheckKind.STRUCTURE,
    Severity.CRITICAL,
    "an incomplete batch stands where no crash can have left it",
    ("A7",),
    cause="the file was cut by something else than a crash of the broker, or the disk lost what it had "
    "confirmed as flushed",
)
OFFSET_GAP = Check(
    "offset-gap",
    CheckKind.STRUCTURE,
    Severity.CRITICAL,
    "offsets are missing between two batches",
    ("I-6", "A2"),
    cause=wording.cause_of_gap,
    headline=wording.headline_of_gap,
)
OFFSET_NOT_INCREASING = Check(
    "offset-not-increasing",
    CheckKind.STRUCTURE,
    Severity.CRITICAL,
    "a batch begins at or below the last offset before it",
    ("I-5", "A2"),
    cause=wording.cause_of_repetition,
    headline=wording.headline_of_repetition,
)
EPOCH_NOT_MONOTONIC = Check(
    "epoch-not-monotonic",
    CheckKind.STRUCTURE,
    Severity.CRITICAL,
    "a batch has a leader epoch that does not fit between those around it",
    ("I-4", "A3"),
    cause=wording.cause_of_epoch,
    headline=wording.headline_of_epoch,
)
DUPLICATED = Check(
    "duplicated",
    CheckKind.TOLD,
    Severity.CRITICAL,
    "an idempotent producer's record is in the log more than once",
    ("I-12", "D5"),
    cause="a retry was appended a second time: the producer's state was lost at a change of leader",
    headline=wording.headline_of_duplicate,
    told_in_runs=True,
)
PHANTOM = Check(
    "phantom",
    CheckKind.TOLD,
    Severity.CRITICAL,
    "the log holds a record that nobody sent",
    ("D2",),
    cause="the record was written by somebody whose history was not given (the audit needs every writer's), or its "
    "value was changed",
)
FAILED_PRESENT = Check(
    "failed-present",
    CheckKind.TOLD,
    Severity.CRITICAL,
    "a record whose send definitely failed is in the log",
    ("D3",),
    cause="the broker had appended the record before it refused it",
    told_in_runs=True,
)
REORDERED = Check(
    "reordered",
    CheckKind.TOLD,
    Severity.CRITICAL,
    "a producer's later record has a smaller offset",
    ("S-5", "D6"),
    cause="a later batch overtook an earlier one that was sent again",
)
ABORTED_DELIVERED = Check(
    "aborted-delivered",
    CheckKind.TOLD,
    Severity.CRITICAL,
    "a consumer that reads committed records was given one of an aborted transaction",
    ("D2",),
    cause="the broker passed an aborted transaction over when it answered (its transaction index, its last stable "
    "offset), or the consumer did",
    told_in_runs=True,
)
RECORD_COUNT_MISMATCH = Check(
    "record-count-mismatch",
    CheckKind.STRUCTURE,
    Severity.CRITICAL,
    "a batch has not as many records as offsets",
    ("I-6", "A1"),
    cause="the header was changed and its CRC made right: no broker accepts such a batch",
)
HEADER_MISMATCH = Check(
    "header-mismatch",
    CheckKind.STRUCTURE,
    Severity.ERROR,
    "a batch's header, or a marker, says what no broker writes or its records contradict",
    ("A1",),
    cause="the header was changed and its CRC made right, or a client wrote it so and its broker took it",
)
TRANSACTION_MISMATCH = Check(
    "transaction-mismatch",
    CheckKind.LOG,
    Severity.CRITICAL,
    "markers in the log and the transaction index disagree",
    ("C6",),
    cause="the marker or the index was changed, or the index was not cut together with its log",
    once_a_file=True,
)
PRODUCER_EPOCH_NOT_MONOTONIC = Check(
    "producer-epoch-not-monotonic",
    CheckKind.LOG,
    Severity.CRITICAL,
    "a producer's batch has an older producer epoch than one before it",
    ("I-11", "C5"),
    cause="a producer that was fenced wrote on: the leader had lost the producer's state",
)
REPLICA_BEHIND = Check(
    "replica-behind",
    CheckKind.FILE,
    Severity.ERROR,
    "a replica lacks the end of what is replicated, although it had time to fetch it",
    ("B4",),
    cause="the replica has not followed its leader for long, or its log lost its end",
)
GROUP_OFFSET_BEYOND = Check(
    "group-offset-beyond-log",
    CheckKind.GROUP,
    Severity.ERROR,
    "a consumer group has committed an offset behind the log's end",
    ("C7",),
    cause="the log lost records after the group had read them; or the commit is of an earlier topic of this name",
)
IDENTITY_MISMATCH = Check(
    "identity-mismatch",
    CheckKind.IDENTITY,
    Severity.ERROR,
    "replicas belong to different clusters or topics, or are one",
    ("A8",),
    cause="the directory belongs to another cluster or to an earlier topic of the same name",
)
CHECKPOINT_ORDER = Check(
    "checkpoint-order",
    CheckKind.FILE,
    Severity.ERROR,
    "log start offset, high watermark, recovery point, log end are out of order",
    ("I-8", "A6"),
    cause=wording.cause_of_checkpoint,
    headline=wording.headline_of_checkpoint,
)
EPOCH_CACHE_MISMATCH = Check(
    "epoch-cache-mismatch",
    CheckKind.FILE,
    Severity.ERROR,
    "the leader epoch file does not say what the batches say",
    ("I-7", "A5"),
    cause="the file was not written before the epoch's first batch, or not cut with the log",
    once_a_file=True,
)
FILE_CORRUPT = Check(
    "file-corrupt",
    CheckKind.FILE,
    Severity.ERROR,
    "a checkpoint or metadata file cannot be read",
    ("A5", "A6"),
    cause="the file was overwritten, or a write was torn",
    headline=wording.headline_of_file,
)
INDEX_UNSOUND = Check(
    "index-unsound",
    CheckKind.FILE,
    Severity.ERROR,
    "an index entry would lead a reader to the wrong place",
    ("I-10", "A4"),
    cause="the index was not cut or rebuilt together with its log, or it was changed",
    once_a_file=True,
)
PRODUCER_SNAPSHOT_MISMATCH = Check(
    "producer-snapshot-mismatch",
    CheckKind.FILE,
    Severity.ERROR,
    "a producer snapshot does not say what the batches say",
    ("I-11", "C5"),
    cause="the snapshot was changed, or not made anew when the log was cut",
    once_a_file=True,
)
SEQUENCE_GAP = Check(
    "sequence-gap",
    CheckKind.LOG,
    Severity.ERROR,
    "an idempotent producer's sequence numbers jump or repeat",
    ("I-11", "C5"),
    cause="a batch of this producer is missing here or was appended twice; the producer's state was lost",
)

CHECKS = {check.name: check for check in list(vars().values()) if isinstance(check, Check)}
"""By name, in the order of this module."""


def gravity(finding: Finding) -> tuple[bool, int, str, int, str]:
    """Sorts findings of one partition, the gravest first."""
    place = list(CHECKS).index(finding.check)
    return (finding.severity is not Severity.CRITICAL, place, finding.check, finding.offset, finding.replica)
