"""Copies that lack records which they have had: they do not lead while another replica may have more (R-146).

Unlike Kafka, where the last member of an ISR leads with whatever its disk still holds, and the others truncate. A
broker reports its damaged copies with its heartbeats. Such a copy is in no ISR, not eligible and not waited for as the
last known leader. If no other replica is left to wait for, all replicas report the ends of their logs, and the longest
leads, by an election that counts as unclean: no replica has more. As long as one of them is silent, an administrator
decides. A report counts in the leader epoch that it names: one from another epoch is about a replica that had another
role, or by nobody who follows the metadata, and its broker sends a newer one with its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_proto.v1.controller_messages import ReplicaReport

from odradek_broker.core.controller.elections import ElectionKind, PartitionTarget, change_partition
from odradek_broker.core.controller.partitions import min_insync_replicas, unclean_election_allowed
from odradek_broker.core.controller.sessions import SessionTable
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.metadata.records import MetadataRecord


def judge_replicas(
    image: MetadataImage,
    settings: ControllerSettings,
    sessions: SessionTable,
    broker_id: int,
) -> list[MetadataRecord]:
    """What follows from what a broker has just said of its copies."""
    records = []
    for topic, partition, report in _reported(image, sessions, broker_id):
        if report.leader_epoch != topic.partitions[partition].leader_epoch:
            continue
        unusable = report.log_end_offset < 0
        record = _withdraw(image, settings, topic, partition, broker_id, unusable) if report.damaged else None
        record = record or _elect_longest(image, settings, sessions, topic, partition)
        if record is not None:
            records.append(record)
    return records


def is_behind_its_copies(image: MetadataImage, sessions: SessionTable, broker_id: int) -> bool:
    """Whether a broker reports a damaged copy in an older leader epoch: unfenced now, that copy might be elected."""
    return any(
        report.damaged and report.leader_epoch < topic.partitions[partition].leader_epoch
        for topic, partition, report in _reported(image, sessions, broker_id)
    )


def _reported(
    image: MetadataImage, sessions: SessionTable, broker_id: int
) -> Iterator[tuple[TopicImage, int, ReplicaReport]]:
    for (topic_id, partition), report in sessions.reports_of(broker_id).items():
        topic = image.topic_by_id(topic_id)
        current = topic.partitions.get(partition) if topic is not None else None
        if topic is not None and current is not None and broker_id in current.replicas:
            yield topic, partition, report


def _withdraw(
    image: MetadataImage,
    settings: ControllerSettings,
    topic: TopicImage,
    partition: int,
    broker_id: int,
    unusable: bool,
) -> MetadataRecord | None:
    """Out of ISR and leadership; a leader only if another member of the ISR can take its place at once.

    A leader that cannot use its log at all serves nobody: if it is alone in an ISR that cannot commit, an eligible
    replica takes its place, which has all that is committed (R-139).
    """
    current = topic.partitions[partition]
    concerned = (*current.isr, current.leader, *current.eligible, *current.last_known_eligible)
    if broker_id not in concerned or len(current.replicas) == 1:
        return None
    isr = tuple(replica for replica in current.isr if replica != broker_id)
    successors = current.eligible if unusable and settings.elr_enable and not isr else isr
    if current.leader == broker_id and not any(map(image.is_active, successors)):
        return None

    def acceptable(replica: int) -> bool:
        return replica != broker_id and image.is_active(replica)

    unclean = unclean_election_allowed(image, settings, topic.name)
    target = PartitionTarget(
        acceptable=acceptable,
        election=ElectionKind.UNCLEAN if unclean else ElectionKind.ONLINE,
        isr=isr,
        elr_enable=settings.elr_enable,
        min_insync_replicas=min_insync_replicas(image, settings, topic.name),
        unclean_shutdown=(broker_id,),
        lost=(broker_id,),
    )
    return change_partition(topic.topic_id, partition, current, target)


def nobody_is_waited_for(current: PartitionRegistration) -> bool:
    """No leader, and no replica that would lead as soon as it is there."""
    return current.leader == NO_LEADER and not (current.isr or current.eligible or current.last_known_eligible)


def _elect_longest(
    image: MetadataImage, settings: ControllerSettings, sessions: SessionTable, topic: TopicImage, partition: int
) -> MetadataRecord | None:
    """Once every replica has said how far its log reaches: the newest epoch, then the end, then the replica list.

    Without a leader no log grows, so that what was said in this leader epoch still holds.
    """
    current = topic.partitions[partition]
    if not nobody_is_waited_for(current):
        return None
    longest, longest_end = NO_LEADER, (-2, -1)
    for replica in current.replicas:
        report = sessions.reports_of(replica).get((topic.topic_id, partition))
        if report is None or report.leader_epoch != current.leader_epoch or not image.is_active(replica):
            return None
        end = (report.last_epoch, report.log_end_offset)
        if end > longest_end:
            longest, longest_end = replica, end
    target = PartitionTarget(
        acceptable=lambda replica: replica == longest,
        election=ElectionKind.UNCLEAN,
        elr_enable=settings.elr_enable,
        min_insync_replicas=min_insync_replicas(image, settings, topic.name),
    )
    return change_partition(topic.topic_id, partition, current, target)
