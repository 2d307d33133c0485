"""`odradek doctor` on real sockets and real brokers: who answers at an address, and how the command ends."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from odradek.cli.checkup import addresses as of_addresses
from odradek.cli.checkup import cluster as of_cluster
from odradek.cli.checkup import machine
from odradek.cli.checkup.addresses import Addresses, advertised_in
from odradek.cli.checkup.cluster import ClusterFacts
from odradek.cli.checkup.dialling import DialOutcome, DialReport, dial
from odradek.cli.checkup.finding import CheckupFinding, Level
from odradek.cli.clusters.current import remember
from odradek_broker.commands import checks
from odradek_broker.local.certificates import make_node
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.grpc_options import GrpcOptions
from odradek_proto.transport.ports import CallContext, Handlers
from odradek_proto.transport.reaching import API_VERSIONS, CORRELATION, Reached, reach
from odradek_proto.v1 import admin_messages
from odradek_proto.v1 import broker_pb2 as pb

from tests.cli.conftest import Run
from tests.waiting import until

ANSWERED_MS = 60_000  # by whoever answers at all, on a busy machine
AFTER_A_DEATH = {
    "dead-process", "broker-down", "advertised-address", "under-replicated", "voter-silent", "no-controller",
}  # fmt: skip
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SILENT_MS = 3_000  # for whoever does not; what comes before the silence takes as long, at most


async def dialled(address: str, timeout_ms: float = ANSWERED_MS) -> DialOutcome:
    network = GrpcNetwork(GrpcOptions(connect_timeout_ms=600_000))
    try:
        return (await dial(network, address, timeout_ms)).outcome
    finally:
        await network.close()


def outcome_of(address: str, timeout_ms: float = ANSWERED_MS) -> DialOutcome:
    return asyncio.run(dialled(address, timeout_ms))


async def outcome_of_server(answer: Answer, context: ssl.SSLContext | None = None) -> DialOutcome:
    """What is said of one that answers so, with TLS if there is a context."""
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        return await dialled(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")


def test_addresses_that_nobody_answers_at(nobody: str) -> None:
    """A name that is none, a port that refuses, what is no address at all."""
    assert outcome_of("no-such-host.invalid:50051", SILENT_MS) is DialOutcome.UNRESOLVED
    for address in (nobody, nobody.replace("127.0.0.1", "localhost")):
        assert outcome_of(address) is DialOutcome.REFUSED
    assert [outcome_of(text) for text in ("x", "x:y", ":1", "x:0", "x:70000", "")] == [DialOutcome.NO_ADDRESS] * 6
    assert outcome_of("a..b:1", SILENT_MS) is DialOutcome.UNRESOLVED


def test_a_server_that_takes_connections_and_says_nothing_is_mute(deaf: str) -> None:
    """As a frozen process: its kernel accepts for it."""
    assert outcome_of(deaf, SILENT_MS) is DialOutcome.MUTE


async def test_a_server_of_another_protocol_is_not_grpc() -> None:
    """It answers in its own language, or hangs up."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    assert await outcome_of_server(hang_up) is DialOutcome.NOT_GRPC


@pytest.mark.parametrize(
    ("protocols", "outcome"), [([], DialOutcome.KAFKA), (["h2"], DialOutcome.NOT_LET_IN)], ids=["Kafka", "gRPC"]
)
async def test_listeners_with_tls_are_told_by_what_they_speak(
    tmp_path: Path, protocols: list[str], outcome: DialOutcome
) -> None:
    """Where this client's settings do not fit it is not said to be another port: one answers as Kafka does, one agrees
    to HTTP/2 and hangs up."""
    keystore = make_node(tmp_path, 1)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keystore)
    context.set_alpn_protocols(protocols)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = await reader.read(len(API_VERSIONS))
        if not protocols and question == API_VERSIONS:
            writer.write(struct.pack(">ii", 4, CORRELATION))
        writer.close()

    assert await outcome_of_server(answer, context) is outcome


async def test_grpc_servers_that_are_no_brokers_for_clients() -> None:
    """A stranger, the controllers' listener, the brokers', and a broker that has not heard of its controller yet."""

    async def never(request: bytes, context: CallContext) -> bytes:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    network = GrpcNetwork()
    for timeout_ms, handlers, outcome in (
        (ANSWERED_MS, Handlers(services=["shop.v1.Cart"]), DialOutcome.STRANGER),
        (ANSWERED_MS, Handlers(services=["odradek.v1.Quorum"]), DialOutcome.CONTROLLER),
        (ANSWERED_MS, Handlers(services=["odradek.v1.Replication"]), DialOutcome.REPLICATION),
        (
            SILENT_MS,
            Handlers(unary={"/odradek.v1.Broker/Metadata": never}, services=["odradek.v1.Broker"]),
            DialOutcome.STARTING,
        ),
    ):
        server = await network.serve("127.0.0.1:0", handlers)
        server.set_serving(False)
        assert await dialled(server.address, timeout_ms) is outcome
        await server.stop()
    await network.close()


def test_a_resolver_that_hangs_costs_the_deadline_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look-up is abandoned; nothing waits for its thread, the end of the program included."""
    import threading

    release, ended = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> list[Any]:
        release.wait(600)
        ended.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        assert asyncio.run(reach("somewhere:1", 100)) is Reached.UNRESOLVED
        assert not ended.is_set()
    finally:
        release.set()


def test_an_address_that_was_not_tried_in_time_is_not_called_unresolved() -> None:
    """There is nothing to resolve in it: the time was too short."""
    for address in ("127.0.0.1:1", "[::1]:1"):
        assert asyncio.run(reach(address, 0)) is Reached.TOO_SHORT


@pytest.fixture
def cluster(tmp_path: Path, home: Path) -> Iterator[LocalCluster]:
    """Three brokers, remembered as the cluster that was started last."""
    made = LocalCluster.create(tmp_path / "cluster", brokers=3, settings={"odradek.create.topics": "orders:3:3"})
    made.start_all()
    remember(made.directory)
    try:
        yield made
    finally:
        made.kill_all()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_cluster_is_examined_as_it_is(cluster: LocalCluster, odradek_process: Run) -> None:
    """Well, then with a dead broker, without a majority, and gone: exit codes 0, 3, 3, 4."""
    until(lambda: odradek_process("topic", "list", "-b", cluster.bootstrap), lambda listed: "orders" in listed.out)

    well = until(lambda: odradek_process("doctor", "--json"), lambda examined: examined.code == 0)
    report = json.loads(well.out)
    assert (well.code, report["problems"], report["healthy"]) == (0, 0, True), well.out
    assert report["cluster_id"] == cluster.cluster_id
    known = [row["answered_by"] for row in report["addresses"] if row["answered_by"] is not None]
    assert known == [1, 2, 3]  # who listens on an address for Kafka's clients does not say which broker it is

    cluster.kill(1)
    found = until(
        lambda: found_by(odradek_process),
        lambda seen: seen.code == 3 and AFTER_A_DEATH.issuperset(seen.checks),  # unless one of the others is busy
    ).checks
    assert "dead-process" in found
    assert {"broker-down", "advertised-address"} & found  # the others may not have noticed yet

    cluster.pause(2)
    wanted = {"dead-process", "frozen-process", "no-controller"}
    until(  # the third may lead until it misses its majority, and be too busy to answer in time
        lambda: found_by(odradek_process), lambda seen: seen.code == 3 and wanted.issubset(seen.checks)
    )
    until(
        lambda: odradek_process("doctor"),
        lambda people: (
            people.code == 3
            and ("takes the connection and says nothing" in people.out or "broker 2 is down" in people.out)
            and f"broker 2 (pid {cluster.nodes[2].pid}) is frozen by SIGSTOP" in people.out
            and "--broker 2` lets it go on" in people.out
        ),
    )

    cluster.resume(2)
    cluster.kill_all()
    assert found_by(odradek_process) == Found(4, frozenset({"bootstrap-address", "dead-process"}))


class Found(NamedTuple):
    """How the command ended, and the checks that found a problem."""

    code: int
    checks: frozenset[str]


def found_by(odradek_process: Run) -> Found:
    outcome = odradek_process("doctor", "--json", "--timeout", "5")
    findings = json.loads(outcome.out)["findings"]
    return Found(outcome.code, frozenset(each["check"] for each in findings if each["level"] == "problem"))


def test_without_a_cluster_only_the_machine_is_looked_at(odradek: Run) -> None:
    """Nothing is dialled, and that is said."""
    outcome = odradek("doctor")
    assert outcome.code in (0, 3)
    assert "no cluster was named" in outcome.out


def test_a_settings_file_is_checked_as_a_broker_would(odradek: Run, tmp_path: Path) -> None:
    """What a broker refuses is a problem, what it does not use a note."""
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nnum.io.threads=8\nlisteners=GRPC://0.0.0.0:50051\n")
    outcome = odradek("doctor", "-c", str(file), "--json", code=3)
    (finding,) = [each for each in json.loads(outcome.out)["findings"] if each["check"] == "settings"]
    assert "set advertised.listeners=GRPC://HOST:PORT" in finding["says"]


def test_variables_that_are_no_settings_are_noted() -> None:
    """Those of other programs, and misspelt ones with the nearest name."""
    variables = {"KAFKA_HEAP_OPTS": "-Xmx1g", "ODRADEK_MIN_INSYNC_REPLCAS": "2", "PATH": "/bin"}
    asked = {"directory": None, "config": None, "environment": variables}
    (finding,) = checks.findings(asked)
    assert (finding["level"], finding["check"]) == ("note", "settings")
    assert "ODRADEK_MIN_INSYNC_REPLCAS (did you mean min.insync.replicas?)" in finding["says"]
    assert checks.findings({**asked, "environment": {"PATH": "/bin"}}) == []


def test_a_local_cluster_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    """Its directory was removed, or holds something else."""
    (finding,) = checks.of_local_cluster(tmp_path)
    assert (finding["level"], finding["check"]) == ("problem", "local-cluster")
    (tmp_path / "cluster.json").write_text('{"nodes": [{"node_id": 1}]}')
    (finding,) = checks.of_local_cluster(tmp_path)
    assert (finding["level"], finding["check"]) == ("problem", "local-cluster")
    assert finding["says"] == f"{tmp_path / 'cluster.json'} does not describe a cluster"
    assert finding["remedy"] == "put it back from a copy"


INNER, OUTER = "odradek-{}:50051", "127.0.0.1:2905{}"


def answer(broker: int, listener: str, *, fenced: Sequence[int] = (), cluster_id: str = "c") -> pb.MetadataResponse:
    """What one of three brokers with two listeners says of all of them."""
    found = pb.MetadataResponse(cluster_id=cluster_id, answered_by=broker, listener=listener, controller_id=1)
    for each in (1, 2, 3):
        endpoints = {"GRPC": INNER.format(each), "GRPC_HOST": OUTER.format(each)}
        found.brokers.add(broker_id=each, endpoints=endpoints, fenced=each in fenced)
    return found


def broker(address: str, who: int, listener: str, *, clock_ms: int = 0, fenced: Sequence[int] = ()) -> DialReport:
    return DialReport(address, DialOutcome.BROKER, 1.0, clock_ms, answer(who, listener, fenced=fenced))


def seen(*bootstrap: str, **outcomes: DialReport | DialOutcome) -> Addresses:
    """Everything answers on the outer listener and nothing resolves on the inner one, unless it is said otherwise.

    The names of `outcomes` are `inner1`, `outer2`, ...
    """
    found = Addresses(bootstrap or (OUTER.format(1),))
    for each in (1, 2, 3):
        for name, at, usual in (
            (f"outer{each}", OUTER.format(each), broker(OUTER.format(each), each, "GRPC_HOST")),
            (f"inner{each}", INNER.format(each), DialReport(INNER.format(each), DialOutcome.UNRESOLVED)),
        ):
            one = outcomes.get(name, usual)
            found.dialled[at] = one if isinstance(one, DialReport) else DialReport(at, one)
    for at in found.bootstrap:
        found.dialled.setdefault(at, DialReport(at, DialOutcome.REFUSED))
    found.advertised = advertised_in(found.answers)
    return found


def problems(findings: Sequence[CheckupFinding]) -> list[CheckupFinding]:
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
    short = Addresses(("127.0.0.1:1",), {"127.0.0.1:1": DialReport("127.0.0.1:1", DialOutcome.TOO_SHORT)})
    first, *_ = problems(of_addresses.judge(short))
    assert "too short" in first.says
    assert "--timeout" in first.remedy


def fenced_by(who: int, *fenced: int) -> DialReport:
    return broker(OUTER.format(who), who, "GRPC_HOST", fenced=fenced)


STRANGER = DialReport(OUTER.format(3), DialOutcome.BROKER, 1.0, 0, answer(3, "GRPC_HOST", cluster_id="other"))
SWAPPED = broker(OUTER.format(2), 3, "GRPC_HOST")  # two published ports that lead to one container


@pytest.mark.parametrize(
    ("outcomes", "check", "says"),
    [
        (
            {1: fenced_by(1, 2), 3: fenced_by(3, 2), 2: DialOutcome.REFUSED},
            "broker-down",
            "broker 2 is down: it is fenced",
        ),
        (
            {1: fenced_by(1, 2), 3: fenced_by(3, 2), 2: DialOutcome.MUTE},
            "broker-down",
            "broker 2 is fenced, and 127.0.0.1:29052 takes the connection and says nothing",
        ),
        ({each: fenced_by(each, 2) for each in (1, 2, 3)}, "broker-fenced", "the controller does not hear it"),
        ({2: SWAPPED}, "wrong-broker", "broker 2 advertises GRPC_HOST://127.0.0.1:29052, and broker 3 answers there"),
        ({3: STRANGER}, "another-cluster", f"{OUTER.format(3)} belongs to cluster other"),
    ],
)
def test_what_is_wrong_at_an_outer_address_is_found(
    outcomes: dict[int, DialReport | DialOutcome], check: str, says: str
) -> None:
    """Once, about that address: the address of a fenced broker is not to blame."""
    found = seen(**{f"outer{number}": outcome for number, outcome in outcomes.items()})
    (finding,) = problems(of_addresses.judge(found))
    assert (finding.check, finding.about) == (check, OUTER.format(3 if STRANGER in outcomes.values() else 2))
    assert says in finding.says


@pytest.mark.parametrize("clock_ms", [-2_001, 2_001])
def test_a_clock_that_is_seconds_off_is_found(clock_ms: int) -> None:
    """Once for each broker, however many of its addresses answer."""
    late = broker(OUTER.format(2), 2, "GRPC_HOST", clock_ms=clock_ms)
    inner = broker(INNER.format(2), 2, "GRPC", clock_ms=clock_ms)
    (finding,) = problems(of_addresses.judge(seen(outer2=late, inner2=inner)))
    assert finding.says == f"the clock of broker 2 is 2.0 s {'ahead of' if clock_ms > 0 else 'behind'} this machine's"
    assert not problems(of_addresses.judge(seen(outer2=broker(OUTER.format(2), 2, "GRPC_HOST", clock_ms=2_000))))


@pytest.mark.parametrize("outcome", [outcome for outcome in DialOutcome if outcome is not DialOutcome.BROKER])
def test_every_outcome_of_a_bootstrap_address_has_a_sentence_and_a_remedy(outcome: DialOutcome) -> None:
    """Whatever happened, somebody must know what to do."""
    found = Addresses(["x:1"], {"x:1": DialReport("x:1", outcome)})
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


def checked(facts: ClusterFacts) -> list[str]:
    return [finding.check for finding in of_cluster.judge(facts)]


def test_a_cluster_that_is_well_gives_no_findings() -> None:
    """All voters fetch, all replicas are in sync, settings have an effect."""
    configs = {"orders": entries(min_insync_replicas="2", retention_ms="5")}
    assert checked(ClusterFacts(topic([1, 2, 3], [2, 3, 1]), quorum(20, 500), configs)) == []


def test_a_quorum_without_leader_or_with_silent_voters_is_found() -> None:
    """No answer is told as that; a voter that has not fetched for seconds, or ever, is silent."""
    assert checked(ClusterFacts(topic([1, 2, 3]), None)) == ["no-controller"]
    assert checked(ClusterFacts(topic([1, 2, 3]), admin_messages.DescribeQuorumResponse(leader_id=-1))) == [
        "no-controller"
    ]
    (finding,) = of_cluster.judge(ClusterFacts(topic([1, 2, 3]), quorum(5_001, 20)))
    assert (finding.check, finding.about) == ("voter-silent", "2")
    assert finding.says == "controller 2 does not follow; of all 3 no other may fail"
    assert checked(ClusterFacts(topic([1, 2, 3]), quorum(-1, 20))) == ["voter-silent"]


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
    assert checked(facts) == expected


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
