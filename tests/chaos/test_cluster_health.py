"""A cluster is whole when each of its brokers says so, not when one of them does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from odradek import Admin, NewTopic
from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_chaos.harness.cluster_health import (
    ClusterHealth,
    HealthView,
    Leadership,
    NotConverged,
    PartitionView,
    ReplicaEnd,
    agreed,
    check_view,
    look,
    wait_until_converged,
)
from odradek_chaos.worlds.processes import ProcessesWorld
from odradek_proto.topics import TopicPartition

PATIENCE_S = 120
TP = TopicPartition("orders", 0)
PARTITION = PartitionView(Leadership(1, 4), 7, replicas=(2, 1), isr=(1, 2))
VIEW = HealthView(2, {1: (11, False), 2: (12, False)}, {TP: PARTITION})


def test_what_all_tell_is_agreed_and_has_all() -> None:
    """Two brokers that tell the same of a cluster in which nothing is missing."""
    assert agreed({1: VIEW, 2: VIEW}) == VIEW
    check_view(VIEW)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (replace(VIEW, controller_id=1), "the controller is 2 for broker 1, 1 for 2"),
        (replace(VIEW, brokers={1: (11, False), 2: (10, False)}), "brokers 1 and 2 have not read the same metadata"),
        (
            replace(VIEW, partitions={TP: replace(PARTITION, leadership=Leadership(2, 3))}),
            "brokers 1 and 2 have not read the same metadata",
        ),
        (replace(VIEW, partitions={}), "brokers 1 and 2 have not read the same metadata"),
    ],
)
def test_a_broker_that_knows_something_else_is_named(other: HealthView, sentence: str) -> None:
    """One that was cut off still tells of the old controller, the old leader, or a broker's life before."""
    with pytest.raises(NotConverged, match=sentence):
        agreed({1: VIEW, 2: other})


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (replace(VIEW, controller_id=-1), "no active controller"),
        (replace(VIEW, brokers={1: (11, False), 2: (12, True)}), "broker 2 is fenced"),
        (replace(VIEW, partitions={TP: replace(PARTITION, leadership=Leadership(-1, 5))}), "orders-0: leader -1"),
        (replace(VIEW, partitions={TP: replace(PARTITION, isr=(1,))}), r"orders-0: leader 1, ISR \(1,\) of"),
    ],
)
def test_what_is_missing_is_named(view: HealthView, sentence: str) -> None:
    """A controller, a broker, a leader, a member of an ISR."""
    with pytest.raises(NotConverged, match=sentence):
        check_view(view)


@pytest.mark.parametrize(
    ("first", "second", "rests"),
    [
        (ReplicaEnd(9, 9), ReplicaEnd(9, 9), True),
        (ReplicaEnd(9, 9), ReplicaEnd(9, 8), True),  # a follower hears of the high watermark with its next fetch
        (ReplicaEnd(9, 8), ReplicaEnd(9, 8), False),
        (ReplicaEnd(9, 9), ReplicaEnd(8, 8), False),
    ],
)
def test_a_topic_is_at_rest_when_its_leader_has_committed_all_and_all_have_it(
    first: ReplicaEnd, second: ReplicaEnd, rests: bool
) -> None:
    """The ends of all replicas and the high watermark of the leader, broker 1, are one offset."""
    health = ClusterHealth(2, {1: 11, 2: 12}, VIEW.partitions, {(1, TP): first, (2, TP): second})
    assert health.is_at_rest("orders") is rests
    assert health.leaderships("orders") == {0: Leadership(1, 4)}
    assert health.leaderships("other") == {}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ProcessesWorld]:
    """Three brokers that start, and are stopped at the end."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=3)
    try:
        cluster.start_all()
        yield ProcessesWorld(cluster)
    finally:
        cluster.stop_all()


@pytest.mark.slow
@pytest.mark.cluster
async def test_a_silent_or_dead_broker_is_missed_though_the_others_have_not_noticed(world: ProcessesWorld) -> None:
    """The cluster's own opinion takes a session timeout; whoever asks each broker knows at once."""
    health = await wait_until_converged(world, timeout_s=PATIENCE_S)
    async with Admin(world.bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", 2, 3)])
        health = await wait_until_converged(world, timeout_s=PATIENCE_S, settled=lambda found: bool(found.partitions))
        assert sorted(health.of_topic("orders")) == [0, 1]
        assert health.is_at_rest("orders")
        world.pause(3)
        assert len((await admin.describe_cluster()).brokers) == 3
        with pytest.raises(NotConverged, match="no answer"):
            await look(world, call_timeout_ms=200)
        world.resume(3)
        await wait_until_converged(world, timeout_s=PATIENCE_S)
        world.kill(3)
        with pytest.raises(NotConverged, match="no answer"):
            await look(world)
        with pytest.raises(ClusterError, match="is not whole after"):
            await wait_until_converged(world, timeout_s=0.2)
        world.start(3)
        after = await wait_until_converged(world, timeout_s=PATIENCE_S)
        assert after.broker_epochs[3] > health.broker_epochs[3]
