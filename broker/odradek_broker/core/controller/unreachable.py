"""Leaders that are unreachable while their own connections work (R-147): a grey failure.

Unlike Kafka, where such a broker leads for as long as its heartbeats arrive. A broker reports with its heartbeats which
leaders do not respond to it. One witness proves nothing: it may be cut off itself. So a replica takes over if

- all active members of the ISR except the leader report that the leader does not respond;
- at least two brokers do, and none of those reports the same of the replica that takes over.

If no replica qualifies the leader stays: no partition loses its leader by this. The old leader stays in the ISR and
follows on its own connections; if it cannot do that either, the new leader removes it as any lagging follower.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.v1.controller_messages import Heartbeat

from odradek_broker.core.controller.elections import PartitionTarget, change_partition
from odradek_broker.core.controller.partitions import all_partitions, min_insync_replicas
from odradek_broker.core.controller.sessions import SessionTable
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord

MIN_WITNESSES = 2


def unreachable_brokers(image: MetadataImage, sessions: SessionTable) -> list[int]:
    """Brokers that enough others cannot reach: they are given no leadership that they need not have."""
    found = sessions.unreachable_from(image)
    return sorted(broker_id for broker_id, witnesses in found.items() if len(witnesses) >= MIN_WITNESSES)


def depose_unreachable(
    image: MetadataImage, settings: ControllerSettings, sessions: SessionTable, heartbeat: Heartbeat
) -> list[MetadataRecord]:
    """What follows from what a broker has just said of leaders: those of them that somebody can replace."""
    if not heartbeat.unreachable:
        return []
    found = sessions.unreachable_from(image)
    records: list[MetadataRecord] = []
    for topic, partition, current in all_partitions(image):
        witnesses = found.get(current.leader, ())
        if current.leader not in heartbeat.unreachable or len(witnesses) < MIN_WITNESSES:
            continue
        others = [each for each in current.isr if each != current.leader and image.is_active(each)]
        isr = current.isr
        if not others:  # the leader is alone in an ISR that cannot commit: who is eligible has all
            others, isr = [each for each in current.eligible if image.is_active(each)], ()
        successors = [each for each in others if _may_succeed(each, others, witnesses, found)]
        if not successors:
            continue
        target = PartitionTarget(
            acceptable=successors.__contains__,
            isr=isr,
            elr_enable=settings.elr_enable,
            min_insync_replicas=min_insync_replicas(image, settings, topic.name),
        )
        record = change_partition(topic.topic_id, partition, current, target)
        if record is not None:
            records.append(record)
    return records


def _may_succeed(replica: int, others: Sequence[int], witnesses: Sequence[int], found: dict[int, list[int]]) -> bool:
    """Whether enough witnesses, all other members among them, do not say of the replica what they say of the leader."""
    credible = [each for each in witnesses if each not in found.get(replica, ())]
    return len(credible) >= MIN_WITNESSES and set(others) <= set(credible)
