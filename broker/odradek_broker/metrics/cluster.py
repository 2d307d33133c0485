"""The cluster as this node's metadata show it, and the quorum as this node sees it.

As in Kafka, every controller reports the counts of brokers and partitions from its own metadata: compare with `max`,
not `sum`. Only the active controller count, the elections and the fencings are each node's own and may be added up.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage
from odradek_broker.metrics.samples import Labels, counter, gauge, gauges
from odradek_broker.runtime.controller.node import ControllerNode
from odradek_broker.runtime.quorum.node import QuorumNode

CONTROLLER = "kafka_controller_kafkacontroller_"
RAFT = "kafka_server_raft_metrics_"
STATES = ("leader", "follower", "candidate", "prospective", "unattached", "resigned")


def controller(node: ControllerNode, image: MetadataImage) -> Iterator[Metric]:
    """What a controller knows."""
    partitions = [each for topic in image.topics.values() for each in topic.partitions.values()]
    fenced = sum(broker.fenced for broker in image.brokers.values())
    imbalance = sum(each.leader != each.replicas[0] for each in partitions)
    for name, text, value in (
        ("activecontrollercount", "1 on the active controller, else 0: the sum over all nodes is 1.", int(node.active)),
        ("activebrokercount", "Brokers that are registered and not fenced.", len(image.brokers) - fenced),
        ("fencedbrokercount", "Brokers that are registered and fenced.", fenced),
        ("globaltopiccount", "Topics.", len(image.topics)),
        ("globalpartitioncount", "Partitions.", len(partitions)),
        (
            "offlinepartitionscount",
            "Partitions without a leader.",
            sum(each.leader == NO_LEADER for each in partitions),
        ),
        ("preferredreplicaimbalancecount", "Partitions that their first replica does not lead.", imbalance),
    ):
        yield gauge(CONTROLLER + name, text, value)
    text = "Brokers that others cannot reach, as reported to the active controller; 0 on the other nodes."
    yield gauge("odradek_unreachable_brokers", text, len(node.unreachable_brokers))
    text = "Elections from outside of the ISR that this controller made."
    yield counter("kafka_controller_controllerstats_uncleanleaderelections_total", text, node.unclean_elections)
    text = "Brokers that this controller fenced because their session stream ended, before any timeout."
    yield counter("odradek_early_fencings_total", text, node.early_fencings)


def quorum(node: QuorumNode) -> Iterator[Metric]:
    """The metadata quorum."""
    for name, text, value in (
        ("current_leader", "Id of the quorum's leader as this node knows it, -1 for none.", node.leader_id),
        ("current_epoch", "Epoch of the quorum as this node knows it.", node.epoch),
        ("high_watermark", "High watermark of the metadata log as this node knows it.", node.high_watermark),
        ("log_end_offset", "Log end offset of the metadata log on this node.", node.log_end_offset),
    ):
        yield gauge(RAFT + name, text, value)
    rows: list[tuple[Labels, float]] = [({"state": state}, state == node.state_name) for state in STATES]
    yield gauges(f"{RAFT}current_state", "1 for the state in which this node is in the quorum.", rows)
