"""What producers and consumers hand out. All of it is immutable.

Offsets are exclusive where Kafka's are: high watermark and log end offset are the offset behind the last record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, NoReturn

from odradek_proto.topics import TopicPartition
from typing_extensions import TypeVar

K = TypeVar("K", default=bytes | None)
V = TypeVar("V", default=bytes | None)

Headers = tuple[tuple[str, bytes | None], ...]


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is. `offset` is -1 when the broker did not say (acks=0, or an old duplicate)."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


_NO_FUTURE: Final = (
    "send() has waited for the acknowledgement already, and this says where the record is; what aiokafka and "
    "kafka-python call send() is enqueue() here, and returns a Delivery"
)
_OF_FUTURES: Final = ("get", "result", "exception", "done", "add_callback", "add_errback", "add_done_callback")


def _is_no_future(metadata: RecordMetadata) -> NoReturn:
    raise TypeError(_NO_FUTURE)


def _has_no_attribute(metadata: RecordMetadata, name: str) -> NoReturn:
    why = f": {_NO_FUTURE}" if name in _OF_FUTURES else ""
    raise AttributeError(f"'RecordMetadata' object has no attribute {name!r}{why}", name=name)


if not TYPE_CHECKING:  # type checkers say by themselves that it is no future
    RecordMetadata.__await__ = _is_no_future
    RecordMetadata.__getattr__ = _has_no_attribute


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record as a consumer reads it. `timestamp` is in milliseconds since 1970, -1 when there is none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K
    value: V
    headers: Headers
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class OffsetAndMetadata(NamedTuple):
    """What a group has committed for a partition: the offset of the record that comes next, the leader epoch of the one
    before it (-1: not known), and a text of the application's."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class Watermarks(NamedTuple):
    """The ends of a partition as its leader knows them: log start offset, high watermark, log end offset."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
