"""Fetch requests and answers as bytes, versions 4 to 18. Written by hand: record batches are never copied.

    request    replica_id int32 (to 14; then in tag 1), max_wait_ms int32, min_bytes int32, max_bytes int32,
               isolation_level int8, session_id int32 and session_epoch int32 (from 7), [topic],
               [forgotten topic] (from 7), rack_id (from 11)
      topic      name (to 12) | topic id (from 13), [partition]
      partition  index int32, current_leader_epoch int32 (from 9), fetch_offset int64, last_fetched_epoch int32
                 (from 12), log_start_offset int64 (from 5), max_bytes int32; tags of followers (from 17) are skipped
      forgotten  name | topic id, [index int32]
    answer     throttle_time_ms int32, error int16 and session_id int32 (from 7), [topic],
               node_endpoints (tag 0, from 16)
      topic      name | topic id, [partition]
      partition  index int32, error int16, high_watermark int64, last_stable_offset int64, log_start_offset int64
                 (from 5), [aborted transaction], preferred_read_replica int32 (from 11), records,
                 diverging_epoch (tag 0), current_leader (tag 1), both from 12

The encoding is flexible from version 12 on.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from odradek_proto.transport.ports import Buffer
from odradek_proto.values import Value

from odradek_broker.kafka.messages.endpoints import (
    NodeEndpoint,
    Topic,
    write_leader,
    write_node_endpoints,
    write_topics,
)
from odradek_broker.kafka.messages.primitives import MessageReader, MessageWriter

FLEXIBLE_FROM = 12
IDS_FROM = 13
SESSIONS_FROM = 7
LEADERS_FROM = 12
NODES_FROM = 16
CONSUMER = -1
_REPLICA_STATE = 1  # its tag

_PARTITION = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset


class WantedPartition(Value, frozen=True):
    index: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class DecodedFetch(Value, frozen=True):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[Topic[WantedPartition]]
    forgotten: Sequence[Topic[int]]


class FetchPartitionAnswer(Value, frozen=True):
    """What is said of one partition; `records` are whole batches, one behind the other."""

    index: int
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Buffer] = ()
    diverging: tuple[int, int] | None = None  # epoch, end offset
    leader_id: int = -1
    leader_epoch: int = -1


def read_request(reader: MessageReader, version: int) -> DecodedFetch:
    """Raises one of `MALFORMED`."""
    flexible = version >= FLEXIBLE_FROM
    replica_id = reader.int32() if version < 15 else CONSUMER
    max_wait_ms, min_bytes, max_bytes = reader.int32(), reader.int32(), reader.int32()
    isolation_level = reader.int8()
    session_id, session_epoch = (reader.int32(), reader.int32()) if version >= SESSIONS_FROM else (0, -1)
    topics: list[Topic[WantedPartition]] = []
    for _ in range(reader.count(flexible=flexible)):
        name, topic_id = _read_topic(reader, version)
        partitions = [_read_partition(reader, version) for _ in range(reader.count(flexible=flexible))]
        if flexible:
            reader.skip_tags()
        topics.append(Topic(name, topic_id, partitions))
    forgotten: list[Topic[int]] = []
    for _ in range(reader.count(flexible=flexible) if version >= SESSIONS_FROM else 0):
        name, topic_id = _read_topic(reader, version)
        indexes = [reader.int32() for _ in range(reader.count(flexible=flexible))]
        if flexible:
            reader.skip_tags()
        forgotten.append(Topic(name, topic_id, indexes))
    if version >= 11:
        reader.string(flexible=flexible)  # rack_id: consumers read from leaders
    if flexible:
        state = reader.tags().get(_REPLICA_STATE)
        if state is not None and version >= 15:
            replica_id = state.int32()
    return DecodedFetch(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, forgotten
    )


def _read_topic(reader: MessageReader, version: int) -> tuple[str, bytes]:
    if version >= IDS_FROM:
        return "", reader.uuid()
    return reader.string(flexible=version >= FLEXIBLE_FROM), b""


def _read_partition(reader: MessageReader, version: int) -> WantedPartition:
    index = reader.int32()
    current_leader_epoch = reader.int32() if version >= 9 else -1
    fetch_offset = reader.int64()
    last_fetched_epoch = reader.int32() if version >= 12 else -1
    log_start_offset = reader.int64() if version >= 5 else -1
    max_bytes = reader.int32()
    if version >= FLEXIBLE_FROM:
        reader.skip_tags()
    return WantedPartition(index, current_leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, max_bytes)


def write_answer(
    version: int,
    topics: Sequence[Topic[FetchPartitionAnswer]],
    nodes: Sequence[NodeEndpoint] = (),
    *,
    error: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
) -> MessageWriter:
    """`error` is that of the session; `nodes` are where the leaders are that the partitions name."""
    flexible = version >= FLEXIBLE_FROM
    writer = MessageWriter()
    writer.int32(throttle_ms)
    if version >= SESSIONS_FROM:
        writer.int16(error)
        writer.int32(session_id)
    write_topics(writer, topics, _write_partition, version, ids=version >= IDS_FROM, flexible=flexible)
    if flexible:
        write_node_endpoints(writer, nodes if version >= NODES_FROM else ())
    return writer


def _write_partition(writer: MessageWriter, version: int, partition: FetchPartitionAnswer) -> None:
    flexible = version >= FLEXIBLE_FROM
    writer.out += _PARTITION.pack(
        partition.index, partition.error, partition.high_watermark, partition.last_stable_offset
    )
    if version >= 5:
        writer.int64(partition.log_start_offset)
    writer.count(-1 if not flexible else 0, flexible=flexible)  # aborted transactions: there are none
    if version >= 11:
        writer.int32(-1)  # preferred_read_replica: consumers read from leaders
    writer.large(partition.records, flexible=flexible)
    if flexible:
        diverging, told_leader = partition.diverging, partition.leader_id >= 0
        writer.uvarint((diverging is not None) + told_leader)
        if diverging is not None:
            inside = MessageWriter()
            inside.int32(diverging[0])
            inside.int64(diverging[1])
            inside.uvarint(0)
            writer.tag(0, inside)
        if told_leader:
            write_leader(writer, 1, partition.leader_id, partition.leader_epoch)
