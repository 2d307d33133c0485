"""Liveness and readiness: the pages, the probe, the command, gRPC's health service, and a broker without the extra."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import urllib.error
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from odradek.cli.main import main as odradek
from odradek_broker.commands.probe import main as probe
from odradek_broker.commands.probe import split_address
from odradek_broker.local.cluster import LocalCluster
from odradek_broker.runtime.membership.broker_session import BrokerSession
from odradek_broker.testing import Cluster
from odradek_proto.transport.background import background_loop

from tests.broker.metrics_pages import LISTENER, LISTENER_ALONE, eventually, get, parse, scrape

QUICK_HEARTBEATS = {"broker.heartbeat.interval.ms": 100}
PATIENT = ["--timeout", "90"]  # of a question whose answer comes, however slow this machine is
CLIENT_SERVICES = ("", "odradek.v1.Broker", "odradek.v1.Admin")
NODE_ALONE = ["-X", "node.id=1", "-X", "odradek.metrics.listener=HTTP://127.0.0.1:0", "-X"]
NODE_ALONE += [
    "listeners=GRPC://127.0.0.1:0,REPLICATION://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "-X",
    "controller.quorum.voters=1@127.0.0.1:9",
]


def ready(cluster: Cluster, broker: int) -> tuple[int, list[str]]:
    status, content_type, text = get(f"{cluster.metrics_url(broker)}/health/ready")
    facts = json.loads(text)
    assert content_type == "application/json"
    assert facts["node"] == broker
    assert facts["ready"] == (status == 200)
    return status, facts["reasons"]


def grpc_health(cluster: Cluster, service: str) -> int:
    with grpc.insecure_channel(cluster.bootstrap) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        return int(check(health_pb2.HealthCheckRequest(service=service), timeout=90).status)


@pytest.fixture
def alone() -> Iterator[Cluster]:
    """One broker that tells the controller every tenth of a second whether it wants to be fenced."""
    with Cluster(1, settings={**LISTENER, **QUICK_HEARTBEATS}) as cluster:
        yield cluster


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> list[BrokerSession]:
    """The sessions of all brokers that start from here on."""
    found: list[BrokerSession] = []
    start = BrokerSession.start

    async def started(self: BrokerSession) -> None:
        found.append(self)
        await start(self)

    monkeypatch.setattr(BrokerSession, "start", started)
    return found


def fence(session: BrokerSession) -> None:
    """Let a broker ask to be fenced with its next heartbeat, as one does whose logs are not loaded."""

    def ask() -> None:
        session._want_fence = True

    background_loop().call(ask)


def test_a_fenced_broker_is_live_and_not_ready(session: list[BrokerSession], alone: Cluster) -> None:
    """Pages, probe, command and gRPC health all follow the broker out of service and back."""
    url = alone.metrics_url(1)
    assert ready(alone, 1) == (200, [])
    assert probe([*PATIENT, "--url", url]) == 0
    assert {grpc_health(alone, service) for service in CLIENT_SERVICES} == {health_pb2.HealthCheckResponse.SERVING}
    fence(session[0])
    eventually(lambda: ready(alone, 1)[0] == 503, "it was never fenced")
    assert ready(alone, 1)[1] == ["the broker is fenced"]
    assert get(f"{url}/health/live")[0] == 200
    assert probe([*PATIENT, "--url", url]) == 1
    assert probe([*PATIENT, "--url", url, "--live"]) == 0
    not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
    assert {grpc_health(alone, service) for service in CLIENT_SERVICES} == {not_serving}
    assert scrape(alone, 1).total("kafka_controller_kafkacontroller_fencedbrokercount") == 1
    background_loop().call(session[0].set_ready)
    eventually(lambda: ready(alone, 1)[0] == 200, "it never came back")
    eventually(lambda: grpc_health(alone, "") == health_pb2.HealthCheckResponse.SERVING, "gRPC never said so")


def test_a_broker_without_a_controller_says_what_it_lacks(tmp_path: Path) -> None:
    """Started without a majority of the voters, a broker answers probes, and is not registered."""
    with Cluster(settings=LISTENER, directory=tmp_path / "cluster") as cluster:
        for broker in cluster.brokers:
            cluster.kill(broker)
        cluster.start(1)
        assert get(f"{cluster.metrics_url(1)}/health/live")[0] == 200
        assert ready(cluster, 1) == (503, ["the broker is not registered with a controller"])
        cluster.heal()
        assert ready(cluster, 1) == (200, [])


def test_a_broker_that_hands_over_is_not_ready_any_more(tmp_path: Path) -> None:
    """From the order to stop on nobody should be sent there, although it still serves; here nobody can take over."""
    with Cluster(2, settings=LISTENER_ALONE, directory=tmp_path / "cluster") as cluster:
        url = f"{cluster.metrics_url(1)}/health/ready"
        cluster.kill(2)
        stopping = threading.Thread(target=cluster.stop, args=(1,))
        stopping.start()
        try:
            eventually(lambda: "the node is stopping" in json.loads(get(url)[2])["reasons"], "it never said so")
        finally:
            stopping.join()
        with pytest.raises(urllib.error.URLError):
            get(url)


def test_the_command_prints_reasons_and_ends_with_a_code(
    session: list[BrokerSession], alone: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 and `ready`; 1 and the reasons, a line each; 4 when nobody answers; 2 for what is no question."""
    monkeypatch.setenv("ODRADEK_METRICS_LISTENER", alone.metrics_url(1).replace("http", "HTTP"))
    assert odradek(["server", "health", *PATIENT]) == 0
    assert capsys.readouterr().out == "ready\n"
    assert odradek(["server", "health", *PATIENT, "--live"]) == 0
    fence(session[0])
    eventually(lambda: ready(alone, 1)[0] == 503, "it was never fenced")
    assert odradek(["server", "health", *PATIENT, "--ready"]) == 1
    assert capsys.readouterr().err == "not ready: the broker is fenced\n"
    url = alone.metrics_url(1)
    assert odradek(["server", "health", *PATIENT, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said == {"url": alone.metrics_url(1).replace("http", "HTTP"), "asked": "ready", "answer": False,
                    "reasons": ["the broker is fenced"]}  # fmt: skip
    assert odradek(["server", "health", *PATIENT, "--live", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) | {"url": ""} == {
        "url": "", "asked": "live", "answer": True, "reasons": [],
    }  # fmt: skip
    alone.kill(1)
    assert odradek(["server", "health", *PATIENT, "--url", url, "--json"]) == 4
    out, err = capsys.readouterr()
    assert json.loads(out) == {"url": url, "asked": "ready", "answer": None, "reasons": ["Connection refused"]}
    assert "no answer from" in err
    assert odradek(["server", "health", *PATIENT, "--url", url]) == 4
    assert probe([*PATIENT, "--url", url]) == 4
    assert odradek(["server", "health", *PATIENT, "--url", "ftp://here"]) == 2
    assert probe([*PATIENT, "--url", "ftp://here"]) == 2
    assert odradek(["server", "health", *PATIENT, "--live", "--ready"]) == 2


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:9404", ("127.0.0.1", 9404)),
        ("HTTP://0.0.0.0:9404", ("127.0.0.1", 9404)),
        ("HTTP://:9404", ("127.0.0.1", 9404)),
        ("HTTP://[::]:9404", ("::1", 9404)),
        ("http://[::1]:9404/", ("::1", 9404)),
        ("http://odradek-1", ("odradek-1", 80)),
    ],
)
def test_a_listener_is_asked_where_this_machine_finds_it(url: str, address: tuple[str, int]) -> None:
    """The setting's own form is understood; a wildcard means this machine."""
    assert split_address(url) == address


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:9404", "https://here:1", "http://here:0", "http://here:x", "http://a/b:1"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    """A port of 0, another scheme or a path is no listener."""
    with pytest.raises(ValueError, match="a URL looks like"):
        split_address(url)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=180)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["h11", "prometheus_client"])
def test_a_broker_without_the_extra_says_what_to_install(package: str, tmp_path: Path) -> None:
    """With the setting and without a package of the extra, the start fails with a sentence."""
    arguments = [*NODE_ALONE, "-X", f"log.dirs={tmp_path}"]
    ended = run_python(f"""
        import sys
        sys.modules[{package!r}] = None
        from odradek_broker.__main__ import main
        sys.exit(main({arguments!r}))
    """)
    assert ended.returncode == 1
    assert f"odradek.metrics.listener needs the package {package}" in ended.stderr
    assert "pip install 'odradek[metrics]'" in ended.stderr


@pytest.mark.slow
def test_a_broker_without_the_setting_loads_nothing_of_it() -> None:
    """Neither the metrics package nor what it needs is imported, and nothing listens."""
    ended = run_python("""
        import sys
        from odradek_broker.testing import Cluster
        with Cluster(1) as cluster:
            cluster.create_topic("orders")
        print([name for name in ("odradek_broker.metrics", "prometheus_client", "h11") if name in sys.modules])
    """)
    assert ended.stdout == "[]\n", ended.stderr


def is_ready(url: str) -> bool:
    return probe([*PATIENT, "--url", url]) == 0


def says(file: Path, text: str) -> bool:
    return text in file.read_text()


@pytest.mark.slow
@pytest.mark.cluster
def test_processes_serve_metrics_where_their_cluster_says(tmp_path: Path) -> None:
    """Each process has an address of its own in cluster.json, answers there, names it at the start, and stops."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=2, settings=LISTENER_ALONE)
    try:
        cluster.start_all()
        for node in cluster.nodes.values():
            eventually(partial(is_ready, f"http://{node.metrics}"), "it was never ready")
        nodes = LocalCluster.load(tmp_path / "cluster").nodes
        assert len({node.metrics for node in nodes.values()}) == 2
        for node in nodes.values():
            page = parse(get(f"http://{node.metrics}/metrics")[2])
            assert page.total("process_resident_memory_bytes") > 1 << 20
            says_where = partial(says, cluster.log_file(node.node_id), f"HTTP://{node.metrics}")
            eventually(says_where, "it never named its address")  # it listens, then says so
        assert cluster.stop_all(timeout_s=60) == []
    finally:
        cluster.kill_all()
