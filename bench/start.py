"""How long a start takes, and what doing nothing costs.

    python -m bench --only start [--quick] [--json]

- *listening*: from the start of one broker's process until its port accepts a connection; the median of several, with
  compiled modules in place.
- *first acknowledgement*: from the start of `odradek cluster up` until a client, which polls meanwhile, has created a
  topic with three replicas and been told that its first acks=all record is written.
- *help*: CPU of a process that prints a page of help, user and system; the least of several. The dearest of all pages
  is looked for with one process each.
- *idle*: three brokers, one topic with six partitions, nobody connected; RSS, and CPU as a share of one core.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from odradek import Admin, NewTopic, OdradekError, Producer
from odradek.cli.main import command_tree
from odradek.cli.reference import commands
from odradek_broker.local.cluster import LocalCluster

from bench.processes import cpu_seconds, listening_broker, resident_mib, started_cluster
from bench.report import Figure

LISTENING_FLOOR_MS = 300
FIRST_ACK_FLOOR_MS = 2_000
IDLE_FLOOR_MIB = 60
IDLE_FLOOR_PERCENT = 1
HELP_FLOOR_MS = 150
HELPS = 7  # processes, of which the least disturbed one counts
CANDIDATES = 5  # pages, of which one costs the most
SETTLE_S = 3  # after the start, for elections and the first metadata
TIMEOUT_S = 30
POLL_S = 0.01
TOPIC = "bench-start"


def figures(quick: bool) -> list[Figure]:
    """All of them, each with its floor."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled modules from their second start on
    listening_ms()
    listening = [listening_ms() for _ in range(3 if quick else 7)]
    first_ack = [first_ack_ms() for _ in range(1 if quick else 3)]
    mib, percent = asyncio.run(idle(5 if quick else 20))
    return [
        Figure("start", "one broker listens, median", statistics.median(listening), "ms", LISTENING_FLOOR_MS),
        Figure("start", "first acks=all after `cluster up`", statistics.median(first_ack), "ms", FIRST_ACK_FLOOR_MS),
        Figure("help", "CPU of `odradek --help`", help_ms(), "ms", HELP_FLOOR_MS),
        dearest_help(),
        Figure("idle", "memory, largest of 3 brokers", mib, "MiB RSS", IDLE_FLOOR_MIB),
        Figure("idle", "CPU, busiest of 3 brokers", percent, "% of core", IDLE_FLOOR_PERCENT),
    ]


def dearest_help() -> Figure:
    """Of all commands, the one whose page costs the most; it is named."""
    pages = [path[1:] for path, _, _ in commands(command_tree(), ("odradek",))]
    candidates = sorted(pages, key=lambda words: help_ms(*words, times=1))[-CANDIDATES:]
    most, words = max((help_ms(*words), words) for words in candidates)
    return Figure("help", f"dearest of {len(pages)}, `odradek {' '.join(words)} --help`", most, "ms", HELP_FLOOR_MS)


def help_ms(*words: str, times: int = HELPS) -> float:
    """CPU of one help page, of its process alone."""
    took = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "odradek.cli", *words, "--help"], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took) * 1000


def listening_ms() -> float:
    """One broker that is a cluster of its own, on an empty directory."""
    with listening_broker() as (elapsed, _):
        return elapsed


def first_ack_ms() -> float:
    """From the command to the acknowledgement."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        data = Path(directory) / "cluster"
        command = [str(Path(sys.executable).parent / "odradek"), "cluster", "up", "--data", str(data)]
        environment = {**os.environ, "ODRADEK_HOME": directory}  # it must not become the user's default cluster
        started = time.perf_counter()
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as cluster:
            try:
                asyncio.run(_write_one(data))
                return (time.perf_counter() - started) * 1e3
            finally:
                cluster.send_signal(signal.SIGINT)
                cluster.wait(TIMEOUT_S)


async def _write_one(data: Path) -> None:
    await _until(lambda: LocalCluster.exists(data))
    bootstrap = LocalCluster.load(data).bootstrap
    await _create_topic(bootstrap, partitions=1)
    async with Producer(bootstrap, acks="all") as producer:
        await producer.send(TOPIC, b"first")


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async for _ in _polls():
            if condition():
                return


async def _polls() -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(POLL_S)


async def _create_topic(bootstrap: str, partitions: int) -> None:
    """As soon as three replicas can be placed: before that, brokers are missing or fenced."""
    wanted = NewTopic(TOPIC, partitions, 3, {"min.insync.replicas": "2"})
    async with asyncio.timeout(TIMEOUT_S):
        async for _ in _polls():
            with contextlib.suppress(OdradekError):
                async with Admin(bootstrap, bootstrap_timeout_ms=300, request_timeout_ms=1_000) as admin:
                    await admin.create_topics([wanted])
                return


async def idle(seconds: float) -> tuple[float, float]:
    """The largest RSS in MiB and the largest CPU share in percent."""
    with started_cluster() as cluster:
        await _create_topic(cluster.bootstrap, partitions=6)
        await asyncio.sleep(SETTLE_S)
        pids = [node.pid for node in cluster.nodes.values()]
        before = {pid: cpu_seconds(pid) for pid in pids}
        await asyncio.sleep(seconds)
        used = max(cpu_seconds(pid) - before[pid] for pid in pids)
        return max(resident_mib(pid) for pid in pids), 100 * used / seconds
