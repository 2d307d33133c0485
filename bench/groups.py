"""What a large consumer group of KIP-848 costs its coordinator: 1,000 members, 1,000 partitions, in the core alone.

    python -m bench --only groups [--quick] [--json]

- *join*: one more member, from its heartbeat to the records of the new target and its own assignment; all other
  members follow at their own heartbeats. The assignor's pass alone stands beside it, by subscription.
- *heartbeat*: one with nothing new, which is what members send every five seconds.
- *load*: the records of the whole group, compacted, decoded and replayed by a new coordinator.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping

from odradek_broker.core.groups.assignors import ASSIGNORS, AssignedMember
from odradek_broker.core.groups.consumer import ConsumerGroup
from odradek_broker.core.groups.consumer_records import decode
from odradek_broker.core.groups.messages import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    CoordinatorRecord,
    GroupSettings,
)

from bench.report import Figure

MEMBERS = 1_000
TOPICS, PARTITIONS = 10, 100
NAMES = tuple(f"topic-{number}" for number in range(TOPICS))
IDS = {name: name.encode().ljust(16, b"\0") for name in NAMES}


class Topics:
    """A MetadataView that does not change."""

    def topic_id(self, name: str) -> bytes | None:
        return IDS.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        return topic_id.rstrip(b"\0").decode()

    def partition_count(self, name: str) -> int | None:
        return PARTITIONS if name in IDS else None

    def topic_names(self) -> Iterable[str]:
        return NAMES

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        return {}


class Members:
    """Members that take and give up at once whatever they are told, and the records that their group writes."""

    def __init__(self) -> None:
        self.group = new_group()
        self.records: dict[bytes, bytes | None] = {}  # compacted
        self._told: dict[str, ConsumerGroupHeartbeatAnswer] = {}

    def join(self, member_id: str) -> None:
        self._send(
            ConsumerGroupHeartbeat(
                "group", member_id, JOIN_EPOCH, rebalance_timeout_ms=300_000, subscribed_topic_names=NAMES, owned={}
            )
        )

    def beat(self, member_id: str) -> None:
        told = self._told[member_id]
        self._send(ConsumerGroupHeartbeat("group", member_id, told.member_epoch, owned=told.assignment))

    def _send(self, request: ConsumerGroupHeartbeat) -> None:
        written, answer = self.group.heartbeat(request, 0, 0)
        assert not answer.error, answer
        self._told[request.member_id] = answer
        self.records.update(written)


def new_group() -> ConsumerGroup:
    return ConsumerGroup("group", GroupSettings(), Topics(), lambda: "")


def figures(quick: bool) -> list[Figure]:
    members = Members()
    names = [f"member-{number:04}" for number in range(MEMBERS)]
    for name in names:
        members.join(name)
    while members.group.state != "Stable":
        for name in names:
            members.beat(name)
    rounds = 5 if quick else 20
    idle = [seconds(members.beat, name) for name in names]
    joins = [seconds(members.join, f"late-{number}") for number in range(rounds)]
    loads = [seconds(load, members.records.items()) for _ in range(3)]
    return [
        Figure("groups", f"join of {MEMBERS:,} members, {TOPICS * PARTITIONS:,} partitions", ms(joins), "ms"),
        *(
            Figure("groups", f"{name}, {what}", ms([seconds(assign, name, alike) for _ in range(rounds)]), "ms")
            for name in ASSIGNORS
            for what, alike in (("all subscribe to the same", True), ("two kinds of members", False))
        ),
        Figure("groups", "heartbeat with nothing new", ms(idle) * 1e3, "us"),
        Figure("groups", "load of its compacted records", ms(loads), "ms"),
    ]


def assign(assignor: str, alike: bool) -> None:
    """From nothing: the longest pass that there is."""
    every, some = frozenset(IDS.values()), frozenset(list(IDS.values())[: TOPICS // 2])
    members = {f"m{number:04}": AssignedMember(every if alike or number % 2 else some) for number in range(MEMBERS)}
    ASSIGNORS[assignor](members, dict.fromkeys(IDS.values(), PARTITIONS))


def load(records: Iterable[CoordinatorRecord]) -> None:
    group = new_group()
    for key, value in records:
        group.replay(decode(key, value))
    group.on_loaded(0)


def seconds(work: Callable[..., None], *arguments: object) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def ms(times: list[float]) -> float:
    return statistics.median(times) * 1e3
