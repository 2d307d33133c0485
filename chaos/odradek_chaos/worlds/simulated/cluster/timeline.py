"""What happened, in the order of virtual time: the brokers' own event files, the faults, the findings.

The brokers write their events for whoever investigates them (`odradek-events.jsonl`); a run reads them from the
simulated disks as they grow, so it sees exactly what an operator would.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY, SimCluster
from odradek_chaos.worlds.simulated.disk.inodes import Inode

EVENT_FILE = f"{LOG_DIRECTORY}/odradek-events.jsonl"
PROGRESS = "progress"
WORLD = 0  # the broker id of what concerns no single broker
HIDDEN_FACTS = ("event", "broker", "mono_ms", "wall_ms", "rule", "partition")


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One line of the timeline. `event` begins with `!` for a fault and with `?` for a finding."""

    time_us: int
    broker_id: int
    event: str
    partition: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        facts = " ".join(f"{name}={_brief(value)}" for name, value in self.facts.items())
        who = f"b{self.broker_id}" if self.broker_id else "--"
        return f"{self.time_us / 1e6:11.6f}  {who}  {self.partition:<8} {self.event:<22} {facts}".rstrip()


def _brief(value: object) -> str:
    if isinstance(value, list):
        return "[" + ",".join(map(_brief, value)) + "]"
    return str(value)


@dataclass(slots=True)
class EventTail:
    """How far a broker's event file was read."""

    inode: Inode
    read: int = 0


class Timeline:
    """Grows as the run goes on."""

    def __init__(self, cluster: SimCluster) -> None:
        self.moments: list[TimelineEvent] = []
        self.hidden: dict[int, None] = {}  # brokers that are on a disk of somebody else
        self._cluster = cluster
        self.tails: dict[int, EventTail] = {}
        self._incarnations: dict[int, int] = {}

    def close(self) -> None:
        """Nothing more happens: keep what was written down, and let go of the disks."""
        self.tails.clear()
        del self._cluster

    @property
    def now_us(self) -> int:
        return self._cluster.loop.now_us

    def note(self, event: str, broker_id: int = WORLD, partition: str = "", /, **facts: object) -> None:
        """Something that the world did, now."""
        self.moments.append(TimelineEvent(self.now_us, broker_id, event, partition, facts))

    def new_events_of(self, broker_id: int) -> list[TimelineEvent]:
        """The lines that a broker has written since the last call; they become part of the timeline."""
        machine, tail = self._cluster.machines[broker_id], self.tails.get(broker_id)
        if tail is None or machine.incarnation != self._incarnations.get(broker_id):
            if broker_id in self.hidden:
                return []
            found = machine.disk.find(EVENT_FILE)
            if not isinstance(found, Inode):
                return []
            if tail is None or found is not tail.inode:
                tail = self.tails[broker_id] = EventTail(found)  # the first file, or another one: the disk is new
            elif len(found.data) < tail.read:
                tail.read = len(found.data)  # a power loss took the end
            self._incarnations[broker_id] = machine.incarnation
        done, size = tail.read, len(tail.inode.data)
        if size == done:
            return []
        tail.read = size
        return list(self._parse(broker_id, bytes(tail.inode.data[done:size]))) if size > done else []

    def _parse(self, broker_id: int, text: bytes) -> Iterator[TimelineEvent]:
        for line in text.splitlines():
            try:
                facts = json.loads(line)
            except ValueError:
                continue  # torn by a power loss
            if not isinstance(facts, dict) or facts.get("broker") != broker_id or "event" not in facts:
                continue  # the rest of a line that a full disk cut
            if facts["event"] == PROGRESS:
                continue  # the world sees the offsets themselves, at every moment
            shown = {name: value for name, value in facts.items() if name not in HIDDEN_FACTS}
            time_us = (
                self.now_us // 1000 * 1000
            )  # it is read as soon as it is written; each machine has a clock of its own
            partition = str(facts.get("partition", ""))
            if "topic" in shown:
                partition = f"{shown.pop('topic')}-{partition}"
            moment = TimelineEvent(time_us, broker_id, facts["event"], partition, shown)
            self.moments.append(moment)
            yield moment

    def in_order(self) -> list[TimelineEvent]:
        return sorted(self.moments, key=lambda moment: moment.time_us)

    def around(self, time_us: int, before: int = 30, after: int = 5, partition: str = "") -> list[str]:
        """Lines near a moment; with a partition only those that concern it, and what concerns everybody."""
        near = [moment for moment in self.in_order() if not partition or moment.partition in ("", partition)]
        place = sum(1 for moment in near if moment.time_us <= time_us)
        return [moment.line() for moment in near[max(0, place - before) : place + after]]
