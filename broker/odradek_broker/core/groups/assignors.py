"""The server-side assignors `uniform` and `range` of KIP-848.

An assignor is a pure function of the members, with the topics each subscribes to and its current target, and of the
number of partitions of each topic. Every partition of a topic goes to exactly one subscriber.

`uniform` gives all members the same number of partitions, as far as subscriptions allow, and moves as few as possible.
`range` gives each member a range of every topic, the same one in all topics of equal size, and keeps nothing. Both
follow Kafka's assignors of these names; where Kafka's result depends on the order of a hash table, the order here is
that of the member ids, and members that have more keep more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from odradek_proto.values import Value, field

from odradek_broker.core.groups.messages import Assignment

MAX_ROUNDS = 16  # of balancing over all topics; Kafka's


class AssignedMember(Value, frozen=True):
    topic_ids: frozenset[bytes]  # that exist and are subscribed to
    instance_id: str | None = None
    assignment: Assignment = field(default_factory=dict)  # its target until now


Members: TypeAlias = Mapping[str, AssignedMember]
PartitionCounts: TypeAlias = Mapping[bytes, int]
Assignor: TypeAlias = Callable[[Members, PartitionCounts], dict[str, Assignment]]


def uniform(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    subscriptions = {member.topic_ids for member in members.values()}
    if len(subscriptions) <= 1:
        return _uniform_of_equals(members, partition_counts)
    return _Balancer(members, partition_counts).balanced()


def _uniform_of_equals(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """All subscribe to the same: a quota for each, and what is beyond it goes to those that have less."""
    kept = {member_id: _still_valid(member, partition_counts) for member_id, member in members.items()}
    topic_ids = sorted({topic_id for member in members.values() for topic_id in member.topic_ids})
    total = sum(partition_counts[topic_id] for topic_id in topic_ids)
    least, extra = divmod(total, len(members)) if members else (0, 0)
    order = sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id))
    quotas = {member_id: least + (rank < extra) for rank, member_id in enumerate(order)}
    chosen = {member_id: kept[member_id][: quotas[member_id]] for member_id in order}
    taken = {partition for partitions in chosen.values() for partition in partitions}
    free = (
        (topic_id, partition)
        for topic_id in topic_ids
        for partition in range(partition_counts[topic_id])
        if (topic_id, partition) not in taken
    )
    for member_id in sorted(chosen):
        while len(chosen[member_id]) < quotas[member_id]:
            chosen[member_id].append(next(free))
    return {member_id: _assignment(chosen[member_id]) for member_id in members}


def range_(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Static members come first, by instance id, so that their ranges stay when they come back with another id."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    order = sorted(members, key=rank)
    result: dict[str, dict[bytes, tuple[int, ...]]] = {member_id: {} for member_id in members}
    for topic_id, count in sorted(partition_counts.items()):
        subscribers = [member_id for member_id in order if topic_id in members[member_id].topic_ids]
        least, extra = divmod(count, len(subscribers)) if subscribers else (0, 0)
        start = 0
        for position, member_id in enumerate(subscribers):
            end = start + least + (position < extra)
            if start < end:
                result[member_id][topic_id] = tuple(range(start, end))
            start = end
    return {member_id: result[member_id] for member_id in members}


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}

_Partition: TypeAlias = tuple[bytes, int]


class _Balancer:
    """Members that subscribe to different topics. `_owner` and `_load` always tell the same."""

    def __init__(self, members: Members, partition_counts: PartitionCounts) -> None:
        self._members = sorted(members)
        self._counts = partition_counts
        self._owner: dict[_Partition, str] = {}
        self._load = dict.fromkeys(self._members, 0)
        self._subscribers: dict[bytes, list[str]] = {}
        for member_id in self._members:
            member = members[member_id]
            for partition in _still_valid(member, partition_counts):
                self._owner.setdefault(partition, member_id)
            for topic_id in sorted(member.topic_ids):
                self._subscribers.setdefault(topic_id, []).append(member_id)
        for member_id in self._owner.values():
            self._load[member_id] += 1

    def balanced(self) -> dict[str, Assignment]:
        # Topics with the most partitions for each subscriber first: the others even out what they leave.
        topics = sorted(self._subscribers, key=self._weight)
        for topic_id in topics:
            self._assign_the_rest(topic_id)
        for _ in range(MAX_ROUNDS):
            if not sum([self._balance(topic_id) for topic_id in topics]):
                break
        owned: dict[str, list[_Partition]] = {member_id: [] for member_id in self._members}
        for partition, member_id in self._owner.items():
            owned[member_id].append(partition)
        return {member_id: _assignment(partitions) for member_id, partitions in owned.items()}

    def _weight(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscribers, subscribers, topic_id

    def _assign_the_rest(self, topic_id: bytes) -> None:
        least = [(self._load[member_id], member_id) for member_id in self._subscribers[topic_id]]
        heapify(least)
        for partition in range(self._counts[topic_id]):
            if (topic_id, partition) not in self._owner:
                load, member_id = heappop(least)
                self._owner[topic_id, partition] = member_id
                self._load[member_id] = load + 1
                heappush(least, (load + 1, member_id))

    def _balance(self, topic_id: bytes) -> int:
        """Moves partitions of one topic from its busiest to its idlest subscriber; how many were moved."""
        subscribers = self._subscribers[topic_id]
        owned: dict[str, list[int]] = {member_id: [] for member_id in subscribers}
        for partition in range(self._counts[topic_id]):
            owned[self._owner[topic_id, partition]].append(partition)
        least = [(self._load[member_id], member_id) for member_id in subscribers]
        most = [(-self._load[member_id], member_id) for member_id in subscribers if owned[member_id]]
        heapify(least)
        heapify(most)
        moved = 0
        # No member is ever in both roles: a giver ends at least as busy as any taker.
        while most and -most[0][0] - least[0][0] > 1:
            load, giver = heappop(most)
            taken, taker = heappop(least)
            partition = owned[giver].pop()
            self._owner[topic_id, partition] = taker
            self._load[giver], self._load[taker] = -load - 1, taken + 1
            heappush(least, (taken + 1, taker))
            if owned[giver]:
                heappush(most, (load + 1, giver))
            moved += 1
        return moved


def _still_valid(member: AssignedMember, partition_counts: PartitionCounts) -> list[_Partition]:
    return [
        (topic_id, partition)
        for topic_id, partitions in sorted(member.assignment.items())
        if topic_id in member.topic_ids
        for partition in partitions
        if partition < partition_counts[topic_id]
    ]


def _assignment(partitions: Iterable[_Partition]) -> Assignment:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(sorted(by_topic[topic_id])) for topic_id in sorted(by_topic)}
