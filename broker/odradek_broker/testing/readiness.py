"""What a cluster still lacks: each function says it in a few words, and nothing when nothing is missing.

`nodes` are the brokers that run, by their ids. "Ready" is what they themselves know: the committed metadata of every
one of them says so, not only that of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_proto.topics import TopicPartition

from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.process.node import Node


def not_ready(nodes: Mapping[int, Node]) -> str:
    """A running broker is not unfenced, or another one does not know it."""
    for broker, node in nodes.items():
        if node.broker is None or not node.broker.caught_up.is_set():
            return f"broker {broker} has not caught up with the metadata"
        fenced = [other for other in nodes if not node.feed.image.is_active(other)]
        if fenced:
            return f"broker {broker} does not know that {fenced} are unfenced"
    return ""


def not_noticed(nodes: Mapping[int, Node], brokers: Iterable[int]) -> str:
    """A broker of the cluster is down, and a running one takes it for alive."""
    down = [broker for broker in brokers if broker not in nodes]
    for broker, node in nodes.items():
        active = [other for other in down if node.feed.image.is_active(other)]
        if active:
            return f"broker {broker} has not noticed that {active} are down"
    return ""


def not_leading(nodes: Mapping[int, Node], topic: str) -> str:
    """A running broker has not heard of a new topic, or a leader has not taken its partition over."""
    for broker, node in nodes.items():
        found = node.feed.image.topics.get(topic)
        if found is None:
            return f"broker {broker} does not know the topic {topic!r}"
        for number, each in found.partitions.items():
            leader = nodes.get(each.leader)
            hosts = leader.broker.replicas.replicas if leader is not None and leader.broker is not None else {}
            if TopicPartition(topic, number) not in hosts:
                return f"{topic}-{number}: its leader {each.leader} does not lead it yet"
    return ""


def not_in_sync(image: MetadataImage, topic: str) -> str:
    """A replica of the topic is not in sync: the partitions, with their in-sync replicas and all of them."""
    found = image.topics.get(topic)
    if found is None:
        return f"there is no topic {topic!r}"
    return "; ".join(
        f"{topic}-{number}: in sync {list(each.isr)} of {list(each.replicas)}"
        for number, each in found.partitions.items()
        if set(each.isr) != set(each.replicas)
    )


def not_reassigned(nodes: Mapping[int, Node], topic: str) -> str:
    """A partition is on its way to other replicas, or a running broker has not yet taken up or given up its own."""
    for broker, node in nodes.items():
        found = node.feed.image.topics.get(topic)
        if found is None:
            return f"broker {broker} does not know the topic {topic!r}"
        for number, each in found.partitions.items():
            if each.reassigning:
                return f"{topic}-{number}: adding {list(each.adding)}, removing {list(each.removing)}"
            hosts = node.broker.replicas.replicas if node.broker is not None else {}
            if (TopicPartition(topic, number) in hosts) != (broker in each.replicas):
                return f"{topic}-{number}: broker {broker} has not heard that its replicas are {list(each.replicas)}"
    return not_in_sync(max((node.feed.image for node in nodes.values()), key=lambda image: image.offset), topic)
