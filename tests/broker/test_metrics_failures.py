"""What the metrics say while brokers die and come back: each value moves with the thing that it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from odradek import CorruptRecords
from odradek.sync import Consumer, Producer
from odradek_broker.testing import Cluster

from tests.broker.metrics_pages import LISTENER, eventually, scrape, total

MANAGER = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
PURGATORY = "kafka_server_delayedoperationpurgatory_purgatorysize"
UNCLEAN = "kafka_controller_controllerstats_uncleanleaderelections_total"


def test_a_killed_broker_is_missed_until_it_is_back() -> None:
    """Under-replicated, ISR, fenced and active brokers follow a kill and a return; one controller all the time."""
    with Cluster(settings=LISTENER) as cluster:
        cluster.create_topic("orders", 3)
        target = cluster.controller()
        cluster.kill(target)
        cluster.wait_until_ready()
        assert total(cluster, f"{MANAGER}underreplicatedpartitions") == 3
        assert total(cluster, f"{MANAGER}atminisrpartitioncount") == 3
        assert total(cluster, f"{MANAGER}underminisrpartitioncount") == 0
        assert total(cluster, f"{MANAGER}isrshrinks_total") == 3
        assert total(cluster, "odradek_isr_size") == 6
        assert total(cluster, f"{MANAGER}leadercount") == 3
        assert total(cluster, f"{CONTROLLER}activecontrollercount") == 1
        assert scrape(cluster, cluster.controller()).total(f"{CONTROLLER}fencedbrokercount") == 1
        assert total(cluster, "odradek_early_fencings_total") == 1
        cluster.start(target)
        cluster.wait_until_in_sync("orders")
        eventually(lambda: total(cluster, "odradek_isr_size") == 9, "the leaders never heard of their whole ISR")
        assert total(cluster, f"{MANAGER}underreplicatedpartitions") == 0
        assert total(cluster, f"{MANAGER}isrexpands_total") == 3
        assert total(cluster, f"{CONTROLLER}activecontrollercount") == 1
        assert scrape(cluster, target).total(f"{CONTROLLER}fencedbrokercount") == 0


def test_a_partition_without_a_leader_is_offline() -> None:
    """The only replica's broker dies: every controller counts the partition, until it is back."""
    with Cluster(settings=LISTENER) as cluster:
        cluster.create_topic("orders", replication_factor=1)
        leader = cluster.leader_of("orders")
        other = next(broker for broker in cluster.brokers if broker != leader)
        assert scrape(cluster, other).total(f"{CONTROLLER}offlinepartitionscount") == 0
        cluster.kill(leader)
        cluster.wait_until_ready()
        assert scrape(cluster, other).total(f"{CONTROLLER}offlinepartitionscount") == 1
        cluster.start(leader)
        name = f"{CONTROLLER}offlinepartitionscount"
        eventually(lambda: scrape(cluster, other).total(name) == 0, "the partition stayed offline")


def test_purgatories_hold_who_waits() -> None:
    """A write with acks=all waits for a silent follower, a consumer for the next record; then nobody waits any more."""
    silent = {"odradek.session.early.fencing": False, "broker.session.timeout.ms": 60_000}
    with Cluster(settings={**LISTENER, **silent}) as cluster:
        cluster.create_topic("orders")
        leader = cluster.leader_of("orders")
        eventually(lambda: total(cluster, PURGATORY, delayedoperation="Fetch") == 2, "the followers never waited")
        with Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
            assert not consumer.poll(timeout=0.2)
            waits = {"delayedoperation": "Fetch"}
            eventually(lambda: total(cluster, PURGATORY, **waits) == 3, "the consumer never waited")
        follower = next(broker for broker in cluster.brokers if broker not in (leader, cluster.controller()))
        cluster.kill(follower)
        with Producer(cluster.bootstrap, acks="all") as producer:
            sent = producer.enqueue("orders", "one")
            eventually(lambda: scrape(cluster, leader).total(PURGATORY, delayedoperation="Produce") == 1, "no wait")
            cluster.start(follower)
            sent.result(timeout=30)
        assert total(cluster, PURGATORY, delayedoperation="Produce") == 0


def test_an_unclean_election_and_what_it_truncates(tmp_path: Path) -> None:
    """A stale follower is elected: one unclean election, and the old leader counts the promised records it drops."""
    quick = {"replica.high.watermark.checkpoint.interval.ms": 20}
    with Cluster(settings={**LISTENER, **quick}, directory=tmp_path / "cluster") as cluster:
        configs = {"unclean.leader.election.enable": True, "min.insync.replicas": 1}
        cluster.create_topic("orders", replication_factor=2, configs=configs)
        first = cluster.leader_of("orders")
        (second,) = set(cluster.isr_of("orders")) - {first}
        cluster.kill(second)
        cluster.wait_until_ready()
        with Producer(cluster.bootstrap, acks="all") as producer:
            for number in range(10):
                producer.send("orders", f"value {number}")
        checkpoint = cluster.replicas()[str(first)] / "replication-offset-checkpoint"
        eventually(lambda: "orders 0 10" in checkpoint.read_text(), "the high watermark was never written")
        cluster.kill(first)
        cluster.start(second)
        assert cluster.leader_of("orders") == second
        eventually(lambda: total(cluster, UNCLEAN) == 1, "nobody counted the election")
        with Producer(cluster.bootstrap, acks=1) as producer:
            producer.send("orders", "another")
        cluster.start(first)
        cluster.wait_until_in_sync("orders")
        page = scrape(cluster, first)
        assert page.total("odradek_truncated_records_total", acked="yes") == 10
        assert page.total("odradek_truncated_records_total") == 10
        assert page.total("odradek_truncations_total", reason="divergence") == 1
        assert page.total("odradek_truncations_total") == 1
        assert scrape(cluster, second).total("odradek_truncations_total") == 0


def test_a_torn_tail_is_counted_when_it_is_cut(tmp_path: Path) -> None:
    """Bytes behind the last whole batch, as a power loss leaves them, are dropped and counted."""
    with Cluster(1, settings=LISTENER, directory=tmp_path / "cluster") as cluster:
        cluster.create_topic("orders")
        with Producer(cluster.bootstrap) as producer:
            producer.send("orders", "one")
        assert total(cluster, "odradek_recovery_dropped_bytes_total") == 0
        cluster.kill(1)
        with open(cluster.replicas()["1"] / "orders-0" / f"{0:020}.log", "ab") as segment:
            segment.write(bytes(37))
        cluster.start(1)
        assert total(cluster, "odradek_recovery_dropped_bytes_total") == 37


def test_damage_on_the_disk_is_counted_when_it_is_read(tmp_path: Path) -> None:
    """A flipped bit below the recovery point is found by whoever reads there, and counted once."""
    with Cluster(1, settings=LISTENER, directory=tmp_path / "cluster") as cluster:
        cluster.create_topic("orders")
        with Producer(cluster.bootstrap) as producer:
            producer.send("orders", "x" * 200)
        cluster.stop(1)
        path = cluster.replicas()["1"] / "orders-0" / f"{0:020}.log"
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        cluster.start(1)
        with (
            Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer,
            pytest.raises(CorruptRecords),
        ):
            consumer.poll(timeout=60)
        assert total(cluster, "odradek_crc_errors_total", source="disk") == 1
        assert total(cluster, "kafka_server_brokertopicmetrics_failedfetchrequests_total", topic="orders") > 0
