"""Runs programs of Apache Kafka and its relatives: Maven fetches the artifacts that are asked for, java runs them.

Where they lie is kept in the user's cache directory, outside of the checkout, and Maven is asked again only for other
artifacts or when one is gone. Where Java, Maven or its registry is missing, `NoKafka` says which.

    python -m tests.interop.kafka.java > classpath.txt      # of Kafka's own programs
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

KAFKA = "org.apache.kafka:{}:4.1.1"
PROGRAMS = (KAFKA.format("kafka_2.13"), KAFKA.format("kafka-tools"))  # with all that they need
STREAMS = (KAFKA.format("kafka-streams"),)
CONNECT = (KAFKA.format("connect-runtime"), KAFKA.format("connect-file"))
SPARK = ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",)
LOGGING = "org.slf4j:slf4j-simple:1.7.36"
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
FETCH_TIMEOUT_S = 300
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
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    listed = cache / f"kafka-classpath-{hashlib.sha256(pom.encode()).hexdigest()[:12]}.txt"
    if listed.exists() and all(Path(part).exists() for part in listed.read_text().split(os.pathsep)):
        return listed.read_text()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        written, fresh = Path(directory) / "pom.xml", Path(directory) / "classpath.txt"
        written.write_text(pom)
        command = [
            "mvn",
            "--batch-mode",
            "--quiet",
            "-f",
            str(written),
            DEPENDENCY_PLUGIN,
            f"-Dmdep.outputFile={fresh}",
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
        except subprocess.SubprocessError as error:
            words = [line for line in str(getattr(error, "stdout", "") or error).splitlines() if line.strip()]
            raise NoKafka(f"Maven could not fetch {artifacts[0]}: {words[0] if words else error}") from error
        fresh.replace(listed)
    return listed.read_text()


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


if __name__ == "__main__":
    print(classpath_of())
