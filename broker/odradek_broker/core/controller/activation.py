"""The records that a node writes first when it becomes the active controller."""

from __future__ import annotations

from odradek_proto.v1 import metadata_messages

from odradek_broker.core.controller.decision import config_record
from odradek_broker.core.controller.partitions import review_eligible
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord, apply
from odradek_broker.core.metadata.topic_configs import CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS


def activation_records(image: MetadataImage, settings: ControllerSettings) -> list[MetadataRecord]:
    """One batch: the cluster's id, if it has none yet, and the one min.insync.replicas that everybody counts with."""
    records: list[MetadataRecord] = []
    if not image.cluster_id:
        records.append(metadata_messages.ClusterRecord(cluster_id=settings.cluster_id))
    return records + (_one_minimum(image, settings) if settings.elr_enable else [])


def _one_minimum(image: MetadataImage, settings: ControllerSettings) -> list[MetadataRecord]:
    """A value of the cluster, from this node's file if there is none, and none of single brokers (R-139).

    A leader that counts with less than the controller commits without replicas that are still eligible: the one that
    leads next would lack acknowledged records. So the nodes' files must not decide, which may differ. As in Kafka, when
    eligible leader replicas begin. Whoever was eligible by another value is judged by this one in the same batch.
    """
    records = [
        config_record("broker", broker, MIN_INSYNC_REPLICAS, None)
        for broker, values in image.broker_configs.items()
        if broker != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in values
    ]
    if MIN_INSYNC_REPLICAS not in image.broker_configs.get(CLUSTER_DEFAULT, {}):
        value = settings.node_defaults[MIN_INSYNC_REPLICAS]
        records.append(config_record("broker", CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS, value))
    if not records:
        return []
    settled = image.copy()
    for record in records:
        apply(settled, record, settled.offset, settled.epoch)
    return [*records, *review_eligible(settled, settings)]
