"""Records of the metadata log, of Kafka's KRaft and of odradek's, as far as brokers, partitions and
settings go.

Kafka's values are `frame version (1) | api key | version`, each an unsigned varint, then a message in the flexible form
of Kafka's schemas (KIP-631, fields of Kafka 4.1). odradek's are a protobuf message `MetadataRecord` of
`odradek_proto/v1/metadata.proto`. A first byte of 1 cannot begin a protobuf message, so it tells which one it is.
Both are read here without their libraries: the audit's archive for Spark stays small.
"""

from __future__ import annotations

from typing import NamedTuple

KAFKAS_FRAME = 1
NO_CHANGE = -2  # a leader, in Kafka's changes
UNCHANGED_STATE = -1
RECOVERING = 1
LONGEST_LIST = 1 << 16
"""Replicas of a partition, endpoints of a broker: nobody has so many."""


class CorruptMetadataRecord(ValueError):
    """The bytes are no record of a metadata log."""


class BrokerRegistered(NamedTuple):
    """A broker begins, or amends its registration with the incarnation that it has."""

    broker: int
    incarnation: bytes
    fenced: bool


class BrokerFencing(NamedTuple):
    """A broker is fenced, or is not any more."""

    broker: int
    fenced: bool


class Unregistered(NamedTuple):
    broker: int


class TopicNamed(NamedTuple):
    topic_id: bytes
    name: str


class TopicRemoved(NamedTuple):
    topic_id: bytes


class ConfigChange(NamedTuple):
    """A setting of a topic, or of a broker as the default of its topics; None: there is none any more."""

    kind: str
    resource: str
    name: str
    value: str | None


class PartitionChange(NamedTuple):
    """A partition's state, whole (`created`) or as far as it changes: None is as before.

    `leader_epoch` is the new one of a partition that is `created`, else by how much it grows.
    """

    topic_id: bytes
    partition: int
    created: bool
    replicas: tuple[int, ...] | None
    isr: tuple[int, ...] | None
    eligible: tuple[int, ...] | None
    leader: int | None
    leader_epoch: int
    recovering: bool | None


MetadataChange = (
    BrokerRegistered | BrokerFencing | Unregistered | TopicNamed | TopicRemoved | ConfigChange | PartitionChange
)
TOPIC_SETTING, BROKER_SETTING = "topic", "broker"


def decode_change(value: bytes) -> MetadataChange | None:
    """What a record of a metadata log changes; None for what is not of interest. Raises `CorruptMetadataRecord`."""
    try:
        return _kafkas(_Reader(value, 1)) if value[:1] == bytes([KAFKAS_FRAME]) else _odradeks(value)
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptMetadataRecord(f"a metadata record of {len(value)} bytes cannot be read: {error}") from error


class _Reader:
    """Primitive types, one behind the other. Raises `IndexError` behind the end."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, length: int) -> bytes:
        if length < 0 or self.position + length > len(self.data):
            raise IndexError(f"a field of {length} at byte {self.position} of {len(self.data)}")
        self.position += length
        return self.data[self.position - length : self.position]

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big", signed=True)

    def varint(self) -> int:
        result = shift = 0
        while shift < 70:
            byte = self.take(1)[0]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7
        raise IndexError("a number of more than ten bytes")

    def brokers(self) -> tuple[int, ...]:
        return tuple(self.number(4) for _ in range(self.length()))

    def length(self) -> int:
        """Of a compact array or string; a null one has none."""
        length = max(self.varint() - 1, 0)
        if length > LONGEST_LIST:
            raise IndexError(f"{length} entries")
        return length

    def text(self) -> str:
        return self.take(self.length()).decode()

    def tagged(self) -> dict[int, _Reader]:
        found = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = _Reader(self.take(self.varint()))
        return found


# --- Kafka's ----------------------------------------------------------------------------------------------------------


def _kafkas(fields: _Reader) -> MetadataChange | None:
    api_key, version = fields.varint(), fields.varint()
    match api_key:
        case 0:
            return _kafka_register(fields, version)
        case 1:
            return Unregistered(fields.number(4))
        case 2:
            name = fields.text()
            return TopicNamed(fields.take(16), name)
        case 3:
            return _kafka_partition(fields, version)
        case 4:
            return _kafka_config(fields)
        case 5:
            return _kafka_change(fields)
        case 7 | 8:
            return BrokerFencing(fields.number(4), fenced=api_key == 7)
        case 9:
            return TopicRemoved(fields.take(16))
        case 17:  # a change of a registration
            broker, _ = fields.number(4), fields.number(8)
            tags = fields.tagged()
            state = tags[0].number(1) if 0 in tags else 0  # 1 fences, -1 unfences, 0 leaves it
            return BrokerFencing(broker, state > 0) if state else None
    return None


def _kafka_register(fields: _Reader, version: int) -> MetadataChange:
    broker = fields.number(4)
    if version >= 2:
        fields.take(1)  # is migrating from ZooKeeper
    incarnation = fields.take(16)
    fields.take(8)  # broker epoch
    for _ in range(fields.length()):  # endpoints: name, host, port, security protocol
        fields.take(fields.length())
        fields.take(fields.length())
        fields.take(4)
        fields.tagged()
    for _ in range(fields.length()):  # features: name, two versions
        fields.take(fields.length())
        fields.take(4)
        fields.tagged()
    fields.take(fields.length())  # rack
    return BrokerRegistered(broker, incarnation, fields.take(1) != b"\0")


def _kafka_config(fields: _Reader) -> MetadataChange | None:
    kind = {2: TOPIC_SETTING, 4: BROKER_SETTING}.get(fields.number(1))
    resource, name = fields.text(), fields.text()
    length = fields.varint() - 1
    value = None if length < 0 else fields.take(length).decode()
    return ConfigChange(kind, resource, name, value) if kind is not None else None


def _kafka_partition(fields: _Reader, version: int) -> MetadataChange:
    partition, topic_id = fields.number(4), fields.take(16)
    replicas, isr = fields.brokers(), fields.brokers()
    fields.brokers()  # removing
    fields.brokers()  # adding
    leader, leader_epoch, _ = fields.number(4), fields.number(4), fields.number(4)
    if version >= 1:
        fields.take(16 * fields.length())  # directories
    tags = fields.tagged()
    recovering = 0 in tags and tags[0].number(1) == RECOVERING
    eligible = tags[1].brokers() if 1 in tags else ()
    return PartitionChange(topic_id, partition, True, replicas, isr, eligible, leader, leader_epoch, recovering)


def _kafka_change(fields: _Reader) -> MetadataChange:
    partition, topic_id = fields.number(4), fields.take(16)
    tags = fields.tagged()
    leader = tags[1].number(4) if 1 in tags else NO_CHANGE
    state = tags[5].number(1) if 5 in tags else UNCHANGED_STATE
    return PartitionChange(
        topic_id,
        partition,
        False,
        tags[2].brokers() if 2 in tags else None,
        tags[0].brokers() if 0 in tags else None,
        tags[6].brokers() if 6 in tags else None,
        None if leader == NO_CHANGE else leader,
        int(leader != NO_CHANGE),  # it grows with every leader that is named
        None if state == UNCHANGED_STATE else state == RECOVERING,
    )


# --- odradek's --------------------------------------------------------------------------------------------------------


def _odradeks(value: bytes) -> MetadataChange | None:
    kind, message = next(iter(_protobuf(value).items()), (0, []))
    if not kind or not isinstance(message[-1], bytes):
        raise IndexError("it is of no kind")
    return _odradek(kind, _Message(_protobuf(message[-1])))


def _odradek(kind: int, message: _Message) -> MetadataChange | None:
    match kind:
        case 1:
            return BrokerRegistered(message.int32(1), message.bytes(2), bool(message.int32(6)))
        case 2:
            return BrokerFencing(message.int32(1), bool(message.int32(3)))
        case 3:
            return TopicNamed(message.bytes(2), message.bytes(1).decode())
        case 4:
            return TopicRemoved(message.bytes(1))
        case 5:
            return _partition(message)
        case 6:
            return _partition_change(message)
        case 7:
            setting, resource, name = (message.bytes(number).decode() for number in (1, 2, 3))
            return ConfigChange(setting, resource, name, message.bytes(4).decode() if message.has(4) else None)
        case 16:
            return Unregistered(message.int32(1))
    return None


def _protobuf(data: bytes) -> dict[int, list[int | bytes]]:
    """The fields of a message by number: varints, and bytes of what has a length."""
    found: dict[int, list[int | bytes]] = {}
    reader = _Reader(data)
    while reader.position < len(data):
        number, wire = divmod(reader.varint(), 8)
        if wire == 0:
            found.setdefault(number, []).append(reader.varint())
        elif wire == 2:
            found.setdefault(number, []).append(reader.take(reader.varint()))
        elif wire in (1, 5):
            reader.take(8 if wire == 1 else 4)
        else:
            raise IndexError(f"wire type {wire}")
    return found


class _Message:
    """A protobuf message's fields by their type. What is absent is zero or empty."""

    def __init__(self, fields: dict[int, list[int | bytes]]) -> None:
        self.fields = fields

    def has(self, number: int) -> bool:
        return number in self.fields

    def int32(self, number: int) -> int:
        value = self.fields.get(number, [0])[-1]
        if not isinstance(value, int):
            raise IndexError(f"field {number} is no number")
        return value - (1 << 64) if value >= 1 << 63 else value

    def sint32(self, number: int) -> int:
        value = self.int32(number)
        return (value >> 1) ^ -(value & 1)

    def bytes(self, number: int) -> bytes:
        value = self.fields.get(number, [b""])[-1]
        if not isinstance(value, bytes):
            raise IndexError(f"field {number} is no text")
        return value

    def brokers(self, number: int) -> tuple[int, ...]:
        found: list[int] = []
        for value in self.fields.get(number, []):
            if isinstance(value, int):
                found.append(value)
                continue
            packed = _Reader(value)
            while packed.position < len(value):
                found.append(packed.varint())
        return tuple(found)


def _partition(message: _Message) -> MetadataChange:
    return PartitionChange(
        message.bytes(1),
        message.int32(2),
        True,
        message.brokers(3),
        message.brokers(4),
        message.brokers(9),
        message.sint32(5),
        message.int32(6),
        bool(message.int32(8)),
    )


def _partition_change(message: _Message) -> MetadataChange:
    unclean = bool(message.int32(8))
    return PartitionChange(
        message.bytes(1),
        message.int32(2),
        False,
        message.brokers(12) if message.int32(13) else None,
        message.brokers(3) if message.int32(4) else None,
        message.brokers(9) if message.int32(10) else None,
        message.sint32(5) if message.has(5) else None,
        message.int32(6),
        True if unclean else bool(message.int32(7)) if message.has(7) else None,
    )
