"""What is built on Kafka's clients, unchanged, on a cluster of odradek: Spark's connector and Kafka Streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from odradek_broker.testing import Cluster

from tests.interop.conftest import ClasspathOf
from tests.interop.kafka.java import SPARK, STREAMS, java_command

pytestmark = pytest.mark.slow

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
