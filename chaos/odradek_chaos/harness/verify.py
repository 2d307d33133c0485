"""What a reader finds, held against what the writers were told: lost, duplicated, reordered, phantom.

Pure: it compares a ledger's events with the records of a full read, offset by offset. What failed, or was never
answered, may be there or not (R-15). What was acknowledged must be there, once, at its offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_audit.inputs.history import ACK, ERROR, SEND, Event

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


def verify(events: Iterable[Event], records: Iterable[tuple[str, int, int, bytes]]) -> ReadBack:
    """Compare a history with a full read: (topic, partition, offset, value) of every record, in the order read."""
    verdict = ReadBack()
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
    verdict.acknowledged = len(acknowledged)
    found: dict[tuple[str, bytes], tuple[int, int]] = {}
    newest: dict[tuple[str, int, bytes], int] = {}
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
        _check_order(verdict, newest, topic, partition, value, place)
    _check_acknowledged(verdict, acknowledged, found)
    return verdict


def _check_order(
    verdict: ReadBack, newest: dict[tuple[str, int, bytes], int], topic: str, partition: int, value: bytes, place: str
) -> None:
    """Records of one writer to one partition stand in the order in which they were sent."""
    parts = value.split(b"/", 2)
    digits = parts[2].split(b" ", 1)[0] if len(parts) == 3 else b""
    if not digits.isdigit():
        return
    number, stream = int(digits), (topic, partition, parts[0])
    if number < newest.get(stream, -1):
        verdict.note("reordered", f"{place}: {show(value)} comes after number {newest[stream]} of the same writer")
    newest[stream] = max(number, newest.get(stream, -1))


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
