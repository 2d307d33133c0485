"""What lies above the smallest high watermark of a partition: on its way to all replicas, or out of their reach.

While somebody writes there always is something, for a follower hears of the high watermark a round late. But replicas
in sync read within `replica.lag.time.max.ms` all that there was, and hear that it is committed. So high watermarks are
asked for again when everything has been compared. One that stays below what was there is that of a replica which lags
or cannot read on, and above it nobody has compared all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.words import plural

from odradek_audit.findings import FindingSink
from odradek_audit.live.partition import Source
from odradek_audit.live.wire import WireError

SHOWN = 5


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
    unasked: dict[str, str] = field(default_factory=dict)
    """Why replicas did not answer when they were asked last."""

    def is_reached(self, silent: dict[str, str]) -> bool:
        """Ask again: have all replicas heard by now that all of it is committed, but for what no log holds any more?

        `silent` are replicas on brokers that have timed out, and why: they are asked no more, and new ones are added.
        """
        ends = [self._told(replica, silent, lambda copy: copy.latest()) for replica in self.copies]
        # Of what a leader had alone a change of leader may leave nothing; of what was committed it may not.
        goal = max(min(self.log_end, max((end for end in ends if end >= 0), default=self.log_end)), self.committed)
        for replica in list(self.behind):
            known = self.behind[replica]
            ask = partial(_high_watermark, offset=max(known, self.compared_to))
            self.behind[replica] = max(known, self._told(replica, silent, ask))
            if self.behind[replica] >= goal:
                del self.behind[replica]
        return not self.behind

    def keep(self, assigned: Collection[str]) -> bool:
        """Forget all replicas but these. Is some replica still behind?"""
        self.behind = {replica: mark for replica, mark in self.behind.items() if replica in assigned}
        return bool(self.behind)

    def into(self, sink: FindingSink) -> None:
        """A note of what was not compared."""
        first = min(self.compared_to, *self.behind.values())
        marks = [f"replica {replica} {mark}" for replica, mark in self.behind.items() if replica not in self.unasked]
        unasked = [f"replica {replica} ({self.unasked[replica]})" for replica in self.behind if replica in self.unasked]
        low = f"high watermarks stay below {self.log_end}, where the longest log ended: {some(marks)}" if marks else ""
        mute = f"could not be asked again: {some(unasked)}" if unasked else ""
        sink.note(
            "not-compared",
            next(iter(self.behind)),
            f"not compared on all replicas: {plural(self.log_end - first, 'offset')} from {first} on: "
            f"{'; '.join(filter(None, (low, mute)))}",
        )

    def _told(self, replica: str, silent: dict[str, str], ask: Callable[[Source], tuple[int, int]]) -> int:
        """The offset that it answers; -1 for an error and where nobody answers."""
        if replica in silent:
            self.unasked[replica] = silent[replica]
            return -1
        try:
            error, offset = ask(self.copies[replica])
        except OSError as problem:
            self.unasked[replica] = str(problem)
            if isinstance(problem, WireError) and problem.timed_out:
                silent[replica] = str(problem)
            return -1
        if error:
            self.unasked[replica] = ErrorCode.from_number(error).name
            return -1
        self.unasked.pop(replica, None)
        return offset


def _high_watermark(copy: Source, offset: int) -> tuple[int, int]:
    """Error code and high watermark of a replica whose log holds an offset, or has held it."""
    error, mark = copy.high_watermark(offset)
    if error == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention went past it, or its log was cut
        error, begins = copy.earliest()
        error, mark = copy.high_watermark(begins) if not error else (error, -1)
    return error, mark


def some(each: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = f" and {len(each) - SHOWN} more" if len(each) > SHOWN else ""
    return ", ".join(each[:SHOWN]) + more


def look_again(
    waiting: dict[TopicPartition, Tail],
    is_over: Callable[[], bool],
    pause: Callable[[], None],
    shown: Callable[[Tail], None],
    forget: Callable[[dict[TopicPartition, Tail]], None],
) -> None:
    """Take those out of which all replicas have heard. Each is looked at once, and then again, with pauses, until it is
    over; `shown` is told of what is looked at. Where a replica did not answer, `forget` takes out what is gone."""
    silent: dict[str, str] = {}
    again = False
    while waiting:
        for place, tail in list(waiting.items()):
            if again and is_over():
                return
            shown(tail)
            if tail.is_reached(silent):
                del waiting[place]
        again = True
        if any(tail.unasked for tail in waiting.values()):
            forget(waiting)
        pause()
