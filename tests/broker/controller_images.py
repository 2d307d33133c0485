"""Images of clusters for tests of the controller's core, and what happens to them when a decision is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.metadata.records import MetadataRecord, apply

CLUSTER_ID = "a-test-cluster"
SETTINGS = ControllerSettings(node_id=0, cluster_id=CLUSTER_ID, elr_enable=False)  # R-135 unless a test says more
ORDERS_ID = b"orders-topic-id!"


def incarnation(broker_id: int, life: int = 0) -> bytes:
    return bytes([broker_id, life]) * 8


def image_of(brokers: Sequence[int], fenced: Sequence[int] = (), leaving: Sequence[int] = ()) -> MetadataImage:
    """A cluster whose brokers have the broker epoch 100 + id."""
    image = MetadataImage(offset=200, epoch=1, cluster_id=CLUSTER_ID)
    for broker_id in brokers:
        image.brokers[broker_id] = BrokerRegistration(
            broker_id=broker_id,
            broker_epoch=100 + broker_id,
            incarnation_id=incarnation(broker_id),
            endpoints={"GRPC": f"host{broker_id}:9092"},
            fenced=broker_id in fenced,
            in_controlled_shutdown=broker_id in leaving,
        )
    return image


def partition_of(
    replicas: Sequence[int],
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    *,
    recovering: bool = False,
    eligible: Sequence[int] = (),
    last_known: Sequence[int] = (),
) -> PartitionRegistration:
    """Leader epoch 5, partition epoch 10. By default all replicas are in sync and the first of the ISR leads."""
    members = tuple(replicas if isr is None else isr)
    return PartitionRegistration(
        replicas=tuple(replicas),
        isr=members,
        leader=members[0] if leader is None else leader,
        leader_epoch=5,
        partition_epoch=10,
        recovering=recovering,
        eligible=tuple(eligible),
        last_known_eligible=tuple(last_known),
    )


def add_topic(
    image: MetadataImage, name: str, *partitions: PartitionRegistration, topic_id: bytes = ORDERS_ID, **configs: str
) -> TopicImage:
    """A topic with these partitions; settings with `_` for `.`."""
    topic = image.topics[name] = TopicImage(name, topic_id, dict(enumerate(partitions)))
    image.topic_names[topic_id] = name
    if configs:
        image.topic_configs[name] = {key.replace("_", "."): value for key, value in configs.items()}
    return topic


def write(image: MetadataImage, records: Iterable[MetadataRecord]) -> MetadataDelta:
    """Apply one batch."""
    delta = MetadataDelta()
    for record in records:
        delta.add(apply(image, record, image.offset, image.epoch))
    return delta
