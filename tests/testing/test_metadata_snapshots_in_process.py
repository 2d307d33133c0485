"""Whole nodes whose metadata log is cut behind small snapshots: who was away, or has lost its disk, is sent one."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from odradek import Admin, Consumer, Producer
from odradek_broker.testing import AsyncCluster
from odradek_proto.topics import TopicPartition

SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": 8_000,
    "metadata.max.retention.bytes": 24_000,
    "metadata.log.segment.bytes": 4_000,
}


def events_of(directory: Path, name: str) -> list[dict[str, Any]]:
    lines = (directory / "odradek-events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["event"] == name]


def log_files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "__cluster_metadata-0").glob("*.log"))


async def mere_voter(cluster: AsyncCluster) -> int:
    """A broker that is not the active controller."""
    controller = await cluster.controller()
    return next(broker for broker in cluster.brokers if broker != controller)


async def agree(cluster: AsyncCluster) -> None:
    """Wait until all nodes have the same image, and compare them whole."""
    nodes = cluster._nodes()
    await cluster.wait_until(lambda: len({node.feed.image.offset for node in nodes.values()}) == 1)
    first, *others = [node.feed.image for node in nodes.values()]
    for image in others:
        assert (image.topics, image.topic_configs, image.brokers) == (first.topics, first.topic_configs, first.brokers)


async def pass_hundreds_of_records(cluster: AsyncCluster) -> None:
    """Settings that change all the time, topics that come and go, and one that is made anew under its name."""
    names = ("retention.ms", "retention.bytes", "segment.ms", "flush.messages", "max.message.bytes", "segment.bytes")
    async with Admin(cluster.bootstrap) as admin:
        for number in range(5):
            await cluster.create_topic(f"passing-{number}", partitions=10)
            await admin.delete_topics([f"passing-{number}"])
        await admin.delete_topics(["anew"])
        await cluster.create_topic("anew", partitions=1, replication_factor=3)
        for number in range(120):
            value = str((1 << 20) + number)  # segments are no smaller
            await admin.alter_configs("topic", "orders", set=dict.fromkeys(names, value))


async def write_and_read(cluster: AsyncCluster, topic: str) -> list[bytes | None]:
    async with Producer(cluster.bootstrap) as producer:
        await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in range(20)))
    async with Consumer(cluster.bootstrap, topic, auto_offset_reset="earliest") as consumer:
        return [record.value async for record in consumer.records(until="end")]


@pytest.mark.slow
async def test_a_broker_that_was_away_comes_back_by_a_snapshot(tmp_path: Path) -> None:
    """Topics that were deleted, made anew or changed meanwhile are so for it as well."""
    async with AsyncCluster(3, settings=SMALL, directory=tmp_path) as cluster:
        await cluster.create_topic("orders", partitions=1, replication_factor=3)
        await cluster.create_topic("anew", partitions=1, replication_factor=3)
        assert len(await write_and_read(cluster, "anew")) == 20
        away = await mere_voter(cluster)
        await cluster.kill(away)
        await cluster.wait_until_ready()  # an order on its way to a broker that dies is not repeated
        await pass_hundreds_of_records(cluster)
        quorums = [quorum for node in cluster._nodes().values() if (quorum := node.quorum) is not None]
        assert all(quorum.log_end_offset > 720 for quorum in quorums)
        await cluster.wait_until(lambda: all(quorum.log_start_offset > 250 for quorum in quorums))
        async with Admin(cluster.bootstrap) as admin:
            described = await admin.describe_quorum()
        assert described.snapshot_end_offset is not None
        assert described.snapshot_end_offset >= described.log_start_offset > 250
        await cluster.start(away)
        await cluster.wait_until_in_sync("anew")
        await agree(cluster)
        assert events_of(cluster.replicas()[str(away)], "snapshot_installed")
        assert len(await write_and_read(cluster, "anew")) == 20, "the old topic's records are gone everywhere"
        node = cluster._nodes()[away]
        assert node.broker is not None
        orders = node.broker.replicas.replicas[TopicPartition("orders", 0)]
        assert orders.log.settings.retention_ms == (1 << 20) + 119
        files = log_files(cluster.replicas()[str(away)])
        assert files[0] != "00000000000000000000.log"


@pytest.mark.slow
async def test_a_node_with_an_empty_disk_joins_by_a_snapshot(tmp_path: Path) -> None:
    """It is sent one instead of a log that no longer reaches back; then it is a voter and a replica like any other."""
    async with AsyncCluster(3, settings=SMALL, directory=tmp_path) as cluster:
        await cluster.create_topic("orders", partitions=1, replication_factor=3)
        await cluster.create_topic("anew", partitions=1, replication_factor=3)
        await pass_hundreds_of_records(cluster)
        assert len(await write_and_read(cluster, "orders")) == 20
        lost = await mere_voter(cluster)
        await cluster.kill(lost)
        shutil.rmtree(cluster.replicas()[str(lost)])
        await cluster.start(lost)
        await cluster.wait_until_in_sync("orders")
        await agree(cluster)
        installed = events_of(cluster.replicas()[str(lost)], "snapshot_installed")
        assert [event["leo"] for event in installed] == [0]
        controller = await cluster.controller()
        await cluster.kill(next(other for other in cluster.brokers if other not in (lost, controller)))
        assert len(await write_and_read(cluster, "orders")) == 40, "it counts for the majority again"
