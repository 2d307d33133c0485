"""What is built on Kafka's clients, unchanged, on odradek: Spark's connector, Kafka Streams and Kafka Connect."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, Producer
from odradek_broker.testing import Cluster

from tests.interop.conftest import ClasspathOf
from tests.interop.kafka.java import CONNECT, SMALL, SPARK, STREAMS, java_command

pytestmark = pytest.mark.slow
T = TypeVar("T")

PARTITIONS = 3
MIDDLE_MS = 1_000_000
PROGRAM = str(Path(__file__).parent / "kafka" / "WordCount.java")
LINES = ["all streams lead to kafka", "hello kafka streams", "join kafka summit"]
PATIENCE_S = 600  # a JVM, or two of them, on a busy machine
CONNECTOR = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")  # Spark has the others


def produce(bootstrap: str, topic: str, values: list[str], timestamp_ms: int = MIDDLE_MS) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=value, partition=number % PARTITIONS, timestamp=timestamp_ms)
    assert producer.flush(60) == 0


def test_spark_reads_and_writes_through_its_own_connector(
    java_artifacts: ClasspathOf, odradek_cluster: Cluster, odradek_topic: str, tmp_path: Path
) -> None:
    """Batches by offsets, pattern and time; a sink; a stream of several micro-batches from one topic to the other."""
    jars = [jar for jar in java_artifacts(SPARK).split(os.pathsep) if Path(jar).name.startswith(CONNECTOR)]
    source, sink = f"{odradek_topic}-source", f"{odradek_topic}-sink"
    bootstrap = odradek_cluster.kafka_bootstrap
    for topic in (source, sink):
        odradek_cluster.create_topic(topic, PARTITIONS, configs={"retention.ms": -1})  # the records are of 1970
    early, late = [f"early {number}" for number in range(90)], [f"late {number}" for number in range(120)]
    produce(bootstrap, source, early, MIDDLE_MS - 1)
    produce(bootstrap, source, late)
    arguments = [bootstrap, source, sink, str(MIDDLE_MS), str(tmp_path / "checkpoint"), ",".join(jars)]
    command = [sys.executable, "-m", "tests.interop.spark_story", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("micro-batches") > 1
    everything = sorted(early + late)
    assert told == {
        "batch": everything,
        "from the middle": sorted(late),
        "by offsets": 5 * PARTITIONS,
        "by pattern": len(everything),
        "sink after a batch": everything,
        "sink after a stream": sorted([*everything, *(f"streamed {value}" for value in everything)]),
    }


def test_kafka_streams_counts_words(
    java_artifacts: ClasspathOf, odradek_cluster: Cluster, odradek_topic: str, tmp_path: Path
) -> None:
    """At least once: a repartition topic, a changelog that is compacted, and the counts in its stores and its sink.

    A second life begins with an empty directory, so that its stores come from the changelog.
    """
    classpath = java_artifacts(STREAMS)
    source, sink = f"{odradek_topic}-source", f"{odradek_topic}-sink"
    bootstrap = odradek_cluster.kafka_bootstrap
    for topic in (source, sink):
        odradek_cluster.create_topic(topic, PARTITIONS, configs={"retention.ms": -1})  # the records are of 1970
    for life in (1, 2):
        produce(bootstrap, source, LINES)
        counts = {word: life * count for word, count in Counter(" ".join(LINES).split()).items()}
        wanted = [f"{word}={count}" for word, count in counts.items()]
        arguments = (bootstrap, source, sink, "at_least_once", str(tmp_path / str(life)), *wanted)
        command = java_command(classpath, PROGRAM, arguments, log_level="error")
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        assert dict(line.split() for line in done.stdout.splitlines()) == {
            word: str(count) for word, count in counts.items()
        }


WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",  # what a worker that is gone did, the next one does at once
    "listeners": "http://127.0.0.1:0",
    "plugin.discovery": "service_load",
    **{f"{what}.storage.replication.factor": "3" for what in ("offset", "config", "status")},
}
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


class ConnectWorker:
    """A distributed worker of Kafka Connect, with its files in a directory of its own."""

    def __init__(self, classpath: str, bootstrap: str, name: str, directory: Path) -> None:
        topics = {f"{what}.storage.topic": f"{name}-{what}s" for what in ("offset", "config", "status")}
        settings = {"bootstrap.servers": bootstrap, "group.id": name, **topics, **WORKER}
        file, self._log = directory / "worker.properties", directory / "worker.log"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        flags = (*SMALL, "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.connect.runtime.rest.RestServer=info")
        program = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = java_command(classpath, program, (str(file),), log_level="error", flags=flags)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def until(self, done: Callable[[], T | None]) -> T:
        """What `done` says as soon as it says something true."""
        deadline = time.monotonic() + PATIENCE_S
        while not (told := done()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
            has_ended = self._process.poll() is not None or time.monotonic() > deadline
            assert not has_ended, self._log.read_text()[-4000:]
        return told

    def ask(self, path: str, body: object = None) -> Any:
        """Its REST API: once it listens, knows what is asked for, and no rebalance is in the way."""
        address = self.until(lambda: re.search(r"listening at (http://\S+)/,", self._log.read_text()))[1]
        data = None if body is None else json.dumps(body).encode()

        def answer() -> Any:
            try:
                with urlopen(Request(address + path, data, {"Content-Type": "application/json"})) as found:
                    return json.load(found)
            except HTTPError as refused:
                if refused.code not in (404, 409, 503):
                    raise
                return None

        return self.until(answer)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)


def test_kafka_connect_copies_files_and_mirrors_topics(
    java_artifacts: ClasspathOf, odradek_cluster: Cluster, odradek_topic: str, tmp_path: Path
) -> None:
    """A file, a topic, a file, and MirrorMaker; what a worker knows is in topics, two of them compacted.

    Connectors, tasks and offsets outlive the broker that coordinates the group of workers, and the worker.
    """
    classpath, bootstrap, group = java_artifacts(CONNECT), odradek_cluster.kafka_bootstrap, f"{odradek_topic}-connect"
    source, sink, lines = tmp_path / "source.txt", tmp_path / "sink.txt", set[str]()
    connectors: dict[str, dict[str, object]] = {
        "file.FileStreamSource": {"file": str(source), "topic": odradek_topic},
        "file.FileStreamSink": {"file": str(sink), "topics": odradek_topic},
        "mirror.MirrorSource": {
            "source.cluster.alias": "mirrored",
            "target.cluster.alias": "here",
            "topics": odradek_topic,
            "replication.factor": 3,
            "offset-syncs.topic.replication.factor": 3,
            **{f"{end}.cluster.bootstrap.servers": bootstrap for end in ("source", "target")},
            **{f"{what}.converter": BYTES for what in ("key", "value")},
        },
    }
    mirrored = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    mirrored.subscribe([f"mirrored.{odradek_topic}"])
    found = set[str]()

    def all_are_mirrored() -> bool:
        found.update((message.value() or b"").decode() for message in mirrored.consume(100, 0.1) if not message.error())
        return found == lines

    def all_run(worker: ConnectWorker) -> bool:
        states = [worker.ask(f"/connectors/{name}/status") for name in connectors]
        return [task["state"] for state in states for task in state["tasks"]] == ["RUNNING"] * len(connectors)

    for life in ("first", "second"):
        worker = ConnectWorker(classpath, bootstrap, group, tmp_path)
        try:
            for name, config in connectors.items() if life == "first" else ():
                own = {"connector.class": f"org.apache.kafka.connect.{name}Connector", "tasks.max": 1, **config}
                worker.ask("/connectors", {"name": name, "config": own})
            for chapter in ("before", "after"):
                more = [f"{life} {chapter} {number}" for number in range(50)]
                with source.open("a") as file:
                    file.write("".join(f"{line}\n" for line in more))
                lines.update(more)
                worker.until(lambda: sink.exists() and set(sink.read_text().splitlines()) == lines)
                worker.until(all_are_mirrored)
                if (life, chapter) == ("first", "before"):
                    odradek_cluster.kill(odradek_cluster.coordinator_of(group))
            worker.until(partial(all_run, worker))
        finally:
            worker.end()
    mirrored.close()
