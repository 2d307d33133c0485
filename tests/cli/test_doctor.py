"""`odradek doctor` on real sockets and real brokers: who answers at an address, and how the command ends."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from odradek.cli.checkup.dialling import Outcome, dial
from odradek.cli.clusters.current import remember
from odradek_broker.commands import checks
from odradek_broker.local.certificates import make_node
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.grpc_options import GrpcOptions
from odradek_proto.transport.ports import CallContext, Handlers
from odradek_proto.transport.reaching import API_VERSIONS, CORRELATION, Reached, reach

from tests.cli.conftest import Run
from tests.waiting import until

ANSWERED_MS = 60_000  # by whoever answers at all, on a busy machine
AFTER_A_DEATH = {
    "dead-process", "broker-down", "advertised-address", "under-replicated", "voter-silent", "no-controller",
}  # fmt: skip
SILENT_MS = 3_000  # for whoever does not; what comes before the silence takes as long, at most


def outcome_of(address: str, timeout_ms: float = ANSWERED_MS) -> Outcome:
    async def ask() -> Outcome:
        network = GrpcNetwork(GrpcOptions(connect_timeout_ms=600_000))
        try:
            return (await dial(network, address, timeout_ms)).outcome
        finally:
            await network.close()

    return asyncio.run(ask())


def test_addresses_that_nobody_answers_at() -> None:
    """A name that is none, a port that refuses, what is no address at all."""
    assert outcome_of("no-such-host.invalid:50051", SILENT_MS) is Outcome.UNRESOLVED
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # taken, and nobody listens
        port = probe.getsockname()[1]
        assert outcome_of(f"127.0.0.1:{port}") is Outcome.REFUSED
        assert outcome_of(f"localhost:{port}") is Outcome.REFUSED
    assert [outcome_of(text) for text in ("x", "x:y", ":1", "x:0", "x:70000", "")] == [Outcome.NO_ADDRESS] * 6
    assert outcome_of("a..b:1", SILENT_MS) is Outcome.UNRESOLVED


def test_a_server_that_takes_connections_and_says_nothing_is_mute() -> None:
    """As a frozen process: its kernel accepts for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert outcome_of(f"127.0.0.1:{server.getsockname()[1]}", SILENT_MS) is Outcome.MUTE


def test_a_server_of_another_protocol_is_not_grpc() -> None:
    """It answers in its own language, or hangs up."""

    async def ask() -> Outcome:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        network = GrpcNetwork()
        async with server:
            port = server.sockets[0].getsockname()[1]
            found = await dial(network, f"127.0.0.1:{port}", ANSWERED_MS)
            await network.close()
            return found.outcome

    assert asyncio.run(ask()) is Outcome.NOT_GRPC


@pytest.mark.parametrize(
    ("protocols", "outcome"), [([], Outcome.KAFKA), (["h2"], Outcome.NOT_LET_IN)], ids=["Kafka", "gRPC"]
)
def test_listeners_with_tls_are_told_by_what_they_speak(tmp_path: Path, protocols: list[str], outcome: Outcome) -> None:
    """Where this client's settings do not fit it is not said to be another port: one answers as Kafka does, one agrees
    to HTTP/2 and hangs up."""
    keystore = make_node(tmp_path, 1)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keystore)
    context.set_alpn_protocols(protocols)

    async def ask() -> Outcome:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            question = await reader.read(len(API_VERSIONS))
            if not protocols and question == API_VERSIONS:
                writer.write(struct.pack(">ii", 4, CORRELATION))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        network = GrpcNetwork()
        async with server:
            found = await dial(network, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", ANSWERED_MS)
            await network.close()
            return found.outcome

    assert asyncio.run(ask()) is outcome


def test_grpc_servers_that_are_no_brokers_for_clients() -> None:
    """A stranger, the controllers' listener, the brokers', and a broker that has not heard of its controller yet."""

    async def never(request: bytes, context: CallContext) -> bytes:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def ask() -> list[Outcome]:
        network = GrpcNetwork()
        served = [
            (ANSWERED_MS, Handlers(services=["shop.v1.Cart"])),
            (ANSWERED_MS, Handlers(services=["odradek.v1.Quorum"])),
            (ANSWERED_MS, Handlers(services=["odradek.v1.Replication"])),
            (SILENT_MS, Handlers(unary={"/odradek.v1.Broker/Metadata": never}, services=["odradek.v1.Broker"])),
        ]
        servers = [await network.serve("127.0.0.1:0", handlers) for _, handlers in served]
        for server in servers:
            server.set_serving(False)
        dialled = zip(servers, served, strict=True)
        found = [(await dial(network, server.address, timeout_ms)).outcome for server, (timeout_ms, _) in dialled]
        await network.close()
        for server in servers:
            await server.stop()
        return found

    assert asyncio.run(ask()) == [Outcome.STRANGER, Outcome.CONTROLLER, Outcome.REPLICATION, Outcome.STARTING]


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
        lambda: found_by(odradek_process),
        lambda seen: seen.code == 3 and wanted.issubset(seen.checks),
    )
    until(
        lambda: odradek_process("doctor"),
        lambda people: (
            people.code == 3
            and ("takes the connection and says nothing" in people.out or "broker 2 is down" in people.out)
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
