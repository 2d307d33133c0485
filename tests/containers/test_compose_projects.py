"""How `odradek chaos --world compose` finds a project and its brokers, and what it says when it cannot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from odradek.cli.main import main
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.worlds.compose.brokers import broker_of
from odradek_chaos.worlds.compose.project import normalised, project_name


@pytest.mark.parametrize(
    ("name", "project"),
    [("odradek", "odradek"), ("My Project.v2", "myprojectv2"), ("_-x_1-y", "x_1-y"), ("...", "default")],
)
def test_a_directorys_name_becomes_a_project_as_compose_does_it(name: str, project: str) -> None:
    """Small letters, digits, hyphens and underlines are kept; a letter or digit comes first."""
    assert normalised(name) == project


def test_the_project_is_named_or_in_the_environment_or_the_directorys(tmp_path: Path) -> None:
    """--project wins over COMPOSE_PROJECT_NAME, that over the nearest directory above with a compose file."""
    root, below = tmp_path / "Shop", tmp_path / "Shop" / "a" / "b"
    below.mkdir(parents=True)
    assert project_name(None, {}, below) == "b"
    (root / "docker-compose.yml").touch()
    assert project_name(None, {}, below) == "shop"
    assert project_name(None, {"COMPOSE_PROJECT_NAME": "other"}, below) == "other"
    assert project_name("named", {"COMPOSE_PROJECT_NAME": "other"}, below) == "named"


def inspected(**changes: Any) -> dict[str, Any]:
    """What Docker says of a broker's container, as far as it is read."""
    listeners = "GRPC://0.0.0.0:50051,GRPC_HOST://0.0.0.0:50071,CONTROLLER://172.31.61.12:50061"
    return {
        "Id": "abc",
        "Name": "/shop_odradek-2_1",
        "Config": {
            "Env": ["PATH=/bin", "KAFKA_NODE_ID=2", f"KAFKA_LISTENERS={listeners}"],
            "Labels": {"com.docker.compose.service": "odradek-2"},
        },
        "HostConfig": {
            "PortBindings": {
                "9404/tcp": [{"HostIp": "", "HostPort": "9404"}],
                "50071/tcp": [{"HostIp": "127.0.0.1", "HostPort": "39051"}],
            },
        },
        "NetworkSettings": {"Ports": {}},
        **changes,
    }


def test_a_broker_is_dialled_at_the_published_port_of_a_listener() -> None:
    """Not at that of its metrics; when it is stopped, what was asked for still says which."""
    broker = broker_of(inspected())
    assert broker is not None
    assert (broker.node_id, broker.service) == (2, "odradek-2")
    assert broker.hosts == ("0.0.0.0", "0.0.0.0", "172.31.61.12")
    assert broker.published == "127.0.0.1:39051"


def test_a_port_that_docker_chose_is_found() -> None:
    """A port of the host that was left to Docker stands only in what runs."""
    found = inspected(NetworkSettings={"Ports": {"50071/tcp": [{"HostIp": "0.0.0.0", "HostPort": "49153"}]}})
    broker = broker_of(found)
    assert broker is not None
    assert broker.published == "127.0.0.1:49153"


def test_a_container_without_a_node_id_is_no_broker() -> None:
    """The workload and the audit of the same project are left alone."""
    assert broker_of(inspected(Config={"Env": [], "Labels": {"com.docker.compose.service": "workload"}})) is None


def test_without_dockers_package_the_command_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and what to install."""
    monkeypatch.setitem(sys.modules, "docker", None)
    assert main(["chaos", "kill", "--world", "compose", "--broker", "1"]) == 2
    assert "pip install 'odradek[chaos]'" in capsys.readouterr().err


def test_the_properties_of_a_client_are_read_for_containers_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without them nobody is asked: a cluster with TLS would not answer."""
    monkeypatch.setenv("ODRADEK_COMMAND_CONFIG", str(tmp_path / "client.properties"))
    assert main(["chaos", "kill", "--world", "compose", "--leader", "orders-0"]) == 2
    assert "client.properties cannot be read" in capsys.readouterr().err


def test_a_process_cannot_be_cut_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Processes share the machine's network: exit code 2, and what to do instead."""
    LocalCluster.create(tmp_path / "cluster", brokers=1)
    assert main(["chaos", "cut", "--broker", "1", "--data", str(tmp_path / "cluster")]) == 2
    assert "shares this machine's network" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--project", "x"), ("--world", "compose", "--data", "x")])
def test_options_of_the_other_world_are_refused(words: tuple[str, ...]) -> None:
    """--data is of processes, --project of containers."""
    assert main(["chaos", "kill", "--broker", "1", *words]) == 2
