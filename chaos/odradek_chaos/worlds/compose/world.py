"""A compose project's brokers: found by compose's labels, struck by Docker.

Rules of this module. Only containers with the project's label are touched. Nothing is remembered between two calls:
what a container is (its node id, its listeners, the port that the host has published) stands in its own description, so
that one command can cut a broker off and another heal it. A broker belongs to every network of its project.

A container that Docker was told to kill stays down, whatever its restart policy is: the policy is for processes that
die by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, TypeVar

from odradek_broker.local.cluster import ClusterError, NoSuchBroker
from odradek_proto.command_line import USAGE, CommandFailed

from odradek_chaos.worlds.compose.brokers import SERVICE, BrokerContainer, broker_of
from odradek_chaos.worlds.real import Place

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

T = TypeVar("T")
PROJECT = "com.docker.compose.project"
STOP_TIMEOUT_S = 30  # stop_grace_period of docker-compose.yml
API_TIMEOUT_S = 300  # for one act of the daemon: a busy machine takes a minute to end what it starts in a second
SHELL_SIGNAL = 128  # an exit code above it means a signal


def docker_client() -> DockerClient:
    """A connection to the daemon. Raises `CommandFailed` without the package, `ClusterError` without a daemon."""
    try:
        import docker
        from docker.errors import DockerException
    except ModuleNotFoundError as error:
        raise CommandFailed(
            "`--world compose` needs the package docker, which is not installed",
            hint="pip install 'odradek[chaos]'",
            exit_code=USAGE,
        ) from error
    try:
        client = docker.from_env(timeout=API_TIMEOUT_S)
        client.ping()
    except DockerException as error:
        raise ClusterError(
            f"no Docker daemon answers: {error}", hint="is it running, and may this user talk to it? `docker info`"
        ) from error
    return client


def _is_within(host: str, subnet: IPv4Network | IPv6Network) -> bool:
    try:
        return ip_address(host) in subnet
    except ValueError:  # a name
        return False


class CannotBeSlowed(ClusterError):
    """Asked of a world whose brokers cannot be told to fetch late."""

    exit_code = USAGE


class ComposeWorld:
    """The brokers of one compose project as a world of real brokers."""

    def __init__(self, project: str, client: DockerClient | None = None) -> None:
        """Raises `ClusterError` when the project has no broker, `CommandFailed` when Docker's package is missing."""
        self.project = project
        self._docker = client if client is not None else docker_client()
        self._brokers: dict[int, BrokerContainer] = {}
        for container in self._asked(self._containers):
            broker = broker_of(container.attrs)
            if broker is not None:
                self._brokers[broker.node_id] = broker
        if not self._brokers:
            raise ClusterError(
                f"the compose project {project!r} has no broker",
                hint="`docker compose up -d` starts one; --project or COMPOSE_PROJECT_NAME names another",
            )

    def _containers(self) -> list[Container]:
        found: list[Container] = self._docker.containers.list(all=True, filters={"label": f"{PROJECT}={self.project}"})
        return found

    @property
    def nodes(self) -> Collection[int]:
        return sorted(self._brokers)

    @property
    def bootstrap(self) -> str:
        """The published ports. Raises `ClusterError` when there is none."""
        addresses = [self._brokers[node_id].published for node_id in self.nodes]
        known = [address for address in addresses if address]
        if not known:
            raise ClusterError(
                f"no broker of the compose project {self.project!r} publishes a port of a listener",
                hint="choose with --broker N, which needs no connection",
            )
        return ",".join(known)

    def place(self, node_id: int) -> Place:
        state = self._state(node_id)
        pid = int(state.get("Pid") or 0)
        place: dict[str, str | int] = {"container": self._broker(node_id).name}
        return {**place, "pid": pid} if pid else place

    def running(self, node_id: int) -> bool:
        return self._state(node_id).get("Status") in ("running", "paused")

    def paused(self, node_id: int) -> bool:
        return self._state(node_id).get("Status") == "paused"

    def is_cut(self, node_id: int) -> bool:
        return self.running(node_id) and not self._networks_of(node_id)

    def start(self, node_id: int) -> None:
        broker = self._broker(node_id)
        container = self._container(node_id)
        if container.status in ("running", "paused", "restarting"):
            return
        # A container that was cut off when it ended would come back to one network, without its service's name.
        joined = self._networks_of(node_id)
        if any(broker.service not in (network.get("Aliases") or ()) for network in joined.values()) or not joined:
            self._leave_networks(node_id)
            self._join_networks(node_id)
        self._asked(container.start)

    def stop(self, node_id: int) -> bool:
        container = self._container(node_id)
        if container.status not in ("running", "paused"):
            return True
        self._asked(lambda: container.stop(timeout=STOP_TIMEOUT_S))
        return int(self._state(node_id).get("ExitCode", 1)) == 0

    def kill(self, node_id: int) -> None:
        container = self._alive(node_id)
        self._asked(container.kill)
        self._asked(lambda: container.wait(timeout=API_TIMEOUT_S))

    def pause(self, node_id: int) -> None:
        self._asked(self._alive(node_id).pause)

    def resume(self, node_id: int) -> None:
        container = self._alive(node_id)
        if container.status == "paused":
            self._asked(container.unpause)

    def cut(self, node_id: int) -> None:
        self._alive(node_id)
        if self.is_cut(node_id):
            raise ClusterError(f"broker {node_id} is cut off already", hint=f"heal it: --broker {node_id}")
        self._leave_networks(node_id)

    def heal(self, node_id: int) -> None:
        """Back to its networks, under the name by which the others dial it, and to the addresses that its listeners are
        bound to. Where none is, its address may be another one."""
        if self.is_cut(node_id):
            self._join_networks(node_id)

    def slow(self, node_id: int, delay_ms: int, for_ms: int) -> None:
        raise CannotBeSlowed(
            f"broker {node_id} is a container: only processes of this machine can be slowed down",
            hint="`odradek chaos pause` makes it silent, `odradek chaos cut` takes its network away",
        )

    def slowed(self, node_id: int) -> bool:
        return False

    def health(self, node_id: int) -> str:
        """What Docker's own check of a container says: starting, healthy or unhealthy; empty when it has none."""
        checked: Mapping[str, Any] = self._state(node_id).get("Health") or {}
        return str(checked.get("Status", ""))

    def exit_status(self, node_id: int) -> int | None:
        if self.running(node_id):
            return None
        code = int(self._state(node_id).get("ExitCode", 0))
        return SHELL_SIGNAL - code if code > SHELL_SIGNAL else code

    def log_file(self, node_id: int) -> str:
        return f"`docker logs {self._broker(node_id).name}`"

    def last_lines(self, node_id: int, count: int = 15) -> list[str]:
        container = self._container(node_id)
        said: bytes = self._asked(lambda: container.logs(tail=count))
        return said.decode(errors="replace").splitlines()

    # --- Docker -------------------------------------------------------------------------------------------------------

    def _leave_networks(self, node_id: int) -> None:
        broker = self._broker(node_id)
        for name in self._networks_of(node_id):
            network = self._asked(partial(self._docker.networks.get, name))
            self._asked(partial(network.disconnect, broker.container_id, force=True))

    def _join_networks(self, node_id: int) -> None:
        broker = self._broker(node_id)
        label = {"label": f"{PROJECT}={self.project}"}
        for network in self._asked(lambda: self._docker.networks.list(filters=label)):
            subnets = [ip_network(each["Subnet"]) for each in (network.attrs["IPAM"]["Config"] or ())]
            mine = (host for host in broker.hosts if any(_is_within(host, subnet) for subnet in subnets))
            names = [broker.service, broker.name]
            self._asked(partial(network.connect, broker.container_id, aliases=names, ipv4_address=next(mine, None)))

    def _container(self, node_id: int) -> Container:
        """As it is at this moment."""
        broker = self._broker(node_id)
        container: Container = self._asked(lambda: self._docker.containers.get(broker.container_id))
        return container

    def _alive(self, node_id: int) -> Container:
        container = self._container(node_id)
        if container.status not in ("running", "paused"):
            raise ClusterError(
                f"broker {node_id} does not run",
                hint=f"`odradek chaos restart --world compose --broker {node_id}` starts it",
            )
        return container

    def _state(self, node_id: int) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self._container(node_id).attrs["State"]
        return state

    def _networks_of(self, node_id: int) -> Mapping[str, Any]:
        networks: Mapping[str, Any] = self._container(node_id).attrs["NetworkSettings"]["Networks"] or {}
        return networks

    def _broker(self, node_id: int) -> BrokerContainer:
        try:
            return self._brokers[node_id]
        except KeyError:
            raise NoSuchBroker(node_id, self.nodes) from None

    def _asked(self, act: Callable[[], T]) -> T:
        """Ask Docker; its errors become sentences."""
        from docker.errors import APIError, DockerException

        try:
            return act()
        except APIError as error:
            raise ClusterError(f"Docker refused: {error.explanation or error}") from error
        except (DockerException, OSError) as error:
            raise ClusterError(f"Docker does not answer: {error}", hint="`docker info`") from error


__all__ = ["PROJECT", "SERVICE", "ComposeWorld", "docker_client"]
