"""The records of classic groups and committed offsets in `__consumer_offsets`, byte for byte as Kafka 4.1.1 has them.

    key    int16 type, then
           1  committed offset   group id, topic, int32 partition
           2  classic group      group id
    value  int16 version, then
           1  offset: version 4  int64 offset, int32 leader epoch, metadata, int64 commit time; tag 0: topic id
              with a time to expire, version 1: int64 offset, metadata, int64 commit time, int64 expire time
           2  group: version 3   protocol type, int32 generation, protocol?, leader?, int64 time of the last state,
              members: id, instance id?, client id, host, int32 rebalance timeout, int32 session timeout,
                       subscription, assignment

Offsets of version 4 have flexible fields. All versions of Kafka, 0 to 4 of each, are read, and offsets under key type
0, which are older still. A record without a value is a tombstone. Whatever cannot be read raises ValueError.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek_proto.topics import TOPIC_ID_SIZE, TopicPartition
from odradek_proto.values import Value

from odradek_broker.core.groups.fields import FieldReader, int16, int32, int64, old_bytes, old_string, string, tag_zero
from odradek_broker.core.groups.messages import NO_EPOCH, CoordinatorRecord

OLD_OFFSET, OFFSET, GROUP = 0, 1, 2
KEY_TYPES = (OLD_OFFSET, OFFSET, GROUP)

NO_TIMESTAMP = -1
_OFFSET_VERSION, _EXPIRING_OFFSET_VERSION, _GROUP_VERSION = 4, 1, 3
_NEWEST_VERSION = 4
_FIRST_FLEXIBLE_VERSION = 4  # of both


class CommittedOffset(Value, frozen=True):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes | None = None


class StoredMember(Value, frozen=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(Value, frozen=True):
    protocol_type: str = ""
    generation_id: int = 0
    protocol_name: str | None = None
    leader: str | None = None
    state_timestamp_ms: int = NO_TIMESTAMP
    members: tuple[StoredMember, ...] = ()


class OffsetRecord(Value, frozen=True):
    group_id: str
    topic_partition: TopicPartition
    value: CommittedOffset | None


class GroupRecord(Value, frozen=True):
    group_id: str
    value: StoredGroup | None


ClassicRecord: TypeAlias = OffsetRecord | GroupRecord


def partition_for(key: str, partitions: int) -> int:
    """For the id of a group (K-40): Java's `String.hashCode` without its sign, modulo the number of partitions."""
    code = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[position : position + 2])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % partitions


def key_type(key: bytes) -> int:
    return FieldReader(key).int16()


def encode(record: ClassicRecord) -> CoordinatorRecord:
    if isinstance(record, OffsetRecord):
        topic, partition = record.topic_partition
        key = int16(OFFSET) + old_string(record.group_id) + old_string(topic) + int32(partition)
        return key, None if record.value is None else _offset(record.value)
    return int16(GROUP) + old_string(record.group_id), None if record.value is None else _group(record.value)


def decode(key: bytes, value: bytes | None) -> ClassicRecord:
    reader = FieldReader(key)
    kind, group_id = reader.int16(), reader.string()
    if kind in (OLD_OFFSET, OFFSET):
        tp = TopicPartition(reader.string(), reader.int32())
        return OffsetRecord(group_id, tp, None if value is None else _read_offset(FieldReader(value)))
    if kind == GROUP:
        return GroupRecord(group_id, None if value is None else _read_group(FieldReader(value)))
    raise ValueError(f"key type {kind} is none of {KEY_TYPES}")


def _offset(value: CommittedOffset) -> bytes:
    if value.expire_timestamp_ms != NO_TIMESTAMP:  # only this version has the field
        version = int16(_EXPIRING_OFFSET_VERSION)
        times = int64(value.commit_timestamp_ms) + int64(value.expire_timestamp_ms)
        return version + int64(value.offset) + old_string(value.metadata) + times
    fields = int64(value.offset) + int32(value.leader_epoch) + string(value.metadata) + int64(value.commit_timestamp_ms)
    return int16(_OFFSET_VERSION) + fields + tag_zero(value.topic_id)


def _read_offset(reader: FieldReader) -> CommittedOffset:
    version = _version(reader)
    fields = (
        reader.int64(),
        reader.int32() if version >= 3 else NO_EPOCH,
        reader.string(),
        reader.int64(),
        reader.int64() if version == 1 else NO_TIMESTAMP,
    )
    if (topic_id := reader.tag_zero()) is not None and len(topic_id) != TOPIC_ID_SIZE:
        raise ValueError(f"a topic id of {len(topic_id)} bytes")
    return CommittedOffset(*fields, topic_id)


def _group(value: StoredGroup) -> bytes:
    out = [
        int16(_GROUP_VERSION),
        old_string(value.protocol_type),
        int32(value.generation_id),
        old_string(value.protocol_name),
        old_string(value.leader),
        int64(value.state_timestamp_ms),
        int32(len(value.members)),
    ]
    for member in value.members:
        out += (
            old_string(member.member_id),
            old_string(member.group_instance_id),
            old_string(member.client_id),
            old_string(member.client_host),
            int32(member.rebalance_timeout_ms),
            int32(member.session_timeout_ms),
            old_bytes(member.subscription),
            old_bytes(member.assignment),
        )
    return b"".join(out)


def _read_group(reader: FieldReader) -> StoredGroup:
    version = _version(reader)

    def member() -> StoredMember:
        member_id = reader.string()
        instance_id = reader.nullable_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance_timeout_ms = reader.int32() if version >= 1 else -1
        session_timeout_ms = reader.int32()
        subscription, assignment = reader.opaque(), reader.opaque()
        reader.tag_zero()
        return StoredMember(
            member_id,
            instance_id,
            client_id,
            client_host,
            session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        )

    fields = reader.string(), reader.int32(), reader.nullable_string(), reader.nullable_string()
    timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = reader.array(member)
    reader.tag_zero()
    return StoredGroup(*fields, timestamp_ms, members)


def _version(reader: FieldReader) -> int:
    version = reader.int16()
    if not 0 <= version <= _NEWEST_VERSION:
        raise ValueError(f"version {version} of a value; 0 to {_NEWEST_VERSION} are known")
    reader.flexible = version >= _FIRST_FLEXIBLE_VERSION
    return version
