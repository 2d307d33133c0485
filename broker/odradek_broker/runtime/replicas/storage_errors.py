"""Disk errors of a replica that do not end its service: a damaged batch, a disk without room.

Damage is reported and counted once for each place, however often it is read.
"""

from __future__ import annotations

from odradek_proto.topics import TopicPartition

from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.storage.errors import DiskFull, LogCorrupted


class StorageErrorReporter:
    """The reports of one replica."""

    __slots__ = ("_counters", "_damage", "_events", "_topic_partition", "is_full")

    def __init__(self, tp: TopicPartition, counters: Counters, events: EventLog) -> None:
        self._topic_partition = tp
        self._counters = counters
        self._events = events
        self._damage: dict[str, None] = {}  # what was found damaged
        self.is_full = False  # nothing could be appended the last time

    def mended(self) -> None:
        """What was damaged is gone, or has been fetched from another replica."""
        self._damage.clear()

    @property
    def damage(self) -> tuple[str, ...]:
        """What is damaged, as far as anybody has looked: a sentence for each place."""
        return tuple(self._damage)

    def corrupted(self, error: LogCorrupted) -> None:
        """A batch failed its check while it was read; it was not served (G7)."""
        self._found("G7", str(error))

    def impossible_epoch(self, offset: int, epoch: int, leader_epoch: int) -> None:
        """A batch of an epoch that has not begun."""
        self._found("R-146", f"leader epoch {epoch} from offset {offset} on, while the partition is in {leader_epoch}")

    def _found(self, rule: str, reason: str) -> None:
        if reason not in self._damage:
            self._damage[reason] = None
            self._counters.damaged_batches["disk"] += 1
            self._events.write("corruption_found", rule, self._facts(reason))

    def lacking(self, log_end_offset: int, promised: int) -> None:
        """The log ends below where it ended once (R-146)."""
        self._damage[f"the log ends at offset {log_end_offset} and had records up to {promised} once"] = None

    def full(self, error: DiskFull) -> None:
        """Nothing was written; it may be tried again when there is room. Said when it begins."""
        if not self.is_full:
            self.is_full = True
            self._events.write("disk_full", "R-86", self._facts(str(error)))

    def room_again(self) -> None:
        """An append succeeded."""
        self.is_full = False
        self._events.write("disk_has_room", "R-86", self._facts("there is room again"))

    def _facts(self, reason: str) -> dict[str, object]:
        return {"partition": str(self._topic_partition), "reason": reason}
