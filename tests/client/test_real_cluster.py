"""The client with three real broker processes: what is acknowledged stays, and the examples run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek import Admin, Consumer, NewTopic, OdradekError, Producer
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.cluster_health import wait_until_converged
from odradek_chaos.worlds.processes import ProcessesWorld

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDS_BETWEEN_KILLS = 300

pytestmark = pytest.mark.cluster


TOPICS = ("orders", "examples")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers on free ports, registered and unfenced, and a topic for each test, which each of them knows."""
    place = tmp_path_factory.mktemp("brokers") / "cluster"
    made = LocalCluster.create(place, brokers=3, settings={"min.insync.replicas": "2"})

    async def registered() -> None:
        world = ProcessesWorld(made)
        # A fenced broker is no member of a new partition's ISR, and then the next kill may take the only one.
        await wait_until_converged(world, timeout_s=60)
        async with Admin(made.bootstrap, bootstrap_timeout_ms=60_000) as admin:
            await admin.create_topics([NewTopic(topic, 2, 3) for topic in TOPICS])
        await wait_until_converged(world, timeout_s=60, settled=lambda whole: all(map(whole.of_topic, TOPICS)))

    try:
        made.start_all()
        asyncio.run(registered())
        yield made
    finally:
        made.kill_all()


async def test_killed_leaders_cost_nothing_but_time(cluster: LocalCluster) -> None:
    """Leaders are killed while records are written and read: each record once and in order."""
    async with (
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap) as producer,
        Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer,
    ):
        written = 0
        for _ in range(2):
            [topic] = await admin.describe_topics(["orders"])
            leader = topic.partitions[0].leader_id
            for _ in range(RECORDS_BETWEEN_KILLS):
                await producer.enqueue("orders", str(written), partition=0)
                written += 1
            cluster.kill(leader)
            await producer.send("orders", str(written), partition=0)
            written += 1
            cluster.start(leader)
            await wait_until_converged(ProcessesWorld(cluster), timeout_s=60)
        seen = [int(record.value or b"") async for record in consumer.records(until="end")]
        assert seen == list(range(written))


def test_the_examples_run(cluster: LocalCluster) -> None:
    """As their first lines say, with a cluster that is there."""
    runs: tuple[tuple[str, list[str], str], ...] = (
        ("produce_and_consume.py", [], "read greetings-"),
        ("fast_producer.py", ["examples", "2000"], "2000 records acknowledged"),
        ("without_asyncio.py", ["examples"], "b'from a script'"),
    )
    for name, arguments, words in runs:
        command = [sys.executable, str(EXAMPLES / name), cluster.bootstrap, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert words in done.stdout


async def test_an_unreachable_cluster_says_so() -> None:
    """Within bootstrap.timeout.ms, with the address and what to do."""
    with pytest.raises(OdradekError, match=r"127\.0\.0\.1:9: connection refused"):
        async with Admin("127.0.0.1:9", bootstrap_timeout_ms=200):
            pass
