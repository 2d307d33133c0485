"""Names: topics, partitions, topic ids, the directory of a partition, and a point in a log's history.

Rules of this module. A topic's name may become a directory's name, so nothing is accepted that Kafka would not
accept. Topic ids are 16 bytes, written as Kafka writes them: URL-safe base64 without padding, 22 characters.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

LONGEST_TOPIC_NAME: Final = 249
TOPIC_ID_SIZE: Final = 16
OFFSETS_TOPIC: Final = "__consumer_offsets"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})  # Kafka's
DELETED_PARTITION_SUFFIX: Final = "-delete"  # of the directory of a partition that loses its files one by one
_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_PARTITION_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_LARGEST_PARTITION: Final = 0x7FFFFFFF


class TopicPartition(NamedTuple):
    """One partition of a topic. Sorts by topic, then by number; `str` gives `orders-0`, which is also its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def validate_topic_name(name: str) -> None:
    """Raise `ValueError`, with a sentence for people, unless Kafka would accept the name."""
    if not name:
        raise ValueError("a topic's name cannot be empty")
    if name in (".", ".."):
        raise ValueError(f"a topic's name cannot be {name!r}")
    if len(name) > LONGEST_TOPIC_NAME:
        raise ValueError(f"a topic's name has at most {LONGEST_TOPIC_NAME} characters, this one has {len(name)}")
    if _LEGAL_NAME.fullmatch(name) is None:
        raise ValueError(f"the topic's name {name!r} may hold only letters, digits, '.', '_' and '-' of ASCII")


def topic_id_to_text(topic_id: bytes) -> str:
    """16 bytes as 22 characters. Raises `ValueError` for another length."""
    if len(topic_id) != TOPIC_ID_SIZE:
        raise ValueError(f"a topic id has {TOPIC_ID_SIZE} bytes, not {len(topic_id)}")
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def topic_id_from_text(text: str) -> bytes:
    """The 16 bytes of a topic id, which has one spelling only. Raises `ValueError`."""
    try:
        topic_id = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError(f"{text!r} is no topic id: {error}") from error
    if len(topic_id) != TOPIC_ID_SIZE or topic_id_to_text(topic_id) != text:
        raise ValueError(f"{text!r} is no topic id")
    return topic_id


def partition_directory(partition: TopicPartition) -> str:
    """The name of a partition's directory, as in Kafka: `orders-0`."""
    return str(partition)


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None for any other directory (`orders-0.<id>-delete`)."""
    topic, dash, number = name.rpartition("-")
    if not dash or _PARTITION_NUMBER.fullmatch(number) is None or int(number) > _LARGEST_PARTITION:
        return None
    try:
        validate_topic_name(topic)
    except ValueError:
        return None
    return TopicPartition(topic, int(number))
