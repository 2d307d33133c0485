"""`odradek audit live` on Apache Kafka 4.1.1: no false alarm while leaders are killed, and damage named."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from odradek_audit.cli.commands import app
from odradek_audit.live import wire
from odradek_proto.records import iter_batches
from odradek_proto.topics import TopicPartition
from typer.testing import CliRunner

from tests.audit.corruption import Planted, plant
from tests.interop.kafka.cluster import KafkaCluster
from tests.interop.kafka.writing import Writing, create_topic, leaders, whole

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]

TOPIC, CHANGED, FLIPPED, COMPACTED = "audited", "changed", "flipped", "compacted"
CLEANED_AT_ONCE = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "8192",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}
runner = CliRunner()


@pytest.fixture(autouse=True)
def running(kafka: KafkaCluster) -> None:
    kafka.start()


@contextmanager
def damaged(kind: str, directory: Path, topic: str) -> Iterator[Planted]:
    """What was planted into the log of a broker that runs, as a disk damages it; taken back at the end."""
    kept = {path: path.read_bytes() for path in (directory / f"{topic}-0").glob("*.log")}
    try:
        yield plant(kind, directory, TopicPartition(topic, 0), random.Random(4))
    finally:
        for path, content in kept.items():
            path.write_bytes(content)


def live(cluster: KafkaCluster, *options: str) -> tuple[int, dict[str, Any]]:
    result = runner.invoke(app, ["live", "-b", ",".join(cluster.bootstrap), "--quota", "0", "--json", *options])
    assert result.exit_code in (0, 1, 3), result.output
    return result.exit_code, json.loads(result.stdout)


async def written(cluster: KafkaCluster, topic: str, partitions: int, *, kill: bool) -> list[dict[str, Any]]:
    """Write in all codecs; with `kill` a leader dies meanwhile and comes back. What audits said all the while."""
    said = []
    writing = Writing(cluster.bootstrap, topic, partitions, random.Random(1), int(time.time() * 1000) - 3_600_000)
    async with writing.producers() as producers:
        await writing.write(producers, 1500)
        await whole(cluster.bootstrap, topic)
        if kill:
            target = (await leaders(cluster.bootstrap, topic))[0][0]
            under_way = asyncio.create_task(writing.write(producers, 1500))
            await asyncio.sleep(0)
            cluster.kill(target)
            said.append((await asyncio.to_thread(live, cluster, "--topics", topic))[1])
            await under_way
            cluster.start(target)
            said.append((await asyncio.to_thread(live, cluster, "--topics", topic))[1])
            await whole(cluster.bootstrap, topic)
    return said


def test_a_cluster_with_a_killed_leader_gives_no_false_alarm(kafka: KafkaCluster, tmp_path: Path) -> None:
    """While it is written to and a broker is down nothing is found; then all is compared, by followers' own logs, and
    the next audit reads what is new."""
    asyncio.run(create_topic(kafka.bootstrap, TOPIC, 2, {"internal.segment.bytes": "32768"}))
    for document in asyncio.run(written(kafka, TOPIC, 2, kill=True)):
        assert document["finding_list"] == []
    digests = ("--topics", TOPIC, "--digests", str(tmp_path / "digests.json"))
    code, document = live(kafka, *digests)
    assert (code, document["finding_list"], document["inconclusive"]) == (0, [], [])
    assert document["compared_records"] >= 2 * 2900  # what the followers have heard to be committed
    code, second = live(kafka, *digests)
    assert code == 0
    assert second["compared_records"] < document["compared_records"]
    code, again = live(kafka, *digests, "--from-start")
    assert (code, again["finding_list"]) == (0, [])
    for address in kafka.bootstrap:
        host, _, port = address.rpartition(":")
        connection = wire.Connection(host, int(port), 30.0, lambda size: None)
        ends = [
            wire.log_bound(connection, each["topic"], each["partition"], wire.LATEST) for each in again["partitions"]
        ]
        connection.close()
        assert ends == [(0, each["replicas"][0]["log_end"]) for each in again["partitions"]]  # of followers, too


async def rewritten(cluster: KafkaCluster) -> list[dict[str, Any]]:
    """What audits said while some keys were written again and again, and deleted, and replicas were cleaned."""
    said = []
    await create_topic(cluster.bootstrap, COMPACTED, 1, CLEANED_AT_ONCE)
    writing = Writing(cluster.bootstrap, COMPACTED, 1, random.Random(3), int(time.time() * 1000), compacted=True)
    async with writing.producers() as producers:
        for _ in range(6):
            under_way = asyncio.create_task(writing.write(producers, 1000))
            await asyncio.sleep(0)
            said.append((await asyncio.to_thread(live, cluster, "--topics", COMPACTED))[1])
            await under_way
    await whole(cluster.bootstrap, COMPACTED)
    return said


def test_replicas_that_clean_on_their_own_give_no_false_alarm(kafka: KafkaCluster) -> None:
    """Keys are written again, and deleted, while cleaners of three brokers and the audit go through them."""
    for document in asyncio.run(rewritten(kafka)):
        assert (document["finding_list"], document["inconclusive"]) == ([], [])
    code, document = live(kafka, "--topics", COMPACTED)
    assert (code, document["finding_list"]) == (0, [])
    assert 0 < document["compared_records"] < 2 * 5000  # the others of 6,000 have been cleaned away
    for path in (kafka.directory(node) / f"{COMPACTED}-0" for node in (1, 2, 3)):
        records = sum(header.record_count for log in path.glob("*.log") for _, header in iter_batches(log.read_bytes()))
        assert records < 5000


def test_damage_in_a_replica_is_named(kafka: KafkaCluster) -> None:
    """A value that was changed with its CRC, and a flipped bit, which brokers send as it is; the offsets are right."""
    for topic in (CHANGED, FLIPPED):
        asyncio.run(create_topic(kafka.bootstrap, topic, 1, {"segment.bytes": "1048576"}))
        asyncio.run(written(kafka, topic, 1, kill=False))
    with (
        damaged("change-record", kafka.directory(2), CHANGED) as changed,
        damaged("flip-byte", kafka.directory(3), FLIPPED) as flipped,
    ):
        code, document = live(kafka, "--topics", f"{CHANGED},{FLIPPED}")
    assert code == 3
    other = [each for each in document["finding_list"] if each["topic"] == CHANGED]
    assert {each["check"] for each in other} == {"log-matching"}
    assert all("2" in (each["replica"], each["other_replica"]) for each in other)
    assert all(each["offset"] <= changed.offset < each["end_offset"] for each in other)
    (bits,) = [each for each in document["finding_list"] if each["topic"] == FLIPPED]
    assert (bits["check"], bits["replica"]) == ("crc-mismatch", "3")
    assert bits["offset"] <= flipped.offset < bits["end_offset"]
