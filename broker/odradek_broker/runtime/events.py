"""Evidence: each replica writes down its transitions before it acts.

One file per broker, `odradek-events.jsonl` in its log directory, beside the checkpoints. One line and one write for
each transition, never dropped; a line that could not be written is counted, and the next line that can says how many
are missing, so that a reader knows what it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from odradek_proto.transport.ports import Clock, File, Files

EVENT_FILE = "odradek-events.jsonl"


class EventLog:
    """Appends JSON lines with monotonic and wall time, the broker, and what happened."""

    def __init__(self, *, files: Files, clock: Clock, directory: str, broker_id: int, enabled: bool = True) -> None:
        self._clock = clock
        self._broker_id = broker_id
        self._file: File | None = files.open(f"{directory}/{EVENT_FILE}", create=True) if enabled else None
        self._position = self._file.size() if self._file is not None else 0
        self._missing = 0
        self._torn = False  # an earlier life, or the machine, ended in the middle of a line
        if self._file is not None and self._position:
            self._torn = self._file.pread(self._position - 1, 1) != b"\n"

    def write(self, event: str, rule: str, facts: Mapping[str, object]) -> None:
        """Write one transition. Never raises: evidence must not stop the work that it speaks of."""
        if self._file is None:
            return
        line = {
            "event": event,
            "broker": self._broker_id,
            "mono_ms": self._clock.now_ms(),
            "wall_ms": self._clock.wall_ms(),
            "rule": rule,
            **facts,
        }
        if self._missing:
            line["events_missing_before"] = self._missing
        text = json.dumps(line, separators=(",", ":"), default=str)
        data = f"\n{text}\n".encode() if self._torn else f"{text}\n".encode()
        try:
            self._position += self._file.pwritev([data], self._position)
        except OSError:
            self._missing += 1
        else:
            self._missing, self._torn = 0, False

    def record(self, event: str, facts: Mapping[str, object]) -> None:
        """The same for parts that name their rule, if any, among the facts."""
        self.write(event, "", facts)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
