"""What Produce and Fetch share: partitions by topic, and hints at the new leader (KIP-951), where to find that broker.

topic      name | topic id, from a version of the API on; [partition]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from odradek_proto.values import Value

from odradek_broker.kafka.messages.primitives import MessageWriter

T = TypeVar("T")


class Topic(Value, Generic[T], frozen=True):
    """`name` is empty where the version has the id alone, `topic_id` where it has the name."""

    name: str
    topic_id: bytes
    partitions: Sequence[T]


def write_topics(
    writer: MessageWriter,
    topics: Sequence[Topic[T]],
    write_partition: Callable[[MessageWriter, int, T], None],
    version: int,
    *,
    ids: bool,
    flexible: bool,
) -> None:
    writer.count(len(topics), flexible=flexible)
    for topic in topics:
        if ids:
            writer.uuid(topic.topic_id)
        else:
            writer.string(topic.name, flexible=flexible)
        writer.count(len(topic.partitions), flexible=flexible)
        for partition in topic.partitions:
            write_partition(writer, version, partition)
        if flexible:
            writer.uvarint(0)


class NodeEndpoint(Value, frozen=True):
    """Where a broker is found, on the listener on which the request came."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


Endpoints = Callable[[str, Iterable[int]], list[NodeEndpoint]]  # of a listener, for these brokers


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, as Kafka's messages want it: IPv6 addresses without brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def write_leader(writer: MessageWriter, tag: int, leader_id: int, leader_epoch: int) -> None:
    """The tagged field `current_leader` of a partition."""
    inside = MessageWriter()
    inside.int32(leader_id)
    inside.int32(leader_epoch)
    inside.uvarint(0)
    writer.tag(tag, inside)


def write_node_endpoints(writer: MessageWriter, nodes: Sequence[NodeEndpoint]) -> None:
    """The tagged fields that end a Produce or Fetch answer: `node_endpoints`, if there are any."""
    if not nodes:
        writer.uvarint(0)
        return
    inside = MessageWriter()
    inside.count(len(nodes), flexible=True)
    for node in nodes:
        inside.int32(node.node_id)
        inside.string(node.host, flexible=True)
        inside.int32(node.port)
        inside.string(node.rack, flexible=True)
        inside.uvarint(0)
    writer.uvarint(1)
    writer.tag(0, inside)
