"""A cluster of real broker processes on this machine: start, find again, kill, freeze, stop.

`odradek cluster up`, the demo, the chaos tool and the tests all use this. A cluster is described by `cluster.json` in
its directory: which nodes, which addresses, which processes. A process is only ever signalled after its start time
has been compared with the recorded one, so that a pid that was given to somebody else is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from odradek_proto.command_line import CLIENT_SETTINGS, FAILED, STATE_FILE, USAGE, cluster_directories

from odradek_broker.local.certificates import AUTHORITY, make_node
from odradek_broker.local.ports import Claim, PortError, asked_for, claim_row, kafka_row
from odradek_broker.local.processes import HOST, free_ports, is_free, process_state, release_ports, start_time
from odradek_broker.process import slow

REBALANCE_DELAY_MS = "100"  # kafka-python joins before it knows its topic's partitions, and would be left without any
METRICS_SETTING = "odradek.metrics.listener"
MALLOC_ARENAS = "2"  # of glibc: one for each of gRPC's threads wastes a fifth of the memory under load
TAIL_BYTES = 65_536  # of a node's output, to show its last lines


def _up(directory: Path) -> str:
    """The command that starts the cluster there, as a shell takes it."""
    return f"odradek cluster up --data {shlex.quote(str(directory))}"


class ClusterError(Exception):
    """The cluster cannot be started, found or changed: a sentence, and in `hint` what to try."""

    exit_code = FAILED

    def __init__(self, message: str, *, hint: str = "", exit_code: int | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"try: {hint}")  # for tracebacks; whoever prints the sentence prints the hint, too
        if exit_code is not None:
            self.exit_code = exit_code


class NoSuchBroker(ClusterError):
    """A number that no broker of the cluster has; `known` are those that there are."""

    exit_code = USAGE

    def __init__(self, node_id: int, known: Iterable[int]) -> None:
        there = ", ".join(map(str, sorted(known)))
        said = f"there is no broker {node_id} in this cluster; there are {there}"
        super().__init__(said, hint="--broker N, with one of these")


@dataclass(slots=True)
class NodeProcess:
    """One node as it was last started."""

    node_id: int
    grpc: str
    controller: str
    log_directory: str
    replication: str = f"{HOST}:0"  # as of nodes that were laid out when they had none
    kafka: str = f"{HOST}:0"  # the same
    pid: int = 0
    metrics: str = ""  # where metrics and health are served, empty when they are not
    started: str = ""  # the kernel's start time of the process, to tell it from a later one with the same pid


@dataclass(slots=True, weakref_slot=True)
class LocalCluster:
    """Nodes in one directory. Every change is written to `cluster.json` at once."""

    directory: Path
    cluster_id: str
    nodes: dict[int, NodeProcess]
    settings: dict[str, str] = field(default_factory=dict)
    temporary: bool = False  # made by us in a temporary place: it goes when the cluster goes down
    secure: bool = False  # TLS everywhere, SASL for clients, ACLs
    ends_with_parent: bool = False  # its brokers stop when this process ends, however it does
    fixed_ports: bool = True  # the first row that is free; else any
    moved: bool = False  # since its file was written: its ports may be another cluster's now
    _claim: Claim | None = None  # of ports, while this object is there
    _releases: list[weakref.finalize[..., LocalCluster]] = field(default_factory=list)  # of other ports
    _children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    # --- Making and finding -----------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        temporary: bool = False,
        fixed_ports: bool = False,
        secure: bool = False,
    ) -> LocalCluster:
        """Lay out a new cluster; starts nothing. Raises `ClusterError` when one is there already.

        With `fixed_ports` on the first row of ports that is free, else on any that are.
        """
        directory = directory.absolute()
        if cls.exists(directory):
            hint = f"`{_up(directory)}` starts it"
            raise ClusterError(f"{directory} already holds a cluster", hint=hint, exit_code=USAGE)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                hint = "name a directory that is empty or not there with --data"
                raise ClusterError(f"{directory} holds other files", hint=hint, exit_code=USAGE)
        except OSError as error:
            raise ClusterError(
                f"cannot make {directory}: {error.strerror}",
                hint="name another place with --data",
                exit_code=FAILED if error.errno in (errno.ENOSPC, errno.EDQUOT) else USAGE,
            ) from error
        nodes = {
            node_id: NodeProcess(node_id, "", "", str(directory / f"broker-{node_id}"))
            for node_id in range(1, brokers + 1)
        }
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        cluster = cls(directory, cluster_id, nodes, dict(settings or {}), temporary, secure)
        cluster.fixed_ports = fixed_ports
        if secure:
            make_secrets(directory, nodes)
        cluster._place_listeners()
        cluster.place_metrics()
        cluster.save()
        return cluster

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether a cluster was laid out there."""
        return (directory / STATE_FILE).exists()

    @classmethod
    def load(cls, directory: Path) -> LocalCluster:
        """Find a cluster again. Raises `ClusterError`."""
        path = directory.absolute() / STATE_FILE
        try:
            state = json.loads(path.read_text())
            nodes = {int(node["node_id"]): NodeProcess(**node) for node in state["nodes"]}
            temporary = bool(state.get("temporary", False))
            secure = bool(state.get("secure", False))
            cluster = cls(directory.absolute(), state["cluster_id"], nodes, state["settings"], temporary, secure)
            cluster._move_in()
            return cluster
        except (FileNotFoundError, NotADirectoryError):
            raise ClusterError(f"there is no cluster in {directory}", hint=f"`{_up(directory)}` starts one") from None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ClusterError(f"{path} cannot be read ({error})", hint="was it edited? A copy may help") from error

    def _move_in(self) -> None:
        """Use the logs of this directory, also when it was copied or moved since: the file names those of then.

        The processes that a copy speaks of are those of the original.
        """
        for node in self.nodes.values():
            before = Path(node.log_directory)
            if before.parent == self.directory:
                continue
            node.log_directory = str(self.directory / before.name)
            self.moved = True
            if self.exists(before.parent) and not before.parent.samefile(self.directory):
                node.pid, node.started = 0, ""
                self.temporary = False

    def refresh(self) -> None:
        """See what other processes (`odradek chaos restart`) wrote since. Raises `ClusterError`."""
        self.nodes = type(self).load(self.directory).nodes

    def renew_ports(self) -> list[str]:
        """Give a cluster other ports if somebody took one of its own, or it was moved; returns what was taken.

        Only while no node runs: every node must be told the controllers' addresses when it starts.
        """
        taken = [
            address
            for node in self.nodes.values()
            for address in (node.grpc, node.kafka, node.replication, node.controller, node.metrics)
            if address and not is_free(address)
        ]
        asked = _asked_for(len(self.nodes)) if self.fixed_ports else 0
        others = asked and self.kafka_bootstrap.partition(",")[0] != f"{HOST}:{asked}"
        if taken or self.moved or others:
            assert not any(self.running(node_id) for node_id in self.nodes), taken
            self._place_listeners()
            for node in self.nodes.values():
                node.metrics = ""
            self.place_metrics()
            self.save()
        return taken

    def _place_listeners(self) -> None:
        """Give each node an address for each of its listeners."""
        count = len(self.nodes)
        asked = _asked_for(count) if self.fixed_ports else 0
        self._claim = claim_row(count, self._kept()) if asked != 0 else None
        if self._claim is not None:
            addresses = self._claim.addresses
        else:
            ports = [f"{HOST}:{port}" for port in self._claimed(4 * count)]
            addresses = {name: ports[at::4] for at, name in enumerate(("grpc", "replication", "controller", "kafka"))}
        if asked:
            try:
                addresses |= {"kafka": kafka_row(asked, count)}
            except PortError as error:
                raise ClusterError(str(error), hint=error.hint) from None
        for listener, given in addresses.items():
            for node, address in zip(self.nodes.values(), given, strict=True):
                setattr(node, listener, address)

    def _kept(self) -> set[str]:
        """Addresses of other clusters with topics that `cluster up` remembers: they shall have them again."""
        kept: set[str] = set()
        for directory in cluster_directories():
            with contextlib.suppress(ClusterError, OSError):
                other = LocalCluster.load(directory)
                if directory != self.directory and other.topics():
                    kept.update(*((node.grpc, node.kafka) for node in other.nodes.values()))
        return kept

    def place_metrics(self) -> None:
        """Give each node an address of its own when `odradek.metrics.listener` leaves the port to us."""
        wanted = self.settings.get(METRICS_SETTING, "")
        if not wanted.endswith(":0"):
            for node in self.nodes.values():
                node.metrics = wanted.rpartition("//")[2]
            return
        host = wanted.rpartition("//")[2].rpartition(":")[0]
        unplaced = [node for node in self.nodes.values() if node.metrics.rpartition(":")[0] != host]
        for node, port in zip(unplaced, self._claimed(len(unplaced)), strict=True):
            node.metrics = f"{host}:{port}"

    def _claimed(self, count: int) -> list[int]:
        """Free ports that are ours until the cluster is removed, or nobody has this object any more: till then a node
        that is stopped may be started again on its own."""
        ports = free_ports(count)
        self._releases.append(weakref.finalize(self, release_ports, ports))
        return ports

    def save(self) -> None:
        state = {
            "cluster_id": self.cluster_id,
            "settings": self.settings,
            "temporary": self.temporary,
            "secure": self.secure,
            "nodes": [asdict(node) for node in self.nodes.values()],
        }
        temporary = self.directory / f"{STATE_FILE}.{os.getpid()}"
        temporary.write_text(json.dumps(state, indent=2) + "\n")
        temporary.replace(self.directory / STATE_FILE)

    @property
    def bootstrap(self) -> str:
        """Addresses for clients, comma-separated."""
        return ",".join(node.grpc for node in self.nodes.values())

    @property
    def kafka_bootstrap(self) -> str:
        """The same for Kafka's clients, as `bootstrap.servers`."""
        return ",".join(node.kafka for node in self.nodes.values())

    def remove(self) -> None:
        """Remove what this cluster has written; the directory goes as well when nothing else is in it."""
        for node in self.nodes.values():
            shutil.rmtree(node.log_directory, ignore_errors=True)
            self.log_file(node.node_id).unlink(missing_ok=True)
        (self.directory / STATE_FILE).unlink(missing_ok=True)
        if self.secure:
            remove_secrets(self.directory)
        with contextlib.suppress(OSError):  # somebody else's files are in it
            self.directory.rmdir()
        for release in self._releases:
            release()

    def topics(self) -> list[str]:
        """Those of which a log directory has something, but for internal ones."""
        names = {
            entry.name.rpartition("-")[0]
            for node in self.nodes.values()
            for entry in Path(node.log_directory).glob("*-*")
            if entry.name.rpartition("-")[2].isdecimal() and entry.is_dir()
        }
        return sorted(name for name in names if not name.startswith("__"))

    def replicas(self) -> dict[str, Path]:
        """Broker ids and their log directories, as the audit wants them."""
        return {str(node.node_id): Path(node.log_directory) for node in self.nodes.values()}

    # --- Processes --------------------------------------------------------------------------------------------------

    def start(self, node_id: int, extra: Mapping[str, str] | None = None) -> NodeProcess:
        """Start one node's process, unless it runs."""
        node = self._node(node_id)
        if self.running(node_id):
            return node
        Path(node.log_directory).mkdir(parents=True, exist_ok=True)
        slow.remove(Path(node.log_directory))
        command = [
            sys.executable,
            "-m",
            "odradek_broker",
            *(["--while-stdin-is-open"] if self.ends_with_parent else []),
        ]
        metrics = {METRICS_SETTING: f"HTTP://{node.metrics}"} if node.metrics else {}
        security = secure_settings(self.directory, node_id) if self.secure else {}
        for key, value in {**self._settings_of(node), **security, **self.settings, **metrics, **(extra or {})}.items():
            command += ["-X", f"{key}={value}"]
        with open(self.log_file(node_id), "ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if self.ends_with_parent else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    "MALLOC_ARENA_MAX": MALLOC_ARENAS,
                    **os.environ,
                    **(secret_environment(self.directory) if self.secure else {}),
                },
            )
        self._children[node_id] = child
        node.pid, node.started = child.pid, start_time(child.pid)
        self.save()
        return node

    def start_all(self) -> None:
        for node_id in self.nodes:
            self.start(node_id)

    def _settings_of(self, node: NodeProcess) -> dict[str, str]:
        voters = ",".join(f"{other.node_id}@{other.controller}" for other in self.nodes.values())
        return {
            "node.id": str(node.node_id),
            "cluster.id": self.cluster_id,
            "listeners": f"GRPC://{node.grpc},KAFKA://{node.kafka},"
            f"REPLICATION://{node.replication},CONTROLLER://{node.controller}",
            "controller.quorum.voters": voters,
            "log.dirs": node.log_directory,
            "odradek.log.file": str(self.log_file(node.node_id)),
            "default.replication.factor": str(min(3, len(self.nodes))),
            "min.insync.replicas": "2" if len(self.nodes) >= 3 else "1",
            "group.initial.rebalance.delay.ms": REBALANCE_DELAY_MS,
        }

    def log_file(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}.log"

    def last_lines(self, node_id: int, count: int = 15) -> list[str]:
        """The end of what a node said."""
        try:
            with open(self.log_file(node_id), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return file.read().decode(errors="replace").splitlines()[-count:]
        except FileNotFoundError:
            return []

    def running(self, node_id: int) -> bool:
        """Whether the recorded process still lives; a frozen one does."""
        node = self._node(node_id)
        child = self._children.get(node_id)
        if child is not None:
            gone = child.poll() is not None  # also takes note of its end, so that no zombie stays
            if child.pid == node.pid:
                return not gone
        return bool(node.pid) and start_time(node.pid) == node.started != ""

    def paused(self, node_id: int) -> bool:
        """Whether the process is frozen by SIGSTOP."""
        return self.running(node_id) and process_state(self._node(node_id).pid) == "T"

    def exit_status(self, node_id: int) -> int | None:
        """How a process that this object started ended: its exit code, or minus the signal; None when unknown."""
        child = self._children.get(node_id)
        return child.poll() if child is not None and child.pid == self._node(node_id).pid else None

    @property
    def _quoted(self) -> str:
        """Its directory, as a shell takes it: what leaves it out acts on the cluster that was started last."""
        return shlex.quote(str(self.directory))

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Send a signal to a node's process. Raises `ClusterError` when it does not run."""
        if not self.running(node_id):
            hint = f"`odradek chaos restart --data {self._quoted} --broker {node_id}` starts it"
            raise ClusterError(f"broker {node_id} does not run", hint=hint)
        os.kill(self._node(node_id).pid, number)

    def kill(self, node_id: int) -> None:
        """kill -9, and wait until the process is gone."""
        self.signal(node_id, signal.SIGKILL)
        self._wait_gone(node_id, 10)

    def pause(self, node_id: int) -> None:
        self.signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.signal(node_id, signal.SIGCONT)

    def slow(self, node_id: int, delay_ms: int, for_ms: int) -> None:
        """Have a node fetch late from leaders for a while; 0 and 0: not any more. Raises `ClusterError`."""
        if self.paused(node_id):  # what tells it would thaw it
            hint = f"`odradek chaos resume --data {self._quoted} --broker {node_id}` thaws it"
            raise ClusterError(f"broker {node_id} is frozen", hint=hint)
        place = Path(self._node(node_id).log_directory)
        slow.remove(place) if not delay_ms else slow.write(place, delay_ms, for_ms)
        self.signal(node_id, signal.SIGCONT)

    def slowed(self, node_id: int) -> bool:
        """Whether a node that runs has been told to fetch late, and its time is not over."""
        with contextlib.suppress(OSError, ValueError):
            return self.running(node_id) and slow.read(Path(self._node(node_id).log_directory)) != slow.NOTHING
        return False

    def stop(self, node_id: int, timeout_s: float = 30) -> bool:
        """Controlled shutdown; kill -9 after the timeout. Returns whether it stopped cleanly."""
        if not self._ask_to_stop(node_id):
            return True
        if self._wait_gone(node_id, timeout_s):
            return True
        self.kill(node_id)
        return False

    def stop_all(self, timeout_s: float = 30, spared: Collection[int] = ()) -> list[int]:
        """Stop all nodes but some at the same time; returns those that had to be killed after the timeout.

        On a busy machine a node needs more than the ten seconds in which it hands its leaderships over.

        A quorum that loses its majority cannot hand anything over any more: hence all at once.
        """
        live = [node_id for node_id in self.nodes if node_id not in spared and self._ask_to_stop(node_id)]
        deadline = time.monotonic() + timeout_s
        killed = []
        for node_id in live:
            if not self._wait_gone(node_id, max(0.1, deadline - time.monotonic())):
                killed.append(node_id)
                self.kill(node_id)
        return killed

    def kill_all(self) -> None:
        """kill -9 of whatever runs."""
        for node_id in self.nodes:
            if self.running(node_id):
                self.kill(node_id)

    def _ask_to_stop(self, node_id: int) -> bool:
        """SIGTERM, and SIGCONT so that a frozen process hears it. Returns whether there was somebody to ask."""
        if not self.running(node_id):
            return False
        try:
            os.kill(self._node(node_id).pid, signal.SIGTERM)
            os.kill(self._node(node_id).pid, signal.SIGCONT)
        except ProcessLookupError:
            return False
        return True

    def _wait_gone(self, node_id: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        child = self._children.get(node_id)
        if child is not None and child.pid == self._node(node_id).pid:
            try:
                child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return False
            return True
        while self.running(node_id):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _node(self, node_id: int) -> NodeProcess:
        try:
            return self.nodes[node_id]
        except KeyError:
            raise NoSuchBroker(node_id, self.nodes) from None


def _asked_for(nodes: int) -> int | None:
    """As `ports.asked_for`. Raises `ClusterError`."""
    try:
        return asked_for(nodes)
    except PortError as error:
        raise ClusterError(str(error), hint=error.hint, exit_code=USAGE) from None


# --- A local cluster with everything on ------------------------------------------------------------------------------
# TLS on every listener, SASL for clients, and ACLs.
# Its directory holds `certificates` and `client.properties`, with the password of the one user that there is, `admin`,
# who may do everything: for their owner alone. The password goes to the brokers by their environment, which others do
# not see, unlike command lines.


CERTIFICATES: Final = "certificates"
ADMIN: Final = "admin"
PASSWORD: Final = "sasl.password="


def make_secrets(directory: Path, node_ids: Iterable[int]) -> None:
    """Certificates and a password. Raises `CommandFailed` when the package for certificates is missing."""
    for node_id in node_ids:
        make_node(directory / CERTIFICATES, node_id)
    lines = [
        "security.protocol=SASL_SSL",
        f"ssl.truststore.location={CERTIFICATES}/{AUTHORITY}",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.username={ADMIN}",
        f"{PASSWORD}{secrets.token_urlsafe(18)}",
    ]
    path = directory / CLIENT_SETTINGS
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("\n".join(lines) + "\n")


def remove_secrets(directory: Path) -> None:
    shutil.rmtree(directory / CERTIFICATES, ignore_errors=True)
    (directory / CLIENT_SETTINGS).unlink(missing_ok=True)


def secure_settings(directory: Path, node_id: int) -> dict[str, str]:
    certificates = directory / CERTIFICATES
    return {
        "listener.security.protocol.map": "GRPC:GRPC_SASL_SSL,KAFKA:SASL_SSL,REPLICATION:GRPC_SSL,CONTROLLER:GRPC_SSL",
        "ssl.keystore.location": str(make_node(certificates, node_id)),
        "ssl.truststore.location": str(certificates / AUTHORITY),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
    }


def secret_environment(directory: Path) -> dict[str, str]:
    lines = (directory / CLIENT_SETTINGS).read_text().splitlines()
    password = next(line.removeprefix(PASSWORD) for line in lines if line.startswith(PASSWORD))
    return {"ODRADEK_CREATE_USERS": f"{ADMIN}={password}"}
