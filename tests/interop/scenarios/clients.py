"""The clients of Kafka that are run through the scenarios, each by a program in its own language.

A program runs all scenarios of one phase, one after the other, and tells what it was told: `whole`, when all brokers
run, and `below`, when the topic `strict` has fewer in-sync replicas than it wants.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not said to be exported

from tests.interop.kafka.java import NoKafka, classpath_of, java_command
from tests.interop.scenarios import aiokafka_client, confluent_client, kafka_python_client, kcat_client, tools_client
from tests.interop.scenarios.telling import (
    COMPACTED,
    FOUR,
    ONE,
    PARTITIONS,
    PATIENCE_S,
    SMALL,
    STRICT,
    TIMED,
    name_of,
    until,
)

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
WHOLE, BELOW = "whole", "below"
KILLED = 3  # before the second phase
SETTINGS = {"auto.create.topics.enable": "false", "min.insync.replicas": "2"}  # of both clusters
TIMEOUT_S = 900
BUILD_TIMEOUT_S = 600
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    ONE: (1, {}),
    FOUR: (PARTITIONS, {}),
    SMALL: (1, {"max.message.bytes": "2000"}),
    COMPACTED: (1, {"cleanup.policy": "compact"}),
    STRICT: (1, {"min.insync.replicas": "3"}),
    TIMED: (1, {"message.timestamp.type": "LogAppendTime"}),
}

Program = Callable[[str, str, str], dict[str, Any]]  # bootstrap, prefix, phase


def prepare(bootstrap: str, prefix: str) -> None:
    """The topics of a run and that of offsets, with three replicas each, as every broker tells them."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic(f"{prefix}-{name}", count, 3, config=configs) for name, (count, configs) in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{prefix}-first", "log_level": 0})
    for _ in until(partial(_has_coordinator, consumer, TopicPartition(f"{prefix}-{ONE}", 0))):
        pass
    consumer.close()
    wait_for_replicas(bootstrap, prefix, 3)


def _has_coordinator(consumer: Consumer, partition: TopicPartition) -> bool:
    """The first that looks for a coordinator makes the topic of offsets; Kafka refuses until it is there."""
    with contextlib.suppress(KafkaException):
        return bool(consumer.committed([partition], timeout=PATIENCE_S))
    return False


def wait_for_replicas(bootstrap: str, prefix: str, count: int) -> None:
    """Returns once all topics of a run have so many in-sync replicas, in the metadata of each broker that runs."""
    for address in bootstrap.split(","):
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        for _ in until(partial(_in_sync, admin, prefix, count)):
            pass


def _in_sync(admin: AdminClient, prefix: str, count: int) -> bool:
    found = admin.list_topics(timeout=PATIENCE_S).topics
    topics = [found[f"{prefix}-{name}"] for name in TOPICS if f"{prefix}-{name}" in found]
    return len(topics) == len(TOPICS) and all(
        len(each.isrs) == count and each.leader >= 0 for topic in topics for each in topic.partitions.values()
    )


def run_program(command: Callable[[], list[str]], bootstrap: str, prefix: str, phase: str) -> dict[str, Any]:
    """A program that takes these three arguments and prints a JSON object; numbers of errors become names."""
    words = [*command(), bootstrap, prefix, phase]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    told: dict[str, Any] = _named(json.loads(done.stdout.splitlines()[-1]))
    return told


def _named(told: Any) -> Any:
    """`#36` becomes Kafka's name of that error."""
    if isinstance(told, dict):
        return {key: _named(value) for key, value in told.items()}
    if isinstance(told, list):
        return [_named(each) for each in told]
    if isinstance(told, str) and told[:1] == "#":
        return name_of(int(told[1:]))
    return told


def java(version: str) -> list[str]:
    classpath = classpath_of((f"org.apache.kafka:kafka-clients:{version}",))
    return java_command(classpath, str(HERE / "Scenarios.java"), log_level="off")


@cache
def go(client: str) -> list[str]:
    """A Go client's program, built where Go keeps what it has built, without C and without what debuggers want: that
    would be a third of a first build. Raises `NoKafka`."""
    program = Path(tempfile.mkdtemp(prefix="odradek-go-")) / "scenarios"
    flags = ["-tags", client, "-ldflags=-s -w", "-gcflags=all=-dwarf=false"]
    build(["go", "build", *flags, "-o", str(program), "."], HERE / "go", {"CGO_ENABLED": "0"})
    return [str(program)]


@cache
def node() -> list[str]:
    """The Node client's program, beside the modules that npm has installed from its cache. Raises `NoKafka`."""
    if shutil.which("node") is None:
        raise NoKafka("node is not installed")
    place = Path(tempfile.mkdtemp(prefix="odradek-node-"))
    shutil.copytree(HERE / "js", place, dirs_exist_ok=True)
    build(["npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"], place)
    return ["node", str(place / "scenarios.js")]


def build(command: list[str], directory: Path, environment: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run what makes a client's program from `directory`. Raises `NoKafka`."""
    if shutil.which(command[0]) is None:
        raise NoKafka(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoKafka(f"{' '.join(command[:2])} takes longer than {BUILD_TIMEOUT_S} s") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if not line.startswith("go: downloading")]
        raise NoKafka(f"{' '.join(command[:2])} failed: {' '.join(said[:4])}")


CLIENTS: dict[str, Program] = {
    "confluent": confluent_client.run,
    "aiokafka": aiokafka_client.run,
    "kafka-python": kafka_python_client.run,
    "kcat": kcat_client.run,
    "tools": tools_client.run,
    **{f"java-{each}": partial(run_program, partial(java, each)) for each in ("3.9.2", "4.1.1", "4.4.0")},
    "franz-go": partial(run_program, partial(go, "franz")),
    **{each: partial(run_program, partial(go, each)) for each in ("sarama", "segmentio")},
    "kafkajs": partial(run_program, node),
}


class Cluster(Protocol):
    """Three brokers, 1 to 3."""

    @property
    def kafka_addresses(self) -> Mapping[int, str]: ...

    def kill(self, broker: int, /) -> None: ...


def run(client: str, cluster: Cluster, prefix: str) -> dict[str, Any]:
    """All scenarios: on a whole cluster first, then with one broker less. It stays dead."""
    addresses = cluster.kafka_addresses
    bootstrap, left = (",".join(each) for each in (addresses.values(), (addresses[1], addresses[2])))
    prepare(bootstrap, prefix)
    told = CLIENTS[client](bootstrap, prefix, WHOLE)
    cluster.kill(KILLED)
    wait_for_replicas(left, prefix, 2)
    return {**told, **CLIENTS[client](left, prefix, BELOW)}


# Where odradek says another thing on purpose; docs/kafka-clients.md says why.
DIFFERENT: dict[str, Any] = {
    "features": ["group.version", "eligible.leader.replicas.version", "metadata.version"],
}


def expected(client: str) -> dict[str, Any]:
    """What Apache Kafka 4.1.1 told this client, and where odradek differs what that says."""
    told: dict[str, Any] = json.loads((RECORDED / f"{client}.json").read_text())
    return {scenario: DIFFERENT.get(scenario, result) for scenario, result in told.items()}
