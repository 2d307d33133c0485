"""The demo's audit is a process of its own: when the demo is told to end, nothing temporary of it stays."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.demo import auditing
from odradek_chaos.demo.state import Audited

AUDIT = """#!{python}
import os, shutil, signal, sys, tempfile
scratch = tempfile.mkdtemp(prefix="odradek-spark-")
def tidy(number, frame):
    shutil.rmtree(scratch)
    open({ended!r}, "w").close()
    sys.exit(130)
def hear(number, frame):
    open({heard!r}, "w").close()
signal.signal(signal.SIGINT, {on_sigint})
print("x" * 1_000_000)  # half of a result: more than a pipe holds
sys.stdout.flush()
with open({begun!r}, "w") as fifo:
    fifo.write(scratch)
while True:
    signal.pause()
"""
Audit = Callable[[str], asyncio.Task[Audited]]


@pytest.fixture
def audit(tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """Begin an audit that does so on SIGINT, and never ends by itself."""
    for fifo in ("begun", "heard"):
        os.mkfifo(tmp_path / fifo)

    def begin(on_sigint: str) -> asyncio.Task[Audited]:
        program = tmp_path / "audit"
        names = {name: str(tmp_path / name) for name in ("begun", "heard", "ended")}
        program.write_text(AUDIT.format(python=sys.executable, on_sigint=on_sigint, **names))
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        cluster = LocalCluster.create(tmp_path / "cluster", brokers=1)
        return asyncio.create_task(auditing.audit(cluster, tmp_path / "history.jsonl", auditing.SPARK))

    return begin


async def cancelled_at_work(task: asyncio.Task[Audited], directory: Path, *, again: bool = False) -> None:
    """Cancel when the audit is in the middle of its work, and again when it has heard of that."""
    assert "odradek-spark-" in await asyncio.to_thread((directory / "begun").read_text)
    task.cancel()
    if again:
        await asyncio.to_thread((directory / "heard").read_text)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_audit_is_let_tidy_up(audit: Audit, tmp_path: Path, places: Path) -> None:
    """It is interrupted and waited for, also with more to say than a pipe holds."""

    async def story() -> None:
        await cancelled_at_work(audit("tidy"), tmp_path)

    asyncio.run(story())
    assert (tmp_path / "ended").exists()
    assert [*places.iterdir()] == []


@pytest.mark.parametrize("again", [False, True])
def test_an_audit_that_does_not_end_is_killed_and_its_directories_go(
    audit: Audit, tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """When patience is over, or at once when the demo is told again."""
    monkeypatch.setattr(auditing, "ENDING_S", 600 if again else 0.05)

    async def story() -> None:
        await cancelled_at_work(audit("hear"), tmp_path, again=again)

    asyncio.run(story())
    assert not (tmp_path / "ended").exists()
    assert [*places.iterdir()] == []
