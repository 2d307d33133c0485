"""Roles, epochs, log ends, high watermarks and ISRs of all replicas over time, to be read on one screen.

    time s     b1                        b2                        b3
    1.684000   L1  50/50 [1,2,3]         F1  50/48                 F1  44/42
    1.701000                             F1  51/50
               b2 truncated from=51 to=48

`L1 50/50 [1,2,3]` is a leader in leader epoch 1 with log end offset 50, high watermark 50 and that ISR; `F1` a
follower in epoch 1; `--` is nobody: the process is gone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple, TextIO

from odradek_chaos.worlds.simulated.checks.state import ReplicaState
from odradek_chaos.worlds.simulated.cluster.timeline import Timeline, TimelineEvent

ROWS = 40  # of one screen
WIDTH = 30  # of one broker's column
EVENT_WIDTH = 132  # of a line on a terminal
_TIMED = re.compile(r" *\d+\.\d{6}  ")

Fields = tuple[int, int, int, bool, int, int, tuple[int, ...]]  # of a State, made by the thousand


class BoardEntry(NamedTuple):
    """One replica from a moment on; `leader_epoch` -1: it is gone."""

    time_us: int
    broker_id: int
    leader_epoch: int = -1
    is_leader: bool = False
    log_end_offset: int = -1
    high_watermark: int = -1
    isr: tuple[int, ...] = ()

    def text(self) -> str:
        if self.leader_epoch < 0:
            return "--"
        isr = f" [{','.join(map(str, self.isr))}]" if self.is_leader else ""
        return f"{'L' if self.is_leader else 'F'}{self.leader_epoch} {self.log_end_offset}/{self.high_watermark}{isr}"


class Board:
    """Grows as the run goes on."""

    def __init__(self) -> None:
        self._states: dict[str, list[Fields]] = defaultdict(list)

    def note(self, time_us: int, seen: ReplicaState) -> None:
        self._states[seen.partition].append(
            (
                time_us,
                seen.broker_id,
                seen.leader_epoch,
                seen.is_leader,
                seen.log_end_offset,
                seen.high_watermark,
                seen.isr,
            )
        )

    def gone(self, time_us: int, broker_id: int) -> None:
        for states in self._states.values():
            last = next((state for state in reversed(states) if state[1] == broker_id), None)
            if last is not None and last[2] >= 0:
                states.append(BoardEntry(time_us, broker_id))

    def screen(self, timeline: Timeline, partition: str, time_us: int, brokers: list[int]) -> list[str]:
        """What led to a finding about a partition at a time, and a little of what came after; at most `ROWS` lines."""
        states = [BoardEntry._make(fields) for fields in self._states.get(partition, [])]
        entries: list[tuple[int, int, BoardEntry | TimelineEvent]] = [
            (state.time_us, 1, state) for state in _telling(states, time_us)
        ]
        entries += [
            (moment.time_us, 0, moment)
            for moment in timeline.moments
            if moment.partition in ("", partition) and _is_telling(moment)
        ]
        entries.sort(key=lambda entry: entry[:2])
        place = sum(1 for entry in entries if entry[0] <= time_us)
        shown = entries[max(0, place - ROWS + 6) : place + 3]
        header = f"{'time s':>11}  " + "".join(f"b{each}".ljust(WIDTH) for each in brokers)
        return [f"{partition}: role and leader epoch, log end offset/high watermark, ISR", header.rstrip()] + [
            _line(entry[2], brokers) for entry in shown
        ]


def _telling(states: list[BoardEntry], until_us: int) -> list[BoardEntry]:
    """The states in which more changed than a log grew, and for each broker the last one before `until_us`."""
    last: dict[int, BoardEntry] = {}
    kept: list[BoardEntry] = []
    for state in states:
        before = last.get(state.broker_id)
        same_part = before is not None and before[2:4] == state[2:4] and before.isr == state.isr
        shrank = before is not None and state.log_end_offset < before.log_end_offset
        if before is not None and state.time_us <= until_us and (not same_part or shrank) and before not in kept[-6:]:
            kept.append(before)  # what it was right before
        if not same_part or shrank:
            kept.append(state)
        if state.time_us <= until_us:
            last[state.broker_id] = state
    return kept + [state for state in last.values() if state not in kept[-6:]]


def _is_telling(moment: TimelineEvent) -> bool:
    """What the columns do not say already."""
    shown = ("truncated", "log_restarted", "leader_chosen", "isr_refused", "broker_fenced", "replica_offline")
    return moment.event[0] in "!?" or moment.event in shown


def _line(entry: BoardEntry | TimelineEvent, brokers: list[int]) -> str:
    time = f"{entry.time_us / 1e6:11.6f}  "
    if isinstance(entry, BoardEntry):
        return (time + "".ljust(WIDTH * brokers.index(entry.broker_id)) + entry.text()).rstrip()
    facts = " ".join(f"{name}={value}" for name, value in entry.facts.items())
    who = f"b{entry.broker_id} " if entry.broker_id else ""
    return f"{time}{who}{entry.event} {facts}".rstrip()


def fitted(report: str, out: TextIO) -> str:
    """A report as `out` shows it: on a terminal what happened at a time is one row, which says where it was cut."""
    if not out.isatty():
        return report
    return "\n".join(_cut(line) if _TIMED.match(line) else line for line in report.split("\n"))


def _cut(line: str) -> str:
    return line if len(line) <= EVENT_WIDTH else f"{line[: EVENT_WIDTH - 1]}…"
