"""A node that is told to stop ends at once, whatever it is doing, and says what went wrong (R-142)."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.local import processes
from odradek_broker.process.logs import configured
from odradek_broker.process.node import Node
from odradek_broker.process.server import FAILED, OK, _until_stopped, serve
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.files import OsFiles
from odradek_proto.transport.grpc_network import GrpcNetwork

from tests.broker.log_bench import batch

LOGS = 300


def settings(directory: Path) -> BrokerSettings:
    """A cluster of one node."""
    (port,) = processes.free_ports(1)
    controller = f"127.0.0.1:{port}"
    return BrokerSettings(
        node_id=1,
        listeners=f"GRPC://127.0.0.1:0,REPLICATION://127.0.0.1:0,CONTROLLER://{controller}",
        controller_quorum_voters=f"1@{controller}",
        log_dirs=str(directory),
    )


def run(directory: Path, ripe: Callable[[], bool], act: Callable[[], None]) -> int:
    """Serve until it is ripe, act, and tell it to stop; returns the exit code."""

    async def life() -> int:
        loop = asyncio.get_running_loop()

        def look() -> None:
            if ripe():
                act()
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                loop.call_soon(look)

        look()
        with configured(settings(directory)):
            return await serve(settings(directory))

    return asyncio.run(life())


def test_a_node_that_still_opens_its_logs_opens_no_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It has thousands of logs to recover: it ends with the one that it has begun, and serves nobody in between."""
    logs = [tmp_path / f"orders-{place}" for place in range(LOGS)]
    for log in logs:
        log.mkdir()
        (log / f"{0:020d}.log").write_bytes(batch(0))
    opened = [log / "leader-epoch-checkpoint" for log in logs]
    assert run(tmp_path, opened[0].exists, lambda: None) == OK
    assert sum(each.exists() for each in opened) < LOGS
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    err = capfd.readouterr().err
    assert "listens on" not in err
    assert err.endswith(" INFO broker 1 odradek.server: node 1 has stopped\n")


def test_a_disk_that_refuses_the_end_is_a_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Somebody has removed the log directory: exit code 1, and no traceback."""
    directory = tmp_path / "data"
    said = ""

    def is_ready() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "is ready" in said

    assert run(directory, is_ready, lambda: shutil.rmtree(directory)) == FAILED
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert "ERROR broker 1 odradek.server: node 1 did not stop cleanly: " in err
    assert "No such file or directory" in err


def test_what_fails_while_it_stops_is_heard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While leaderships are handed over everything still works, and may fail: the exit code says so."""

    async def life() -> int:
        files = OsFiles()
        node = Node(settings(tmp_path), clock=LoopClock(random.Random(1)), files=files, network=GrpcNetwork())
        await node.start()
        await node.wait_until_ready()
        told = asyncio.Event()
        told.set()

        stopping = asyncio.ensure_future(_until_stopped(node, told, asyncio.Event()))

        async def breaks() -> None:
            raise RuntimeError("the flusher broke")

        loop = asyncio.get_running_loop()

        def look() -> None:
            if node.stopping:
                node.spawn(breaks())
            else:
                loop.call_soon(look)

        look()
        code = await stopping
        files.close()
        return code

    assert asyncio.run(life()) == FAILED
    assert "node 1 failed: RuntimeError('the flusher broke')" in caplog.text
