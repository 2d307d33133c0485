"""`odradek doctor` and `cluster health` about replicas that cannot be used, full disks and clocks; what they ask."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from odradek import Consumer, CorruptRecords, Producer
from odradek.cli.clusters.health import ClockOffset, one_for_each_topic, problems_of, says_apart
from odradek.cli.clusters.status import PartitionStatus
from odradek_broker.storage.errors import DiskFull
from odradek_broker.testing import Cluster
from odradek_proto.transport.background import background_loop
from odradek_proto.transport.grpc_network import GrpcNetwork

from tests.cli.conftest import Run
from tests.waiting import until

ERROR = "(KAFKA_STORAGE_ERROR)"
PATIENCE_S = 60


def problems_by_doctor(odradek: Run, cluster: Cluster) -> list[tuple[str, str]]:
    """Which check, about what."""
    found = json.loads(odradek("doctor", "--json", "-b", cluster.bootstrap).out)["findings"]
    return sorted((each["check"], each["about"]) for each in found if each["level"] == "problem")


def test_the_broker_is_named_and_not_those_that_are_well(odradek: Run, tmp_path: Path) -> None:
    """Both ask the brokers themselves, as leaders and as followers: metadata know nothing of it."""
    with Cluster(3, directory=tmp_path / "cluster") as cluster:
        cluster.create_topic("solo", replication_factor=1)
        cluster.create_topic("orders")
        target = cluster.leader_of("solo")
        cluster.stop(target)
        for partition in ("solo-0", "orders-0"):
            (Path(cluster.replicas()[str(target)]) / partition / "partition.metadata").write_text("x\n")
        cluster.start(target)
        sick = until(
            lambda: odradek("cluster", "health", "--json", "-b", cluster.bootstrap),
            lambda health: health.out.count("cannot use") == 2 and "unreachable" not in health.out,
        )
        assert sick.code == 3
        assert json.loads(sick.out)["problems"] == [
            f"broker {target} cannot use its replica of orders-0 {ERROR}",
            f"broker {target} cannot use its replica of solo-0 {ERROR}; it leads there: nothing can be written or read",
        ]
        assert [each for each in problems_by_doctor(odradek, cluster) if "replica" in each[0]] == [
            ("replica-unusable", f"orders, broker {target}"), ("replica-unusable", f"solo, broker {target}"),
        ]  # fmt: skip


LED_BY_2 = PartitionStatus("orders", 1, 2, 5, isr=[2], assigned=[2, 1, 3])
LEADERLESS = PartitionStatus("orders", 1, -1, 5, isr=[2], assigned=[2, 1, 3])


@pytest.mark.parametrize(
    ("partition", "unusable", "leads_damaged", "last"),
    [
        (LED_BY_2, [2], False, "broker 2 cannot use its replica of orders-1"),  # nobody can catch up with it
        (LED_BY_2, [], True, ""),  # nor with a damaged one
        (LED_BY_2, [], False, "orders-1: under-replicated, not in sync: [1, 3]"),
        (LED_BY_2, [1], False, "orders-1: under-replicated, not in sync: [3]"),
        (LEADERLESS, [], False, "orders-1: no leader; last in sync: [2]"),
    ],
)
def test_those_that_miss_for_a_reason_of_their_own_are_named(
    partition: PartitionStatus, unusable: list[int], leads_damaged: bool, last: str
) -> None:
    """Followers are not blamed for a leader that they cannot catch up with."""
    found = problems_of(partition, unusable, leads_damaged=leads_damaged)
    assert len(found) == len(unusable) + (last.startswith("orders-1"))
    assert found[-1].startswith(last) if last else found == []


async def read_until_refused(bootstrap: str) -> int:
    """As a consumer from the beginning on, to where it can go no further; returns how many records there were."""
    found = 0
    async with Consumer(bootstrap, "orders", auto_offset_reset="earliest") as consumer:
        with contextlib.suppress(CorruptRecords):
            async with asyncio.timeout(PATIENCE_S):
                async for _ in consumer.records(until="end"):
                    found += 1
    return found


async def write(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(30):
            await producer.send("orders", b"record %d" % number)


def lead_with_a_damaged_copy(odradek: Run, cluster: Cluster) -> tuple[int, Path]:
    """A bit of a flushed record turns over while its broker is down; it leads again. Returns broker and segment."""
    leader = cluster.leader_of("orders")
    asyncio.run(write(cluster.bootstrap))
    cluster.wait_until_in_sync("orders")
    cluster.stop(leader)
    log = Path(cluster.replicas()[str(leader)]) / "orders-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[content.index(b"record 15")] ^= 1
    log.write_bytes(content)
    cluster.start(leader)
    cluster.wait_until_in_sync("orders")
    odradek("topic", "elect", "orders-0", "-b", cluster.bootstrap)
    assert until(lambda: cluster.leader_of("orders"), lambda found: found == leader) == leader
    return leader, log


def test_the_broker_with_the_damaged_copy_is_named(odradek: Run, tmp_path: Path) -> None:
    """It is the only replica, so it leads, and a consumer stops there."""
    with Cluster(1, directory=tmp_path / "cluster") as cluster:
        cluster.create_topic("orders")
        leader, log = lead_with_a_damaged_copy(odradek, cluster)
        assert asyncio.run(read_until_refused(cluster.bootstrap)) < 30
        sick = odradek("cluster", "health", "-b", cluster.bootstrap, "--json", code=3)
        (problem,) = json.loads(sick.out)["problems"]
        assert problem.startswith(f"the copy of orders-0 on broker {leader} is damaged; it leads there")
        assert str(log) in problem
        assert ("replica-damaged", f"orders-0, broker {leader}") in problems_by_doctor(odradek, cluster)


def test_no_reader_stops_at_a_damaged_batch_that_another_replica_has(odradek: Run, tmp_path: Path) -> None:
    """Another one leads as soon as somebody has read there, and the damaged copy fetches what it lacks (R-146)."""
    with Cluster(3, directory=tmp_path / "cluster", settings={"auto.leader.rebalance.enable": False}) as cluster:
        cluster.create_topic("orders", replication_factor=3)
        leader, log = lead_with_a_damaged_copy(odradek, cluster)
        assert asyncio.run(read_until_refused(cluster.bootstrap)) == 30
        assert cluster.leader_of("orders") != leader
        cluster.wait_until_in_sync("orders")
        assert b"record 15" in log.read_bytes()
        odradek("cluster", "health", "-b", cluster.bootstrap, code=0)


def test_the_broker_whose_disk_is_full_is_named(odradek: Run, tmp_path: Path) -> None:
    """As long as it is; metadata know nothing of it."""
    settings = {"replica.high.watermark.checkpoint.interval.ms": 600_000}  # which would find that there is room
    with Cluster(3, directory=tmp_path / "cluster", settings=settings) as cluster:
        cluster.create_topic("orders", partitions=2)
        node = cluster._cluster._members[2].node
        assert node is not None
        assert node.broker is not None
        troubles = [replica.trouble for replica in node.broker.replicas.replicas.values()]

        def full() -> None:
            for trouble in troubles:
                trouble.full(DiskFull("no space left on device"))

        def room_again() -> None:
            for trouble in troubles:
                trouble.room_again()

        background_loop().call(full)
        said = "the disk of broker 2 is full: 2 replicas there can only be read"
        sick = odradek("cluster", "health", "--json", "-b", cluster.bootstrap)
        assert (sick.code, json.loads(sick.out)["problems"]) == (3, [said])
        assert ("disk-full", "broker 2") in problems_by_doctor(odradek, cluster)
        background_loop().call(room_again)
        odradek("cluster", "health", "-b", cluster.bootstrap, code=0)


def test_what_is_the_same_of_many_partitions_is_one_sentence() -> None:
    """A dead broker is behind in fifty partitions of `__consumer_offsets`, which would hide the topic of interest."""
    behind = [PartitionStatus("offsets", number, 1, 4, [1], [1, 2]) for number in range(50)]
    orders = PartitionStatus("orders", 3, 1, 4, [1], [1, 2])
    told = [(each, problems_of(each, [])[0]) for each in [*behind, orders]]
    told += [(orders, sentence) for sentence in problems_of(orders, [2])]
    assert one_for_each_topic(told) == [
        "offsets, partitions 0, 1, 2, 3, 4 and 45 more: under-replicated, not in sync: [2]",
        "orders-3: under-replicated, not in sync: [2]",
        *problems_of(orders, [2]),
    ]


@pytest.mark.parametrize(
    ("clocks", "said"),
    [
        ({}, ""),
        ({1: ClockOffset(90_000, 1)}, ""),
        ({1: ClockOffset(90_000, 1), 2: ClockOffset(90_400, 1)}, ""),
        ({1: ClockOffset(0, 1), 2: ClockOffset(2_600, 400)},
         "the clock of broker 2 is 2.6 s ahead of that of broker 1: "),
        ({1: ClockOffset(0, 300), 2: ClockOffset(2_600, 400)}, ""),
        ({1: ClockOffset(100, 1), 2: ClockOffset(-9_900, 1), 3: ClockOffset(0, 1)},
         "the clock of broker 1 is 10.0 s ahead"),
    ],
)  # fmt: skip
def test_clocks_of_brokers_are_compared_with_each_other(clocks: dict[int, ClockOffset], said: str) -> None:
    """This machine's may be wrong; what round trips may explain is not said."""
    assert "".join(says_apart(clocks)).startswith(said)
    assert bool(says_apart(clocks)) is bool(said)


def test_health_names_a_broker_whose_clock_is_ahead(
    odradek: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As metadata responses have it."""
    with Cluster(3, directory=tmp_path / "cluster") as cluster:
        odradek("cluster", "health", "-b", cluster.bootstrap, code=0)
        node = cluster._cluster._members[2].node
        assert node is not None
        clock = node._clock
        real = clock.wall_ms
        monkeypatch.setattr(clock, "wall_ms", lambda: real() + 3_600_000)
        sick = odradek("cluster", "health", "--json", "-b", cluster.bootstrap, code=3)
        (problem,) = json.loads(sick.out)["problems"]
        assert problem.startswith("the clock of broker 2 is 3600.")


def test_each_question_is_asked_once(odradek: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for what the cluster knows, once each broker for its replicas; nobody is asked for what is not shown."""
    asked: Counter[str] = Counter()
    call = GrpcNetwork.call

    async def counted(self: GrpcNetwork, address: str, method: str, *rest: Any, **options: Any) -> bytes:
        asked[method.rpartition("/")[2]] += 1
        return await call(self, address, method, *rest, **options)

    with Cluster(1) as cluster:
        cluster.create_topic("orders")
        with monkeypatch.context() as patched:
            patched.setattr(GrpcNetwork, "call", counted)
            outcome = odradek("cluster", "health", "-b", cluster.bootstrap)
    assert outcome.code == 0, outcome
    assert asked == {
        "Metadata": 4,
        "ListOffsets": 1,
        "DescribeReplicas": 1,
    }  # two of them are the clients' own, before the first question
