"""A real cluster inside this process, with the synchronous clients: ready means ready, and failures are methods.

Below it the cluster for code with asyncio, and the health service and the clocks of its brokers.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import odradek
import pytest
from grpc_health.v1 import health_pb2
from odradek.sync import Admin, Consumer, Producer
from odradek_broker.config.sources import SettingError
from odradek_broker.testing import AsyncCluster, Cluster, ClusterError
from odradek_broker.testing.async_cluster import CREATE_TOPICS
from odradek_broker.testing.clock import BrokerClock
from odradek_broker.testing.fabric import Fabric
from odradek_broker.testing.network import BrokerNetwork
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.transport.ports import PeerUnavailable

RECORDS_BETWEEN_FAILURES = 200


def read_all(bootstrap: str, topic: str) -> list[str]:
    with Consumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        return [(record.value or b"").decode() for record in consumer.records(until="end")]


def test_a_new_cluster_takes_the_first_write_at_once(cluster: Cluster) -> None:
    """Ready means that a topic is led, and that all three replicas count for the first acknowledgement."""
    cluster.create_topic("orders", partitions=2)
    with Producer(cluster.bootstrap) as producer:
        assert [producer.send("orders", f"{number}", partition=0).offset for number in range(3)] == [0, 1, 2]
    assert sorted(cluster.isr_of("orders", 1)) == cluster.brokers == cluster.running == [1, 2, 3]
    assert read_all(cluster.bootstrap, "orders") == ["0", "1", "2"]


def test_killed_leaders_lose_nothing_that_was_acknowledged(cluster: Cluster) -> None:
    """Three leaders die with records on their way; each record is there once and in order."""
    cluster.create_topic("orders")
    written: list[str] = []
    with Producer(cluster.bootstrap) as producer:
        for _ in range(3):
            for _ in range(RECORDS_BETWEEN_FAILURES):
                written.append(str(len(written)))
                producer.enqueue("orders", written[-1])
            leader = cluster.leader_of("orders")
            cluster.kill(leader)
            written.append(str(len(written)))
            producer.send("orders", written[-1])
            assert cluster.leader_of("orders") != leader
            assert leader not in cluster.running
            cluster.start(leader)
            cluster.wait_until_in_sync("orders")
    assert read_all(cluster.bootstrap, "orders") == written


def test_the_controller_can_be_killed(cluster: Cluster) -> None:
    """Another broker becomes the active controller, and topics can be created again."""
    controller = cluster.controller()
    cluster.kill(controller)
    assert cluster.controller() != controller
    cluster.wait_until_ready()  # until then the dead one may be given replicas
    cluster.create_topic("orders", replication_factor=2)
    with Producer(cluster.bootstrap) as producer:
        assert producer.send("orders", "written").offset == 0


def test_a_kill_leaves_nothing_clean_and_a_stop_does(cluster: Cluster) -> None:
    """The clean shutdown file is what the next start believes: kill -9 writes none."""
    directories = {broker: Path(path) for broker, path in cluster.replicas().items()}
    cluster.create_topic("orders")
    cluster.kill(1)
    assert not (directories["1"] / ".kafka_cleanshutdown").exists()
    cluster.start(1)
    cluster.stop(2)
    assert (directories["2"] / ".kafka_cleanshutdown").exists()
    cluster.heal()
    assert cluster.running == [1, 2, 3]


def test_a_dead_broker_refuses_at_the_address_that_it_keeps(cluster: Cluster) -> None:
    """Nobody listens there, and nobody else is given its port before it comes back."""
    addresses = cluster.bootstrap
    host, _, port = addresses.split(",")[0].rpartition(":")
    cluster.kill(1)
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port)), timeout=5):
        pass
    with pytest.raises(OSError), socket.socket() as thief:
        thief.bind((host, int(port)))
    cluster.start(1)
    assert cluster.bootstrap == addresses
    with socket.create_connection((host, int(port)), timeout=5):
        pass


def test_a_directory_keeps_its_cluster(tmp_path: Path) -> None:
    """What was acknowledged before the end is there after the next start on the same directory."""
    with Cluster(directory=tmp_path) as first:
        first.create_topic("orders")
        with Producer(first.bootstrap) as producer:
            producer.send("orders", "written before")
    with Cluster(directory=tmp_path) as second, Producer(second.bootstrap) as producer:
        producer.send("orders", "written after")
        assert read_all(second.bootstrap, "orders") == ["written before", "written after"]


def test_everybody_killed_at_once_loses_nothing(tmp_path: Path) -> None:
    """Three kills and no clean shutdown: the logs are recovered, and the cluster goes on."""
    with Cluster(directory=tmp_path) as cluster:
        cluster.create_topic("orders")
        with Producer(cluster.bootstrap) as producer:
            producer.send("orders", "written")
        for broker in cluster.brokers:
            cluster.kill(broker)
        assert cluster.running == []
        cluster.start(2)  # alone it has no controller, and is not waited for
        cluster.heal()
        assert read_all(cluster.bootstrap, "orders") == ["written"]


def test_one_broker_is_a_cluster_with_its_own_settings() -> None:
    """Settings have Kafka's names, hold for all brokers, and may be numbers and truth values."""
    with Cluster(brokers=1, settings={"num.partitions": 4, "auto.create.topics.enable": False}) as cluster:
        cluster.create_topic("orders", partitions=-1, configs={"retention.ms": 60_000})
        with Admin(cluster.bootstrap) as admin:
            [topic] = admin.describe_topics(["orders"])
            configs = {entry.name: entry.value for entry in admin.describe_configs("topic", "orders")}
            given = admin.list_config_resources()
        assert given["topic"] == {"orders": {"retention.ms": "60000"}}
        assert given["broker"] == {"": {"min.insync.replicas": "1"}, "1": {}}  # which the first controller writes
        assert len(topic.partitions) == 4
        assert configs["retention.ms"] == "60000"


def test_two_clusters_stand_side_by_side() -> None:
    """Each has its own ports, directories and records."""
    with Cluster(brokers=1) as one, Cluster(brokers=1) as other:
        for cluster in (one, other):
            cluster.create_topic("orders")
        with Producer(one.bootstrap) as producer:
            producer.send("orders", "in one")
        assert read_all(one.bootstrap, "orders") == ["in one"]
        assert read_all(other.bootstrap, "orders") == []


def test_a_wait_says_what_was_missing(cluster: Cluster) -> None:
    """A topic with a dead replica is never in sync; the error names the partition and both sets."""
    cluster.create_topic("orders")
    leader = cluster.leader_of("orders")
    dead = next(broker for broker in cluster.brokers if broker != leader)
    cluster.kill(dead)
    with Producer(cluster.bootstrap) as producer:
        producer.send("orders", "without it")
    with pytest.raises(ClusterError, match=r"not within 0\.1 s: orders-0: in sync \[.*\] of \[.*\]"):
        cluster.wait_until_in_sync("orders", timeout=0.1)


def test_time_that_a_test_freezes_stops_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock of Python stands still, years ago; librdkafka, in C, writes records of its own time."""
    now_ms = time.time_ns() // 1_000_000
    monkeypatch.setattr("time.time_ns", lambda: 10**18)
    monkeypatch.setattr("time.time", lambda: 10**9)
    cluster.create_topic("orders")
    with Producer(cluster.bootstrap) as producer:
        producer.send("orders", "of now", timestamp=now_ms)
        cluster.kill(cluster.leader_of("orders"))
        producer.send("orders", "of then")
    assert read_all(cluster.bootstrap, "orders") == ["of now", "of then"]
    cluster.heal()


def test_a_directory_that_another_cluster_uses_is_refused(tmp_path: Path) -> None:
    """As long as it is open."""
    place = tmp_path / "data"
    with Cluster(brokers=1, directory=place):
        with pytest.raises(ClusterError, match=f"{place}/broker-1 is in use by another cluster or process") as refused:
            Cluster(brokers=1, directory=place).open()
        assert refused.value.hint == "close or stop that one first, or name another directory"
    with Cluster(brokers=1, directory=place) as again:
        assert again.brokers == [1]


def test_wrong_orders_are_refused_in_words(cluster: Cluster, tmp_path: Path) -> None:
    """Unknown brokers, topics and settings, things done twice, a directory of another size."""
    cluster.create_topic("orders")
    cluster.kill(3)
    cluster.wait_until_ready()  # an order on its way to a controller that dies is not repeated
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: cluster.kill(9), "there is no broker 9 in this cluster; there are 1, 2, 3"),
        (lambda: cluster.stop(3), "broker 3 does not run"),
        (lambda: cluster.start(1), "broker 1 runs already"),
        (lambda: cluster.leader_of("nowhere"), "there is no partition nowhere-0"),
        (lambda: cluster.create_topic("orders"), "orders"),
        (lambda: Cluster(settings={"node.id": 4}), r"node\.id: the cluster itself sets this"),
        (cluster.open, "open already"),
        (lambda: Cluster().leader_of("orders"), "not open"),
        (lambda: Cluster(settings={"log.cleaner.threads": 4}), r"odradek does not use log\.cleaner\.threads$"),
    ]
    for order, words in refused:
        with pytest.raises(ClusterError, match=words):
            order()
    with pytest.raises(SettingError, match=r"^unknown setting 'partitions'"):
        Cluster(settings={"partitions": 4})
    with pytest.raises(SettingError, match=r"^num\.partitions must be a whole number"):
        Cluster(settings={"num.partitions": "many"})
    with Cluster(brokers=1, directory=tmp_path):
        pass
    with pytest.raises(ClusterError, match="a cluster of another size: brokers=1, not 3"), Cluster(directory=tmp_path):
        pass
    file = tmp_path / "taken"
    file.touch()
    for place in (file, file / "below"):
        with pytest.raises(ClusterError, match=f"{file}.* is no directory"), Cluster(directory=place):
            pass
    with pytest.raises(ClusterError, match="cannot make /proc/none/below: "), Cluster(directory="/proc/none/below"):
        pass


NO_NUMBERS = ("x", None, True, -1, float("inf"), float("nan"))
WRONG_ARGUMENTS: list[tuple[Callable[[Cluster, Any], object], str, tuple[object, ...]]] = [
    (lambda _, value: Cluster(value), "brokers is a number from 1 to 9", ("3", True, 2.0, 0, 10)),
    (lambda _, value: Cluster(settings=value), "settings is a dictionary", (["x"], "x=y", {1: 2})),
    (lambda _, value: Cluster(directory=value), "directory is a path", ("", 5, True)),
    (lambda one, value: one.kill(value), "broker is a number", (True, 1.0, "1", None, -1)),
    (lambda one, value: one.cut(1, value), "broker is a number", (True, "2")),
    (lambda one, value: one.slow(1, value), "delay_ms is a number from 0", NO_NUMBERS),
    (lambda one, value: one.create_topic(value), "name is a string", (b"x", 5, None)),
    (lambda one, value: one.create_topic("q", value), "partitions is a number", ("3", 2.5, None, True, -2, 10**12)),
    (lambda one, value: one.create_topic("q", replication_factor=value), "replication_factor is a number", ("3", 2.5)),
    (lambda one, value: one.create_topic("q", configs=value), "configs is a dictionary", ([1], {1: 1})),
    (lambda one, value: one.create_topic("q", timeout=value), "timeout is a number from 0", NO_NUMBERS),
    (lambda one, value: one.start(1, timeout=value), "timeout is a number from 0", NO_NUMBERS),
    (lambda one, value: one.heal(timeout=value), "timeout is a number from 0", NO_NUMBERS),
    (lambda one, value: one.wait_until_ready(timeout=value), "timeout is a number from 0", NO_NUMBERS),
    (lambda _, value: Cluster().open(timeout=value), "timeout is a number from 0", NO_NUMBERS),
    (lambda one, value: one.leader_of(value), "topic is a string", (b"t", None)),
    (lambda one, value: one.leader_of("t", value), "partition is a number", ("0", None, True, -1)),
    (lambda one, value: one.wait_until_in_sync(value), "topic is a string", (b"t", None)),
    (lambda one, value: one.wait_until_reassigned(value), "topic is a string", (b"t", None)),
    (lambda one, value: one.coordinator_of(value), "group is a string", (b"g", None)),
    (lambda one, value: one.wait_until(value), "condition is a function", (None, True)),
]


def test_a_wrong_argument_is_named_with_what_is_wanted(cluster: Cluster) -> None:
    for order, words, values in WRONG_ARGUMENTS:
        for value in values:
            with pytest.raises(ClusterError, match=f"^{words}.*, not {re.escape(repr(value))}$"):
                order(cluster, value)


def test_a_traceback_shows_the_hint() -> None:
    with pytest.raises(ClusterError) as refused:
        Cluster().heal()
    assert "".join(traceback.format_exception(refused.value)).endswith("\ntry: use `with Cluster() as cluster:`\n")


# --- the same for code with asyncio, on the running loop or beside it -----------------------------------------------


RECORDS = 300


def logged_errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """But for what gRPC up to some version logs beside a second loop: that both were woken for one event.

    A second loop is there as soon as an earlier test of this process has used the background loop.
    """
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    return [each for each in errors if not (each.exc_info and isinstance(each.exc_info[1], BlockingIOError))]


async def write_over_a_kill(cluster: AsyncCluster) -> list[bytes | None]:
    """Records before, during and after the death of their leader; what a consumer then reads."""
    await cluster.create_topic("orders")
    async with odradek.Producer(cluster.bootstrap) as producer:
        sends = [asyncio.create_task(producer.send("orders", str(number), partition=0)) for number in range(RECORDS)]
        leader = await cluster.leader_of("orders")
        await cluster.kill(leader)
        await asyncio.gather(*sends)
        await cluster.start(leader)
        await cluster.wait_until_in_sync("orders")
    async with odradek.Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
        return [record.value async for record in consumer.records(until="end")]


def test_a_killed_leader_loses_nothing_on_the_running_loop(caplog: pytest.LogCaptureFixture) -> None:
    """Cluster and clients share the loop that runs; nothing is logged as an error."""

    async def story() -> list[bytes | None]:
        async with Cluster() as cluster:
            return await write_over_a_kill(cluster)

    seen = asyncio.run(story())
    assert sorted(int(value or b"-1") for value in seen) == list(range(RECORDS))
    assert logged_errors(caplog) == []


async def test_a_topic_whose_creation_was_not_answered_has_been_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first broker did it and its answer got lost: the next one's "exists" is no error, but a second order's is."""
    call, lost = BrokerNetwork.call, [CREATE_TOPICS]

    async def lose_an_answer(self: BrokerNetwork, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        answer = await call(self, peer, method, request, timeout_ms)
        if method in lost:
            lost.remove(method)
            raise PeerUnavailable("the connection broke")
        return answer

    async with Cluster() as cluster:
        monkeypatch.setattr(BrokerNetwork, "call", lose_an_answer)
        await cluster.create_topic("orders")
        assert not lost
        lost.append(CREATE_TOPICS)
        with pytest.raises(ClusterError, match="exists"):
            await cluster.create_topic("orders")


def test_asynchronous_clients_may_have_a_loop_of_their_own(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The cluster is on the background loop and the test's clients on another one; nothing is logged as an error."""
    cluster.create_topic("orders")

    async def story() -> list[bytes | None]:
        async with odradek.Producer(cluster.bootstrap) as producer:
            await asyncio.gather(*(producer.send("orders", str(number), partition=0) for number in range(RECORDS)))
        async with odradek.Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
            return [record.value async for record in consumer.records(until="end")]

    for round_ in range(1, 3):  # a second loop after the first one is closed
        assert len(asyncio.run(story())) == round_ * RECORDS
    assert logged_errors(caplog) == []


def test_the_asynchronous_cluster_needs_no_background_loop() -> None:
    """All of it runs on the loop that is there: no task is left on it at the end."""

    async def story() -> set[asyncio.Task[object]]:
        before = asyncio.all_tasks()
        async with Cluster(brokers=2) as cluster:
            assert len(asyncio.all_tasks() - before) > 0
            await cluster.create_topic("orders")
            await cluster.kill(2)
        left = asyncio.all_tasks() - before
        if left:  # gRPC's own, cancelled, which have not had their turn
            await asyncio.wait(left, timeout=30)
        return {task for task in left if not task.done()}

    assert asyncio.run(story()) == set()


SERVING = health_pb2.HealthCheckResponse.SERVING


def test_a_broker_that_is_unfenced_says_that_it_serves() -> None:
    """The whole server and each of its services are SERVING once the cluster is ready."""
    with Cluster(brokers=1) as cluster, grpc.insecure_channel(cluster.bootstrap) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        for service in ("", "odradek.v1.Broker", "odradek.v1.Admin"):
            answer = check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            assert answer.status == SERVING, service


def test_only_the_first_timers_of_the_first_candidate_are_skipped() -> None:
    """Its clock goes on by what it skipped; what reaches beyond takes as long as everywhere."""
    loop = SimLoop()

    async def story() -> tuple[dict[int, int], int]:
        clock = BrokerClock(Fabric(), 1, skips_ms=150)
        began, begun = loop.time(), clock.now_ms()
        rung: dict[int, int] = {}

        def set_timer(delay_ms: int) -> None:
            clock.call_later(delay_ms, lambda: rung.update({delay_ms: round((loop.time() - began) * 1000)}))

        for delay_ms in (100, 500, 40, 20):  # the last one exceeds what is left
            set_timer(delay_ms)
        ahead_ms = clock.now_ms() - begun
        await clock.sleep(600)
        return rung, ahead_ms

    assert loop.run_until_complete(story()) == ({100: 0, 40: 0, 20: 20, 500: 500}, 140)


async def test_a_cluster_on_another_loop_is_refused() -> None:
    """A synchronous call would stop the loop that its brokers run on, and wait for them."""
    cluster = Cluster()
    async with cluster as here:
        orders: list[Callable[[], object]] = [
            lambda: cluster.create_topic("orders"),
            lambda: cluster.kill(1),
            lambda: cluster.bootstrap,
            cluster.heal,
            cluster.close,
        ]
        for order in orders:
            with pytest.raises(ClusterError, match="the cluster runs on another event loop"):
                order()
        assert here.running == [1, 2, 3]


async def test_faults_and_their_ends_may_overlap() -> None:
    """Threads of a test kill and heal at the same time: no broker starts on a directory that is still in use."""
    async with AsyncCluster() as cluster:
        await asyncio.gather(cluster.kill(1), cluster.stop(2), cluster.heal(), cluster.heal())
        assert cluster.running == [1, 2, 3]
