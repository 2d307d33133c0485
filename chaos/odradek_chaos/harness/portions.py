"""A long history and a full read, laid down on disk in portions that fit into memory one after the other."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from odradek_audit.inputs.history import ACK, ERROR, SEND, Event

from odradek_chaos.harness.verify import ReadBack, Record, number_of, verify_in_portions

NUMBERS = 20_000  # of each writer and partition in a portion
BUFFERED = 20_000  # items of all portions that wait in memory


class Portions:
    """A directory of two files for each portion: events and records, in the order in which they came."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waiting: dict[Path, list[tuple[Any, ...]]] = {}
        self._count = 0
        self._portions = set[int]()  # that have a file, or will

    def add_events(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.type in (SEND, ACK, ERROR):
                self._add("events", event.value, tuple(event))

    def add_records(self, records: Iterable[Record]) -> None:
        for record in records:
            self._add("records", record[3], record)

    def forget_records(self) -> None:
        """They are read once more."""
        self._flush()
        for path in self._directory.glob("*.records"):
            path.unlink()

    def verify(self) -> ReadBack:
        self._flush()
        return verify_in_portions(
            (map(Event._make, self._read(portion, "events")), self._read(portion, "records"))
            for portion in sorted(self._portions)
        )

    def _add(self, kind: str, value: bytes, item: tuple[Any, ...]) -> None:
        portion = (number_of(value) or 0) // NUMBERS
        self._portions.add(portion)
        self._waiting.setdefault(self._path(portion, kind), []).append(item)
        self._count += 1
        if self._count >= BUFFERED:
            self._flush()

    def _flush(self) -> None:
        for path, items in self._waiting.items():
            with path.open("ab") as file:
                marshal.dump(items, file)
        self._waiting.clear()
        self._count = 0

    def _read(self, portion: int, kind: str) -> Iterator[Any]:
        path = self._path(portion, kind)
        if not path.exists():
            return
        with path.open("rb") as file:
            while file.peek(1):
                yield from marshal.load(file)

    def _path(self, portion: int, kind: str) -> Path:
        return self._directory / f"{portion}.{kind}"
