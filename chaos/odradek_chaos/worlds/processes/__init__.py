"""Brokers as processes of this machine, started by `odradek cluster up` (`LocalCluster`).

They share the machine's network, so none of them can be cut off: that is for containers. What is done to a broker is
written down in its log directory, `odradek-faults.jsonl`, one JSON object a line, for the audit's timeline: a
fault before it is injected, its end when it is healed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_proto.command_line import USAGE

from odradek_chaos.worlds.real import Place

FAULTS_FILE = "odradek-faults.jsonl"


class ProcessesWorld:
    """A `LocalCluster` as a world of real brokers."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    @property
    def nodes(self) -> Collection[int]:
        return self.cluster.nodes

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def place(self, node_id: int) -> Place:
        return {"pid": self.cluster.nodes[node_id].pid}

    def running(self, node_id: int) -> bool:
        return self.cluster.running(node_id)

    def exit_status(self, node_id: int) -> int | None:
        return self.cluster.exit_status(node_id)

    def last_lines(self, node_id: int, count: int = 15) -> list[str]:
        return self.cluster.last_lines(node_id, count)

    def log_file(self, node_id: int) -> Path:
        return self.cluster.log_file(node_id)

    def paused(self, node_id: int) -> bool:
        return self.cluster.paused(node_id)

    def is_cut(self, node_id: int) -> bool:
        return False

    def start(self, node_id: int) -> None:
        if not self.cluster.running(node_id):
            self.cluster.start(node_id)
            self._write_down(node_id, "start")

    def stop(self, node_id: int) -> bool:
        self._write_down(node_id, "stop")
        return self.cluster.stop(node_id)

    def kill(self, node_id: int) -> None:
        self._write_down(node_id, "kill")
        self.cluster.kill(node_id)

    def pause(self, node_id: int) -> None:
        self._write_down(node_id, "pause")
        self.cluster.pause(node_id)

    def resume(self, node_id: int) -> None:
        self.cluster.resume(node_id)
        self._write_down(node_id, "resume")

    def cut(self, node_id: int) -> None:
        _no_network_of_its_own(node_id)

    def heal(self, node_id: int) -> None:
        _no_network_of_its_own(node_id)

    def slow(self, node_id: int, delay_ms: int, for_ms: int) -> None:
        self.cluster.slow(node_id, delay_ms, for_ms)
        self._write_down(node_id, "slow" if delay_ms else "heal")

    def slowed(self, node_id: int) -> bool:
        return self.cluster.slowed(node_id)

    def _write_down(self, node_id: int, done: str) -> None:
        """A line in the broker's log directory; a full disk is no reason to leave the fault out."""
        line = {"event": "fault", "broker": node_id, "done": done, "wall_ms": time.time_ns() // 1_000_000}
        file = Path(self.cluster.nodes[node_id].log_directory) / FAULTS_FILE
        with contextlib.suppress(OSError), file.open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")


class CannotBeCut(ClusterError):
    """Asked of a world whose brokers have no network of their own."""

    exit_code = USAGE


def _no_network_of_its_own(node_id: int) -> NoReturn:
    raise CannotBeCut(
        f"broker {node_id} is a process and shares this machine's network: it cannot be cut off",
        hint="--world compose cuts containers off; `odradek chaos pause` makes a process silent",
    )
