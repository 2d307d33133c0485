"""What is done to the directories of real brokers, and to their memory: it costs no record, and is said."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from odradek import Admin, Consumer, NewTopic, Producer
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.waiting import wait_until_ready

from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

PATIENCE_S = 120
MEDDLED = (2, 3)
RECORDS = [b"%d" % number for number in range(500)]
SETTINGS = {"log.segment.bytes": "1048576"}
LARGE, PARTITIONS = 900_000, 16  # at once one record to each: more than malloc has left over from what was before


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers, which each test leaves running."""
    made = LocalCluster.create(tmp_path_factory.mktemp("meddled") / "cluster", brokers=3, settings=SETTINGS)
    try:
        made.start_all()
        asyncio.run(wait_until_ready(made, timeout_s=PATIENCE_S))
        yield made
    finally:
        made.kill_all()


@pytest.fixture
def topic(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """Of a test's own; all brokers have all records, which are in its partition 0, and broker 1 leads all of it."""
    name = re.sub(r"\W", "-", request.node.name)

    async def fill() -> None:
        async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap, acks="all") as producer:
            await admin.create_topics([NewTopic(name, assignments={each: [1, 2, 3] for each in range(PARTITIONS)})])
            await asyncio.gather(*[producer.send(name, record, partition=0) for record in RECORDS])

    asyncio.run(fill())
    return name


def whole(cluster: LocalCluster, topic: str, large: Sequence[bytes] = ()) -> None:
    """Every replica is in the ISR, and a reader gets every record in order, of `large` each from every partition."""
    records = {each: [*(RECORDS if each == 0 else ()), *large] for each in range(PARTITIONS)}

    async def isrs() -> list[list[int]]:
        async with Admin(cluster.bootstrap) as admin:
            (described,) = await admin.describe_topics([topic])
            return [sorted(each.isr) for each in described.partitions]

    async def read() -> dict[int, list[bytes | None]]:
        found: dict[int, list[bytes | None]] = {each: [] for each in records}
        async with Consumer(cluster.bootstrap, topic, auto_offset_reset="earliest") as consumer:
            read = aiter(consumer)
            for _ in range(sum(map(len, records.values()))):
                record = await anext(read)
                found[record.partition].append(record.value)
        return found

    until(lambda: asyncio.run(isrs()), lambda seen: seen == [[1, 2, 3]] * PARTITIONS, PATIENCE_S)
    assert asyncio.run(read()) == records


def start_well(cluster: LocalCluster) -> None:
    """Start the two that are down, and wait until they take part."""
    for broker_id in MEDDLED:
        begin = len(said(cluster, broker_id))
        cluster.start(broker_id)
        until(partial(said, cluster, broker_id), partial(takes_part, begin), PATIENCE_S)


def takes_part(begin: int, text: str) -> bool:
    return "unfenced: this broker takes part" in text[begin:]


def contains(sentence: str, text: str) -> bool:
    return sentence in text


def said(cluster: LocalCluster, broker_id: int) -> str:
    return cluster.log_file(broker_id).read_text()


def partition(cluster: LocalCluster, broker_id: int, topic: str) -> Path:
    return Path(cluster.nodes[broker_id].log_directory) / f"{topic}-0"


def test_a_tail_that_was_cut_and_a_partition_that_was_removed_are_copied_again(
    cluster: LocalCluster, topic: str
) -> None:
    """By kill -9, a byte and a directory; broker 2 knows that it had more, and says when it has it again (R-146)."""
    for broker_id in MEDDLED:
        cluster.kill(broker_id)
    segment = max(partition(cluster, 2, topic).glob("*.log"))
    os.truncate(segment, segment.stat().st_size - 1)
    shutil.rmtree(partition(cluster, 3, topic))
    begin = len(said(cluster, 3))
    start_well(cluster)
    whole(cluster, topic)
    for sentence in (f"{topic}-0: log cut at", f"{topic}-0: no records are missing here any more"):
        until(partial(said, cluster, 2), partial(contains, sentence), PATIENCE_S)
    assert re.search(rf"{topic}-0: follows broker \d+ in leader epoch \d+ from offset 0 on", said(cluster, 3)[begin:])


def test_directories_that_changed_places_are_refused(cluster: LocalCluster, topic: str) -> None:
    """Each broker says whose directory it has, and ends; put right they come back."""
    one, other = (Path(cluster.nodes[broker_id].log_directory) for broker_id in MEDDLED)

    def swap() -> None:
        aside = one.with_name("aside")
        one.rename(aside)
        other.rename(one)
        aside.rename(other)

    for broker_id in MEDDLED:
        cluster.kill(broker_id)
    swap()
    for broker_id in MEDDLED:
        cluster.start(broker_id)
    until(lambda: [cluster.running(broker_id) for broker_id in MEDDLED], lambda alive: not any(alive), PATIENCE_S)
    assert "belongs to node 3, not to node 2" in said(cluster, 2)
    assert "belongs to node 2, not to node 3" in said(cluster, 3)
    swap()
    start_well(cluster)
    whole(cluster, topic)


def lose_directory(cluster: LocalCluster, broker_id: int, topic: str) -> None:
    shutil.rmtree(partition(cluster, broker_id, topic))


def lose_memory(cluster: LocalCluster, broker_id: int, topic: str) -> None:
    """It gets no more than it has."""
    pid = cluster.nodes[broker_id].pid
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmSize"))
    size = int(line.split()[1]) * 1024
    resource.prlimit(pid, resource.RLIMIT_AS, (size, size))


# The one of memory comes first: broker 1 could live on what malloc keeps of the other's records.
@pytest.mark.parametrize("strike", [lose_memory, lose_directory])
def test_a_leader_ends_that_cannot_go_on(
    cluster: LocalCluster, topic: str, strike: Callable[[LocalCluster, int, str], None]
) -> None:
    """At its next segment, or when it asks for memory; others lead, and started again it has everything."""
    strike(cluster, 1, topic)

    async def write() -> list[bytes]:
        written: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S), Producer(cluster.bootstrap, acks="all") as producer:
            while cluster.running(1):
                record = b"%d" % len(written) + bytes(LARGE)
                written.append(record)
                await asyncio.gather(*[producer.send(topic, record, partition=each) for each in range(PARTITIONS)])
        return written

    written = asyncio.run(write())
    cluster.start(1)
    whole(cluster, topic, written)
