"""A member's decisions (K-57 to K-60), against the coordinator of the brokers: by rule, and by random histories."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from odradek.core.membership import (
    ConsumerMembership,
    MemberSettings,
    MembershipState,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Step,
)
from odradek_broker.core.context import ANONYMOUS, RequestContext
from odradek_broker.core.groups.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatAnswer
from odradek_broker.requests.groups import GroupRequests
from odradek_broker.rpc.groups import GroupService
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import groups_messages as wire

from tests.groups.consumers import World
from tests.seeds import seeds

HEARTBEAT = "/odradek.v1.Groups/ConsumerGroupHeartbeat"
MAX_POLL_MS = 60_000


class Coordinator:
    """The group of a `World` behind the codec of the gRPC listener."""

    def __init__(self, world: World) -> None:
        self.world = world
        service = GroupService(cast(GroupRequests, self), lambda topic_id: world.topics.topic_name(topic_id))
        self._answer = service.calls()[HEARTBEAT]

    async def call(
        self, context: RequestContext, request: ConsumerGroupHeartbeat, kind: type[ConsumerGroupHeartbeatAnswer]
    ) -> ConsumerGroupHeartbeatAnswer:
        return self.world.heartbeat(request)

    def heartbeat(self, request: wire.ConsumerGroupHeartbeatRequest) -> wire.ConsumerGroupHeartbeatResponse:
        context = RequestContext(ANONYMOUS, "GRPC", peer="10.0.0.1:5000")
        return wire.ConsumerGroupHeartbeatResponse.FromString(
            at_once(self._answer(request.SerializeToString(), context))
        )


def at_once(work: Any) -> Any:
    """The outcome of a coroutine that waits for nothing."""
    try:
        cast(Coroutine[Any, Any, Any], work).send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Member:
    """A membership and its application, which does one thing at a time."""

    def __init__(self, world: World, name: str, *topics: str, pattern: str = "", instance_id: str = "") -> None:
        self.world, self.coordinator = world, Coordinator(world)
        self.ids = 0
        self.name = name
        settings = MemberSettings("g", "client", instance_id, max_poll_interval_ms=MAX_POLL_MS)
        self.membership = ConsumerMembership(settings, self._new_id)
        self.membership.subscribe(topics, pattern, world.now_ms)
        self.step: Step | None = None
        self.told: list[Step] = []

    def _new_id(self) -> str:
        self.ids += 1
        return f"{self.name}-{self.ids}"

    def beat(self) -> None:
        """Heartbeats as long as one is due."""
        for _ in range(20):
            request = self.membership.heartbeat(self.world.now_ms)
            if request is None:
                return
            self.membership.on_answer(self.coordinator.heartbeat(request), self.world.now_ms)
        raise AssertionError(f"{self.name} does not come to rest")

    def lose(self, *, arrives: bool) -> None:
        """The next heartbeat, or its answer, is lost."""
        request = self.membership.heartbeat(self.world.now_ms)
        if request is not None:
            if arrives:
                self.coordinator.heartbeat(request)
            self.membership.on_failed(self.world.now_ms)

    def begin(self) -> None:
        if self.step is None and (step := self.membership.next_step()) is not None:
            self.step = step
            self.told.append(step)

    def end(self) -> None:
        if self.step is not None:
            self.membership.done(self.step, self.world.now_ms)
            self.step = None

    def settle(self) -> list[Step]:
        """Everything that can be done now; what it was told of it."""
        told = len(self.told)
        for _ in range(10):
            self.beat()
            self.begin()
            self.end()
        return self.told[told:]

    @property
    def owned(self) -> list[TopicPartition]:
        return sorted(self.membership.owned)


def tps(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def test_partitions_go_from_one_member_to_another_when_they_are_given_up() -> None:
    """Until the first one is done with them the second one has none; a pattern finds the topics (K-59)."""
    world = World(orders=4)
    first, second = Member(world, "a", "orders"), Member(world, "b", pattern="ord.*")
    assert first.settle() == [PartitionsAssigned(tps("orders", 0, 1, 2, 3))]
    assert second.settle() == []
    world.pass_time(5_000)
    first.beat()
    first.begin()
    assert first.step == PartitionsRevoked(tps("orders", 2, 3))
    world.pass_time(5_000)
    first.beat()
    second.settle()
    assert second.owned == []
    first.end()
    first.settle()
    world.pass_time(5_000)
    assert second.settle() == [PartitionsAssigned(tps("orders", 2, 3))]
    second.membership.unsubscribe(world.now_ms)
    assert second.settle() == [PartitionsRevoked(tps("orders", 2, 3))]
    assert second.membership.state is MembershipState.IDLE
    world.pass_time(5_000)
    assert first.settle() == [PartitionsAssigned(tps("orders", 2, 3))]


def test_a_fenced_member_joins_again_when_its_application_was_told() -> None:
    """K-60: what it had is lost at once, also what it was just giving up, and that is told once."""
    world = World(orders=2)
    first, second = Member(world, "a", "orders"), Member(world, "b", "orders")
    first.settle()
    second.settle()
    world.pass_time(5_000)
    first.beat()
    first.begin()
    assert first.step == PartitionsRevoked(tps("orders", 1))
    world.pass_time(50_000)  # more than a session
    first.beat()
    assert first.membership.epoch == 0
    assert first.owned == []
    first.end()
    first.begin()
    assert first.told[-1] == PartitionsLost(tps("orders", 0))
    assert first.membership.heartbeat(world.now_ms) is None
    first.end()
    assert [type(step) for step in first.settle()] == [PartitionsAssigned]


def test_an_application_that_works_for_too_long_leaves_the_group() -> None:
    """max.poll.interval.ms: it joins again when it asks for records."""
    world = World(orders=1)
    member = Member(world, "a", "orders")
    member.settle()
    member.membership.on_records(world.now_ms)
    for _ in range(11):
        world.pass_time(5_000)
        member.beat()
    assert member.owned
    assert world.group.members
    world.pass_time(5_000)
    member.beat()
    assert not member.owned
    assert not world.group.members
    world.pass_time(100_000)
    assert member.membership.due_ms() is None
    assert member.membership.on_ask()
    assert member.settle() == [PartitionsLost(tps("orders", 0)), PartitionsAssigned(tps("orders", 0))]
    for _ in range(20):  # and one that waits for records is not silent
        world.pass_time(5_000)
        member.beat()
    assert member.owned


def test_a_static_member_that_comes_back_has_what_it_had() -> None:
    """KIP-345: by another process, without a rebalance; two at a time are one too many."""
    world = World(orders=4)
    member, other = Member(world, "a", "orders", instance_id="i"), Member(world, "b", "orders")
    member.settle()
    other.settle()
    rival = Member(world, "c", "orders", instance_id="i")
    rival.beat()
    assert rival.membership.error is not None
    assert getattr(rival.membership.error, "code", None) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert "group_instance_id" in rival.membership.error.hint
    world.pass_time(5_000)
    member.settle()
    kept = member.owned
    member.membership.unsubscribe(world.now_ms)
    member.settle()
    world.pass_time(5_000)
    other.settle()
    heir = Member(world, "d", "orders", instance_id="i")
    heir.settle()
    assert heir.owned == kept
    assert len(kept) == 2


def test_who_gives_up_before_its_first_answer_leaves_all_the_same() -> None:
    """The coordinator may have it: its partitions would stand still for a session."""
    world = World(orders=1)
    member = Member(world, "a", "orders")
    member.begin()
    member.lose(arrives=True)
    member.membership.unsubscribe(world.now_ms)
    world.pass_time(5_000)
    member.settle()
    other = Member(world, "b", "orders")
    other.settle()
    assert len(other.owned) == 1


def test_a_member_that_the_coordinator_knows_from_an_earlier_life_takes_another_name() -> None:
    """Its leaving was lost, and it joins anew while its session goes on."""
    world = World(orders=1)
    member, other = Member(world, "a", "orders"), Member(world, "b", "orders")
    for _ in range(4):
        world.pass_time(5_000)
        member.settle()
        other.settle()
    member.membership.unsubscribe(world.now_ms)
    member.begin()
    member.end()
    member.lose(arrives=False)
    assert member.membership.state is MembershipState.IDLE
    member.membership.subscribe(["orders"], "", world.now_ms)
    member.settle()
    assert member.membership.member_id == "a-2"
    assert member.membership.epoch > 0


def test_an_answer_that_is_lost_costs_nothing() -> None:
    """The coordinator is told everything again, and says again what it said (K-60)."""
    world = World(orders=4)
    first, second = Member(world, "a", "orders"), Member(world, "b", "orders")
    first.settle()
    second.settle()
    world.pass_time(5_000)
    first.lose(arrives=True)
    assert first.settle() == [PartitionsRevoked(tps("orders", 2, 3))]
    world.pass_time(5_000)
    second.lose(arrives=True)
    assert second.settle() == [PartitionsAssigned(tps("orders", 2, 3))]


class History:
    """Members that do as they like, on a network that loses messages, and a coordinator that changes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(t0=4, t1=3)
        self.members: list[Member] = []
        self.names = 0

    def step(self) -> None:
        rng, world = self.rng, self.world
        choice = rng.choices(
            ["beat", "lose", "begin", "end", "die", "join", "subscribe", "time", "fail over", "grow"],
            [40, 8, 20, 20, 1, 3, 2, 8, 2, 1],
        )[0]
        if choice == "join" and len(self.members) < 5:
            self.names += 1
            self.members.append(Member(world, f"m{self.names}", *self.topics()))
        elif choice == "time":
            world.pass_time(rng.choice([1_000, 5_000, 20_000, 46_000]))
        elif choice == "fail over":
            world.fail_over(world.log)
        elif choice == "grow":
            world.topics.counts["t0"] = min(world.topics.counts["t0"] + 1, 12)
            world.topics_changed()
        elif self.members:
            self.act(choice, rng.choice(self.members))
        self.check()

    def topics(self) -> list[str]:
        return self.rng.choice([["t0"], ["t1"], ["t0", "t1"]])

    def act(self, choice: str, member: Member) -> None:
        match choice:
            case "beat":
                member.beat()
            case "lose":
                member.lose(arrives=self.rng.random() < 0.5)
            case "begin":
                member.begin()
            case "end":
                member.end()
            case "die":
                self.members.remove(member)
            case "subscribe" if self.rng.random() < 0.3:
                member.membership.unsubscribe(self.world.now_ms)
            case "subscribe":
                member.membership.subscribe(self.topics(), "", self.world.now_ms)

    def check(self) -> None:
        """Of those that may commit for a partition there is one (K-64: group-one-owner, offset-fenced)."""
        owners: dict[tuple[TopicPartition, bytes], str] = {}
        for member in self.members:
            membership = member.membership
            if self.world.group.validate_commit(membership.member_id, None, membership.epoch):
                continue
            claimed = {**membership.owned, **membership._giving_up}
            for each in claimed.items():
                assert owners.setdefault(each, member.name) == member.name, f"{each}: {owners[each]}, {member.name}"


@pytest.mark.parametrize("seed", seeds(12, every_day=3))
def test_random_histories(seed: int) -> None:
    """One owner at any time; in the end every member has its share, and all partitions have an owner."""
    history = History(seed)
    for _ in range(1_500):
        history.step()
    for member in history.members:
        member.membership.subscribe(["t0", "t1"], "", history.world.now_ms)
    for _ in range(30):
        history.world.pass_time(5_000)
        for member in history.members:
            member.end()
            member.settle()
        history.check()
    owned = [each for member in history.members for each in member.owned]
    counts = history.world.topics.counts
    everything = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    assert sorted(owned) == (sorted(everything) if history.members else [])
    assert all(member.membership.is_settled and member.membership.error is None for member in history.members)
