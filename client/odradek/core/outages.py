"""Which partitions of a client are held up, and when to say so: a line when it begins, one when it ends.

Rules of this module. A failover is no outage: what passes within `PATIENCE_MS` is not logged. Partitions that are held
up by the same cause at the same time share a line. An outage that lasts is logged again after a minute, and then at
pauses that double, up to an hour. When the records that met it were given up, it is over only with the next success.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from odradek_proto.topics import TopicPartition
from odradek_proto.values import Value
from odradek_proto.words import noun

PATIENCE_MS = 2_000  # longer than a new leader takes, shorter than anybody looks for a reason
REMIND_MS = 60_000
LONGEST_REMIND_MS = 3_600_000
NAMED = 5  # partitions of one line; of the others only the number

Name: TypeAlias = TopicPartition | str
"""A partition, or a topic that has none."""
N = TypeVar("N", TopicPartition, Name)


class OutageLine(Value, frozen=True):
    """Something to log. `ended` says that it goes on again."""

    text: str
    ended: bool


@dataclass(slots=True)
class _Outage:
    cause: str
    since_ms: int
    next_ms: int  # when to speak of it (again)
    pause_ms: int = REMIND_MS
    told: bool = False


class Outages:
    """The outages of one client; true while there is one. `nothing` is what does not happen: "nothing is read"."""

    def __init__(self, nothing: str) -> None:
        self._nothing = nothing
        self._outages: dict[Name, _Outage] = {}

    def __bool__(self) -> bool:
        return bool(self._outages)

    def forget_all_but(self, names: Container[Name]) -> None:
        """What is no longer asked for neither lasts nor goes on."""
        self._outages = {name: outage for name, outage in self._outages.items() if name in names}

    def look(self, held_up: Mapping[N, str], now_ms: int, unsettled: Container[N] = ()) -> list[OutageLine]:
        """Take over what holds partitions up now, each with its cause; returns what there is to be logged.

        `unsettled` partitions have nothing to do now, and had no success since their last error.
        """
        ended: dict[tuple[str, int], list[Name]] = {}
        for name in [name for name in self._outages if name not in held_up and name not in unsettled]:
            outage = self._outages.pop(name)
            if outage.told:
                ended.setdefault((outage.cause, outage.since_ms), []).append(name)
        due: dict[str, list[Name]] = {}
        since: dict[str, int] = {}
        for name, why in held_up.items():
            cause = _cause(name, why)
            outage = self._outages.setdefault(name, _Outage(cause, now_ms, now_ms + PATIENCE_MS))
            outage.cause = cause
            if now_ms < outage.next_ms:
                continue
            due.setdefault(cause, []).append(name)
            since[cause] = min(outage.since_ms, since.get(cause, now_ms))
            outage.next_ms = now_ms + outage.pause_ms
            outage.pause_ms = min(2 * outage.pause_ms, LONGEST_REMIND_MS)
            outage.told = True
        lines = [
            OutageLine(f"{_names(names)}: goes on after {(now_ms - at_ms) / 1000:.1f} s; it was: {cause}", ended=True)
            for (cause, at_ms), names in ended.items()
        ]
        return lines + [
            OutageLine(
                f"{_names(names)}: {self._nothing} for {(now_ms - since[cause]) / 1000:.1f} s: {cause}", ended=False
            )
            for cause, names in due.items()
        ]


def _cause(name: Name, why: str) -> str:
    """Why without the partition's own name, so that others that are held up by the same have the same cause."""
    where, colon, cause = why.partition(": ")
    return cause if colon and (where == str(name) or where.startswith(f"{name} at ")) else why


def _names(partitions: list[Name]) -> str:
    listed = ", ".join(map(str, partitions[:NAMED]))
    more = len(partitions) - NAMED
    return f"{listed} and {more} {noun(more, 'partition')} more" if more > 0 else listed
