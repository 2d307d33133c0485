"""Runs programs of Apache Kafka and its relatives: Maven fetches the artifacts that are asked for, java runs them.

Where they lie is kept in the user's cache directory, outside of the checkout, and Maven is asked again only for other
artifacts or when one is gone. Where Java, Maven or its registry is missing, `NoKafka` says which.

    python -m tests.interop.kafka.java > classpath.txt      # of Kafka's own programs
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

KAFKA = "org.apache.kafka:{}:4.1.1"
PROGRAMS = (KAFKA.format("kafka_2.13"), KAFKA.format("kafka-tools"))  # with all that they need
STREAMS = (KAFKA.format("kafka-streams"),)
CONNECT = tuple(KAFKA.format(f"connect-{part}") for part in ("runtime", "file", "mirror"))
SPARK = ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",)
LOGGING = "org.slf4j:slf4j-simple:1.7.36"
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
FETCH_TIMEOUT_S = 300
PROGRAMS_SOURCE = Path(__file__).with_name("Programs.java")
INT = struct.Struct(">i")
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # a JVM that starts soon and takes little
POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek</groupId> <artifactId>kafka-for-tests</artifactId> <version>1</version> <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


class NoKafka(Exception):
    """Kafka's programs cannot be run here; the sentence says what is missing."""


def classpath_of(artifacts: Sequence[str] = PROGRAMS) -> str:
    """Where these artifacts (`group:name:version`) and all that they need lie, as java wants to be told.

    Fetches them the first time. Raises `NoKafka`.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NoKafka(f"{program} is not installed")
    pom = POM.format("".join(DEPENDENCY.format(*each.split(":")) for each in (*artifacts, LOGGING)))
    listed = cached(f"kafka-classpath-{digest(pom)}.txt")
    if listed.exists() and all(Path(part).exists() for part in listed.read_text().split(os.pathsep)):
        return listed.read_text()
    with tempfile.TemporaryDirectory(dir=listed.parent) as directory:
        written, fresh = Path(directory) / "pom.xml", Path(directory) / "classpath.txt"
        written.write_text(pom)
        options = ["--batch-mode", "--quiet", "-f", str(written), f"-Dmdep.outputFile={fresh}"]
        command, soon = ["mvn", *options, DEPENDENCY_PLUGIN], {"MAVEN_OPTS": " ".join(SMALL), **os.environ}
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, env=soon)
        except subprocess.SubprocessError as error:
            words = [line for line in str(getattr(error, "stdout", "") or error).splitlines() if line.strip()]
            raise NoKafka(f"Maven could not fetch {artifacts[0]}: {words[0] if words else error}") from error
        fresh.replace(listed)
    return listed.read_text()


def cached(name: str) -> Path:
    """A file of that name in the user's cache directory."""
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    directory.mkdir(parents=True, exist_ok=True)
    return directory / name


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def java_command(
    classpath: str,
    program: str,
    arguments: Sequence[str] = (),
    *,
    log_level: str = "warn",
    flags: Sequence[str] = SMALL,
) -> list[str]:
    """The command that runs a class, or a source file that ends in `.java`; `flags` are the JVM's."""
    return [
        "java",
        *flags,
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-cp",
        classpath,
        program,
        *arguments,
    ]


def run_java(classpath: str, program: str, arguments: Sequence[str] = (), *, timeout_s: float = 600) -> str:
    """Run to the end in a JVM of its own; what it said on both channels. Raises `AssertionError` when it fails."""
    command = java_command(classpath, program, arguments)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout_s
    )
    assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


@dataclass(frozen=True)
class Said:
    """What a program printed, and its exit code."""

    code: int
    output: str
    errors: str


class Programs:
    """Runs Kafka's programs one after the other in one JVM (`Programs.java`): most of what a short one costs is the
    start. One for each class path, which ends with this process."""

    def __init__(self, classpath: str) -> None:
        command = java_command(classpath, str(PROGRAMS_SOURCE))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._one_at_a_time = threading.Lock()
        atexit.register(self._end)

    def _end(self) -> None:
        self._process.communicate()

    def run(self, program: str, arguments: Sequence[str] = (), *, typed: str = "", timeout_s: float = 600) -> Said:
        """Run one to its end. Raises `AssertionError` when it does not end in time."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        words = [each.encode() for each in (program, typed, *arguments)]
        with self._one_at_a_time, _killed_after(timeout_s, self._process):
            requests.write(b"".join([INT.pack(len(words)), *(INT.pack(len(each)) + each for each in words)]))
            requests.flush()
            code, *said = (INT.unpack(_exactly(answers, INT.size))[0], _sized(answers), _sized(answers))
        return Said(code, *said)


def _sized(answers: IO[bytes]) -> str:
    (size,) = INT.unpack(_exactly(answers, INT.size))
    return _exactly(answers, size).decode(errors="replace")


def _exactly(answers: IO[bytes], size: int) -> bytes:
    found = answers.read(size)
    assert len(found) == size, "the JVM of Kafka's programs has ended"
    return found


@contextlib.contextmanager
def _killed_after(seconds: float, process: subprocess.Popen[bytes]) -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


programs_of = cache(Programs)


def tool(name: str) -> str:
    """The class of one of Kafka's command line tools, most of which are in one package."""
    return name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"


def run_program(classpath: str, program: str, arguments: Sequence[str] = (), *, typed: str = "") -> str:
    """Run to the end in the JVM of such programs; its standard output. Raises `AssertionError` when it fails."""
    said = programs_of(classpath).run(program, arguments, typed=typed)
    assert said.code == 0, f"{program} ended with {said.code}:\n{said.output[-4000:]}{said.errors[-4000:]}"
    return said.output


if __name__ == "__main__":
    print(classpath_of())
