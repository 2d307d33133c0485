"""What a reader finds, held against what the writers were told: lost, duplicated, reordered, phantom.

Pure: it compares a ledger's events with the records of a full read, offset by offset. What failed, or was never
answered, may be there or not (R-15). What was acknowledged must be there, once, at its offset.

Memory is of the size of what is compared at once. A long run is compared in portions: a value's number, as `Writer`
makes it (`w1/2/417`), says to which one its records and its events belong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_audit.inputs.history import ACK, ERROR, SEND, Event

LONGEST_NUMBER = 18  # digits; whatever has more was sent by no `Writer`
SHOWN = 20  # examples of one anomaly that are kept; the count is always whole


@dataclass(slots=True)
class Anomalies:
    """One kind of anomaly: how many, and the first few as sentences."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, sentence: str) -> None:
        self.count += 1
        if len(self.examples) < SHOWN:
            self.examples.append(sentence)


@dataclass(slots=True)
class ReadBack:
    """The verdict of a full read. Empty anomalies and at least one acknowledged record mean that all is well."""

    acknowledged: int = 0
    read: int = 0
    anomalies: dict[str, Anomalies] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return not self.anomalies

    def note(self, anomaly: str, sentence: str) -> None:
        self.anomalies.setdefault(anomaly, Anomalies()).add(sentence)


Record = tuple[str, int, int, bytes]
"""(topic, partition, offset, value)"""


class WriterOrder:
    """Records of one writer to one partition stand in the order in which they were sent."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int, bytes], int] = {}  # the largest number so far
        self._ends: dict[tuple[str, int, bytes], int] = {}  # offset behind the last record
        self._starts: dict[tuple[str, int, bytes], int] = {}  # the same, of the portions before

    def next_portion(self) -> None:
        """From here on come records with larger numbers; they stand behind all that came before."""
        self._starts = dict(self._ends)

    def check(self, verdict: ReadBack, topic: str, partition: int, offset: int, value: bytes) -> None:
        number = number_of(value)
        if number is None:
            return
        stream = (topic, partition, value.partition(b"/")[0])
        newest = self._newest.get(stream, -1)
        place = f"{topic}-{partition} offset {offset}: {show(value)}"
        if number < newest:
            verdict.note("reordered", f"{place} comes after number {newest} of the same writer")
        elif offset < self._starts.get(stream, 0):
            verdict.note("reordered", f"{place} comes before a smaller number of the same writer")
        self._newest[stream] = max(number, newest)
        self._ends[stream] = max(offset + 1, self._ends.get(stream, 0))


def number_of(value: bytes) -> int | None:
    """As which one its writer sent it to its partition; None of a value that no `Writer` made."""
    parts = value.split(b"/", 2)
    digits = parts[2].split(b" ", 1)[0] if len(parts) == 3 else b""
    return int(digits) if digits.isdigit() and len(digits) <= LONGEST_NUMBER else None


def verify(events: Iterable[Event], records: Iterable[Record]) -> ReadBack:
    """Compare a history with a full read, every record in the order read."""
    return verify_in_portions([(events, records)])


def verify_in_portions(portions: Iterable[tuple[Iterable[Event], Iterable[Record]]]) -> ReadBack:
    """Compare a history with a full read, the numbers of each portion larger than those of the portions before."""
    verdict, order = ReadBack(), WriterOrder()
    for events, records in portions:
        _verify_portion(verdict, order, events, records)
        order.next_portion()
    return verdict


def _verify_portion(verdict: ReadBack, order: WriterOrder, events: Iterable[Event], records: Iterable[Record]) -> None:
    sent: set[tuple[str, bytes]] = set()
    acknowledged: dict[tuple[str, bytes], Event] = {}
    definitely_failed: set[tuple[str, bytes]] = set()
    for event in events:
        key = (event.topic, event.value)
        if event.type == SEND:
            sent.add(key)
        elif event.type == ACK:
            acknowledged[key] = event
        elif event.type == ERROR and event.definite:
            definitely_failed.add(key)
    verdict.acknowledged += len(acknowledged)
    found: dict[tuple[str, bytes], tuple[int, int]] = {}
    for topic, partition, offset, value in records:
        verdict.read += 1
        key, place = (topic, value), f"{topic}-{partition} offset {offset}"
        if key not in sent:
            verdict.note("phantom", f"{place}: {show(value)} was never sent")
        elif key in definitely_failed:
            verdict.note("phantom", f"{place}: {show(value)} is there though its send certainly failed")
        if key in found:
            verdict.note("duplicated", f"{place}: {show(value)} stands at offset {found[key][1]} as well")
            continue
        found[key] = (partition, offset)
        order.check(verdict, topic, partition, offset, value)
    _check_acknowledged(verdict, acknowledged, found)


def _check_acknowledged(
    verdict: ReadBack,
    acknowledged: dict[tuple[str, bytes], Event],
    found: dict[tuple[str, bytes], tuple[int, int]],
) -> None:
    for key, event in acknowledged.items():
        place = f"{event.topic}-{event.partition} offset {event.offset}"
        at = found.get(key)
        if at is None:
            verdict.note("lost", f"{place}: {show(event.value)} was acknowledged (acks={event.acks}) and is gone")
        elif event.offset >= 0 and at != (event.partition, event.offset):
            verdict.note("misplaced", f"{place}: {show(event.value)} was acknowledged there and stands at {at[1]}")


def show(value: bytes) -> str:
    """A value for a sentence: short, and harmless on a terminal."""
    return repr(value[:40].decode("utf-8", "backslashreplace"))
