"""Runs programs of Apache Kafka: Maven fetches the parts that `pom.xml` names, java runs them.

The list of parts is kept in the user's cache directory, outside of the checkout, and Maven is asked again only when the
pom has changed or a part is gone. Where Java, Maven or its registry is missing, `NoKafka` says which.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
FETCH_TIMEOUT_S = 300
HEAP = "-Xmx256m"


class NoKafka(Exception):
    """Kafka's programs cannot be run here; the sentence says what is missing."""


def kafka_classpath() -> str:
    """Where all parts of Kafka lie, as java wants to be told. Fetches them the first time. Raises `NoKafka`."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NoKafka(f"{program} is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    listed = cache / f"kafka-classpath-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}.txt"
    if listed.exists() and all(Path(part).exists() for part in listed.read_text().split(os.pathsep)):
        return listed.read_text()
    cache.mkdir(parents=True, exist_ok=True)
    fresh = listed.with_suffix(f".{os.getpid()}")
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(POM), DEPENDENCY_PLUGIN, f"-Dmdep.outputFile={fresh}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.SubprocessError as error:
        words = [line for line in str(getattr(error, "stdout", "") or error).splitlines() if line.strip()]
        raise NoKafka(f"Maven could not fetch Kafka: {words[0] if words else error}") from error
    fresh.replace(listed)
    return listed.read_text()


def java_command(classpath: str, program: str, arguments: Sequence[str] = (), *, log_level: str = "warn") -> list[str]:
    """The command that runs a class, or a source file that ends in `.java`."""
    return [
        "java",
        HEAP,
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-cp",
        classpath,
        program,
        *arguments,
    ]


def run_java(
    classpath: str,
    program: str,
    arguments: Sequence[str] = (),
    *,
    must_succeed: bool = True,
    timeout_s: float = 600,
) -> str:
    """Run to the end; returns what it said on both channels. Raises `AssertionError` when it fails and must not."""
    command = java_command(classpath, program, arguments)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout_s
    )
    if must_succeed and done.returncode:
        raise AssertionError(f"{program} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout
