"""A consumer group with its topics, its log and its clients, for tests: everything but the wire.

`Consumer` does what Kafka's Java client does: it sends what has changed, all of it after an error or a lost answer,
gives partitions up before it takes others, and abandons everything when it is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from odradek_broker.core.groups.consumer import ConsumerGroup
from odradek_broker.core.groups.consumer_records import decode
from odradek_broker.core.groups.messages import (
    Assignment,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    CoordinatorRecord,
    GroupSettings,
)
from odradek_broker.core.groups.reconciliation import minus
from odradek_proto.errors import ErrorCode

REBALANCE_TIMEOUT_MS = 60_000
WALL_MS = 1_700_000_000_000  # what the clock on the wall shows when the monotonic one shows 0


def topic_id(name: str, incarnation: int = 0) -> bytes:
    return f"{name}/{incarnation}".encode().ljust(16, b"\0")[:16]


class Topics:
    """A MetadataView that can be changed."""

    def __init__(self, **partitions: int) -> None:
        self.counts = dict(partitions)
        self.incarnations = dict.fromkeys(partitions, 0)
        self.of_groups: dict[str, dict[str, str]] = {}

    def topic_id(self, name: str) -> bytes | None:
        return topic_id(name, self.incarnations[name]) if name in self.counts else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name in self.counts if self.topic_id(name) == topic_id), None)

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def topic_names(self) -> Iterable[str]:
        return self.counts

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        return self.of_groups.get(group_id, {})

    def create(self, name: str, partitions: int) -> None:
        self.counts[name] = partitions
        self.incarnations[name] = self.incarnations.get(name, -1) + 1


class World:
    """One group; `log` is its partition of __consumer_offsets."""

    def __init__(self, settings: GroupSettings | None = None, **partitions: int) -> None:
        self.settings = settings or GroupSettings()
        self.topics = Topics(**partitions)
        self.now_ms = 0
        self.log: list[CoordinatorRecord] = []
        self.ids = 0
        self.group = self.new_group()

    def new_group(self) -> ConsumerGroup:
        return ConsumerGroup("g", self.settings, self.topics, self._new_id)

    def _new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"

    def replayed(self, log: Iterable[CoordinatorRecord]) -> ConsumerGroup:
        group = self.new_group()
        for key, value in log:
            group.replay(decode(key, value))
        return group

    def compacted(self) -> list[CoordinatorRecord]:
        """The log with the last record of each key, in the order of the last ones."""
        last = {key: position for position, (key, _) in enumerate(self.log)}
        return [self.log[position] for position in sorted(last.values())]

    def fail_over(self, log: Iterable[CoordinatorRecord]) -> None:
        self.group = self.replayed(log)
        self.group.on_loaded(self.now_ms)

    def topics_changed(self) -> None:
        self.group.on_topics_changed()

    def pass_time(self, ms: int) -> None:
        """Every deadline on the way is met."""
        end = self.now_ms + ms
        while (deadline := self.group.next_deadline_ms()) is not None and deadline <= end:
            self.now_ms = max(self.now_ms, deadline)
            self.log += self.group.on_time(self.now_ms)
            assert self.group.next_deadline_ms() != deadline, "a time that came is over"
        self.now_ms = end

    def heartbeat(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatAnswer:
        records, answer = self.group.heartbeat(request, self.now_ms, WALL_MS + self.now_ms)
        self.log += records
        return answer


class Coordinator(Protocol):
    """Of the one group that a consumer is in."""

    def heartbeat(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatAnswer: ...


class Consumer:
    def __init__(
        self,
        world: Coordinator,
        member_id: str,
        *topics: str,
        instance_id: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.regex = regex
        self.assignor = assignor
        self.abandon()

    def abandon(self) -> None:
        """Forgets everything, to join anew."""
        self.epoch = 0
        self.owned: Assignment = {}
        self.assigned: Assignment = {}
        self.said: Assignment | None = None  # what the coordinator was told to be owned; None: say everything
        self.resubscribed = False

    def subscribe(self, *topics: str) -> None:
        self.topics = topics
        self.resubscribed = True

    def request(self) -> ConsumerGroupHeartbeat:
        full = self.said is None
        owned = self.owned if full or self.said != self.owned else None
        return ConsumerGroupHeartbeat(
            "g",
            self.member_id,
            self.epoch,
            group_instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if full else -1,
            subscribed_topic_names=self.topics if full or self.resubscribed else None,
            subscribed_topic_regex=self.regex if full else None,
            server_assignor=self.assignor if full else None,
            owned=owned,
            client_id="client",
            client_host="/127.0.0.1",
        )

    def send(self) -> ConsumerGroupHeartbeatAnswer:
        """The heartbeat reaches the coordinator; whether its answer comes back is another question."""
        return self.world.heartbeat(self.request())

    def on_lost(self) -> None:
        self.said = None

    def on_answer(self, answer: ConsumerGroupHeartbeatAnswer) -> None:
        if answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.abandon()
        elif answer.error is not ErrorCode.NONE:
            self.on_lost()
        else:
            self.said = self.owned
            self.resubscribed = False
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = answer.assignment

    def reconcile(self) -> None:
        """One move: gives up what is not assigned any more, and only then takes what is."""
        surplus = minus(self.owned, self.assigned)
        self.owned = minus(self.owned, surplus) if surplus else self.assigned

    def beat(self) -> ConsumerGroupHeartbeatAnswer:
        answer = self.send()
        self.on_answer(answer)
        return answer

    def settle(self) -> None:
        """Heartbeats until nothing moves for this member."""
        for _ in range(6):
            self.beat()
            self.reconcile()

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatAnswer:
        answer = self.world.heartbeat(
            ConsumerGroupHeartbeat("g", self.member_id, epoch, group_instance_id=self.instance_id)
        )
        self.abandon()
        return answer


def settle(*consumers: Consumer) -> None:
    """Everybody heartbeats in turn until the group is at rest."""
    for _ in range(6):
        for consumer in consumers:
            consumer.beat()
            consumer.reconcile()
