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

from odradek_broker.core.groups.messages import JOIN_EPOCH, Assignment, CoordinatorRecord

GROUP, PARTITIONS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
KEY_TYPES = (GROUP, PARTITIONS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX)
_WITH_NAME = (MEMBER, TARGET, CURRENT, REGEX)  # keys of two parts

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(layout) for layout in (">b", ">h", ">i", ">q"))
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


class PartitionMetadata(Value, frozen=True):
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


class Target(Value, frozen=True):
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
    GroupEpoch | PartitionMetadata | MemberMetadata | TargetEpoch | Target | CurrentAssignment | ResolvedRegex
)


class ConsumerRecord(Value, frozen=True):
    """`name` is the member's id, or the regular expression of type 16; without a value: a tombstone."""

    type: int
    group_id: str
    name: str = ""
    value: RecordValue | None = None

    @property
    def is_group_tombstone(self) -> bool:
        return self.type == GROUP and self.value is None


def encode(record: ConsumerRecord) -> CoordinatorRecord:
    key = _INT16.pack(record.type) + _old_string(record.group_id)
    if record.type in _WITH_NAME:
        key += _old_string(record.name)
    if record.value is None:
        return key, None
    return key, _INT16.pack(0) + _LAYOUTS[record.type].write(record.value)


def decode(key: bytes, value: bytes | None) -> ConsumerRecord:
    reader = _Reader(key)
    key_type = reader.number(_INT16)
    if key_type not in KEY_TYPES:
        raise ValueError(f"key type {key_type} is none of consumer groups: {KEY_TYPES}")
    group_id = reader.old_string()
    name = reader.old_string() if key_type in _WITH_NAME else ""
    return ConsumerRecord(key_type, group_id, name, None if value is None else _decode_value(key_type, value))


def _decode_value(key_type: int, value: bytes) -> RecordValue:
    reader = _Reader(value)
    if (version := reader.number(_INT16)) != 0:
        raise ValueError(f"version {version} of a value with key type {key_type}; 0 is known")
    return _LAYOUTS[key_type].read(reader)


# --- Values, one writer and one reader each --------------------------------------------------------------------------


def _write_group(value: GroupEpoch) -> bytes:
    tag = _INT64.pack(value.metadata_hash) if value.metadata_hash else None
    return _INT32.pack(value.epoch) + _tag_zero(tag)


def _read_group(reader: _Reader) -> GroupEpoch:
    epoch, tag = reader.number(_INT32), reader.tag_zero()
    return GroupEpoch(epoch, 0 if tag is None else _Reader(tag).number(_INT64))


def _write_partitions(value: PartitionMetadata) -> bytes:
    def racks(row: tuple[int, tuple[str, ...]]) -> bytes:
        return _INT32.pack(row[0]) + _array(row[1], _string) + _NO_TAGS

    def topic(row: TopicPartitionCount) -> bytes:
        return row.topic_id + _string(row.name) + _INT32.pack(row.partitions) + _array(row.racks, racks) + _NO_TAGS

    return _array(value.topics, topic) + _NO_TAGS


def _read_partitions(reader: _Reader) -> PartitionMetadata:
    def racks() -> tuple[int, tuple[str, ...]]:
        return reader.closed((reader.number(_INT32), reader.array(reader.string)))

    def topic() -> TopicPartitionCount:
        fields = reader.uuid(), reader.string(), reader.number(_INT32), reader.array(racks)
        return reader.closed(TopicPartitionCount(*fields))

    return reader.closed(PartitionMetadata(reader.array(topic)))


def _write_member(value: MemberMetadata) -> bytes:
    return b"".join(
        (
            _nullable_string(value.instance_id),
            _nullable_string(value.rack_id),
            _string(value.client_id),
            _string(value.client_host),
            _array(value.topic_names, _string),
            _nullable_string(value.regex),
            _INT32.pack(value.rebalance_timeout_ms),
            _nullable_string(value.assignor),
            _tag_zero(value.classic),
        )
    )


def _read_member(reader: _Reader) -> MemberMetadata:
    return MemberMetadata(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topic_names=reader.array(reader.string),
        regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.number(_INT32),
        assignor=reader.nullable_string(),
        classic=reader.tag_zero(),
    )


def _write_target_epoch(value: TargetEpoch) -> bytes:
    return _INT32.pack(value.epoch) + _NO_TAGS


def _read_target_epoch(reader: _Reader) -> TargetEpoch:
    return reader.closed(TargetEpoch(reader.number(_INT32)))


def _write_target(value: Target) -> bytes:
    return _assignment(value.assignment) + _NO_TAGS


def _read_target(reader: _Reader) -> Target:
    return reader.closed(Target(reader.assignment()))


def _write_current(value: CurrentAssignment) -> bytes:
    numbers = _INT32.pack(value.epoch) + _INT32.pack(value.previous_epoch) + _INT8.pack(value.state)
    return numbers + _assignment(value.assigned) + _assignment(value.to_revoke) + _NO_TAGS


def _read_current(reader: _Reader) -> CurrentAssignment:
    epochs = reader.number(_INT32), reader.number(_INT32)
    state = MemberState(reader.number(_INT8))
    return reader.closed(CurrentAssignment(*epochs, state, reader.assignment(), reader.assignment()))


def _write_regex(value: ResolvedRegex) -> bytes:
    numbers = _INT64.pack(value.version) + _INT64.pack(value.timestamp_ms)
    return _array(value.topic_names, _string) + numbers + _NO_TAGS


def _read_regex(reader: _Reader) -> ResolvedRegex:
    fields = reader.array(reader.string), reader.number(_INT64), reader.number(_INT64)
    return reader.closed(ResolvedRegex(*fields))


class _Layout(NamedTuple):
    write: Callable[[Any], bytes]
    read: Callable[[_Reader], RecordValue]


# --- The flexible encoding ------------------------------------------------------------------------------------------

_NO_TAGS = b"\0"


def _varint(value: int) -> bytes:
    """Unsigned, seven bits in a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _old_string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 32_767:
        raise ValueError(f"a string of {len(encoded)} bytes in a key; at most 32767")
    return _INT16.pack(len(encoded)) + encoded


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _varint(len(encoded) + 1) + encoded


def _nullable_string(text: str | None) -> bytes:
    return b"\0" if text is None else _string(text)


def _array(rows: Sequence[_T], write: Callable[[_T], bytes]) -> bytes:
    return _varint(len(rows) + 1) + b"".join(map(write, rows))


def _assignment(assignment: Assignment) -> bytes:
    return _array(sorted(assignment.items()), _partitions_of_topic)


def _partitions_of_topic(row: tuple[bytes, tuple[int, ...]]) -> bytes:
    topic_id, partitions = row
    return topic_id + _array(partitions, _INT32.pack) + _NO_TAGS


def _tag_zero(content: bytes | None) -> bytes:
    return _NO_TAGS if content is None else b"\1\0" + _varint(len(content)) + content


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        start = self._position
        self._position += size
        if size < 0 or self._position > len(self._data):
            raise ValueError(f"{size} bytes wanted at {start}, the record has {len(self._data)}")
        return self._data[start : self._position]

    def number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack(self.take(layout.size))
        return int(value)

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError(f"a varint of more than five bytes before {self._position}")

    def uuid(self) -> bytes:
        return self.take(_UUID_BYTES)

    def old_string(self) -> str:
        return self.take(self.number(_INT16)).decode()

    def string(self) -> str:
        return self.take(self.varint() - 1).decode()

    def nullable_string(self) -> str | None:
        size = self.varint() - 1
        return None if size < 0 else self.take(size).decode()

    def array(self, read: Callable[[], _T]) -> tuple[_T, ...]:
        count = self.varint() - 1
        if not 0 <= count <= len(self._data) - self._position:
            raise ValueError(
                f"an array of {count} elements at {self._position}, the record has {len(self._data)} bytes"
            )
        return tuple(read() for _ in range(count))

    def assignment(self) -> Assignment:
        def topic() -> tuple[bytes, tuple[int, ...]]:
            return self.closed((self.uuid(), tuple(sorted(self.array(lambda: self.number(_INT32))))))

        return dict(self.array(topic))

    def closed(self, value: _T) -> _T:
        """`value`, whose tagged fields are skipped: they are of later versions."""
        self.tag_zero()
        return value

    def tag_zero(self) -> bytes | None:
        """The bytes of tag 0; other tagged fields are skipped."""
        found = None
        for _ in range(self.varint()):
            tag, content = self.varint(), self.take(self.varint())
            if tag == 0:
                found = content
        return found


_LAYOUTS: dict[int, _Layout] = {
    GROUP: _Layout(_write_group, _read_group),
    PARTITIONS: _Layout(_write_partitions, _read_partitions),
    MEMBER: _Layout(_write_member, _read_member),
    TARGET_EPOCH: _Layout(_write_target_epoch, _read_target_epoch),
    TARGET: _Layout(_write_target, _read_target),
    CURRENT: _Layout(_write_current, _read_current),
    REGEX: _Layout(_write_regex, _read_regex),
}
