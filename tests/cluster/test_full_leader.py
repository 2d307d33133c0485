"""A leader whose disk is full, on a file system of its own: another replica that has room leads (R-148)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.cli.clusters.health import check_health
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.waiting import wait_until_ready

from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

PATIENCE_S = 120
FULL, OTHERS = 1, (2, 3)
ROOM = "64m"  # of its disk, before it is filled
SETTINGS = {"replica.lag.time.max.ms": "3000", "leader.imbalance.check.interval.seconds": "2"}
IN_A_NAMESPACE = ("unshare", "--map-root-user", "--mount")
MOUNT = f"mount -t tmpfs -o size={ROOM} none"
ORDERS = TopicPartition("orders", 0)
PIECE = bytes(1 << 16)


def mounts_are_allowed(place: Path) -> bool:
    """Where a user may have namespaces of mounts; nothing outside of such a one is mounted."""
    if shutil.which(IN_A_NAMESPACE[0]) is None:
        return False
    return subprocess.run([*IN_A_NAMESPACE, "sh", "-c", f"{MOUNT} {place}"], capture_output=True).returncode == 0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Three brokers; the directory of the first is a small file system, which it alone sees under that name."""
    if not mounts_are_allowed(tmp_path):
        pytest.skip("no user namespaces with mounts on this machine")
    made = LocalCluster.create(tmp_path / "cluster", brokers=3, settings=SETTINGS)
    python = tmp_path / "python"
    run = f'{MOUNT} "$0" && exec {sys.executable} "$@"'
    python.write_text(
        f"#!/bin/sh\nexec {' '.join(IN_A_NAMESPACE)} sh -c '{run}' {made.nodes[FULL].log_directory} \"$@\"\n"
    )
    python.chmod(0o755)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", str(python))
            made.start(FULL)
        for broker_id in OTHERS:
            made.start(broker_id)
        asyncio.run(wait_until_ready(made, timeout_s=PATIENCE_S))
        yield made
    finally:
        made.kill_all()


def ballast(cluster: LocalCluster) -> Path:
    """A file on the broker's own file system, as this process sees it."""
    node = cluster.nodes[FULL]
    return Path(f"/proc/{node.pid}/root{node.log_directory}/ballast")


def fill(cluster: LocalCluster) -> None:
    with ballast(cluster).open("wb", buffering=0) as file:
        try:
            while file.write(PIECE):
                pass
        except OSError:
            return


def leads(cluster: LocalCluster) -> int:
    async def ask() -> int:
        async with Admin(cluster.bootstrap) as admin:
            (topic,) = await admin.describe_topics([ORDERS.topic])
            return topic.partitions[0].leader_id

    return asyncio.run(ask())


def write(cluster: LocalCluster, record: bytes) -> None:
    async def send() -> None:
        async with Producer(cluster.bootstrap, acks="all", delivery_timeout_ms=PATIENCE_S * 1000) as producer:
            await producer.send(ORDERS.topic, record)

    asyncio.run(send())


def problems(cluster: LocalCluster) -> list[str]:
    async def ask() -> list[str]:
        async with Admin(cluster.bootstrap) as admin:
            found: list[str] = (await check_health(admin))["problems"]
            return found

    return asyncio.run(ask())


def test_another_replica_leads_as_long_as_the_disk_is_full(cluster: LocalCluster) -> None:
    """Writes go on, health names the disk; with room again it leads again, and nothing is lost."""

    async def make() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic(ORDERS.topic, assignments={0: [FULL, *OTHERS]})])

    asyncio.run(make())
    write(cluster, b"before")
    fill(cluster)
    until(lambda: leads(cluster), lambda leader: leader in OTHERS, PATIENCE_S)
    write(cluster, b"while it is full")
    assert [each for each in problems(cluster) if each.startswith(f"the disk of broker {FULL} is full")]
    said = [cluster.log_file(broker_id).read_text() for broker_id in cluster.nodes]
    assert any(f"the disk of broker {FULL} is full" in text for text in said)
    ballast(cluster).unlink()
    until(lambda: leads(cluster), lambda leader: leader == FULL, PATIENCE_S)
    write(cluster, b"after")

    async def read() -> list[bytes | None]:
        async with Consumer(cluster.bootstrap, ORDERS.topic, auto_offset_reset="earliest") as consumer:
            records = aiter(consumer)
            return [(await anext(records)).value for _ in range(3)]

    assert asyncio.run(read()) == [b"before", b"while it is full", b"after"]
