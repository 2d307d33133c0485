"""What a command takes with all processes that it starts: time, CPU, most memory at once. Linux only, from /proc."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import cpu_seconds, resident_mib

SAMPLE_S = 0.1
SHOWN_ERRORS = 4000


@dataclass(frozen=True)
class Taken:
    """`cpu_s` is user and system time of all processes, also of those that ended before; `peak_mib` the largest sum of
    their RSS, in which pages that they share count several times, `own_peak_mib` that of the command's own process."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    output: str
    exit_code: int
    own_peak_mib: float
    errors: str = ""
    """The end of what it printed as errors."""


def run_measured(command: Sequence[str]) -> Taken:
    """Run a command to its end."""
    started = time.perf_counter()
    seen: dict[int, float] = {}
    peak = own_peak = 0.0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:  # a pipe takes 64 KiB
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        while process.poll() is None:
            total, own = _sample(process.pid, seen)
            peak, own_peak = max(peak, total), max(own_peak, own)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SAMPLE_S)
        wall = time.perf_counter() - started
        output.seek(0)
        errors.seek(0)
        told = errors.read()[-SHOWN_ERRORS:]
        return Taken(wall, sum(seen.values()), peak, output.read(), process.returncode, own_peak, told)


def _sample(root: int, seen: dict[int, float]) -> tuple[float, float]:
    """What all hold now, and what the first of them holds."""
    held: dict[int, float] = {}
    for pid in _tree(root):
        with contextlib.suppress(OSError, RuntimeError, IndexError):
            held[pid] = resident_mib(pid)
            seen[pid] = cpu_seconds(pid)
    return sum(held.values()), held.get(root, 0.0)


def _tree(root: int) -> Iterator[int]:
    """A process and all below it."""
    yield root
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{root}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))
