"""A compacted topic on three real brokers: each replica cleans by itself, and whoever follows finds it whole."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from odradek import Consumer, Producer, TopicPartition
from odradek_audit.engine.local import audit
from odradek_broker.testing import AsyncCluster, Cluster
from odradek_proto.formats import decode_offset_checkpoint

STATES = TopicPartition("states", 0)
SETTINGS = {
    "min.insync.replicas": 2,
    "log.cleaner.backoff.ms": 20,
    "log.segment.delete.delay.ms": 50,
    "log.retention.check.interval.ms": 50,
}
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "4000"}
KEYS = 7
TURNS = 40


async def write(cluster: AsyncCluster, turns: range) -> dict[bytes, bytes]:
    """Each key once in each turn, some of them in batches; returns what every key has at the end."""
    newest: dict[bytes, bytes] = {}
    async with Producer[bytes, bytes](cluster.bootstrap, linger_ms=0) as producer:
        for turn in turns:
            sent = []
            for key in range(KEYS):
                name, value = b"key %d" % key, (b"turn %d " % turn).ljust(60, b".")
                newest[name] = value
                sent.append(producer.send("states", value, key=name, partition=0))
            await asyncio.gather(*sent)
    return newest


async def read(cluster: AsyncCluster) -> list[tuple[int, bytes | None, bytes | None]]:
    async with Consumer[bytes, bytes](cluster.bootstrap, "states", auto_offset_reset="earliest") as consumer:
        return [(each.offset, each.key, each.value) async for each in consumer.records(until="end")]


def cleaned_to(path: Path) -> int:
    checkpoint = path / "cleaner-offset-checkpoint"
    return decode_offset_checkpoint(checkpoint.read_bytes()).get(STATES, 0) if checkpoint.exists() else 0


async def cleaned(cluster: AsyncCluster, offset: int) -> None:
    """Wait until every replica was cleaned to an offset, and its old files are gone."""

    def done(path: Path) -> bool:
        names = [each.name for each in (path / "states-0").iterdir()]
        return cleaned_to(path) >= offset and not any(
            name.endswith((".cleaned", ".swap", ".deleted")) for name in names
        )

    await cluster.wait_until(lambda: all(map(done, cluster.replicas().values())))


async def test_a_compacted_topic_keeps_the_newest_of_each_key_on_every_replica() -> None:
    """Also on one that lost its disk and follows a cleaned log, after each has led, and to the audit."""
    async with Cluster(settings=SETTINGS) as cluster:
        await cluster.create_topic("states", configs=CONFIGS)
        await write(cluster, range(TURNS))
        newest = await write(cluster, range(TURNS, 2 * TURNS))
        await cleaned(cluster, TURNS * KEYS)
        told = await read(cluster)
        assert len(told) < TURNS * KEYS
        assert {key: value for _, key, value in told} == newest
        assert [offset for offset, _, _ in told] == sorted({offset for offset, _, _ in told})

        leader = await cluster.leader_of("states")
        lost = next(broker for broker in cluster.brokers if broker != leader)
        await cluster.kill(lost)
        shutil.rmtree(cluster.replicas()[str(lost)] / "states-0")
        await cluster.start(lost)
        newest |= await write(cluster, range(2 * TURNS, 2 * TURNS + 3))
        await cluster.wait_until_in_sync("states")
        for _ in cluster.brokers:
            leader = await cluster.leader_of("states")
            await cluster.kill(leader)
            told = await read(cluster)
            assert {key: value for _, key, value in told} == newest, leader
            await cluster.start(leader)
            await cluster.wait_until_in_sync("states")
        await cluster.stop(cluster.brokers[0])
        found = await asyncio.to_thread(audit, cluster.replicas())
        assert not found.findings, found.findings
