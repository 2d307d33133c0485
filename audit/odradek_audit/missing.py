"""Partitions of which a replica has no directory: `checkpoint-order` where its own checkpoint counted records of them.

`replication-offset-checkpoint` names the partitions that a broker hosts. Whoever deletes a replica in peace, because
its topic went or because it was reassigned, leaves the entry out when the file is written next, after seconds or at the
stop. So after a clean stop an entry without a directory is a loss; a broker that was killed, or runs, may have a stale
one: that is a note. Where no replica has a directory the topic is gone, and only a history can tell a deletion from a
loss (`acknowledged-lost`).
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_proto.formats import REPLICATION_OFFSET_CHECKPOINT
from odradek_proto.topics import DELETED_PARTITION_SUFFIX, TopicPartition

from odradek_audit.findings import CHECKS, Finding, Note
from odradek_audit.layout import METADATA_TOPIC, Layout, LogDirectory

CHECK = "checkpoint-order"
NO_DIRECTORY, COUNTED = "no-directory", "counted-without-directory"
NAMED = 5
"""Partitions that one note names."""


def check_missing(layout: Layout) -> tuple[list[Finding], list[Note]]:
    """Records that a replica has counted and of which it has no directory: findings after a clean stop, else notes.

    Looks at the partitions of the layout, so at none of other topics, and at none that every replica lacks.
    """
    findings: list[Finding] = []
    notes: list[Note] = []
    for partition in (TopicPartition(each.topic, each.partition) for each in layout.partitions):
        deleted = layout.has_aside(partition, (DELETED_PARTITION_SUFFIX,))
        for directory in layout.directories.values():
            if not _has_counted(directory, partition):
                continue
            if directory.clean_shutdown and not deleted:
                findings.append(_finding(directory, partition))
            else:
                notes.append(_note(directory, partition, deleted=deleted))
    return findings, notes


def absent_partitions(layout: Layout) -> list[Note]:
    """A note for each replica that lacks directories of partitions which another one has."""
    places = [TopicPartition(each.topic, each.partition) for each in layout.partitions]
    notes = []
    for name, directory in layout.directories.items():
        absent = [place for place in places if place not in directory.partitions]
        if absent:
            partitions = "1 partition" if len(absent) == 1 else f"{len(absent)} partitions"
            sentence = f"replica {name} has no directory of {partitions}, compared without it: {listed(absent)}"
            notes.append(Note(NO_DIRECTORY, "", -1, name, sentence))
    return notes


def listed(places: Iterable[object]) -> str:
    """The first of some partitions, and how many more there are."""
    names = [str(place) for place in places]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _has_counted(directory: LogDirectory, partition: TopicPartition) -> bool:
    """Whether a replica's checkpoint counts records, above its log start offset, of a partition that it has not."""
    if partition in directory.partitions or partition.topic == METADATA_TOPIC or directory.has_aside(partition):
        return False
    return directory.high_watermarks.get(partition, 0) > _log_start(directory, partition)


def _log_start(directory: LogDirectory, partition: TopicPartition) -> int:
    return max(directory.log_starts.get(partition, 0), 0)


def _said(directory: LogDirectory, partition: TopicPartition) -> str:
    return (
        f"{partition}: replica {directory.replica} has no directory of the partition, and its "
        f"{REPLICATION_OFFSET_CHECKPOINT} says the high watermark {directory.high_watermarks[partition]}"
    )


def _finding(directory: LogDirectory, partition: TopicPartition) -> Finding:
    evidence: dict[str, object] = {"no_directory": True, "claimed": directory.high_watermarks[partition]}
    if partition in directory.recovery_points:
        evidence["recovery_point"] = directory.recovery_points[partition]
    return Finding(
        CHECK,
        CHECKS[CHECK].severity,
        topic=partition.topic,
        partition=partition.partition,
        replica=directory.replica,
        sentence=f"{_said(directory, partition)}: it stopped cleanly and has counted records that it does not have",
        offset=_log_start(directory, partition),
        end_offset=directory.high_watermarks[partition],
        file=REPLICATION_OFFSET_CHECKPOINT,
        evidence=evidence,
    )


def _note(directory: LogDirectory, partition: TopicPartition, *, deleted: bool) -> Note:
    why = "another broker is deleting its own" if deleted else "it did not stop cleanly, so the entry may be stale"
    return Note(
        COUNTED,
        partition.topic,
        partition.partition,
        directory.replica,
        f"{_said(directory, partition)}; {why}: if it is a replica of the partition, the records are lost there",
        _log_start(directory, partition),
        directory.high_watermarks[partition],
    )
