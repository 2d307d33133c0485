"""How many processes an audit takes: several, unless gRPC is at work in this one."""

from __future__ import annotations

import os
import subprocess
import sys

from odradek_audit.engine.workers import workers
from odradek_proto.transport import grpc_network

COUNT = """
import os
from odradek_audit.engine.workers import workers

def who(_):
    return os.getpid()

with workers(2) as run:
    print(os.getpid() in set(run(who, range(20))))
"""


def who(_: int) -> int:
    return os.getpid()


def test_tasks_run_in_other_processes() -> None:
    """A program without gRPC hands all its tasks to others."""
    ended = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=180, check=False)
    assert (ended.returncode, ended.stdout) == (0, "False\n"), ended.stderr


def test_nothing_is_forked_beside_grpc() -> None:
    """gRPC's threads do not live in a forked child, and its handlers abort it: the tasks run here."""
    assert grpc_network.__name__ in sys.modules
    with workers(2) as run:
        assert set(run(who, range(20))) == {os.getpid()}
