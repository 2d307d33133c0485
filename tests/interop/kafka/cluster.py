"""Three nodes of Apache Kafka on this machine: KRaft, each of them broker and controller, on loopback.

Each node is a java process of its own, a small one unless told otherwise. Nodes are known by their processes, and only
those that were started here are ever signalled.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from odradek_broker.local import processes

from tests.interop.kafka.java import SMALL, cached, digest, java_command, run_program

HOST = "127.0.0.1"
CLUSTER_ID = "b2RyYWRlay1pbnRlcm9wLQ"
START_TIMEOUT_S = 600  # of Java on a core with much else; a node that died is noticed at once
STOP_TIMEOUT_S = 600
POLL_S = 0.05


@dataclass
class KafkaCluster:
    """Nodes 1 to 3 below one directory; `settings` are added to each node's server.properties."""

    classpath: str
    root: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 3
    flags: Sequence[str] = SMALL  # of each node's JVM
    _ports: dict[int, tuple[int, int]] = field(default_factory=dict)
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> list[str]:
        return list(self.kafka_addresses.values())

    @property
    def kafka_addresses(self) -> dict[int, str]:
        """Node ids and where each listens for clients."""
        return {node: f"{HOST}:{port}" for node, (port, _) in self._ports.items()}

    def pids(self) -> list[int]:
        """Of the nodes that were started."""
        return [process.pid for process in self._processes.values()]

    def directory(self, node: int) -> Path:
        """A node's log directory."""
        return self.root / f"broker-{node}"

    def format(self) -> None:
        """Write settings and format the log directories, as `kafka-storage format` does."""
        self.root.mkdir(parents=True, exist_ok=True)
        ports = processes.free_ports(2 * self.nodes)
        self._ports = {node: (ports[2 * node - 2], ports[2 * node - 1]) for node in range(1, self.nodes + 1)}
        for node in self._ports:
            self._format(node)

    def _format(self, node: int) -> None:
        self._properties(node).write_text("".join(f"{name}={value}\n" for name, value in self._all_of(node)))
        arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", str(self._properties(node))]
        run_program(self.classpath, "kafka.tools.StorageTool", arguments)

    def _properties(self, node: int) -> Path:
        return self.root / f"server-{node}.properties"

    def _all_of(self, node: int) -> list[tuple[str, str]]:
        broker, controller = self._ports[node]
        voters = ",".join(f"{each}@{HOST}:{ports[1]}" for each, ports in self._ports.items())
        fixed = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory(node)),
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "controlled.shutdown.enable": "false",  # the last node would wait for a quorum that is gone
            "num.network.threads": "2",
            "num.io.threads": "2",
            "log.cleaner.enable": "false",
            "auto.create.topics.enable": "false",
        }
        return list({**fixed, **self.settings}.items())

    def start(self, *nodes: int) -> None:
        """Start these nodes, by default all that do not run, and wait until they listen. Raises `AssertionError`."""
        wanted = nodes or tuple(node for node in self._ports if node not in self._processes)
        for node in wanted:
            command = java_command(
                self.classpath, "kafka.Kafka", [str(self._properties(node))], log_level="info", flags=self.flags
            )
            with open(self.root / f"broker-{node}.out", "ab") as output:
                self._processes[node] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        for node in wanted:
            self._await_listening(node)

    def _await_listening(self, node: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex((HOST, self._ports[node][0])) == 0:
                    return
            try:
                code = self._processes[node].wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"node {node} ended with {code}:\n{self.said(node)[-3000:]}")
        raise AssertionError(f"node {node} does not listen after {START_TIMEOUT_S} s:\n{self.said(node)[-3000:]}")

    def said(self, node: int) -> str:
        """A node's output since its first start."""
        return (self.root / f"broker-{node}.out").read_text(errors="replace")

    def kill(self, node: int) -> None:
        """kill -9."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Clean shutdown of all nodes; whoever does not end in time is killed."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for node in list(self._processes):
            try:
                self._processes[node].wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill(node)
        self._processes.clear()


def loaded_classes(classpath: str) -> tuple[str, ...]:
    """Flags with which a node's JVM finds its classes loaded and checked: it starts for half of the processor time.

    A first node that starts and stops writes them down, for this Java and these files.
    """
    java = Path(shutil.which("java") or "java").resolve()
    archive = cached(f"kafka-classes-{digest(f'{java} {java.stat().st_mtime_ns} {classpath}')}.jsa")
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
            fresh = Path(directory) / "fresh.jsa"
            flags = (*SMALL, f"-XX:ArchiveClassesAtExit={fresh}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
            first = KafkaCluster(classpath, Path(directory) / "cluster", nodes=1, flags=flags)
            first.format()
            first.start()
            first.stop()
            fresh.replace(archive)
    return (f"-XX:SharedArchiveFile={archive}",)
