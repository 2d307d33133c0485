"""Starts Spark in this process, quietly: for `odradek audit run`. On a cluster, `audit_job.py` goes through
spark-submit instead.

Everything that the JVM prints goes to a file for its whole life, and is shown only when it does not start. The
workers are the running interpreter. No JVM outlives `spark_session`, also when it is interrupted (`jvm.py`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from odradek_audit.spark.java import Java, find_java
from odradek_audit.spark.jvm import forget_session, quiet_accumulators, watched_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
DRIVER_MEMORY = "1g"
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"
"""The JVM hands out tasks and collects small results; all work is Python's. So it should start fast and stay small."""
SHOWN_LINES = 15
POLL_SECONDS = 0.3
GATEWAY_SECONDS = 30  # for a JVM that was told to end


class SparkFailed(RuntimeError):
    """Spark did not start; the message ends with what the JVM printed."""


@contextlib.contextmanager
def spark_session(master: str, java: Java | None = None) -> Iterator[SparkSession]:
    """A Spark session of its own, stopped at the end. Raises `SparkFailed`, `NoJava`, `ImportError` without pyspark."""
    from pyspark.sql import SparkSession

    chosen = java if java is not None else find_java()
    with watched_jvm() as watch:
        watch.scratch = scratch = Path(tempfile.mkdtemp(prefix="odradek-spark-"))
        properties = scratch / "log4j2.properties"
        properties.write_text(LOGGING)
        environment = {
            "JAVA_HOME": str(chosen.home),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
            "PYSPARK_SUBMIT_ARGS": (
                f"--driver-memory {DRIVER_MEMORY} "
                f'--driver-java-options "{JAVA_OPTIONS} -Dlog4j2.configurationFile=file:{properties}" pyspark-shell'
            ),
        }
        output = scratch / "jvm.log"
        with _environment(environment):
            try:
                with _stderr_to(output):
                    session: SparkSession = (
                        SparkSession.builder.master(master)
                        .appName("odradek audit")
                        .config("spark.ui.enabled", "false")
                        .config("spark.ui.showConsoleProgress", "false")
                        .config("spark.sql.shuffle.partitions", "8")
                        .config("spark.local.dir", str(scratch))
                        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
                        .getOrCreate()
                    )
            except Exception as error:
                raise SparkFailed(f"Spark did not start with {chosen.source}: {error}\n{_tail(output)}") from error
            quiet_accumulators(session, watch)
            try:
                watch.raises = True
                if watch.interrupted:
                    raise KeyboardInterrupt
                yield session
            finally:
                watch.raises = False
                if watch.interrupted:
                    forget_session(session)
                else:
                    session.stop()
                    _stop_gateway()


@contextlib.contextmanager
def polled(read: Callable[[], int], show: Callable[[int], None]) -> Iterator[None]:
    """While this lasts, show a number whenever it has changed: Spark tells of its accumulators at each task's end."""
    stop = threading.Event()

    def watch() -> None:
        shown = -1
        while not stop.wait(POLL_SECONDS):
            if (value := read()) != shown:
                show(value)
                shown = value

    watcher = threading.Thread(target=watch, name="spark-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _stop_gateway() -> None:
    """End the JVM too, so that nothing of it writes into the scratch directory that is about to go."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it is killed then
            process.wait(timeout=GATEWAY_SECONDS)
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Point file descriptors 1 and 2 to a file while a child is started, which keeps them."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, number in zip(kept, (1, 2), strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(target)


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return "\n".join(lines[-SHOWN_LINES:])
