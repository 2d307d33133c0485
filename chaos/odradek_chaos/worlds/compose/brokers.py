"""What a container's description says of the broker in it. Pure: it reads what `docker inspect` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SERVICE = "com.docker.compose.service"
ANY_HOST = ("", "0.0.0.0", "::")
PREFIXES = ("ODRADEK_", "KAFKA_", "KAFKA_CFG_")  # of variables that set something; the earlier wins


@dataclass(frozen=True, slots=True)
class BrokerContainer:
    """One broker of a compose project."""

    node_id: int
    container_id: str
    name: str
    service: str  # how clients in containers dial it
    hosts: tuple[str, ...]  # the addresses that its listeners are bound to
    published: str  # where the host reaches its clients' listener, host:port; empty when nowhere


def broker_of(inspected: Mapping[str, Any]) -> BrokerContainer | None:
    """The broker in a container; None when there is none, that is, when it has no node id and no service's name."""
    config = inspected["Config"]
    environment = dict(entry.split("=", 1) for entry in config.get("Env") or () if "=" in entry)
    node_id, service = _setting(environment, "NODE_ID"), (config.get("Labels") or {}).get(SERVICE, "")
    if not node_id.isdigit() or not service:
        return None
    return BrokerContainer(
        node_id=int(node_id),
        container_id=inspected["Id"],
        name=inspected["Name"].lstrip("/"),
        service=service,
        hosts=tuple(_host(listener) for listener in _setting(environment, "LISTENERS").split(",")),
        published=_published(_setting(environment, "LISTENERS"), inspected),
    )


def _setting(environment: Mapping[str, str], name: str) -> str:
    return next((environment[prefix + name] for prefix in PREFIXES if prefix + name in environment), "")


def _host(listener: str) -> str:
    """`172.31.61.11` of `CONTROLLER://172.31.61.11:50061`."""
    return listener.partition("//")[2].rpartition(":")[0].strip()


def _published(listeners: str, inspected: Mapping[str, Any]) -> str:
    """Where the host has published the port of a listener.

    The ports of a container that runs say what Docker chose; those of one that does not, what was asked for.
    """
    asked = inspected["HostConfig"].get("PortBindings") or {}
    given = (inspected.get("NetworkSettings") or {}).get("Ports") or {}
    for listener in listeners.split(","):
        port = f"{listener.rpartition(':')[2].strip()}/tcp"
        for binding in given.get(port) or asked.get(port) or ():
            if binding.get("HostPort") not in (None, "", "0"):
                host = binding.get("HostIp") or ""
                return f"{'127.0.0.1' if host in ANY_HOST else host}:{binding['HostPort']}"
    return ""
