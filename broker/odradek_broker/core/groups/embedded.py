"""What consumers of the classic protocol say of topics: their subscriptions and assignments, opaque elsewhere (K-44).

    subscription  int16 version, topics, user data; 1+: owned partitions by topic; 2+: int32 generation; 3+: rack?
    assignment    int16 version, partitions by topic, user data

Kafka's ConsumerProtocolSubscription and -Assignment, in the old encoding. Newer versions are read as far as they are
known. And ClassicMemberMetadata: what such a member said that belongs to a group of KIP-848, as tag 0 of its record.
Whatever cannot be read raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_proto.values import Value
from odradek_proto.varint import encode_unsigned_varint as varint

from odradek_broker.core.groups.fields import NO_TAGS, FieldReader, int16, int32, old_string, string
from odradek_broker.core.groups.messages import MemberProtocol

NEWEST_VERSION = 3
_NULL_BYTES = int32(-1)
_PRESENT = b"\1"


class Subscribed(Value, frozen=True):
    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]] = {}
    rack_id: str | None = None


class ClassicMember(Value, frozen=True):
    """`protocols` are those that it supports, the most wanted first."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]

    @property
    def protocol_name(self) -> str:
        return self.protocols[0].name

    @property
    def subscription(self) -> Subscribed:
        return read_subscription(self.protocols[0].metadata)


def read_subscription(data: bytes) -> Subscribed:
    reader = FieldReader(data)
    version = reader.int16()
    topics = reader.array(reader.string)
    owned: dict[str, tuple[int, ...]] = {}
    rack_id = None
    if version >= 0:
        _user_data(reader)
    if version >= 1:
        owned = _partitions(reader)
    if version >= 2:
        reader.int32()
    if version >= 3:
        rack_id = reader.nullable_string()
    return Subscribed(version, topics, owned, rack_id)


def read_assignment(data: bytes) -> tuple[dict[str, tuple[int, ...]], bytes]:
    """The partitions by topic, and the user data."""
    reader = FieldReader(data)
    reader.int16()
    return _partitions(reader), _user_data(reader)


def write_assignment(version: int, partitions: Iterable[tuple[str, tuple[int, ...]]]) -> bytes:
    rows = [old_string(topic) + _array(list(map(int32, numbers))) for topic, numbers in partitions]
    return int16(min(version, NEWEST_VERSION)) + _array(rows) + _NULL_BYTES


def write_classic_member(member: ClassicMember) -> bytes:
    rows = [string(each.name) + varint(len(each.metadata) + 1) + each.metadata + NO_TAGS for each in member.protocols]
    return _PRESENT + int32(member.session_timeout_ms) + varint(len(rows) + 1) + b"".join(rows) + NO_TAGS


def read_classic_member(data: bytes) -> ClassicMember:
    reader = FieldReader(data)
    reader.flexible = True
    if reader.take(1) != _PRESENT:
        raise ValueError("a classic member that is null has been written")
    timeout_ms = reader.int32()

    def protocol() -> MemberProtocol:
        read = MemberProtocol(reader.string(), reader.opaque())
        reader.tag_zero()
        return read

    protocols = reader.array(protocol)
    if not protocols:
        raise ValueError("a classic member without protocols")
    return ClassicMember(timeout_ms, protocols)


def _user_data(reader: FieldReader) -> bytes:
    size = reader.int32()
    return b"" if size < 0 else reader.take(size)


def _partitions(reader: FieldReader) -> dict[str, tuple[int, ...]]:
    return dict(reader.array(lambda: (reader.string(), tuple(sorted(reader.array(reader.int32))))))


def _array(rows: list[bytes]) -> bytes:
    return int32(len(rows)) + b"".join(rows)
