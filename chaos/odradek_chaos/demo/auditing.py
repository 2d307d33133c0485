"""The auditor is a process of its own: `odradek audit run`, the command that anybody may repeat."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path

from odradek_broker.local.cluster import LocalCluster

from odradek_chaos.demo.state import FAILED, AuditOutcome

SPARK, LOCAL = "spark", "local"
TIMEOUT_S = 300  # Spark on a busy machine
ENDING_S = 10  # for an audit that was interrupted; it takes a second on an idle machine
OUT, REPORT = "audit", "report.html"
SETTINGS = ("acks=all", "min.insync.replicas=2", "odradek.fsync=never")
"""What the demo's cluster runs with; the report then says what was owed."""
SHOWN = 300  # characters of what it said when it failed


def engine() -> str:
    """Spark when it is installed; otherwise the engine in plain Python, with the same checks."""
    there = all(importlib.util.find_spec(name) is not None for name in ("pyspark", "pyarrow"))
    return SPARK if there else LOCAL


def arguments(cluster: LocalCluster, history: Path, chosen: str) -> list[str]:
    """What follows `odradek` on the command line."""
    replicas = [word for name, path in cluster.replicas().items() for word in ("--replica", f"{name}={path}")]
    settings = [word for setting in SETTINGS for word in ("--setting", setting)]
    out = ["--out", str(cluster.directory / OUT), "--overwrite"]
    return ["audit", "run", *replicas, "--history", str(history), "--settled", "--engine", chosen, *settings, *out]


def report_path(cluster: LocalCluster) -> Path:
    """Where the audit leaves its page."""
    return cluster.directory / OUT / REPORT


def as_command(words: list[str]) -> str:
    return shlex.join(["odradek", *words])


async def _end(process: asyncio.subprocess.Process) -> None:
    """Interrupt the audit: it ends its JVM and removes what that wrote. Kill it when that takes too long, or when
    this is cancelled."""
    try:
        await _signalled(process, signal.SIGINT)
    finally:
        await _signalled(process, signal.SIGKILL)


async def _signalled(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Its end, or the end of patience. What it still says is read: asyncio hears of no end before all is."""
    with contextlib.suppress(TimeoutError, ProcessLookupError):
        if process.returncode is None:
            process.send_signal(number)
            async with asyncio.timeout(ENDING_S):
                await process.communicate()


async def audit(cluster: LocalCluster, history: Path, chosen: str) -> AuditOutcome:
    """Run the audit to its end. Never raises: what went wrong is in `trouble`, and the exit code is 1."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odradek-audit-", ignore_cleanup_errors=True) as scratch:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "odradek.cli.main", *arguments(cluster, history, chosen), "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "TMPDIR": scratch},
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                out, said = await process.communicate()
        except TimeoutError:
            return AuditOutcome(chosen, FAILED, time.monotonic() - began, {}, f"not done after {TIMEOUT_S} s")
        finally:
            if process.returncode is None:
                await _end(process)
    seconds = time.monotonic() - began
    try:
        return AuditOutcome(chosen, process.returncode or 0, seconds, json.loads(out))
    except ValueError:
        trouble = said.decode(errors="replace").strip()[-SHOWN:] or f"exit code {process.returncode}"
        return AuditOutcome(chosen, FAILED, seconds, {}, trouble)
