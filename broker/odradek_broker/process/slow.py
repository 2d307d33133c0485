"""A follower that fetches late, for rehearsals: how `odradek chaos slow` tells a broker's process.

The order is a file in the broker's log directory, and SIGCONT, which no process minds that is not listening to it, says
that there is a new one. Whoever may do both may also kill the process: no listener of the broker knows of it, so nobody
else can. It ends at the time that the file names, an hour later at most; who starts the broker again takes it back.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NamedTuple

FILE = "odradek-slow.json"
LONGEST_MS = 3_600_000  # of a delay and of the whole: a forgotten rehearsal ends by itself


class SlowOrder(NamedTuple):
    """Each fetch leaves `delay_ms` late, for another `left_ms`."""

    delay_ms: int
    left_ms: int


NOTHING = SlowOrder(0, 0)


def write(log_directory: Path, delay_ms: int, for_ms: int) -> None:
    """Order it. Raises `OSError`."""
    order = {"delay_ms": delay_ms, "until_ms": round(time.time() * 1000) + for_ms}
    temporary = log_directory / f"{FILE}.tmp"
    temporary.write_text(json.dumps(order) + "\n")
    temporary.replace(log_directory / FILE)


def remove(log_directory: Path) -> None:
    """Take an order back."""
    (log_directory / FILE).unlink(missing_ok=True)


def read(log_directory: Path) -> SlowOrder:
    """What is ordered now: nothing, when the time is over or there is no file. Raises `ValueError`, `OSError`."""
    try:
        text = (log_directory / FILE).read_text()
    except FileNotFoundError:
        return NOTHING
    order = json.loads(text)
    delay_ms, until_ms = (order.get("delay_ms"), order.get("until_ms")) if isinstance(order, dict) else (None, None)
    if type(delay_ms) is not int or type(until_ms) is not int:
        raise ValueError("an object with the whole numbers delay_ms and until_ms was expected")
    left_ms = until_ms - round(time.time() * 1000)
    if not (0 <= delay_ms <= LONGEST_MS and left_ms <= LONGEST_MS):
        raise ValueError(f"delay_ms and the time until until_ms are at most {LONGEST_MS} ms")
    return SlowOrder(delay_ms, left_ms) if delay_ms and left_ms > 0 else NOTHING
