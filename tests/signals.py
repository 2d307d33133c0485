"""How a child that is started finds SIGINT and SIGHUP.

Set in this process while the child is made, and never by `preexec_fn`: that runs Python, and what gRPC does at a fork,
in the child of a process with many threads, which now and then aborts there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | signal.Handlers


@contextlib.contextmanager
def sigint_of_children(handler: Handler = signal.default_int_handler) -> Iterator[None]:
    """SIGINT interrupts children made meanwhile; with `signal.SIG_IGN` they ignore it, as those of a shell with `&`.

    SIGHUP ends them, also where this process ignores it since it runs under nohup.
    """
    wanted = {signal.SIGINT: handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, each) for number, each in wanted.items()}
    try:
        yield
    finally:
        for number, each in before.items():
            signal.signal(number, each)


@contextlib.contextmanager
def started(command: str, stderr: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """A command of odradek that SIGINT interrupts, in a process group of its own; nothing of it outlives the block."""
    with sigint_of_children():
        process = subprocess.Popen(
            [sys.executable, "-m", "odradek.cli.main", *command.split()],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
