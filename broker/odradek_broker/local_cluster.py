"""A cluster of real broker processes on this machine: start, find again, kill, freeze, stop.

`odradek cluster up`, the demo, the chaos tool and the tests all use this. A cluster is described by `cluster.json` in
its directory: which nodes, which addresses, which processes. A process is only ever signalled after its start time
has been compared with the recorded one, so that a pid that was given to somebody else is left alone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

STATE_FILE = "cluster.json"
HOST = "127.0.0.1"


class ClusterError(Exception):
    """The cluster cannot be started, found or changed; the message says why and what to do."""


@dataclass(slots=True)
class NodeProcess:
    """One node as it was last started."""

    node_id: int
    grpc: str
    controller: str
    log_directory: str
    pid: int = 0
    started: str = ""  # the kernel's start time of the process, to tell it from a later one with the same pid


@dataclass(slots=True)
class LocalCluster:
    """Nodes in one directory. Every change is written to `cluster.json` at once."""

    directory: Path
    cluster_id: str
    nodes: dict[int, NodeProcess]
    settings: dict[str, str] = field(default_factory=dict)
    _children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    # --- Making and finding -----------------------------------------------------------------------------------------

    @classmethod
    def create(cls, directory: Path, *, brokers: int = 3, settings: Mapping[str, str] | None = None) -> LocalCluster:
        """Lay out a new cluster on free ports; starts nothing. Raises `ClusterError` when one is there already."""
        directory = directory.absolute()
        if (directory / STATE_FILE).exists():
            raise ClusterError(
                f"{directory} already holds a cluster: `odradek cluster up --data {directory}` starts it"
            )
        directory.mkdir(parents=True, exist_ok=True)
        ports = free_ports(2 * brokers)
        nodes = {
            node_id: NodeProcess(
                node_id,
                f"{HOST}:{ports[2 * index]}",
                f"{HOST}:{ports[2 * index + 1]}",
                str(directory / f"broker-{node_id}"),
            )
            for index, node_id in enumerate(range(1, brokers + 1))
        }
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        cluster = cls(directory, cluster_id, nodes, dict(settings or {}))
        cluster.save()
        return cluster

    @classmethod
    def load(cls, directory: Path) -> LocalCluster:
        """Find a cluster again. Raises `ClusterError`."""
        path = directory.absolute() / STATE_FILE
        try:
            state = json.loads(path.read_text())
            nodes = {int(node["node_id"]): NodeProcess(**node) for node in state["nodes"]}
            return cls(directory.absolute(), state["cluster_id"], nodes, state["settings"])
        except FileNotFoundError:
            raise ClusterError(
                f"no cluster in {directory}: start one with `odradek cluster up --data {directory}`"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"{path} cannot be read ({error}); was it edited?") from error

    def save(self) -> None:
        state = {
            "cluster_id": self.cluster_id,
            "settings": self.settings,
            "nodes": [asdict(node) for node in self.nodes.values()],
        }
        temporary = self.directory / (STATE_FILE + ".tmp")
        temporary.write_text(json.dumps(state, indent=2) + "\n")
        temporary.replace(self.directory / STATE_FILE)

    @property
    def bootstrap(self) -> str:
        """Addresses for clients, comma-separated."""
        return ",".join(node.grpc for node in self.nodes.values())

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
        command = [sys.executable, "-m", "odradek_broker"]
        for key, value in {**self._settings_of(node), **self.settings, **(extra or {})}.items():
            command += ["-X", f"{key}={value}"]
        with open(self.log_file(node_id), "ab") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._children[node_id] = child
        node.pid, node.started = child.pid, _start_time(child.pid)
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
            "listeners": f"GRPC://{node.grpc},CONTROLLER://{node.controller}",
            "controller.quorum.voters": voters,
            "log.dirs": node.log_directory,
            "default.replication.factor": str(min(3, len(self.nodes))),
            "min.insync.replicas": "2" if len(self.nodes) >= 3 else "1",
        }

    def log_file(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}.log"

    def running(self, node_id: int) -> bool:
        """Whether the recorded process still lives."""
        node = self._node(node_id)
        child = self._children.get(node_id)
        if child is not None and child.pid == node.pid:
            return child.poll() is None
        return bool(node.pid) and _start_time(node.pid) == node.started != ""

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Send a signal to a node's process. Raises `ClusterError` when it does not run."""
        if not self.running(node_id):
            raise ClusterError(f"broker {node_id} does not run")
        os.kill(self._node(node_id).pid, number)

    def kill(self, node_id: int) -> None:
        """kill -9, and wait until the process is gone."""
        self.signal(node_id, signal.SIGKILL)
        self._wait_gone(node_id, 10)

    def pause(self, node_id: int) -> None:
        self.signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.signal(node_id, signal.SIGCONT)

    def stop(self, node_id: int, timeout_s: float = 30) -> bool:
        """Controlled shutdown; kill -9 after the timeout. Returns whether it went in peace."""
        if not self.running(node_id):
            return True
        os.kill(self._node(node_id).pid, signal.SIGCONT)
        os.kill(self._node(node_id).pid, signal.SIGTERM)
        if self._wait_gone(node_id, timeout_s):
            return True
        self.kill(node_id)
        return False

    def stop_all(self, timeout_s: float = 15) -> None:
        """Stop all nodes at the same time; a quorum that loses its majority cannot hand anything over any more."""
        live = [node_id for node_id in self.nodes if self.running(node_id)]
        for node_id in live:
            os.kill(self._node(node_id).pid, signal.SIGCONT)
            os.kill(self._node(node_id).pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        for node_id in live:
            if not self._wait_gone(node_id, max(0.1, deadline - time.monotonic())):
                self.kill(node_id)

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
            known = ", ".join(map(str, self.nodes))
            raise ClusterError(f"there is no broker {node_id}; there are {known}") from None


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind((HOST, 0))
        return [int(item.getsockname()[1]) for item in sockets]
    finally:
        for item in sockets:
            item.close()


def _start_time(pid: int) -> str:
    """When the kernel started a process, as text that no later process with this pid has; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rsplit(b")", 1)[1].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        return _start_time_by_ps(pid)


def _start_time_by_ps(pid: int) -> str:
    if sys.platform.startswith("linux"):
        return ""
    result = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return result.stdout.strip()
