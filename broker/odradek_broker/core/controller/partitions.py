"""Changes of all partitions of a broker when it leaves or returns, and the settings that elections read."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from odradek_broker.core.controller.elections import ElectionKind, PartitionTarget, change_partition
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.metadata.records import MetadataRecord
from odradek_broker.core.metadata.topic_configs import effective_config


def all_partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """Every partition, topics in the order of their creation."""
    for topic in image.topics.values():
        for partition, registration in topic.partitions.items():
            yield topic, partition, registration


def unclean_election_allowed(image: MetadataImage, settings: ControllerSettings, topic: str) -> bool:
    """The topic's `unclean.leader.election.enable`, else the cluster's, else the node's."""
    return topic_setting(image, settings, topic, "unclean.leader.election.enable").strip().lower() == "true"


def min_insync_replicas(image: MetadataImage, settings: ControllerSettings, topic: str) -> int:
    return int(topic_setting(image, settings, topic, "min.insync.replicas"))


def topic_setting(image: MetadataImage, settings: ControllerSettings, topic: str, name: str) -> str:
    return effective_config(image, topic, name, settings.node_defaults).value


def has_leaderships(image: MetadataImage, broker_id: int) -> bool:
    return any(registration.leader == broker_id for _, _, registration in all_partitions(image))


def remove_broker(
    image: MetadataImage,
    settings: ControllerSettings,
    broker_id: int,
    unclean_shutdown: Collection[int] = (),
    *,
    lost: bool = False,
) -> list[MetadataRecord]:
    """The broker leaves every ISR and leads nothing: new elections wherever it was (R-134, R-135, R-142, R-152).

    One that has `lost` its disk is waited for nowhere, but where it is the only replica: that partition begins anew.
    """

    def acceptable(replica: int) -> bool:
        return replica != broker_id and image.is_active(replica)

    records: list[MetadataRecord] = []
    for topic, partition, current in all_partitions(image):
        awaited = lost and broker_id in current.last_known_eligible
        if broker_id not in (*current.isr, current.leader, *current.eligible) and not awaited:
            continue
        unclean = unclean_election_allowed(image, settings, topic.name)
        target = PartitionTarget(
            acceptable=acceptable,
            election=ElectionKind.UNCLEAN if unclean else ElectionKind.ONLINE,
            isr=tuple(replica for replica in current.isr if replica != broker_id),
            elr_enable=settings.elr_enable,
            min_insync_replicas=min_insync_replicas(image, settings, topic.name),
            unclean_shutdown=unclean_shutdown,
            lost=(broker_id,) if lost and len(current.replicas) > 1 else (),
        )
        record = change_partition(topic.topic_id, partition, current, target)
        if record is not None:
            records.append(record)
    return records


def elect_leaderless(
    image: MetadataImage, settings: ControllerSettings, unfenced: int | None = None, topic: str | None = None
) -> list[MetadataRecord]:
    """Elections for partitions without a leader (R-136, R-137).

    `unfenced` is a broker that the same batch makes active: only its partitions are looked at. `topic` restricts to
    one topic.
    """

    def acceptable(replica: int) -> bool:
        return replica == unfenced or image.is_active(replica)

    records: list[MetadataRecord] = []
    for topic_image, partition, current in all_partitions(image):
        if current.leader != NO_LEADER or (topic is not None and topic_image.name != topic):
            continue
        if unfenced is not None and unfenced not in current.replicas:
            continue
        unclean = unclean_election_allowed(image, settings, topic_image.name)
        target = PartitionTarget(
            acceptable=acceptable,
            election=ElectionKind.UNCLEAN if unclean else ElectionKind.ONLINE,
            elr_enable=settings.elr_enable,
            min_insync_replicas=min_insync_replicas(image, settings, topic_image.name),
        )
        record = change_partition(topic_image.topic_id, partition, current, target)
        if record is not None:
            records.append(record)
    return records


def review_eligible(
    image: MetadataImage, settings: ControllerSettings, topic: str | None = None
) -> list[MetadataRecord]:
    """Nobody is eligible any more where the ISR is enough now, since min.insync.replicas was lowered (R-139).

    The leader may commit with the ISR alone from then on. So this belongs into the batch of the setting itself: no
    leader reads one without the other.
    """
    records: list[MetadataRecord] = []
    for topic_image, partition, current in all_partitions(image):
        if not current.eligible or current.leader == NO_LEADER or topic not in (None, topic_image.name):
            continue
        target = PartitionTarget(
            acceptable=image.is_active,
            elr_enable=settings.elr_enable,
            min_insync_replicas=min_insync_replicas(image, settings, topic_image.name),
        )
        record = change_partition(topic_image.topic_id, partition, current, target)
        if record is not None:
            records.append(record)
    return records
