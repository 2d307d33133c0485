"""A history of any size on one machine: its events lie in a temporary file, and those of a partition are read when that
partition is looked at.

The file holds stretches of events of one partition each, as `marshal` writes them; what stays in memory is where they
are. Sends whose partition was not chosen yet are read with every partition of their topic.
"""

from __future__ import annotations

import contextlib
import marshal
import tempfile
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import IO, NamedTuple

from odradek_audit.engine.partition import HistoryOfPartition
from odradek_audit.inputs.facts import METADATA_TOPIC
from odradek_audit.inputs.history import NO_PARTITION, SEND, Event, History, read_events

Key = tuple[str, int]
"""Topic and partition."""
TOGETHER = 65_536
"""Events in memory before they are written."""


class SpooledPart(NamedTuple):
    """A part of the file."""

    position: int
    length: int


@dataclass(frozen=True)
class SpooledEvents:
    """The events of one partition, for whoever reads them; the file may be another process'."""

    path: str
    key: Key
    own: tuple[SpooledPart, ...]
    open: tuple[SpooledPart, ...]
    """Of its topic, without a partition."""

    def read(self) -> HistoryOfPartition:
        """As a history with nothing else has them."""
        with open(self.path, "rb") as file:
            events = merge(_events(file, self.own), _events(file, self.open), key=attrgetter("line"))
            history = History(events)
        return HistoryOfPartition(history.of(*self.key), history.sent_to(*self.key))


Told = HistoryOfPartition | SpooledEvents


@dataclass
class SpooledHistory:
    """Where the events of each partition are, and what a report says of all."""

    path: str
    outline: History = field(default_factory=History)
    """How many there are, the longest silences, and all of partitions that nobody has."""
    topics: set[str] = field(default_factory=set)
    stretches: dict[Key, list[SpooledPart]] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> SpooledEvents | None:
        """The events of a partition; None where the history does not name its topic."""
        if topic not in self.topics or topic == METADATA_TOPIC:
            return None
        own, free = ((topic, number) for number in (partition, NO_PARTITION))
        return SpooledEvents(
            self.path, (topic, partition), tuple(self.stretches.get(own, ())), tuple(self.stretches.get(free, ()))
        )


@contextlib.contextmanager
def spooled(path: Path, known: Container[Key]) -> Iterator[SpooledHistory]:
    """Read a history, for the partitions that were found; the file goes at the end. Raises `CorruptHistory` and
    `OSError`."""
    with tempfile.TemporaryDirectory(prefix="odradek-audit-") as directory:
        found = SpooledHistory(str(Path(directory) / "events"))
        with open(found.path, "wb") as file:
            _spool(read_events(path), known, found, file)
        yield found


def _spool(events: Iterable[Event], known: Container[Key], found: SpooledHistory, file: IO[bytes]) -> None:
    waiting: dict[Key, list[Event]] = {}
    count = 0
    for event in events:
        key = (event.topic, event.partition)
        if event.partition != NO_PARTITION or event.type == SEND:
            found.topics.add(event.topic)
        if event.partition != NO_PARTITION and key not in known:
            found.outline.add(event)
            continue
        found.outline.pass_by(event)
        waiting.setdefault(key, []).append(event)
        count += 1
        if count == TOGETHER:
            _write(waiting, found, file)
            count = 0
    _write(waiting, found, file)


def _write(waiting: dict[Key, list[Event]], found: SpooledHistory, file: IO[bytes]) -> None:
    for key, events in waiting.items():
        data = marshal.dumps([tuple(event) for event in events])
        found.stretches.setdefault(key, []).append(SpooledPart(file.tell(), len(data)))
        file.write(data)
    waiting.clear()


def _events(file: IO[bytes], stretches: Iterable[SpooledPart]) -> Iterator[Event]:
    for position, length in stretches:
        file.seek(position)
        for each in marshal.loads(file.read(length)):
            yield Event(*each)
