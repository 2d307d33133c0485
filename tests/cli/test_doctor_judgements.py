"""What `odradek doctor` makes of what it has seen: each finding, and what must not be one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from odradek.cli.checkup import addresses as of_addresses
from odradek.cli.checkup import cluster as of_cluster
from odradek.cli.checkup import machine
from odradek.cli.checkup.addresses import Addresses, advertised_in
from odradek.cli.checkup.cluster import ClusterFacts
from odradek.cli.checkup.dialling import Dialled, Outcome
from odradek.cli.checkup.finding import Finding, Level
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import admin_messages
from odradek_proto.v1 import broker_pb2 as pb

INNER, OUTER = "odradek-{}:50051", "127.0.0.1:2905{}"


def answer(broker: int, listener: str, *, fenced: Sequence[int] = (), cluster_id: str = "c") -> pb.MetadataResponse:
    """What one of three brokers with two listeners says of all of them."""
    found = pb.MetadataResponse(cluster_id=cluster_id, answered_by=broker, listener=listener, controller_id=1)
    for each in (1, 2, 3):
        endpoints = {"GRPC": INNER.format(each), "GRPC_HOST": OUTER.format(each)}
        found.brokers.add(broker_id=each, endpoints=endpoints, fenced=each in fenced)
    return found


def broker(address: str, who: int, listener: str, *, clock_ms: int = 0, fenced: Sequence[int] = ()) -> Dialled:
    return Dialled(address, Outcome.BROKER, 1.0, clock_ms, answer(who, listener, fenced=fenced))


def seen(*bootstrap: str, **outcomes: Dialled | Outcome) -> Addresses:
    """Everything answers on the outer listener and nothing resolves on the inner one, unless it is said otherwise.

    The names of `outcomes` are `inner1`, `outer2`, ...
    """
    found = Addresses(bootstrap or (OUTER.format(1),))
    for each in (1, 2, 3):
        for name, at, usual in (
            (f"outer{each}", OUTER.format(each), broker(OUTER.format(each), each, "GRPC_HOST")),
            (f"inner{each}", INNER.format(each), Dialled(INNER.format(each), Outcome.UNRESOLVED)),
        ):
            one = outcomes.get(name, usual)
            found.dialled[at] = one if isinstance(one, Dialled) else Dialled(at, one)
    for at in found.bootstrap:
        found.dialled.setdefault(at, Dialled(at, Outcome.REFUSED))
    found.advertised = advertised_in(found.answers)
    return found


def problems(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is Level.PROBLEM]


def test_another_networks_names_are_no_problem() -> None:
    """A machine outside of the containers cannot resolve their names, and need not."""
    findings = of_addresses.judge(seen())
    assert {finding.check for finding in findings} == {"other-listener"}
    assert problems(findings) == []


def test_an_advertised_name_that_does_not_resolve_comes_with_the_address_to_use() -> None:
    """Who comes in by the inner listener is told inner names; the outer address of the same broker works."""
    found = seen("127.0.0.1:50051")
    found.dialled["127.0.0.1:50051"] = broker("127.0.0.1:50051", 1, "GRPC")
    found.advertised = advertised_in(found.answers)
    first, *_ = problems(of_addresses.judge(found))
    assert first.check == "advertised-address"
    assert first.says == "broker 1 advertises GRPC://odradek-1:50051; this machine cannot resolve odradek-1"
    assert first.remedy.startswith("use GRPC_HOST's address 127.0.0.1:29051 (-b 127.0.0.1:29051), or set advertised")
    assert len(problems(of_addresses.judge(found))) == 3


def test_too_short_a_time_is_said_of_the_time() -> None:
    """Nothing speaks against the address."""
    short = Addresses(("127.0.0.1:1",), {"127.0.0.1:1": Dialled("127.0.0.1:1", Outcome.TOO_SHORT)})
    first, *_ = problems(of_addresses.judge(short))
    assert "too short" in first.says
    assert "--timeout" in first.remedy


def test_a_fenced_broker_that_refuses_is_down() -> None:
    """Its address is not to blame."""
    fenced = broker(OUTER.format(1), 1, "GRPC_HOST", fenced=[2])
    findings = problems(of_addresses.judge(seen(outer1=fenced, outer3=fenced_by(3, 2), outer2=Outcome.REFUSED)))
    assert [(finding.check, finding.about) for finding in findings] == [("broker-down", OUTER.format(2))]


def fenced_by(who: int, *fenced: int) -> Dialled:
    return broker(OUTER.format(who), who, "GRPC_HOST", fenced=fenced)


def test_a_fenced_broker_that_answers_is_not_heard_by_the_controller() -> None:
    """It is up, and the cluster does not know."""
    found = seen(outer1=fenced_by(1, 2), outer2=fenced_by(2, 2), outer3=fenced_by(3, 2))
    assert [finding.check for finding in problems(of_addresses.judge(found))] == ["broker-fenced"]


def test_an_address_at_which_another_broker_answers_is_found() -> None:
    """Two published ports that lead to one container."""
    swapped = broker(OUTER.format(2), 3, "GRPC_HOST")
    (finding,) = problems(of_addresses.judge(seen(outer2=swapped)))
    assert finding.check == "wrong-broker"
    assert finding.says == "broker 2 advertises GRPC_HOST://127.0.0.1:29052, and broker 3 answers there"


def test_a_broker_of_another_cluster_is_found() -> None:
    """A port that went to somebody else."""
    stranger = Dialled(OUTER.format(3), Outcome.BROKER, 1.0, 0, answer(3, "GRPC_HOST", cluster_id="other"))
    (finding,) = problems(of_addresses.judge(seen(outer3=stranger)))
    assert (finding.check, finding.about) == ("another-cluster", OUTER.format(3))


@pytest.mark.parametrize("clock_ms", [-2_001, 2_001])
def test_a_clock_that_is_seconds_off_is_found(clock_ms: int) -> None:
    """Once for each broker, however many of its addresses answer."""
    late = broker(OUTER.format(2), 2, "GRPC_HOST", clock_ms=clock_ms)
    inner = broker(INNER.format(2), 2, "GRPC", clock_ms=clock_ms)
    (finding,) = problems(of_addresses.judge(seen(outer2=late, inner2=inner)))
    assert finding.says == f"the clock of broker 2 is 2.0 s {'ahead of' if clock_ms > 0 else 'behind'} this machine's"
    assert not problems(of_addresses.judge(seen(outer2=broker(OUTER.format(2), 2, "GRPC_HOST", clock_ms=2_000))))


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.BROKER])
def test_every_outcome_of_a_bootstrap_address_has_a_sentence_and_a_remedy(outcome: Outcome) -> None:
    """Whatever happened, somebody must know what to do."""
    found = Addresses(["x:1"], {"x:1": Dialled("x:1", outcome)})
    (finding,) = of_addresses.judge(found)
    assert (finding.level, finding.check, finding.about) == (Level.PROBLEM, "bootstrap-address", "x:1")
    assert "x" in finding.says
    assert finding.remedy


# --- The cluster ----------------------------------------------------------------------------------------------------


def quorum(*fetched_ms: int) -> admin_messages.DescribeQuorumResponse:
    """A leader, node 1, and voters that fetched so long ago."""
    followers = [
        admin_messages.QuorumReplica(node_id=node, last_fetch_ms=ago) for node, ago in enumerate(fetched_ms, 2)
    ]
    voters = [admin_messages.QuorumReplica(node_id=1), *followers]
    return admin_messages.DescribeQuorumResponse(leader_id=1, voters=voters)


def topic(*isrs: Sequence[int], leader: int = 1) -> pb.MetadataResponse:
    found = pb.MetadataResponse(cluster_id="c")
    described = found.topics.add(topic="orders")
    for number, isr in enumerate(isrs):
        described.partitions.add(partition=number, leader_id=leader, replicas=[1, 2, 3], isr=isr)
    return found


def entries(**values: str) -> list[admin_messages.ConfigEntry]:
    return [
        admin_messages.ConfigEntry(name=name.replace("_", "."), value=value, source="topic")
        for name, value in values.items()
    ]


def checks(facts: ClusterFacts) -> list[str]:
    return [finding.check for finding in of_cluster.judge(facts)]


def test_a_cluster_that_is_well_gives_no_findings() -> None:
    """All voters fetch, all replicas are in sync, settings have an effect."""
    configs = {"orders": entries(min_insync_replicas="2", retention_ms="5")}
    assert checks(ClusterFacts(topic([1, 2, 3], [2, 3, 1]), quorum(20, 500), configs)) == []


def test_a_quorum_without_leader_or_with_silent_voters_is_found() -> None:
    """No answer is told as that; a voter that has not fetched for seconds, or ever, is silent."""
    assert checks(ClusterFacts(topic([1, 2, 3]), None)) == ["no-controller"]
    assert checks(ClusterFacts(topic([1, 2, 3]), admin_messages.DescribeQuorumResponse(leader_id=-1))) == [
        "no-controller"
    ]
    (finding,) = of_cluster.judge(ClusterFacts(topic([1, 2, 3]), quorum(5_001, 20)))
    assert (finding.check, finding.about) == ("voter-silent", "2")
    assert finding.says == "controller 2 does not follow; of all 3 no other may fail"
    assert checks(ClusterFacts(topic([1, 2, 3]), quorum(-1, 20))) == ["voter-silent"]


def test_full_disks_come_before_what_follows_from_them() -> None:
    """No controller is down, so nobody is told to start one; a disk that nobody has written to since is full, too."""
    first, second, quorums, *_ = of_cluster.judge(ClusterFacts(topic([1, 2, 3]), None, full={1: 1, 2: 0}))
    assert [first.check, second.check, quorums.check] == ["disk-full", "disk-full", "no-controller"]
    assert first.says == "the disk of broker 1 is full: 1 replica there can only be read"
    assert second.says == "the disk of broker 2 is full: it takes no more records"
    assert quorums.says.endswith("a controller whose disk is full takes no part until there is room")
    assert quorums.remedy == first.remedy == second.remedy


@pytest.mark.parametrize(
    ("metadata", "min_isr", "expected"),
    [
        (topic([], leader=-1), "1", ["no-leader"]),
        (topic([1], [1, 2, 3]), "2", ["under-min-isr"]),
        (topic([1, 2], [1, 2, 3]), "2", ["under-replicated"]),
        (topic([1], [1, 2]), "2", ["under-min-isr", "under-replicated"]),
        (topic([1, 2, 3]), "4", ["min-isr-above-replicas"]),
        (topic([1, 2], [1, 2, 3]), "4", ["min-isr-above-replicas", "under-min-isr"]),
    ],
)
def test_partitions_that_are_not_well_are_found(
    metadata: pb.MetadataResponse, min_isr: str, expected: list[str]
) -> None:
    """No leader, too few in sync to write, fewer in sync than assigned, and a minimum that cannot be reached."""
    facts = ClusterFacts(metadata, quorum(20, 20), {"orders": entries(min_insync_replicas=min_isr)})
    assert checks(facts) == expected


def test_a_broker_that_runs_and_cannot_use_its_replica_is_found() -> None:
    """It is blamed, not the replicas that wait for it; and nobody is told to start a broker that runs."""
    partition = TopicPartition("orders", 0)
    followers = ClusterFacts(topic([2], leader=2), quorum(20, 20), unusable={partition: [2]})
    (finding,) = of_cluster.judge(followers)
    assert (finding.check, finding.about) == ("replica-unusable", "orders, broker 2")
    assert finding.says.startswith("broker 2 cannot use its replica of orders: partitions 0 (KAFKA_STORAGE_ERROR)")
    assert "it leads there" in finding.says
    assert "stop that broker" in finding.remedy
    (finding,) = of_cluster.judge(ClusterFacts(topic([1, 3]), quorum(20, 20), unusable={partition: [2]}))
    assert "it leads there" not in finding.says
    both = ClusterFacts(topic([1]), quorum(20, 20), unusable={partition: [2]})
    assert [each.says for each in of_cluster.judge(both)][1].endswith("wait for the replicas of broker 3")


def test_a_topics_setting_without_effect_is_a_note() -> None:
    """It may be set, as in Kafka, and does nothing."""
    facts = ClusterFacts(topic([1, 2, 3]), quorum(20, 20), {"orders": entries(delete_retention_ms="5")})
    (finding,) = of_cluster.judge(facts)
    assert finding.level is Level.NOTE
    assert finding.says == "orders: delete.retention.ms has no effect without compaction"


# --- This machine ---------------------------------------------------------------------------------------------------


def test_what_a_machine_lacks_is_named_with_the_command_that_brings_it() -> None:
    """Extras are notes, since one may do without; Spark without Java is a problem."""
    (finding,) = machine.extras(lambda package: package != "lz4")
    assert (finding.level, finding.remedy) == (Level.NOTE, "pip install 'odradek[compression]'")
    assert [finding.about for finding in machine.extras(lambda package: False)] == ["compression", "audit", "fast"]
    nowhere = {"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
    assert [finding.check for finding in machine.java(lambda package: package == "pyspark", nowhere)] == ["java"]
    assert machine.java(lambda package: True, nowhere) == []
    assert machine.java(lambda package: False, nowhere) == []


def test_python_files_and_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too old, without assertions, too few files, a full disk."""
    assert [finding.check for finding in machine.python((3, 10), optimized=True)] == ["python", "python"]
    assert machine.python((3, 11), optimized=False) == machine.open_files(4_096) == machine.open_files(None) == []
    assert [machine.open_files(limit)[0].level for limit in (256, 1_024)] == [Level.PROBLEM, Level.NOTE]
    monkeypatch.setattr(machine, "LITTLE_SPACE", 1 << 62)
    (finding,) = machine.disk_space(tmp_path / "not" / "there")
    assert (finding.check, finding.about) == ("disk", str(tmp_path))
    monkeypatch.setattr(machine, "LITTLE_SPACE", 0)
    assert machine.disk_space(tmp_path) == []
