"""Broker processes, and what the kernel says of them: memory, CPU, start to listening. Linux only, from /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek_broker.local.cluster import LocalCluster
from odradek_broker.local.processes import HOST, free_ports

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


@contextmanager
def started_cluster(brokers: int = 3) -> Iterator[LocalCluster]:
    """Broker processes in a directory that goes with them."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        cluster = LocalCluster.create(Path(directory) / "cluster", brokers=brokers)
        try:
            cluster.start_all()
            yield cluster
        finally:
            cluster.stop_all()


@contextmanager
def listening_broker(**settings: str) -> Iterator[tuple[float, int]]:
    """One broker that is a cluster of its own, on an empty directory: milliseconds until it listens, and its pid."""
    grpc, controller = (f"{HOST}:{port}" for port in free_ports(2))
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        listeners = f"GRPC://{grpc},REPLICATION://{HOST}:0,CONTROLLER://{controller}"
        given = {"log.dirs": f"{directory}/data", "node.id": "1", "listeners": listeners, **settings}
        command = [sys.executable, "-m", "odradek_broker"]
        for name, value in given.items():
            command += ["-X", f"{name}={value}"]
        started = time.perf_counter()
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as broker:
            try:
                wait_until_listening(grpc)
                yield (time.perf_counter() - started) * 1e3, broker.pid
            finally:
                broker.kill()
