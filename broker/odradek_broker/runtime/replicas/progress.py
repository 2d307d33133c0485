"""Periodic progress of the logs in the event log: log ends and high watermarks between two transitions.

Unchanged offsets are not written again, and of many partitions some at a time, least recently written first: progress
must not push transitions out of the file.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_proto.topics import TopicPartition

from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.replicas.replica import Replica

PARTITIONS_AT_ONCE = 50  # some 2 kB: with a line every five seconds 35 MB a day at most, half of what is kept


class ProgressLog:
    """Knows what it has told of each replica, the least recently told first."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._told: dict[TopicPartition, tuple[int, int]] = {}

    def write(self, replicas: Iterable[Replica]) -> None:
        """One line with [log end offset, high watermark] of replicas where one of them has changed; none for none."""
        now = {
            replica.topic_partition: (replica.state.log_end_offset, replica.state.high_watermark)
            for replica in replicas
        }
        told = {place: marks for place, marks in self._told.items() if place in now}
        changed = [place for place in now if place not in told] + [
            place for place, marks in told.items() if marks != now[place]
        ]
        chosen = changed[:PARTITIONS_AT_ONCE]
        for place in chosen:
            told.pop(place, None)
            told[place] = now[place]
        self._told = told
        if chosen:
            self._events.write("progress", "", {"offsets": {str(place): list(now[place]) for place in chosen}})
