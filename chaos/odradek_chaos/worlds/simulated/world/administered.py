"""Topics that administrators make, fill, alter, empty and delete during the faults, and what is owed to them.

They lie beside the topic that the invariants look at: their logs lose their heads, and they go. What an administrator
was told is written down here, and what it asked for without hearing of it. At the end a topic that was answered to be
made, and whose end nobody has asked for, is there with as many partitions as were answered. Those of its records that
were acknowledged are there once, in order and at their offsets, but for those below an offset up to which somebody
asked to delete; below an offset that a deletion was answered with there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from odradek_broker.core.metadata.image import MetadataImage
from odradek_proto.topics import TopicPartition

PREFIX = "a"  # of their names; a number follows


def is_administered(topic: str) -> bool:
    return topic.startswith(PREFIX)


def partitions_in(image: MetadataImage) -> list[TopicPartition]:
    """The partitions of all such topics that there are."""
    return [
        TopicPartition(topic.name, number)
        for topic in image.topics.values()
        if is_administered(topic.name)
        for number in topic.partitions
    ]


@dataclass(slots=True)
class AdministeredPartition:
    """Values by offset as they were acknowledged, and all that were ever handed over."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    sent: dict[bytes, None] = field(default_factory=dict)
    asked_start: int = 0  # the largest offset up to which somebody has asked to delete
    told_start: int = 0  # the largest log start offset that was told
    lives: dict[int, int] = field(default_factory=dict)  # incarnations of the brokers when it was


@dataclass(slots=True)
class AdministeredTopic:
    """`partitions` and `is_owed` hold what was answered."""

    partitions: int = 0
    is_owed: bool = False  # it was made, and nobody has asked to delete it since
    retains_less: bool = False  # retention was asked for: how much of its head is gone is not known
    by_number: dict[int, AdministeredPartition] = field(default_factory=dict)

    def partition(self, number: int) -> AdministeredPartition:
        return self.by_number.setdefault(number, AdministeredPartition())


class AdministeredTopics:
    """Of one run, by their names."""

    def __init__(self) -> None:
        self._topics: dict[str, AdministeredTopic] = {}

    def topic(self, name: str) -> AdministeredTopic:
        return self._topics.setdefault(name, AdministeredTopic())

    @property
    def count(self) -> int:
        """How many were ever asked for."""
        return len(self._topics)

    def owed(self) -> dict[str, AdministeredTopic]:
        return {name: topic for name, topic in self._topics.items() if topic.is_owed}

    def missing(self, image: MetadataImage) -> Iterator[str]:
        """What the metadata lack, as sentences."""
        for name, topic in self.owed().items():
            found = image.topics.get(name)
            if found is None:
                yield f"{name} was made, and is not there"
            elif len(found.partitions) < topic.partitions:
                yield f"{name} has {len(found.partitions)} partitions, and was answered to have {topic.partitions}"


def wrong_in(
    topic: AdministeredTopic,
    number: int,
    found: Sequence[tuple[int, bytes]],
    acknowledged: Mapping[int, bytes],
    lives: Mapping[int, int],
) -> Iterator[str]:
    """What a full read of a partition, offsets and values, contradicts; as sentences. `acknowledged` is what was so
    before the read began, `lives` are incarnations now.

    A log start offset is written down by the minute, as Kafka's. When two brokers have ended since it was told, the one
    that leads now may never have heard of it, or have forgotten it: what was deleted is there again.
    """
    known = topic.partition(number)
    offsets = [offset for offset, _ in found]
    if offsets != sorted({*offsets}):
        yield f"offsets are read as {offsets}"
    values = [value for _, value in found]
    for value in values:
        if value not in known.sent:
            yield f"{value!r} was never sent"
    if len({*values}) < len(values):
        yield f"a record is there twice: {sorted(each for each in {*values} if values.count(each) > 1)}"
    ended = sum(lives[broker_id] != life for broker_id, life in known.lives.items())
    if offsets and offsets[0] < known.told_start and ended < 2:
        yield f"offset {offsets[0]} is there, and everything below {known.told_start} was deleted"
    there: Mapping[int, bytes] = dict(found)
    start = known.asked_start
    if topic.retains_less:
        start = max(start, offsets[0] if offsets else max(acknowledged, default=-1) + 1)
    for offset, value in sorted(acknowledged.items()):
        if offset >= start and there.get(offset) != value:
            yield f"{value!r} was acknowledged at {offset}, where {there.get(offset)!r} is now"
