"""Random histories of KIP-848 groups: what of K-64 holds after every step, and at the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from odradek_broker.core.groups.consumer import ConsumerGroup
from odradek_broker.core.groups.consumer_records import decode
from odradek_broker.core.groups.messages import Assignment
from odradek_proto.errors import ErrorCode

from tests.groups.consumers import Consumer, World, settle
from tests.groups.test_assignors import pairs, sizes
from tests.seeds import seeds


def memory(group: ConsumerGroup) -> dict[str, Any]:
    """Everything that records say."""
    return {
        "epochs": (group.epoch, group.target_epoch, group.metadata_hash),
        "members": {name: (member.metadata, member.current) for name, member in group.members.items()},
        "targets": {name: target for name, target in group.targets.items() if target},
        "owners": group.owners,
        "static": group.static,
        "subscriptions": group.subscriptions,
        "regexes": group.regexes,
    }


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(t0=4, t1=3, t2=1)
        self.consumers: dict[str, Consumer] = {}
        self.names = 0
        self.epochs: dict[str, int] = {}  # of members, since they joined
        self.group_epochs = (0, 0)
        self.shadow, self.replayed = self.world.new_group(), 0  # as a coordinator that only reads

    def step(self) -> None:
        rng = self.rng
        one: list[Callable[[Consumer], None]] = [self.beat, self.lost, Consumer.reconcile, self.vanish]
        other: list[Callable[[], None]] = [self.join, self.topics, self.time, self.fail_over]
        if self.consumers and rng.random() < 0.8:
            (act,) = rng.choices(one, [40, 8, 25, 3])
            act(self.consumers[rng.choice(sorted(self.consumers))])
        else:
            (move,) = rng.choices(other, [6, 3, 8, 3])
            move()
        self.check()

    def beat(self, consumer: Consumer) -> None:
        if self.rng.random() < 0.1:
            consumer.subscribe(*self.some_topics())
        self.beat_in_peace(consumer)

    def lost(self, consumer: Consumer) -> None:
        if self.rng.random() < 0.5:
            consumer.send()
        consumer.on_lost()

    def join(self) -> None:
        if len(self.consumers) >= 7:
            return
        self.names += 1
        name = f"m{self.names}"
        instance_id = self.rng.choice([None, None, "i1", "i2"])
        regex = self.rng.choice([None, None, None, "t[01]", "t.*"])
        self.consumers[name] = Consumer(self.world, name, *self.some_topics(), instance_id=instance_id, regex=regex)

    def vanish(self, consumer: Consumer) -> None:
        """Leaves, or leaves for a while, or is just gone."""
        del self.consumers[consumer.member_id]
        if self.rng.random() < 0.6:
            consumer.leave(-2 if consumer.instance_id is not None and self.rng.random() < 0.7 else -1)

    def topics(self) -> None:
        topics = self.world.topics
        name = f"t{self.rng.randrange(5)}"
        if name not in topics.counts:
            topics.create(name, self.rng.randrange(1, 6))
        elif self.rng.random() < 0.3:
            del topics.counts[name]
        else:
            topics.counts[name] += 1
        self.world.topics_changed()

    def time(self) -> None:
        self.world.pass_time(self.rng.choice([1_000, 5_000, 5_000, 20_000, 46_000]))

    def fail_over(self) -> None:
        """The next coordinator reads the log, as it is or compacted, or compacted up to some place."""
        log = self.world.log
        clean = self.rng.choice([0, len(log), self.rng.randrange(len(log) + 1)])
        last = {key: position for position, (key, _) in enumerate(log[:clean])}
        before = memory(self.world.group)
        self.world.fail_over([row for position, row in enumerate(log) if position >= clean or last[row[0]] == position])
        assert memory(self.world.group) == before, "group-memory-equals-log, after any compaction"

    def some_topics(self) -> list[str]:
        return [f"t{number}" for number in sorted(self.rng.sample(range(5), self.rng.randrange(1, 4)))]

    def check(self) -> None:
        group = self.world.group
        owned = [(member.current.assigned, member.current.to_revoke) for member in group.members.values()]
        held = [(id_, partition) for both in owned for part in both for id_, row in part.items() for partition in row]
        assert len(held) == len(set(held)), "group-one-owner"
        assert set(held) == set(group.owners)
        for name, consumer in self.consumers.items():
            if (member := group.members.get(name)) is not None:
                both = flat(member.current.assigned) | flat(member.current.to_revoke)
                # As in Kafka, an assignment that is taken up late, after it was said not to be owned and the answer
                # to that was lost, may be another member's by then: what is done with it cannot be committed.
                stale = group.validate_commit(name, None, consumer.epoch) is ErrorCode.STALE_MEMBER_EPOCH
                assert stale or flat(consumer.owned) <= both, "group-one-owner, seen from the consumers"
        assert (group.epoch, group.target_epoch) >= self.group_epochs, "group-generation-rises"
        self.group_epochs = group.epoch, group.target_epoch
        now = {name: member.current.epoch for name, member in group.members.items()}
        for name, epoch in now.items():
            assert epoch == -2 or epoch >= self.epochs.get(name, 0), "group-generation-rises"
        self.epochs = {name: epoch for name, epoch in now.items() if epoch >= 0}
        for key, value in self.world.log[self.replayed :]:
            self.shadow.replay(decode(key, value))
        self.replayed = len(self.world.log)
        assert memory(group) == memory(self.shadow), "group-memory-equals-log"

    def rest(self) -> None:
        """Nobody is disturbed any more."""
        for _ in range(20):
            self.world.pass_time(5_000)
            for consumer in list(self.consumers.values()):
                self.beat_in_peace(consumer)
                consumer.reconcile()
        settle(*self.consumers.values())
        self.check()

    def beat_in_peace(self, consumer: Consumer) -> None:
        """An error of static members is the end of a consumer; everything else it gets over."""
        if consumer.beat().error in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            del self.consumers[consumer.member_id]


def flat(assignment: Assignment) -> set[tuple[bytes, int]]:
    return {(id_, partition) for id_, partitions in assignment.items() for partition in partitions}


@pytest.mark.parametrize("seed", seeds(20, every_day=6))
def test_random_histories(seed: int) -> None:
    history = History(seed)
    for _ in range(600):
        history.step()
    history.rest()

    group, topics = history.world.group, history.world.topics
    assert set(group.members) == set(history.consumers)  # group-no-lost-member; and who is silent is gone
    assert group.state == ("Stable" if group.members else "Empty"), "group-progress"
    current = {name: member.current.assigned for name, member in group.members.items()}
    assert current == {name: consumer.owned for name, consumer in history.consumers.items()}
    wanted = {name: {topics.topic_id(topic) for topic in subscribed(history.world, name)} for name in group.members}
    everything = {
        (id_, partition)
        for topic, count in topics.counts.items()
        for partition in range(count)
        if any((id_ := topics.topic_id(topic)) in some for some in wanted.values())
    }
    owners = pairs(current)
    assert set(owners) == everything, "group-progress: every partition has an owner"
    load = sizes(current)
    for (id_, _), owner in owners.items():
        assert all(id_ not in some or load[owner] - load[name] <= 1 for name, some in wanted.items()), "balanced"


def subscribed(world: World, name: str) -> set[str]:
    metadata = world.group.members[name].metadata
    matched = {
        topic for topic in world.topics.counts if metadata.regex == "t.*" or (metadata.regex and topic in ("t0", "t1"))
    }
    return (set(metadata.topic_names) | matched) & set(world.topics.counts)
