"""What the kernel says of broker processes: memory, CPU, start to listening. Linux only, from /proc."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
POLL_S = 0.001


def cpu_seconds(pid: int) -> float:
    """User plus system time of a process so far, to the tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def resident_mib(pid: int) -> float:
    """RSS of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no memory: it has ended")


def wait_until_listening(address: str, timeout_s: float = 20) -> None:
    """Until somebody accepts connections at `host:port`."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except ConnectionRefusedError:
            time.sleep(POLL_S)
        else:
            return
    raise RuntimeError(f"nobody listens on {address} after {timeout_s} s")
