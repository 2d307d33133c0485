"""`odradek audit package`: the documented commands, on Spark whose Python has pyspark and nothing else.

`ODRADEK_PYSPARK=DIR` names the site-packages of another environment, whose pyspark is taken instead of ours.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest
from odradek_audit.inputs.history import ACK, SEND, Event
from odradek_audit.report import RESULT_FILES
from odradek_audit.spark.audit_job import ARCHIVE, MANIFEST
from odradek_audit.spark.java import find_java
from odradek_audit.spark.package import NotInstalled, write_package
from odradek_proto.topics import TopicPartition

from tests.audit.acknowledged import write_history
from tests.audit.corruption import plant
from tests.audit.s3 import CREDENTIALS, s3_server
from tests.audit.sample import SampleLog, WriteCluster
from tests.pages.reading import blocks

pytest.importorskip("pyspark")

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TIMEOUT_S = 1_200.0  # for what hangs: on a busy machine Spark alone takes minutes to start
BARE = ("pyspark", "py4j")
SITE = Path(os.environ.get("ODRADEK_PYSPARK") or str(metadata.distribution("pyspark").locate_file("")))
SPARK = SITE / "pyspark"


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has pyspark and nothing else: of a new environment, with a link to the package in this one."""
    home = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/python3*/site-packages")
    for name in BARE:
        (site / name).symlink_to(SITE / name)
    probe = "import pyspark, importlib.util as u; print([n for n in %r if u.find_spec(n)])"
    foreign = ["odradek_audit", "odradek_proto", "crc32c", "msgspec", "lz4", "zstandard", "cramjam", "pyarrow"]
    python = home / "bin" / "python"
    answer = subprocess.run([python, "-c", probe % foreign], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]", answer.stdout
    return python


def environment(python: Path, **more: str) -> dict[str, str]:
    """For spark-submit: driver and executors run `python`, and find nothing of this test's environment."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    java = find_java()
    return kept | {
        "PATH": f"{SPARK / 'bin'}:{BIN}:{os.environ['PATH']}",
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # what starts for seconds starts sooner so
        **more,
    }


def documented(number: int) -> list[str]:
    """The commands of a block of docs/audit.md that this file stands for."""
    ours = [each for each in blocks(ROOT / "docs/audit.md") if each.covered_by == "tests/audit/test_audit_package.py"]
    assert len(ours) == 2
    return list(ours[number].commands)


def run(commands: list[str], where: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Each in a shell of its own; the last one's answer."""
    for command in commands:
        answer = subprocess.run(
            ["sh", "-c", command], cwd=where, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    return answer


@pytest.mark.slow
@pytest.mark.spark
def test_the_documented_command_on_executors_with_nothing_of_odradek(
    bare_python: Path, write_cluster: WriteCluster, log: SampleLog, tmp_path: Path
) -> None:
    """Literally, with two executors of their own: damage is found and told, and the files are there."""
    replicas = write_cluster(log, log, log)
    plant("change-record", replicas["2"], TopicPartition("t", 0), random.Random(3))
    for name, path in replicas.items():
        shutil.copytree(path, tmp_path / "here" / "copies" / f"b{name}")
    told = [Event(SEND, "t", 0, b"never written"), Event(ACK, "t", 0, b"never written", 999, client="w")]
    write_history(tmp_path / "here" / "history.jsonl", told)
    answer = run(documented(0), tmp_path / "here", environment(bare_python))
    assert answer.returncode == 3, answer.stdout + answer.stderr[-4000:]
    assert "log-matching" in answer.stdout
    assert "acknowledged-lost" in answer.stdout
    assert "no findings.parquet: the driver's Python has no pyarrow" in answer.stdout
    written = {path.name for path in (tmp_path / "here" / "monday").iterdir()}
    assert written == {*RESULT_FILES} - {"findings.parquet"}


class Daemon:
    """A process of Spark's and the lines that it has written so far."""

    def __init__(self, name: str, *arguments: str, environment: dict[str, str]) -> None:
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read)

    def said(self, pattern: str) -> str:
        """The first group of the first line that matches; reads as long as it must."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if match := re.search(pattern, line):
                self.reader.start()
                return match[1]
        raise AssertionError("".join(self.lines))

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        if self.reader.ident is not None:
            self.reader.join()


@contextmanager
def standalone_cluster(home: Path, environment: dict[str, str]) -> Iterator[tuple[str, Daemon]]:
    """A master and a worker of Spark, each a process: the master's address, and the worker."""
    listen = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    started = [Daemon("master.Master", *listen, environment=environment)]
    try:
        address = started[0].said(r"Starting Spark master at (spark://\S+)")
        limits = ("--cores", "2", "--memory", "1g", "--work-dir", str(home / "work"))
        started.append(Daemon("worker.Worker", *listen, *limits, address, environment=environment))
        started[1].said("(Successfully registered)")
        yield address, started[1]
    finally:
        for daemon in reversed(started):
            daemon.end()


@pytest.mark.slow
@pytest.mark.spark
def test_a_standalone_cluster_reads_and_writes_a_bucket(
    bare_python: Path, write_cluster: WriteCluster, log: SampleLog, tmp_path: Path
) -> None:
    """A master, a worker with only pyspark, copies and results in S3: the archive brings pyarrow.

    Two executors share the work in the test above."""
    pytest.importorskip("pyarrow")
    replicas = write_cluster(log, log, log)
    plant("change-record", replicas["2"], TopicPartition("t", 0), random.Random(3))
    given = environment(bare_python, **CREDENTIALS)
    with s3_server("backups") as bucket, standalone_cluster(tmp_path, given) as (master, worker):
        for name, path in replicas.items():
            bucket.put(path, f"monday/broker-{name}")
        options = f"endpoint_override={bucket.endpoint}&region=us-east-1"
        commands = [
            command.replace("spark://spark.example:7077", master).replace("region=eu-west-1", options)
            for command in documented(1)
        ]
        answer = run(commands, tmp_path, given)
        assert answer.returncode == 3, answer.stdout + answer.stderr[-4000:]
        assert bucket.names("audits/monday/") == {f"audits/monday/{name}" for name in RESULT_FILES}
        summary = json.loads(bucket.get("audits/monday/summary.json"))
    assert summary["findings_by_check"] == {"log-matching": 1}
    assert len(summary["partitions"][0]["replicas"]) == 3
    assert any("Asked to launch executor" in line for line in worker.lines)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What nobody changes."""
    written = tmp_path_factory.mktemp("package")
    write_package(written)
    return written


@pytest.mark.slow
def test_an_archive_is_reproducible_and_small(package: Path, tmp_path: Path) -> None:
    """Twice the same bytes; the command's typer and rich, gRPC and tests are not in it."""
    inside = write_package(tmp_path)
    assert [each.split()[0] for each in inside] == ["cramjam", "crc32c", "lz4", "msgspec", "zstandard"]
    assert (package / ARCHIVE).read_bytes() == (tmp_path / ARCHIVE).read_bytes()
    with tarfile.open(package / ARCHIVE) as archive:
        names = archive.getnames()
        manifest = json.load(archive.extractfile(MANIFEST) or sys.stdin)
    assert manifest["packages"] == inside
    assert {"odradek_audit/spark/job.py", "odradek_proto/records.py"} <= set(names)
    assert not [name for name in names if "_pb2" in name or "/cli/" in name or "/tests/" in name]
    with pytest.raises(NotInstalled, match="no-such-package is not installed") as refused:
        write_package(tmp_path / "c", ["no-such-package"])
    assert refused.value.hint == "pip install no-such-package"


@pytest.mark.slow
def test_a_package_for_another_python_is_refused(bare_python: Path, package: Path, tmp_path: Path) -> None:
    """Before Spark starts: C code of one version does not load in another one."""
    shutil.copytree(package, tmp_path, dirs_exist_ok=True)
    with tarfile.open(tmp_path / ARCHIVE) as archive:
        archive.extractall(tmp_path / "odradek", filter="data")
    manifest = json.loads((tmp_path / "odradek" / MANIFEST).read_text())
    (tmp_path / "odradek" / MANIFEST).write_text(json.dumps(manifest | {"python": "3.6"}))
    answer = subprocess.run(
        [bare_python, "audit_job.py", "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert answer.returncode == 1
    assert "was made for Python 3.6" in answer.stderr
    (tmp_path / "odradek" / MANIFEST).write_text(json.dumps(manifest))
    answer = subprocess.run(
        [bare_python, "audit_job.py", "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert answer.returncode == 0, answer.stderr
    assert "--replica" in answer.stdout


def test_the_declared_pyspark_is_the_tested_one() -> None:
    """`launch.py` and `jvm.py` replace private names of pyspark: one minor version, and these names in it."""
    from pyspark import SparkContext, java_gateway

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (declared,) = [line for line in extras["audit"] if line.startswith("pyspark")]
    major, minor = map(int, metadata.version("pyspark").split(".")[:2])
    assert declared == f"pyspark>={major}.{minor},<{major}.{minor + 1}"
    assert callable(vars(java_gateway)["Popen"])
    assert {"_gateway", "_jvm"} <= set(vars(SparkContext))
    assert "signal" in vars(sys.modules[SparkContext.__module__])
