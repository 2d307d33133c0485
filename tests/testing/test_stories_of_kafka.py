"""Whole-cluster stories that Kafka's own system tests tell, on real brokers inside this process.

In the stories of unclean elections `orders` has two replicas, on brokers that the test calls first and second; the
third broker only keeps the metadata quorum alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek import DeliveryTimeout, ReplicaDescription, TopicPartition
from odradek.sync import Admin, Consumer, Producer
from odradek_broker.testing import Cluster

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers whose directories outlive them, so that files can be compared at the end."""
    with Cluster(directory=tmp_path / "cluster") as running:
        yield running


def values(cluster: Cluster) -> list[str]:
    with Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
        return [(record.value or b"").decode() for record in consumer.records(until="end")]


def write(cluster: Cluster, *texts: str) -> None:
    """One batch for each text, once and on every in-sync replica: who is killed next then does not take one along."""
    with Producer(cluster.bootstrap, acks="all") as producer:
        for text in texts:
            producer.send("orders", text, partition=0)


def described(cluster: Cluster) -> dict[int, ReplicaDescription]:
    with Admin(cluster.bootstrap) as admin:
        return {each.broker_id: each for each in admin.describe_replicas(["orders"]).replicas}


def log_files(cluster: Cluster) -> dict[str, bytes]:
    """Close the cluster and return the bytes of each replica's log."""
    found, directories = {}, cluster.replicas()
    cluster.close()
    for broker, directory in directories.items():
        segments = sorted((directory / "orders-0").glob("*.log"))
        if segments:
            found[broker] = b"".join(path.read_bytes() for path in segments)
    return found


def pair(cluster: Cluster, unclean: bool) -> tuple[int, int]:
    """Create `orders` with two replicas; returns who leads and who follows."""
    configs = {"unclean.leader.election.enable": str(unclean).lower(), "min.insync.replicas": "1"}
    cluster.create_topic("orders", replication_factor=2, configs=configs)
    leader = cluster.leader_of("orders")
    (follower,) = set(cluster.isr_of("orders")) - {leader}
    return leader, follower


def leave_alone(cluster: Cluster, first: int, second: int, only_first: str) -> None:
    """The second broker misses a record, and then stands there without the first, which everybody knows to be dead."""
    cluster.kill(second)
    cluster.wait_until_ready()
    write(cluster, only_first)
    cluster.kill(first)
    cluster.start(second)
    cluster.wait_until_ready()


@pytest.mark.slow
def test_restarts_in_turn_keep_high_watermark_and_records(kept: Cluster) -> None:
    """Leader and follower are killed and stopped in turn; the high watermark reaches the end each time (SY-01)."""
    kept.create_topic("orders")
    written: list[str] = []
    for end in (kept.kill, kept.stop, kept.kill):
        for target in (kept.leader_of("orders"), min(set(kept.brokers) - {kept.leader_of("orders")})):
            written += [f"{len(written)}", f"{len(written) + 1}"]
            write(kept, *written[-2:])
            end(target)
            kept.start(target)
            kept.wait_until_in_sync("orders")
            assert values(kept) == written
    ends = described(kept)
    assert {each.log_end_offset for each in ends.values()} == {len(written)}
    assert ends[next(each.leader_id for each in ends.values())].high_watermark == len(written)
    assert len(set(log_files(kept).values())) == 1


@pytest.mark.slow
def test_epochs_are_the_same_in_every_cache_after_bounces(kept: Cluster) -> None:
    """Each leader that wrote has its entry, on every replica, and the batches carry it (SY-02); five changes in a row
    lose nothing: the log end offset is the number of records each time (SY-05)."""
    kept.create_topic("orders")
    write(kept, "first")
    for number in range(5):
        leader = kept.leader_of("orders")
        kept.kill(leader)
        write(kept, f"after {number}")
        kept.start(leader)
        kept.wait_until_in_sync("orders")
        assert {each.log_end_offset for each in described(kept).values()} == {number + 2}
    caches = {
        broker: [(each.epoch, each.start_offset) for each in found.epochs] for broker, found in described(kept).items()
    }
    assert len({tuple(cache) for cache in caches.values()}) == 1, caches
    assert [offset for _, offset in caches[1]] == [0, 1, 2, 3, 4, 5]
    with Consumer(kept.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
        read = [(record.leader_epoch, record.offset) for record in consumer.records(until="end")]
    assert read == caches[1]
    assert len(set(log_files(kept).values())) == 1


@pytest.mark.slow
def test_an_out_of_sync_replica_alone_does_not_lead(kept: Cluster) -> None:
    """Without unclean elections nobody leads and writes fail, until the old leader is back with everything (SY-07)."""
    first, second = pair(kept, unclean=False)
    write(kept, "both")
    leave_alone(kept, first, second, "only the first")
    with Admin(kept.bootstrap) as admin:
        (partition,) = admin.describe_topics(["orders"])[0].partitions
        assert (partition.leader_id, partition.isr, partition.elr) == (-1, (), (first,))
    with (
        Producer(kept.bootstrap, delivery_timeout_ms=600, request_timeout_ms=200) as producer,
        pytest.raises(DeliveryTimeout),
    ):
        producer.send("orders", "nobody takes this", partition=0)
    kept.start(first)
    assert kept.leader_of("orders") == first
    assert values(kept) == ["both", "only the first"]


def test_an_unclean_election_loses_what_only_the_old_leader_had(kept: Cluster) -> None:
    """The second record is gone, the third is taken, and the old leader ends with the same bytes (SY-08)."""
    first, second = pair(kept, unclean=True)
    write(kept, "both")
    leave_alone(kept, first, second, "only the first")
    assert kept.leader_of("orders") == second
    write(kept, "after the election")
    kept.start(first)
    kept.wait_until_in_sync("orders")
    assert values(kept) == ["both", "after the election"]
    logs = log_files(kept)
    assert len(logs) == 2
    assert len(set(logs.values())) == 1


def test_a_reader_goes_on_where_the_logs_part(kept: Cluster) -> None:
    """A reader that saw lost records takes up at the divergent offset; a fresh one reads fewer (SY-10)."""
    first, second = pair(kept, unclean=True)
    write(kept, "both")
    kept.kill(second)
    kept.wait_until_ready()
    write(kept, "lost 1", "lost 2")
    with Consumer(kept.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([ORDERS])
        before = [(record.value or b"").decode() for record in reader.records(until="end")]
        kept.kill(first)
        kept.start(second)
        assert kept.leader_of("orders") == second
        write(kept, "new 1", "new 2", "new 3")
        kept.start(first)
        kept.wait_until_in_sync("orders")
        after = [(record.offset, (record.value or b"").decode()) for record in reader.records(until="end")]
    assert before == ["both", "lost 1", "lost 2"]
    assert after == [(1, "new 1"), (2, "new 2"), (3, "new 3")]
    assert values(kept) == ["both", "new 1", "new 2", "new 3"]
