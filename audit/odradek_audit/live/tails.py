"""What lies above the smallest high watermark of a partition: on its way to all replicas, or out of their reach.

While somebody writes there always is something, for a follower hears of the high watermark a round late. But replicas
in sync read within `replica.lag.time.max.ms` all that there was, and hear that it is committed. So high watermarks are
asked for again when everything has been compared. One that stays below what was there is that of a replica which lags
or cannot read on, and above it nobody has compared all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.words import plural

from odradek_audit.findings import FindingSink
from odradek_audit.live.partition import Source

SHOWN_REPLICAS = 5


@dataclass
class Tail:
    """Of one partition, the offsets from `compared_to`, below which all replicas were compared, to `log_end`, where the
    longest log ended then."""

    place: TopicPartition
    compared_to: int
    log_end: int
    committed: int
    """The highest high watermark that any replica told: what is below it must not go."""
    copies: Mapping[str, Source]
    behind: dict[str, int] = field(default_factory=dict)
    """The newest high watermark of each replica that has not told a sufficient one yet."""

    def is_reached(self) -> bool:
        """Ask again: have all replicas heard by now that all of it is committed, but for what no log holds any more?"""
        goal = self._goal()
        for replica in list(self.behind):
            self.behind[replica] = max(self.behind[replica], self._high_watermark(replica))
            if self.behind[replica] >= goal:
                del self.behind[replica]
        return not self.behind

    def into(self, sink: FindingSink) -> None:
        """A note of what was not compared."""
        first = min(self.compared_to, *self.behind.values())
        marks = [f"replica {replica} {mark}" for replica, mark in islice(self.behind.items(), SHOWN_REPLICAS)]
        more = f" and {len(self.behind) - len(marks)} more" if len(self.behind) > len(marks) else ""
        sink.note(
            "not-compared",
            next(iter(self.behind)),
            f"not compared on all replicas: {plural(self.log_end - first, 'offset')} from {first} on: high watermarks "
            f"stay below {self.log_end}, where the longest log ended: {', '.join(marks)}{more}",
        )

    def _goal(self) -> int:
        """Of what a leader had alone a change of leader may leave nothing; of what was committed it may not."""
        ends = [end for end in map(self._log_end, self.copies.values()) if end >= 0]
        return max(min(self.log_end, max(ends, default=self.log_end)), self.committed)

    @staticmethod
    def _log_end(copy: Source) -> int:
        try:
            error, end = copy.latest()
        except OSError:
            return -1
        return -1 if error else end

    def _high_watermark(self, replica: str) -> int:
        copy = self.copies[replica]
        try:
            error, mark = copy.high_watermark(max(self.behind[replica], self.compared_to))
            if error == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention went past it, or its log was cut
                error, begins = copy.earliest()
                error, mark = copy.high_watermark(begins) if not error else (error, -1)
        except OSError:
            return -1
        return -1 if error else mark


def look_again(tails: Iterable[Tail], rounds: Iterator[object], shown: Callable[[Tail], None]) -> list[Tail]:
    """Those of which some replica has not heard when the last round was over; `shown` is told of what is waited for."""
    waiting = list(tails)
    while waiting and next(rounds, None) is not None:
        shown(waiting[0])
        waiting = [tail for tail in waiting if not tail.is_reached()]
    return waiting
