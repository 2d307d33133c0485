"""`metadata-leader-epoch`: did each leader epoch that a log has records of come from the controller (C1, C2)?

A leader writes only in an epoch that the metadata log has given it, and has that record on its own disk before. So an
epoch that the metadata log does not reach, or in which it names no leader, is a changed header or a leader that nobody
elected. Judged is the log that counts, and only where nothing else was found at the place: one damage, one finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek_proto.topics import TopicPartition

from odradek_audit.catalogue import METADATA_LEADER_EPOCH
from odradek_audit.findings import Finding, Note
from odradek_audit.inputs.facts import PartitionInputs
from odradek_audit.results import Elected, PartitionResult, PartitionSummary

NO_LEADER = -1


def check_elected(
    partitions: Iterable[PartitionInputs], results: Sequence[PartitionResult]
) -> tuple[list[Finding], list[Note]]:
    """Findings of brokers that stopped cleanly; of others notes, for their metadata log may have been copied first."""
    elected = {place: each for result in results for place, each in result.elected.items()}
    by_place = {TopicPartition(each.summary.topic, each.summary.partition): each for each in results}
    findings: list[Finding] = []
    notes: list[Note] = []
    for inputs in partitions if elected else ():
        place = TopicPartition(inputs.topic, inputs.partition)
        found = by_place.get(place)
        replica = inputs.replicas.get(found.summary.reference_replica) if found is not None else None
        if found is None or replica is None:
            continue
        known = elected.get(TopicPartition(replica.topic_id, inputs.partition))
        for finding in _judged(found.summary, known) if known is not None else ():
            if any(_tells(other, finding) for other in found.findings):
                continue
            if replica.clean_shutdown:
                findings.append(finding)
            else:
                notes.append(Note("metadata", *place, finding.replica, finding.sentence, finding.offset))
    return findings, notes


def _judged(summary: PartitionSummary, known: Elected) -> Iterable[Finding]:
    name = summary.reference_replica
    epochs = next((each.epochs for each in summary.replicas if each.replica == name), [])
    for epoch, first in epochs:
        if epoch > known.newest_epoch:
            said = f"the newest leader epoch that the metadata log gave it is {known.newest_epoch}"
        elif known.leaders.get(epoch, epoch) == NO_LEADER:
            said = "the metadata log says that nobody led in it"
        else:
            continue
        yield Finding(
            METADATA_LEADER_EPOCH.name,
            METADATA_LEADER_EPOCH.severity,
            topic=summary.topic,
            partition=summary.partition,
            replica=name,
            sentence=f"{summary.topic}-{summary.partition}: replica {name} holds records of leader epoch {epoch} from "
            f"offset {first} on, and {said}",
            offset=first,
            end_offset=first + 1,
            epoch=epoch,
        )


def _tells(told: Finding, finding: Finding) -> bool:
    """Whether a finding about the same place was reported already."""
    return told.epoch == finding.epoch or told.offset <= finding.offset < max(told.end_offset, told.offset + 1)
