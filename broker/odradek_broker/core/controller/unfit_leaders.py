"""Leaders that heartbeat and cannot serve, while another member of the ISR can: unreachable ones, and full ones.

Nothing moves where nobody is better: no partition loses its leader by this, and nobody is elected that lacks records.
The old leader stays in the ISR and follows; if it cannot do that, the new leader removes it as any lagging follower.

Unreachable (R-147) is a leader whose followers get no response while its own connections work: a grey failure. Unlike
Kafka, where such a broker leads for as long as its heartbeats arrive. A broker reports with its heartbeats which
leaders do not respond to it. One witness proves nothing: it may be cut off itself. So a replica takes over if

- all active members of the ISR except the leader report that the leader does not respond;
- at least two brokers do, and none of those reports the same of the replica that takes over.

Full (R-148) is a leader whose broker reports that its disk takes nothing more. It is replaced as long as it reports it,
by one that does not and that others reach. Unlike Kafka, where a directory without room is offline as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.v1.controller_messages import Heartbeat

from odradek_broker.core.controller.elections import PartitionTarget, change_partition
from odradek_broker.core.controller.partitions import all_partitions, min_insync_replicas
from odradek_broker.core.controller.sessions import SessionTable
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.metadata.records import MetadataRecord

MIN_WITNESSES = 2


def unreachable_brokers(image: MetadataImage, sessions: SessionTable) -> list[int]:
    """Brokers that enough others cannot reach."""
    found = sessions.unreachable_from(image)
    return sorted(broker_id for broker_id, witnesses in found.items() if len(witnesses) >= MIN_WITNESSES)


def full_brokers(image: MetadataImage, sessions: SessionTable) -> list[int]:
    """The active brokers whose last heartbeat said that their disk is full."""
    return [each for each in sorted(image.brokers) if image.is_active(each) and sessions.is_full(each)]


def unfit_brokers(image: MetadataImage, sessions: SessionTable) -> list[int]:
    """Both: they are given no leadership that they need not have (R-137, R-138)."""
    return sorted({*unreachable_brokers(image, sessions), *full_brokers(image, sessions)})


def replace_unfit(
    image: MetadataImage, settings: ControllerSettings, sessions: SessionTable, heartbeat: Heartbeat
) -> list[MetadataRecord]:
    """What follows from what a broker has just said of leaders and of its disk."""
    if not (heartbeat.unreachable or heartbeat.disk_full):
        return []
    found, unfit = sessions.unreachable_from(image), unfit_brokers(image, sessions)
    records = []
    for topic, partition, current in all_partitions(image):
        others, isr = [each for each in current.isr if each != current.leader and image.is_active(each)], current.isr
        successors: Sequence[int] = ()
        if current.leader in heartbeat.unreachable:
            if not others and settings.elr_enable:  # alone in an ISR that cannot commit: who is eligible has all
                others, isr = [each for each in current.eligible if image.is_active(each)], ()
            successors = _witnessed(current.leader, others, found)
            successors = [each for each in successors if each not in unfit] or successors
        elif heartbeat.disk_full and current.leader == heartbeat.broker_id:
            successors = [each for each in others if each not in unfit]
        if successors:
            records += _hand_over(image, settings, topic, partition, current, successors, isr)
    return records


def _witnessed(leader: int, others: Sequence[int], found: dict[int, list[int]]) -> list[int]:
    """Those of whom enough witnesses, all other members among them, do not say what they say of the leader."""
    witnesses = found.get(leader, ())
    successors = []
    for each in others:
        credible = [witness for witness in witnesses if witness not in found.get(each, ())]
        if len(credible) >= MIN_WITNESSES and set(others) <= set(credible):
            successors.append(each)
    return successors


def _hand_over(
    image: MetadataImage,
    settings: ControllerSettings,
    topic: TopicImage,
    partition: int,
    current: PartitionRegistration,
    successors: Sequence[int],
    isr: tuple[int, ...],
) -> list[MetadataRecord]:
    target = PartitionTarget(
        acceptable=successors.__contains__,
        isr=isr,
        elr_enable=settings.elr_enable,
        min_insync_replicas=min_insync_replicas(image, settings, topic.name),
    )
    record = change_partition(topic.topic_id, partition, current, target)
    return [] if record is None else [record]
