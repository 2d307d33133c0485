"""The assignors: what Kafka's give in the cases that it documents, and what must hold for every group."""

from __future__ import annotations

import random

import pytest
from odradek_broker.core.groups.assignors import ASSIGNORS, AssignedMember, Members, range_, uniform
from odradek_broker.core.groups.messages import Assignment

A, B, C = b"A" * 16, b"B" * 16, b"C" * 16


def members(**topics: bytes) -> dict[str, AssignedMember]:
    """`m1=A + B`: member m1 subscribes to topics A and B."""
    return {
        name: AssignedMember(frozenset(ids[start : start + 16] for start in range(0, len(ids), 16)))
        for name, ids in topics.items()
    }


def test_range_gives_the_same_range_of_every_topic() -> None:
    assert range_(members(m1=A + B, m2=A + B), {A: 3, B: 3}) == {"m1": {A: (0, 1), B: (0, 1)}, "m2": {A: (2,), B: (2,)}}


def test_range_goes_by_subscriptions_and_gives_nothing_to_those_that_are_too_many() -> None:
    assert range_(members(m1=A, m2=A + C, m3=C), {A: 2, C: 1}) == {"m1": {A: (0,)}, "m2": {A: (1,), C: (0,)}, "m3": {}}


def test_range_puts_static_members_first_by_instance_id() -> None:
    group = {
        "z": AssignedMember(frozenset({A}), "i1"),
        "y": AssignedMember(frozenset({A}), "i2"),
        "a": AssignedMember(frozenset({A})),
    }
    assert range_(group, {A: 3}) == {"z": {A: (0,)}, "y": {A: (1,)}, "a": {A: (2,)}}


def test_uniform_spreads_what_nobody_had() -> None:
    assert uniform(members(m1=A + B, m2=A + B), {A: 3, B: 2}) == {"m1": {A: (0, 1, 2)}, "m2": {B: (0, 1)}}


def test_uniform_takes_only_what_is_too_much_for_a_newcomer() -> None:
    group = with_assignment(members(m1=A, m2=A, m3=A), {"m1": {A: (0, 1, 2)}, "m2": {A: (3, 4, 5)}})
    assert uniform(group, {A: 6}) == {"m1": {A: (0, 1)}, "m2": {A: (3, 4)}, "m3": {A: (2, 5)}}


def test_uniform_leaves_the_odd_partition_where_it_is() -> None:
    """Whoever has more keeps more, also if another member comes first by name."""
    before: dict[str, Assignment] = {"m1": {A: (0,)}, "m2": {A: (1, 2)}}
    assert uniform(with_assignment(members(m1=A, m2=A), before), {A: 3}) == before


def test_uniform_balances_members_that_subscribe_to_different_topics() -> None:
    assert sizes(uniform(members(m1=A, m2=A + B, m3=B), {A: 4, B: 2})) == {"m1": 2, "m2": 2, "m3": 2}


def with_assignment(group: Members, assignment: dict[str, Assignment]) -> dict[str, AssignedMember]:
    return {
        name: AssignedMember(member.topic_ids, member.instance_id, assignment.get(name, {}))
        for name, member in group.items()
    }


def sizes(assignment: dict[str, Assignment]) -> dict[str, int]:
    return {name: sum(map(len, topics.values())) for name, topics in assignment.items()}


def pairs(assignment: dict[str, Assignment]) -> dict[tuple[bytes, int], str]:
    """The owner of each partition; fails where there are two."""
    owners: dict[tuple[bytes, int], str] = {}
    for name, topics in assignment.items():
        for topic, partitions in topics.items():
            for partition in partitions:
                assert owners.setdefault((topic, partition), name) == name
    return owners


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("alike", [True, False])
def test_every_group(seed: int, assignor: str, alike: bool) -> None:
    """Through many changes: complete, only to subscribers; uniform also balanced, and it moves nothing without need."""
    rng = random.Random(seed)
    counts = {bytes([topic]) * 16: rng.randrange(1, 9) for topic in range(1, rng.randrange(2, 6))}
    group: dict[str, AssignedMember] = {}
    assignment: dict[str, Assignment] = {}
    for _ in range(12):
        change_at_random(rng, group, counts, alike=alike)
        before = assignment
        assignment = ASSIGNORS[assignor](with_assignment(group, before), counts)

        owners = pairs(assignment)
        subscribed = {topic for member in group.values() for topic in member.topic_ids}
        assert set(owners) == {(topic, partition) for topic in subscribed for partition in range(counts[topic])}
        assert all(topic in group[name].topic_ids for (topic, _), name in owners.items())
        assert set(assignment) == set(group)
        assert ASSIGNORS[assignor](with_assignment(group, assignment), counts) == assignment  # nothing more to move
        if assignor == "uniform":
            assert_balanced(group, assignment)
            if alike and group:
                assert_few_moved(group, counts, before, assignment)


def change_at_random(
    rng: random.Random, group: dict[str, AssignedMember], counts: dict[bytes, int], *, alike: bool
) -> None:
    everything = frozenset(counts)
    match rng.choice(["join", "join", "leave", "grow", "subscribe"]):
        case "leave" if len(group) > 1:
            del group[rng.choice(sorted(group))]
        case "grow":
            counts[rng.choice(sorted(counts))] += rng.randrange(1, 4)
        case "subscribe" if group and not alike:
            some = rng.sample(sorted(counts), rng.randrange(1, len(counts) + 1))
            group[rng.choice(sorted(group))] = AssignedMember(frozenset(some))
        case _:
            some = sorted(counts) if alike else rng.sample(sorted(counts), rng.randrange(1, len(counts) + 1))
            group[f"m{rng.randrange(1000):03}"] = AssignedMember(everything if alike else frozenset(some))


def assert_balanced(group: Members, assignment: dict[str, Assignment]) -> None:
    """No partition could go to a subscriber that has at least two less than its owner."""
    load = sizes(assignment)
    for (topic, _), owner in pairs(assignment).items():
        for name, member in group.items():
            assert topic not in member.topic_ids or load[owner] - load[name] <= 1, (owner, name, load)


def assert_few_moved(
    group: Members, counts: dict[bytes, int], before: dict[str, Assignment], after: dict[str, Assignment]
) -> None:
    """A member that had not more than its share lost nothing that it could keep."""
    least = sum(counts.values()) // len(group)
    for name in group:
        had, has = set(pairs({name: before.get(name, {})})), set(pairs({name: after[name]}))
        assert len(had) > least or had <= has
        assert len(had & has) >= min(len(had), least)
