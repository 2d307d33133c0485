"""`cluster status` while records are written and leaders die: each partition at one moment, which can be."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Self

import odradek
import pytest
from odradek import (
    Admin,
    BrokerDescription,
    ClusterDescription,
    NewTopic,
    OdradekError,
    Producer,
    RemoteReplicaDescription,
    ReplicaDescription,
)
from odradek.cli.clusters import asking, status
from odradek.cli.clusters.status import ClusterStatus, PartitionStatus, at_one_moment, gather_status
from odradek.cli.clusters.view import replica_cell, status_text
from odradek.cli.main import main
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.waiting import wait_until_ready
from odradek_proto.command_line import FINDINGS, TIMED_OUT, CommandFailed
from odradek_proto.topics import OFFSETS_TOPIC

from tests.waiting import until

SAMPLES = 15


def impossible(status: ClusterStatus) -> list[str]:
    """What no moment of the protocol has, in a sentence each."""
    found = []
    for partition in status.partitions:
        leader = partition.leader
        for broker, replica in partition.replicas.items():
            if leader is None or broker == partition.leader_id or not partition.follows(broker):
                continue
            known = partition.known[broker].log_end_offset
            if not known <= replica.log_end_offset <= leader.log_end_offset:
                found.append(f"{partition.name}: LEO {known} <= {replica.log_end_offset} <= {leader.log_end_offset}")
            if not replica.high_watermark <= leader.high_watermark <= leader.log_end_offset:
                found.append(f"{partition.name}: HW {replica.high_watermark} <= {leader.high_watermark}")
        if leader is not None:
            in_sync = [partition.known[broker].log_end_offset for broker in partition.isr if broker in partition.known]
            if any(-1 < end < leader.high_watermark for end in in_sync):  # -1: of whom it has not heard yet
                found.append(f"{partition.name}: HW {leader.high_watermark}, in-sync LEOs {in_sync}")
    return found


async def samples_around_a_death(cluster: LocalCluster) -> list[ClusterStatus]:
    """Looks at a topic that is written to, before and after the death of a leader."""
    samples: list[ClusterStatus] = []

    async def load(producer: Producer) -> None:
        while True:
            await producer.enqueue("orders", b"x" * 100)
            await asyncio.sleep(0)

    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", 4, 3)])
        async with Producer(cluster.bootstrap) as producer:
            loading = asyncio.create_task(load(producer))
            while len(samples) < 3 * SAMPLES:
                if len(samples) == SAMPLES and cluster.running(1):
                    cluster.kill(1)
                with contextlib.suppress(OdradekError):
                    samples.append(await gather_status(admin, ["orders"], watched=True))
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
    return samples


@pytest.mark.cluster
@pytest.mark.slow
def test_no_sample_shows_a_follower_beyond_its_leader(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Under load, with a death; both sets of log end offsets are in their order. Without a majority it says so."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=3)
    try:
        cluster.start_all()
        asyncio.run(wait_until_ready(cluster, timeout_s=60))
        samples = asyncio.run(samples_around_a_death(cluster))
        cluster.kill(2)
        capfd.readouterr()

        def told() -> tuple[int, str]:
            return main(["cluster", "status", "-b", cluster.bootstrap]), capfd.readouterr().out

        # A leader does not miss it at once.
        _, alone = until(told, lambda seen: seen[0] == FINDINGS and "answered for 2 s" in seen[1])
    finally:
        cluster.kill_all()
    assert ", not fenced yet" in alone  # dead, or cut off where the machine is too busy to refuse a connection
    assert [each for sample in samples for each in impossible(sample)] == []
    followers = [
        broker for sample in samples for each in sample.partitions for broker in each.replicas
        if each.follows(broker) and each.log_end_offset > 0
    ]  # fmt: skip
    assert len(followers) > SAMPLES  # something was looked at
    assert "dead" in status_text(next(sample for sample in samples if sample.silent == {1: "dead"}))


class Undecided:
    """An `Admin` of a cluster without a majority, or, `busy`, of one that has no time for anybody."""

    busy = False

    def __init__(self, servers: str, **settings: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def describe_cluster(self) -> ClusterDescription:
        if self.busy:
            await asyncio.Event().wait()
        return ClusterDescription("c", 3, [], "GRPC")

    async def describe_quorum(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("busy", [False, True])
def test_an_order_that_nobody_decides_about_says_so(monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    """Who it is that does not answer; not where no broker had time to tell."""
    monkeypatch.setattr(odradek, "Admin", Undecided, raising=False)
    monkeypatch.setattr(Undecided, "busy", busy)
    monkeypatch.setattr(asking, "LOOKING_MOST_MS", 1)
    monkeypatch.setattr(status, "QUORUM_ANSWER_S", 0.1)
    with pytest.raises(CommandFailed, match="not done after") as failed:
        asking.ask("127.0.0.1:1", 0.1, lambda admin: admin.describe_quorum())
    assert failed.value.exit_code == TIMED_OUT
    assert ("controller 3 has not answered for 0.1 s" in str(failed.value)) is not busy


def test_internal_partitions_that_are_well_have_one_line() -> None:
    """Fifty rows hide what somebody looks for; one that is not well is shown, and all are when they are asked for."""
    well = [PartitionStatus(OFFSETS_TOPIC, number, 1, 4, [1, 2], [1, 2], internal=True) for number in range(49)]
    behind = PartitionStatus(OFFSETS_TOPIC, 49, 1, 4, [1], [1, 2], internal=True)
    orders = PartitionStatus("orders", 0, 1, 4, [1, 2], [1, 2])
    status = ClusterStatus("id", 1, None, "", [], [*well, behind, orders], {})

    def rows(text: str) -> list[str]:
        return [line.split()[0] for line in text.splitlines() if re.match(r"[\w]+-\d", line)]

    said = status_text(status)
    assert rows(said) == [f"{OFFSETS_TOPIC}-49", "orders-0"]
    assert f"{OFFSETS_TOPIC}: 49 partitions fully replicated; `odradek cluster status {OFFSETS_TOPIC}`" in said
    assert len(rows(status_text(status, every_partition=True))) == 51
    dead = [replace(each, isr=[1], leader_id=number % 2 - 1) for number, each in enumerate(well)]
    said = status_text(replace(status, partitions=[*dead, orders]))
    assert rows(said) == ["orders-0"]
    assert f"{OFFSETS_TOPIC}: 49 partitions, 49 not fully replicated, 25 without a leader; `odradek" in said


def test_partitions_that_others_lead_are_counted_where_all_is_well() -> None:
    """One that has come back follows until somebody elects it; while replicas are missing there is more to say."""
    mine, other = PartitionStatus("orders", 0, 1, 4, [1, 2], [1, 2]), PartitionStatus("orders", 1, 1, 4, [1, 2], [2, 1])

    def said(*partitions: PartitionStatus) -> str:
        return status_text(ClusterStatus("id", 1, None, "", [], partitions, {})).splitlines()[-1]

    assert said(mine, other).startswith("1 of 2 partitions not led by the first replica")
    for partitions in ([mine], [mine, replace(other, isr=[1])]):
        assert "purgatory" in said(*partitions)  # the legend is the last


def test_the_first_line_says_what_keeps_writers_waiting() -> None:
    """A leader that is frozen, and a member of the ISR that is late, are no health; who is behind without them is."""
    brokers = [BrokerDescription(1, {}, "", False, 1), BrokerDescription(2, {}, "", False, 1)]
    leader = replace(replica(1, 100, 95, role="leader"), waiting_produces=3)
    late = RemoteReplicaDescription(2, 95, 4_000, True)
    before = PartitionStatus("orders", 0, 1, 4, (1, 2), (1, 2), {1: leader})

    def first_line(partition: PartitionStatus, **silent: str) -> str:
        unreachable = {int(name[1:]): why for name, why in silent.items()}
        return status_text(ClusterStatus("id", 1, None, "", brokers, [partition], unreachable)).splitlines()[0]

    waiting = at_one_moment(before, [replace(leader, remote_replicas=[late])])
    assert "1 partition with acks=all waits for in-sync followers that are behind" in first_line(waiting)
    soon = at_one_moment(before, [replace(leader, remote_replicas=[replace(late, lag_ms=10)])])
    assert first_line(soon) == "cluster id: controller 1; the quorum does not answer"
    refused = ClusterStatus("id", 1, None, "", brokers, [before], {}, replicas_error="CLUSTER_AUTHORIZATION_FAILED")
    assert "; the replicas are not shown: CLUSTER_AUTHORIZATION_FAILED; " in status_text(refused)
    silent = "the leaders of 1 of 1 partition are silent"
    assert f"; broker 1 does not answer; {silent}; " in first_line(soon, b1="frozen")
    assert f"controller 1; {silent}; " in first_line(replace(soon, leader_id=9), b9="gone")  # not among the brokers


def test_a_broker_whose_disk_is_full_is_not_just_up() -> None:
    """It answers, and takes nothing: that stands in the first line, before what follows from it, and beside it."""
    brokers = [BrokerDescription(number, {}, "", number == 3, 1) for number in (1, 2, 3)]
    status = ClusterStatus("id", -1, None, "no majority", brokers, [], {}, full=[2, 3])
    text = status_text(status)
    assert "no controller; the disk of brokers 2, 3 is full: `odradek doctor` says more; " in text.splitlines()[0]
    assert [" disk full" in line for line in text.splitlines()[3:6]] == [False, True, True]
    assert "up, disk full" in text
    assert "fenced, disk full" in text
    assert [each["disk_full"] for each in status.as_json()["brokers"]] == [False, True, True]


def replica(broker: int, end: int, watermark: int, *, epoch: int = 4, role: str = "follower") -> ReplicaDescription:
    return ReplicaDescription(broker, "orders", 0, role, 1, epoch, 0, 0, end, watermark, 0, (1, 2, 3), (), ())


@pytest.mark.parametrize(
    ("follower", "known", "cell"),
    [
        (replica(2, 90, 70), 80, "90/70 +10"),  # asked before the leader: as it was, or further by now
        (replica(2, 60, 50), 80, "80/50 +20"),  # the leader has heard of more meanwhile
        (replica(2, 120, 99), 80, "100/95"),  # it has cut off since what it had of another leader
        (replica(2, 120, 99, epoch=3), -1, "120/99 ~"),  # a follower of somebody else
        (replica(2, 120, 99), -1, "120/99 ~"),  # of this one, from whom it has not fetched yet
        (None, 80, "80/? +20 12s"),  # frozen: what the leader knows
        (None, -1, "?"),
    ],
)
def test_a_follower_is_shown_as_far_as_it_was_when_its_leader_answered(
    follower: ReplicaDescription | None, known: int, cell: str
) -> None:
    """Between what the leader knew of it and what the leader had."""
    remote = RemoteReplicaDescription(2, known, 0 if follower is not None else 12_000, True)
    leader = replace(replica(1, 100, 95, role="leader"), remote_replicas=[remote])
    told = {1: replica(1, 70, 60, role="leader")} | ({2: follower} if follower is not None else {})
    before = PartitionStatus("orders", 0, 1, 4, (1, 2, 3), (1, 2), told)
    now = at_one_moment(before, [leader])
    assert (replica_cell(now, 1), replica_cell(now, 2)) == ("100/95 *", cell)


def test_a_leader_of_an_older_epoch_is_no_measure() -> None:
    """The metadata know of its successor, which has not answered: nobody is behind anybody."""
    before = PartitionStatus("orders", 0, 2, 5, (2, 3), (1, 2, 3), {3: replica(3, 120, 90)})
    now = at_one_moment(before, [replica(1, 100, 95, role="leader")])
    assert (now.leader, replica_cell(now, 3), now.lag(3)) == (None, "120/90", None)
    newer = at_one_moment(before, [replica(1, 100, 95, role="leader", epoch=6)])
    assert (newer.leader_id, newer.leader_epoch, newer.isr) == (1, 6, (1, 2, 3))
