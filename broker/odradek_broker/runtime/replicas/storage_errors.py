"""What a replica says of its disk that does not end its service: a damaged batch, a disk without room.

Damage is said and counted once for each place, however often somebody asks for it.
"""

from __future__ import annotations

from odradek_proto.topics import TopicPartition

from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.storage.errors import DiskFull, LogCorrupted


class StorageErrorReporter:
    """The reports of one replica."""

    __slots__ = ("_counters", "_damage", "_events", "_topic_partition")

    def __init__(self, tp: TopicPartition, counters: Counters, events: EventLog) -> None:
        self._topic_partition = tp
        self._counters = counters
        self._events = events
        self._damage: dict[str, None] = {}  # what was found damaged

    @property
    def damage(self) -> tuple[str, ...]:
        """What was found damaged since the start, a sentence for each place."""
        return tuple(self._damage)

    def corrupted(self, error: LogCorrupted) -> None:
        """A batch failed its check while it was read; it was not served (G7)."""
        if str(error) in self._damage:
            return
        self._damage[str(error)] = None
        self._counters.damaged_batches["disk"] += 1
        self._events.write("corruption_found", "G7", self._facts(error))

    def full(self, error: DiskFull) -> None:
        """Nothing was written; it may be tried again when there is room."""
        self._events.write("disk_full", "R-86", self._facts(error))

    def _facts(self, error: Exception) -> dict[str, object]:
        return {"partition": str(self._topic_partition), "reason": str(error)}
