"""Produce requests and answers as bytes, versions 3 to 13. Written by hand: record batches are never copied.

    request    transactional_id, acks int16, timeout_ms int32, [topic]
      topic      name (to 12) | topic id (from 13), [partition]
      partition  index int32, records
    answer     [topic], throttle_time_ms int32, node_endpoints (tag 0, from 10)
      topic      name | topic id, [partition]
      partition  index int32, error int16, base_offset int64, log_append_time_ms int64, log_start_offset int64 (from 5),
                 [place in the batch int32, message] and error_message (from 8), current_leader (tag 0, from 10)

The encoding is flexible from version 9 on.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from odradek_proto.values import Value

from odradek_broker.kafka.messages.endpoints import (
    NodeEndpoint,
    Topic,
    write_leader,
    write_node_endpoints,
    write_topics,
)
from odradek_broker.kafka.messages.primitives import MessageReader, MessageWriter

FLEXIBLE_FROM = 9
IDS_FROM = 13
LEADERS_FROM = 10

_PARTITION = struct.Struct(">ihqq")  # index, error, base offset, log append time: -1 with CreateTime


class ProducedPartition(Value, frozen=True):
    """One record batch of a request; `records` is a view of the frame, None for null."""

    index: int
    records: memoryview | None


class DecodedProduce(Value, frozen=True):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Sequence[Topic[ProducedPartition]]


class ProducePartitionAnswer(Value, frozen=True):
    """What is said of one partition."""

    index: int
    error: int = 0
    base_offset: int = -1
    log_start_offset: int = -1
    log_append_time_ms: int = -1
    message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    invalid_records: Sequence[int] = ()
    record_message: str = ""


def read_request(reader: MessageReader, version: int) -> DecodedProduce:
    """Raises one of `MALFORMED`."""
    flexible = version >= FLEXIBLE_FROM
    transactional_id = reader.string_or_none(flexible=flexible)
    acks, timeout_ms = reader.int16(), reader.int32()
    topics: list[Topic[ProducedPartition]] = []
    for _ in range(reader.count(flexible=flexible)):
        name, topic_id = "", b""
        if version >= IDS_FROM:
            topic_id = reader.uuid()
        else:
            name = reader.string(flexible=flexible)
        partitions: list[ProducedPartition] = []
        for _ in range(reader.count(flexible=flexible)):
            partitions.append(ProducedPartition(reader.int32(), reader.bytes_or_none(flexible=flexible)))
            if flexible:
                reader.skip_tags()
        if flexible:
            reader.skip_tags()
        topics.append(Topic(name, topic_id, partitions))
    if flexible:
        reader.skip_tags()
    return DecodedProduce(transactional_id, acks, timeout_ms, topics)


def write_answer(
    version: int,
    topics: Sequence[Topic[ProducePartitionAnswer]],
    nodes: Sequence[NodeEndpoint] = (),
    *,
    throttle_ms: int = 0,
) -> MessageWriter:
    """`nodes` are where the leaders are that the partitions name."""
    flexible = version >= FLEXIBLE_FROM
    writer = MessageWriter()
    write_topics(writer, topics, _write_partition, version, ids=version >= IDS_FROM, flexible=flexible)
    writer.int32(throttle_ms)
    if flexible:
        write_node_endpoints(writer, nodes if version >= LEADERS_FROM else ())
    return writer


def _write_partition(writer: MessageWriter, version: int, partition: ProducePartitionAnswer) -> None:
    flexible = version >= FLEXIBLE_FROM
    index, time_ms = partition.index, partition.log_append_time_ms
    writer.out += _PARTITION.pack(index, partition.error, partition.base_offset, time_ms)
    if version >= 5:
        writer.int64(partition.log_start_offset)
    if version >= 8:
        writer.count(len(partition.invalid_records), flexible=flexible)
        for place in partition.invalid_records:
            writer.int32(place)
            writer.string(partition.record_message, flexible=flexible)
            if flexible:
                writer.uvarint(0)
        writer.string(partition.message, flexible=flexible)
    if version >= LEADERS_FROM and partition.leader_id >= 0:
        writer.uvarint(1)
        write_leader(writer, 0, partition.leader_id, partition.leader_epoch)
    elif flexible:
        writer.uvarint(0)
