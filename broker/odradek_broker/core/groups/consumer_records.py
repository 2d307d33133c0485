"""The records of KIP-848 groups in `__consumer_offsets`: keys 3 to 8 and 16, byte for byte as Kafka 4.1.1 writes them.

    key    int16 type, group id, and for some a member id or a regular expression: strings with an int16 before them
    value  int16 version (0), then the fields in the flexible encoding (KIP-482), with tagged fields at the end

    type  key                  value
    3     group                int32 epoch; tag 0: int64 metadata hash, left out when 0
    4     group                topics: id, name, int32 partitions, racks of partitions; Kafka before 4.1, only read
    5     group, member        instance id?, rack?, client id, host, topic names, regex?, int32 rebalance timeout,
                               assignor?; tag 0: what a member of the classic protocol said, kept as bytes
    6     group                int32 epoch of the target assignment
    7     group, member        target: topic id, partitions
    8     group, member        int32 epoch, int32 epoch before, int8 state, assigned, to be revoked
    16    group, regex         topic names, int64 version of the metadata, int64 time in ms

A record without a value is a tombstone. Whatever cannot be read raises ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, TypeVar

from odradek_proto.values import Value, field
from odradek_proto.varint import encode_unsigned_varint as varint

from odradek_broker.core.groups.fields import (
    NO_TAGS,
    FieldReader,
    int16,
    int32,
    int64,
    old_string,
    string,
    tag_zero,
)
from odradek_broker.core.groups.messages import JOIN_EPOCH, Assignment, CoordinatorRecord

GROUP, PARTITIONS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
KEY_TYPES = (GROUP, PARTITIONS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX)
_WITH_NAME = (MEMBER, TARGET, CURRENT, REGEX)  # keys of two parts

_INT8 = struct.Struct(">b")
_UUID_BYTES = 16
_T = TypeVar("_T")


class MemberState(IntEnum):
    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class GroupEpoch(Value, frozen=True):
    epoch: int
    metadata_hash: int = 0


class TopicPartitionCount(Value, frozen=True):
    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[tuple[int, tuple[str, ...]], ...] = ()


class SubscribedTopics(Value, frozen=True):
    topics: tuple[TopicPartitionCount, ...]


class MemberMetadata(Value, frozen=True):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()  # ascending
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: bytes | None = None


class TargetEpoch(Value, frozen=True):
    epoch: int


class TargetAssignment(Value, frozen=True):
    assignment: Assignment = field(default_factory=dict)


class CurrentAssignment(Value, frozen=True):
    """`assigned` and `to_revoke` together are what the member owns: no other member is given it."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    to_revoke: Assignment = field(default_factory=dict)


class ResolvedRegex(Value, frozen=True):
    topic_names: tuple[str, ...]  # ascending
    version: int
    timestamp_ms: int


RecordValue: TypeAlias = (
    GroupEpoch | SubscribedTopics | MemberMetadata | TargetEpoch | TargetAssignment | CurrentAssignment | ResolvedRegex
)


class ConsumerGroupRecord(Value, frozen=True):
    """`name` is the member's id, or the regular expression of type 16; without a value: a tombstone."""

    type: int
    group_id: str
    name: str = ""
    value: RecordValue | None = None

    @property
    def is_group_tombstone(self) -> bool:
        return self.type == GROUP and self.value is None


def encode(record: ConsumerGroupRecord) -> CoordinatorRecord:
    key = int16(record.type) + old_string(record.group_id)
    if record.type in _WITH_NAME:
        key += old_string(record.name)
    if record.value is None:
        return key, None
    return key, int16(0) + _LAYOUTS[record.type].write(record.value)


def decode(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    reader = FieldReader(key)
    key_type = reader.int16()
    if key_type not in KEY_TYPES:
        raise ValueError(f"key type {key_type} is none of consumer groups: {KEY_TYPES}")
    group_id = reader.string()
    name = reader.string() if key_type in _WITH_NAME else ""
    return ConsumerGroupRecord(key_type, group_id, name, None if value is None else _decode_value(key_type, value))


def _decode_value(key_type: int, value: bytes) -> RecordValue:
    reader = FieldReader(value)
    reader.flexible = True
    if (version := reader.int16()) != 0:
        raise ValueError(f"version {version} of a value with key type {key_type}; 0 is known")
    return _LAYOUTS[key_type].read(reader)


# --- Values, one writer and one reader each --------------------------------------------------------------------------


def _write_group(value: GroupEpoch) -> bytes:
    tag = int64(value.metadata_hash) if value.metadata_hash else None
    return int32(value.epoch) + tag_zero(tag)


def _read_group(reader: FieldReader) -> GroupEpoch:
    epoch, tag = reader.int32(), reader.tag_zero()
    return GroupEpoch(epoch, 0 if tag is None else FieldReader(tag).int64())


def _write_partitions(value: SubscribedTopics) -> bytes:
    def racks(row: tuple[int, tuple[str, ...]]) -> bytes:
        return int32(row[0]) + _array(row[1], string) + NO_TAGS

    def topic(row: TopicPartitionCount) -> bytes:
        return row.topic_id + string(row.name) + int32(row.partitions) + _array(row.racks, racks) + NO_TAGS

    return _array(value.topics, topic) + NO_TAGS


def _read_partitions(reader: FieldReader) -> SubscribedTopics:
    def racks() -> tuple[int, tuple[str, ...]]:
        return _closed(reader, (reader.int32(), reader.array(reader.string)))

    def topic() -> TopicPartitionCount:
        fields = reader.take(_UUID_BYTES), reader.string(), reader.int32(), reader.array(racks)
        return _closed(reader, TopicPartitionCount(*fields))

    return _closed(reader, SubscribedTopics(reader.array(topic)))


def _write_member(value: MemberMetadata) -> bytes:
    return b"".join(
        (
            _nullable_string(value.instance_id),
            _nullable_string(value.rack_id),
            string(value.client_id),
            string(value.client_host),
            _array(value.topic_names, string),
            _nullable_string(value.regex),
            int32(value.rebalance_timeout_ms),
            _nullable_string(value.assignor),
            tag_zero(value.classic),
        )
    )


def _read_member(reader: FieldReader) -> MemberMetadata:
    return MemberMetadata(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topic_names=reader.array(reader.string),
        regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        assignor=reader.nullable_string(),
        classic=reader.tag_zero(),
    )


def _write_target_epoch(value: TargetEpoch) -> bytes:
    return int32(value.epoch) + NO_TAGS


def _read_target_epoch(reader: FieldReader) -> TargetEpoch:
    return _closed(reader, TargetEpoch(reader.int32()))


def _write_target(value: TargetAssignment) -> bytes:
    return _write_assignment(value.assignment) + NO_TAGS


def _read_target(reader: FieldReader) -> TargetAssignment:
    return _closed(reader, TargetAssignment(_read_assignment(reader)))


def _write_current(value: CurrentAssignment) -> bytes:
    numbers = int32(value.epoch) + int32(value.previous_epoch) + _INT8.pack(value.state)
    return numbers + _write_assignment(value.assigned) + _write_assignment(value.to_revoke) + NO_TAGS


def _read_current(reader: FieldReader) -> CurrentAssignment:
    epochs = reader.int32(), reader.int32()
    state = MemberState(reader.number(_INT8))
    return _closed(reader, CurrentAssignment(*epochs, state, _read_assignment(reader), _read_assignment(reader)))


def _write_regex(value: ResolvedRegex) -> bytes:
    numbers = int64(value.version) + int64(value.timestamp_ms)
    return _array(value.topic_names, string) + numbers + NO_TAGS


def _read_regex(reader: FieldReader) -> ResolvedRegex:
    fields = reader.array(reader.string), reader.int64(), reader.int64()
    return _closed(reader, ResolvedRegex(*fields))


class _Layout(NamedTuple):
    write: Callable[[Any], bytes]
    read: Callable[[FieldReader], RecordValue]


def _nullable_string(text: str | None) -> bytes:
    return b"\0" if text is None else string(text)


def _array(rows: Sequence[_T], write: Callable[[_T], bytes]) -> bytes:
    return varint(len(rows) + 1) + b"".join(map(write, rows))


def _write_assignment(assignment: Assignment) -> bytes:
    return _array(sorted(assignment.items()), _partitions_of_topic)


def _partitions_of_topic(row: tuple[bytes, tuple[int, ...]]) -> bytes:
    topic_id, partitions = row
    return topic_id + _array(partitions, int32) + NO_TAGS


def _read_assignment(reader: FieldReader) -> Assignment:
    def topic() -> tuple[bytes, tuple[int, ...]]:
        return _closed(reader, (reader.take(_UUID_BYTES), tuple(sorted(reader.array(reader.int32)))))

    return dict(reader.array(topic))


def _closed(reader: FieldReader, value: _T) -> _T:
    """`value`, whose tagged fields are skipped."""
    reader.tag_zero()
    return value


_LAYOUTS: dict[int, _Layout] = {
    GROUP: _Layout(_write_group, _read_group),
    PARTITIONS: _Layout(_write_partitions, _read_partitions),
    MEMBER: _Layout(_write_member, _read_member),
    TARGET_EPOCH: _Layout(_write_target_epoch, _read_target_epoch),
    TARGET: _Layout(_write_target, _read_target),
    CURRENT: _Layout(_write_current, _read_current),
    REGEX: _Layout(_write_regex, _read_regex),
}
