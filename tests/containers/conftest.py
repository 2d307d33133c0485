"""A compose project of its own for each run: built, started, and removed whatever happens.

Without Docker the tests are skipped with the reason, unless CI or ODRADEK_REQUIRE_DOCKER is set: then they fail.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from odradek.shared.properties import security_from
from odradek.shared.security import UNSAID, talk_by_default
from odradek_broker.local import processes
from odradek_proto.command_line import CLIENT_SETTINGS, COMMAND_CONFIG

ROOT = Path(__file__).parents[2]
OWN_BASE = "odradek-base:bookworm"  # what ops/docker/base-image.sh makes
BROKER_IMAGE, AUDIT_IMAGE = "odradek-test:broker", "odradek-test:audit"
SERVICES = ("odradek-1", "odradek-2", "odradek-3")
BUILD_TIMEOUT_S, COMMAND_TIMEOUT_S = 1_800, 600
PASSWORD = secrets.token_urlsafe()
LABEL, PREFIX = "com.docker.compose.project", "odradek-test-"  # and the process that owns a project


def run(command: Sequence[str], *, timeout_s: float = 180, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout. Its output is kept; its exit code is for the caller to judge."""
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, text=True, timeout=timeout_s, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def unavailable(reason: str) -> None:
    """Skip, or fail where Docker is owed."""
    if os.environ.get("CI") or os.environ.get("ODRADEK_REQUIRE_DOCKER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def compose_command() -> list[str]:
    """`docker compose` or `docker-compose`, with a daemon that answers."""
    if shutil.which("docker") is None:
        unavailable("docker is not installed")
    if run(["docker", "version"]).returncode != 0:
        unavailable("no Docker daemon answers; ops/docker/ensure-docker.sh starts one")
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is not None and run([*command, "version"]).returncode == 0:
            return command
    unavailable("compose is not installed")
    raise AssertionError


@pytest.fixture(scope="session")
def base_image() -> str:
    """BASE_IMAGE, or what is on this machine already."""
    if given := os.environ.get("BASE_IMAGE"):
        return given
    return OWN_BASE if run(["docker", "image", "inspect", OWN_BASE]).returncode == 0 else "python:3.11-slim"


def own_name() -> str:
    """A project's name: nobody else has it, and it names the process that removes the project."""
    return f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"


def free_net() -> str:
    """A /24 (its first three bytes) in none of the daemon's networks."""
    networks = run(["docker", "network", "ls", "-q"]).stdout.split()
    subnets = run(["docker", "network", "inspect", "-f", "{{range .IPAM.Config}}{{.Subnet}} {{end}}", *networks]).stdout
    used = [ipaddress.ip_network(subnet) for subnet in subnets.split()]
    nets = [f"172.30.{third}" for third in range(256)]
    return secrets.choice(
        [net for net in nets if not any(ipaddress.ip_network(f"{net}.0/24").overlaps(other) for other in used)]
    )


@dataclass
class Project:
    """A compose project with a name and ports that nobody else has."""

    compose: list[str]
    base_image: str
    secrets: Path | None = None  # where a client's are, with ops/docker/secure.yml; None: without it
    name: str = field(default_factory=lambda: own_name())
    ports: list[int] = field(default_factory=lambda: processes.free_ports(3))
    kafka_ports: list[int] = field(default_factory=lambda: processes.free_ports(3))
    net: str = field(default_factory=lambda: free_net())  # of the brokers' network
    up_ms: int = 0  # when `up` was typed, of time.monotonic()

    @property
    def image(self) -> str:
        return BROKER_IMAGE

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def __call__(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S, **environment: str) -> str:
        """Run compose on this project; fails with all that it printed."""
        done = self.tried(*arguments, timeout_s=timeout_s, **environment)
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout[-6000:]}"
        return done.stdout

    def tried(
        self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """The same, for commands that may fail."""
        files = ["docker-compose.yml", *(["ops/docker/secure.yml"] if self.secrets else [])]
        named = [*(word for file in files for word in ("-f", file)), "-p", self.name]
        command = [*self.compose, *named, "--profile", "audit", "--profile", "workload", *arguments]
        ports = {f"ODRADEK_PORT_{index}": str(port) for index, port in enumerate(self.ports, 1)}
        ports |= {f"ODRADEK_KAFKA_PORT_{index}": str(port) for index, port in enumerate(self.kafka_ports, 1)}
        ports |= {"ODRADEK_NET": self.net, "ODRADEK_ADMIN_PASSWORD": PASSWORD}
        images = {"ODRADEK_IMAGE": BROKER_IMAGE, "ODRADEK_AUDIT_IMAGE": AUDIT_IMAGE, "BASE_IMAGE": self.base_image}
        patience = {"COMPOSE_HTTP_TIMEOUT": str(COMMAND_TIMEOUT_S)}  # its own 60 s are for machines at rest
        return run(command, timeout_s=timeout_s, **ports, **images, **patience, **environment)

    def brokers_up(self) -> None:
        self.up_ms = int(time.monotonic() * 1000)
        self("up", "-d", *SERVICES)
        if self.secrets is not None:
            self._take_secrets(self.secrets)

    def _take_secrets(self, directory: Path) -> None:
        """What the service `certificates` has made for a client: this process and its children are one."""
        broker = self("ps", "-q", SERVICES[0]).strip()
        for name in ("ca.pem", CLIENT_SETTINGS):
            copied = run(["docker", "cp", f"{broker}:/certificates/{name}", str(directory)])
            assert copied.returncode == 0, copied.stdout
        talk_by_default(security_from(directory / CLIENT_SETTINGS))
        os.environ[COMMAND_CONFIG] = str(directory / CLIENT_SETTINGS)

    def remove(self) -> None:
        """Containers, networks and volumes with this project's label, by compose and then by hand; nothing else."""
        self.tried("down", "--volumes", "--remove-orphans", "--timeout", "5")
        remove(self.name)


KINDS = (  # how Docker lists and removes what a project has
    ("containers", ["ps", "-a"], ["rm", "-f", "-v"]),
    ("networks", ["network", "ls"], ["network", "rm"]),
    ("volumes", ["volume", "ls"], ["volume", "rm", "-f"]),
)


def labelled(listing: Sequence[str], label: str, *options: str) -> list[str]:
    return run(["docker", *listing, "--filter", f"label={label}", *options]).stdout.split()


def remove(project: str) -> None:
    for kind, listing, removal in KINDS:
        if left := labelled(listing, f"{LABEL}={project}", "-q"):
            run(["docker", *removal, *left])
        assert not labelled(listing, f"{LABEL}={project}", "-q"), f"{kind} of {project} stay behind"


def alive(pid: str) -> bool:
    return Path("/proc", pid).exists()


@pytest.fixture(scope="session")
def no_leftovers(compose_command: list[str]) -> None:
    """Projects of runs that were killed go first: their brokers would start with the daemon and take ports and nets."""
    label = ["--format", f'{{{{.Label "{LABEL}"}}}}']
    projects = {name for _, listing, _ in KINDS for name in labelled(listing, LABEL, *label)}
    for project in projects:
        if project.startswith(PREFIX) and not alive(project.removeprefix(PREFIX).split("-")[0]):
            remove(project)


@pytest.fixture
def docker_size() -> Callable[[str], int]:
    """Bytes of an image, all layers together."""
    return lambda image: int(run(["docker", "image", "inspect", "--format", "{{.Size}}", image]).stdout)


@pytest.fixture
def container_s() -> Callable[[str], float]:
    """Seconds that this machine takes to run `odradek version` in a container of an image."""

    def measured(image: str) -> float:
        began = time.monotonic()
        done = run(["docker", "run", "--rm", image, "version"])
        assert done.returncode == 0, done.stdout
        return time.monotonic() - began

    return measured


@pytest.fixture(scope="module")
def built(compose_command: list[str], base_image: str, no_leftovers: None) -> Project:
    """A project whose images are built."""
    project = Project(compose_command, base_image)
    began = time.monotonic()
    project("build", SERVICES[0], "audit", timeout_s=BUILD_TIMEOUT_S)
    print(f"\nimages built on {base_image} in {time.monotonic() - began:.1f} s")
    return project


@pytest.fixture(scope="module", params=["open", "secured"])
def project(
    built: Project, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    """A project with its brokers started this moment, not waited for; in the clear, or with TLS, SASL and ACLs."""
    made = built
    if request.param == "secured":
        made = Project(built.compose, built.base_image, tmp_path_factory.mktemp("client"))
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv(COMMAND_CONFIG, raising=False)
        try:
            made.brokers_up()
            yield made
        finally:
            talk_by_default(UNSAID)
            os.environ.pop(COMMAND_CONFIG, None)  # who comes next talks to other clusters
            made.remove()
