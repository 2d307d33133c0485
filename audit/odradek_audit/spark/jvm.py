"""The JVM that pyspark starts, and Ctrl-C while it lives.

Rules of this module. A SIGINT is remembered and ends the JVM at once; nothing that pyspark does after that succeeds, so
the main thread stops at its next step also where a `KeyboardInterrupt` would be dropped (in a callback after a fork, in
a finalizer) or would leave a lock taken (in `Popen.poll`). It counts also when the shell that started this process had
SIGINT ignored, as it does for `&`. No JVM outlives `watched_jvm`, and its scratch directory goes with it: a second
SIGINT does not interrupt that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMOVALS, REMOVAL_PAUSE_S = 20, 0.1  # of a scratch directory: two seconds for workers to notice


class JvmWatch:
    """Which JVMs there are, and whether somebody wants an end.

    `raises`: whether the next SIGINT is also raised where the main thread is. Not while pyspark starts or stops the
    JVM: there it would meet half-made objects, and the JVM's end is what ends pyspark's waiting.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self.raises = False
        self.children: list[subprocess.Popen[bytes]] = []
        self.scratch: Path | None = None  # what the JVM writes into

    def on_sigint(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self.kill()
        if self.raises:
            self.raises = False
            raise KeyboardInterrupt

    def kill(self) -> None:
        """End every JVM with its children; takes no lock, so that a signal handler may call it at any moment."""
        for child in self.children:
            if getattr(child, "pid", None) is not None and child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)


@contextlib.contextmanager
def watched_jvm() -> Iterator[JvmWatch]:
    """Whatever pyspark starts inside is ended at the end, and its scratch directory removed.

    Raises `KeyboardInterrupt` if a SIGINT came meanwhile, also instead of what the JVM's end made fail. Only the main
    thread hears signals.
    """
    watch = JvmWatch()
    here = threading.current_thread() is threading.main_thread()
    root, silence = logging.getLogger(), logging.NullHandler()
    root.addHandler(silence)  # py4j tells the root logger of every call that the JVM's end interrupted
    before = signal.signal(signal.SIGINT, watch.on_sigint) if here else None
    try:
        with _kept_children(watch), _own_handler():
            yield watch
    except Exception as error:
        if watch.interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        watch.raises = False
        watch.kill()
        for child in watch.children:
            if getattr(child, "pid", None) is not None and child.poll() is None:
                child.wait()
        if watch.scratch is not None:
            _remove(watch.scratch)
        if here:
            signal.signal(signal.SIGINT, before)
        root.removeHandler(silence)
        if watch.interrupted:
            _forget_gateway()
    if watch.interrupted:
        raise KeyboardInterrupt


def _remove(directory: Path) -> None:
    """Also when workers whose JVM has gone still write into it for a moment."""
    for _ in range(REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(REMOVAL_PAUSE_S)


@contextlib.contextmanager
def _kept_children(watch: JvmWatch) -> Iterator[None]:
    """pyspark keeps its child only once the JVM has answered, and starts it deaf to Ctrl-C: when that comes before,
    nobody knows of the JVM any more. So it is kept here from its first moment, in a process group of its own."""
    from pyspark import java_gateway

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            if watch.interrupted:
                raise KeyboardInterrupt
            watch.children.append(self)
            super().__init__(command, **{**options, "start_new_session": True})
            if watch.interrupted:  # before the process id was known
                watch.kill()

    usual = vars(java_gateway)["Popen"]
    vars(java_gateway)["Popen"] = Kept
    try:
        yield
    finally:
        vars(java_gateway)["Popen"] = usual


@contextlib.contextmanager
def _own_handler() -> Iterator[None]:
    """pyspark's context installs a handler of its own, which calls the JVM in the middle of another call: it cannot."""
    from pyspark import SparkContext

    module = vars(sys.modules[SparkContext.__module__])
    usual = module["signal"]
    module["signal"] = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda number, handler: None)
    try:
        yield
    finally:
        module["signal"] = usual


def quiet_accumulators(session: SparkSession, watch: JvmWatch) -> None:
    """The thread to which the JVM tells its accumulators prints a traceback when the JVM goes: not when it was sent."""
    server = session.sparkContext._accumulatorServer
    usual = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not watch.interrupted:
            usual(request, client_address)

    vars(server)["handle_error"] = handle_error


def forget_session(session: SparkSession) -> None:
    """What pyspark knows of a session whose JVM has gone, without a call to that."""
    from pyspark.sql import SparkSession

    context = session.sparkContext
    context._jsc = None
    context.stop()
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def _forget_gateway() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        with contextlib.suppress(Exception):  # its connections lead nowhere
            gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
