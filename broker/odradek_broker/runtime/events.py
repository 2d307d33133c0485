"""The event log: each part of a broker records its transitions before it acts; the log has some of them, too.

One file per broker, `odradek-events.jsonl` in its log directory, beside the checkpoints. One line and one write for
each transition, never dropped; a line that could not be written is counted, and the next successful line has the number
of missing ones, so that readers know of the gap. A file that has reached its maximum size becomes the older one,
replacing the previous older one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import json
from odradek_proto.transport.ports import Clock, File, Files

from odradek_broker.config.log_levels import REPLICA
from odradek_broker.runtime.event_lines import log_event

EVENT_FILE = "odradek-events.jsonl"
OLDER_SUFFIX = ".1"
MAX_BYTES = 64 * 1024 * 1024


_encode = json.Encoder(enc_hook=str).encode


class EventLog:
    """Appends JSON lines with monotonic and wall time, the broker, and what happened."""

    def __init__(
        self,
        *,
        files: Files,
        clock: Clock,
        directory: str,
        broker_id: int,
        max_bytes: int = MAX_BYTES,
        enabled: bool = True,
    ) -> None:
        self._clock = clock
        self._broker_id = broker_id
        self._files = files
        self._path = f"{directory}/{EVENT_FILE}"
        self._max_bytes = max_bytes
        self._file: File | None = files.open(self._path, create=True) if enabled else None
        self._position = self._file.size() if self._file is not None else 0
        self._missing = 0
        self._torn = False  # an earlier life, or the machine, ended in the middle of a line
        if self._file is not None and self._position:
            self._torn = self._file.pread(self._position - 1, 1) != b"\n"

    def write(self, event: str, rule: str, facts: Mapping[str, object], logger: str = REPLICA) -> None:
        """Write one transition. Never raises: evidence must not stop the work that it speaks of."""
        log_event(logger, event, self._broker_id, {"rule": rule, **facts})
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
        data = b"%b%b\n" % (b"\n" if self._torn else b"", _encode(line))
        try:
            if self._position + len(data) > self._max_bytes:
                self._file = self._rotate(self._file)
            self._position += self._file.pwritev([data], self._position)
        except OSError:
            self._missing += 1
        else:
            self._missing, self._torn = 0, False

    def _rotate(self, full: File) -> File:
        """Nothing is flushed: a power loss may take lines of either file. Raises `OSError`, and goes on with `full`."""
        self._files.rename(self._path, self._path + OLDER_SUFFIX)
        fresh = self._files.open(self._path, create=True)
        full.close()
        self._position, self._torn = 0, False
        return fresh

    def recorder(self, logger: str) -> Callable[[str, Mapping[str, object]], None]:
        """The same for a part that names its rule, if any, among the facts, and has a logger of its own."""
        return lambda event, facts: self.write(event, "", facts, logger)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
