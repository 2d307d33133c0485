"""ConsumerGroup, story by story (K-57 to K-61): joining, reconciling, fencing, static members, expressions, topics."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from odradek_broker.core.groups.consumer_records import MemberState, decode
from odradek_broker.core.groups.messages import Assignment, ConsumerGroupHeartbeat, GroupSettings
from odradek_broker.core.metadata.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from tests.groups.consumers import REBALANCE_TIMEOUT_MS, Consumer, World, settle, topic_id

T, U = topic_id("t"), topic_id("u")
SESSION_MS = GroupSettings().consumer_session_timeout_ms


def state_of(world: World, member_id: str) -> MemberState:
    return world.group.members[member_id].current.state


def test_the_first_member_gets_everything_in_its_first_answer() -> None:
    world = World(t=3, u=1)
    answer = Consumer(world, "m1", "t", "u", "not-there-yet").beat()

    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "m1", 1)
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assignment == {T: (0, 1, 2), U: (0,)}
    assert [decode(*record).type for record in world.log] == [5, 3, 7, 6, 8]  # Kafka's order, in one batch
    assert world.group.state == "Stable"


def test_a_group_goes_by_its_own_settings() -> None:
    """From the next heartbeat on; and again by those of all groups, once they are taken away."""
    world = World(t=1)
    member = Consumer(world, "m1", "t")
    member.settle()
    world.topics.of_groups["g"] = {HEARTBEAT_INTERVAL: "7000", SESSION_TIMEOUT: "60000"}
    assert member.beat().heartbeat_interval_ms == 7_000
    world.pass_time(59_999)
    assert "m1" in world.group.members
    del world.topics.of_groups["g"]
    assert member.beat().heartbeat_interval_ms == 5_000
    world.pass_time(SESSION_MS)
    assert world.group.members == {}


def test_a_heartbeat_with_nothing_new_writes_nothing_and_repeats_nothing() -> None:
    world = World(t=3)
    first = Consumer(world, "m1", "t")
    first.settle()
    written = len(world.log)

    answer = first.beat()
    assert (answer.member_epoch, answer.assignment) == (1, None)
    assert len(world.log) == written


def test_a_partition_is_given_on_only_when_its_owner_has_given_it_up() -> None:
    """UNREVOKED at the old owner, UNRELEASED at the new one, then both STABLE."""
    world = World(t=2)
    first, second = Consumer(world, "m1", "t"), Consumer(world, "m2", "t")
    first.settle()
    answer = second.beat()
    assert (answer.member_epoch, answer.assignment) == (2, {})
    assert state_of(world, "m2") is MemberState.UNRELEASED_PARTITIONS

    answer = first.beat()
    assert (answer.member_epoch, answer.assignment) == (1, {T: (0,)})
    assert state_of(world, "m1") is MemberState.UNREVOKED_PARTITIONS
    assert second.beat().assignment is None  # still owned by the first
    assert world.group.state == "Reconciling"

    first.reconcile()
    assert first.beat().member_epoch == 2
    assert second.beat().assignment == {T: (1,)}
    assert world.group.state == "Stable"


def test_whoever_keeps_everything_goes_to_the_new_epoch_at_once() -> None:
    world = World(t=2, u=2)
    first, second = Consumer(world, "m1", "t"), Consumer(world, "m2", "u")
    first.settle()
    second.beat()
    assert first.beat().member_epoch == 2
    assert world.group.state == "Stable"


def test_a_member_that_does_not_revoke_is_fenced_after_its_rebalance_timeout() -> None:
    world = World(t=2)
    first, second = Consumer(world, "m1", "t"), Consumer(world, "m2", "t")
    first.settle()
    second.beat()
    for _ in range(REBALANCE_TIMEOUT_MS // 5_000):
        assert first.beat().error is ErrorCode.NONE  # it is alive, and never gives up what it was asked for
        second.settle()
        world.pass_time(5_000)
    assert first.beat().error is ErrorCode.UNKNOWN_MEMBER_ID
    second.settle()
    assert second.owned == {T: (0, 1)}


def test_a_silent_member_is_removed_after_a_session() -> None:
    world = World(t=2)
    first, second = Consumer(world, "m1", "t"), Consumer(world, "m2", "t")
    settle(first, second)
    for _ in range(SESSION_MS // 5_000):
        assert "m1" in world.group.members
        world.pass_time(5_000)
        second.settle()
    assert "m1" not in world.group.members
    assert second.owned == {T: (0, 1)}
    assert first.beat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_go_silent_together_raise_the_epoch_once() -> None:
    world = World(t=4)
    settle(*(Consumer(world, f"m{number}", "t") for number in range(4)))
    epoch = world.group.epoch
    world.pass_time(SESSION_MS)
    assert (world.group.epoch, world.group.state) == (epoch + 1, "Empty")


def test_a_member_that_leaves_gives_everything_up_at_once() -> None:
    world = World(t=2)
    first, second = Consumer(world, "m1", "t"), Consumer(world, "m2", "t")
    settle(first, second)
    assert first.leave().member_epoch == -1
    assert second.beat().assignment == {T: (0, 1)}
    assert first.leave().error is ErrorCode.UNKNOWN_MEMBER_ID


# --- Epochs: K-60 ---------------------------------------------------------------------------------------------------


def test_after_a_lost_answer_the_epoch_before_is_taken_once_more() -> None:
    world = World(t=2)
    first = Consumer(world, "m1", "t")
    first.send()
    first.on_lost()
    answer = first.beat()  # epoch 0 again
    assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 1, {T: (0, 1)})


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (2, None, ErrorCode.NONE),
        (2, {T: (0, 1)}, ErrorCode.NONE),
        (1, {T: (0,)}, ErrorCode.NONE),  # the epoch before, and nothing that is not its own
        (1, {}, ErrorCode.NONE),
        (1, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, {U: (0,)}, ErrorCode.FENCED_MEMBER_EPOCH),
        (0, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        (3, {}, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_epochs(epoch: int, owned: Assignment | None, error: ErrorCode) -> None:
    """A member at epoch 2, and 1 before, that has both partitions of t."""
    world = World(t=2, u=1)
    first = Consumer(world, "m1", "t", "u")
    first.settle()
    first.subscribe("t")
    first.settle()
    assert (first.epoch, world.group.members["m1"].current.previous_epoch) == (2, 1)
    request = replace(first.request(), member_epoch=epoch, owned=owned)
    if epoch == 0:
        request = replace(request, rebalance_timeout_ms=60_000, subscribed_topic_names=("t",))
    written = len(world.log)
    assert world.heartbeat(request).error is error
    assert len(world.log) == written


def test_commits_are_of_the_current_epoch() -> None:
    world = World(t=1)
    group = world.group
    assert group.validate_commit("", None, -1) is ErrorCode.NONE
    first = Consumer(world, "m1", "t")
    first.settle()
    assert group.validate_commit("m1", None, 1) is ErrorCode.NONE
    assert group.validate_commit("m1", None, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.validate_commit("m1", None, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.validate_commit("other", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate_commit("", None, -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate_fetch(None, -1) is ErrorCode.NONE
    assert group.validate_fetch("m1", 0) is ErrorCode.STALE_MEMBER_EPOCH


# --- Requests that no group takes -----------------------------------------------------------------------------------

JOIN = ConsumerGroupHeartbeat(
    "g", "m1", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("t",), owned={}, server_assignor="range"
)


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (replace(JOIN, group_id=""), ErrorCode.INVALID_REQUEST, "GroupId can't be empty"),
        (replace(JOIN, group_instance_id=""), ErrorCode.INVALID_REQUEST, "InstanceId can't be empty"),
        (replace(JOIN, rack_id=""), ErrorCode.INVALID_REQUEST, "RackId can't be empty"),
        (replace(JOIN, member_epoch=-3), ErrorCode.INVALID_REQUEST, "MemberEpoch -3 is invalid"),
        (replace(JOIN, rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided"),
        (replace(JOIN, rebalance_timeout_ms=-2), ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must not be negative"),
        (replace(JOIN, owned=None), ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty"),
        (replace(JOIN, owned={T: (0,)}), ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty"),
        (replace(JOIN, subscribed_topic_names=()), ErrorCode.INVALID_REQUEST, "Either SubscribedTopicNames"),
        (replace(JOIN, member_epoch=1, member_id=""), ErrorCode.INVALID_REQUEST, "MemberId can't be empty"),
        (replace(JOIN, member_epoch=-2), ErrorCode.INVALID_REQUEST, "InstanceId can't be null"),
        (replace(JOIN, server_assignor="sticky"), ErrorCode.UNSUPPORTED_ASSIGNOR, "uniform, range"),
        (replace(JOIN, subscribed_topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION, "a ( without its )"),
        (replace(JOIN, member_epoch=1), ErrorCode.UNKNOWN_MEMBER_ID, "m1 is not a member"),
        (replace(JOIN, member_epoch=1, group_instance_id="i"), ErrorCode.UNKNOWN_MEMBER_ID, "Instance id i is unknown"),
        (replace(JOIN, member_id="m9"), ErrorCode.GROUP_MAX_SIZE_REACHED, "maximum capacity of 1"),
    ],
)
def test_refusals(request_: ConsumerGroupHeartbeat, error: ErrorCode, words: str) -> None:
    """Nothing is written, and the message names what is wrong."""
    world = World(GroupSettings(consumer_max_size=1), t=1)
    if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
        Consumer(world, "m1", "t").beat()
    written = len(world.log)
    answer = world.heartbeat(request_)
    assert answer.error is error
    assert words in (answer.message or "")
    assert len(world.log) == written


def test_a_member_without_an_id_is_given_one() -> None:
    assert World(t=1).heartbeat(replace(JOIN, member_id="")).member_id == "id-1"


# --- Static members -------------------------------------------------------------------------------------------------


def static_pair(world: World) -> tuple[Consumer, Consumer]:
    pair = Consumer(world, "m1", "t", instance_id="i1"), Consumer(world, "m2", "t", instance_id="i2")
    settle(*pair)
    return pair


def test_a_static_member_comes_back_to_its_partitions_under_another_id() -> None:
    world = World(t=4)
    first, second = static_pair(world)
    had, epoch = first.owned, world.group.epoch
    assert first.leave(-2).member_epoch == -2
    assert second.beat().assignment is None  # its place is kept

    again = Consumer(world, "m3", "t", instance_id="i1")
    answer = again.beat()
    assert (answer.error, answer.assignment) == (ErrorCode.NONE, had)
    assert world.group.epoch == epoch
    assert sorted(world.group.members) == ["m2", "m3"]
    assert first.beat().error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_an_instance_id_belongs_to_one_member() -> None:
    world = World(t=4)
    first, _ = static_pair(world)
    thief = Consumer(world, "m3", "t", instance_id="i1")
    assert thief.beat().error is ErrorCode.UNRELEASED_INSTANCE_ID
    stolen = replace(first.request(), member_id="m3")
    assert world.heartbeat(stolen).error is ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(replace(stolen, member_epoch=-1)).error is ErrorCode.FENCED_INSTANCE_ID
    assert first.beat().error is ErrorCode.NONE


def test_a_static_member_that_stays_away_is_removed() -> None:
    world = World(t=4)
    first, second = static_pair(world)
    first.leave(-2)
    for _ in range(SESSION_MS // 5_000):
        world.pass_time(5_000)
        second.settle()
    assert second.owned == {T: (0, 1, 2, 3)}


def test_a_static_member_whose_first_answer_was_lost_asks_again() -> None:
    world = World(t=1)
    first = Consumer(world, "m1", "t", instance_id="i1")
    first.send()
    first.on_lost()
    assert first.beat().assignment == {T: (0,)}


# --- Topics and expressions -----------------------------------------------------------------------------------------


def grow(world: World) -> None:
    world.topics.counts["t"] = 3


def appear(world: World) -> None:
    world.topics.create("u", 1)


def delete(world: World) -> None:
    del world.topics.counts["t"]


def recreate(world: World) -> None:
    world.topics.create("t", 1)


@pytest.mark.parametrize(
    ("change", "assignment"),
    [
        (grow, {T: (0, 1, 2)}),
        (appear, {T: (0, 1), U: (0,)}),
        (delete, {}),
        (recreate, {topic_id("t", 1): (0,)}),
    ],
)
def test_topics_change(change: Callable[[World], None], assignment: Assignment) -> None:
    world = World(t=2)
    first = Consumer(world, "m1", "t", "u")
    first.settle()
    change(world)
    assert first.beat().assignment is None
    world.topics_changed()
    first.settle()
    assert first.owned == assignment
    assert (world.group.epoch, world.group.state) == (2, "Stable")


def test_topics_of_others_do_not_matter() -> None:
    world = World(t=2)
    first = Consumer(world, "m1", "t")
    first.settle()
    world.topics.create("other", 1)
    world.topics_changed()
    first.settle()
    assert world.group.epoch == 1


def test_an_expression_finds_topics_that_come_later_at_most_every_ten_seconds() -> None:
    world = World(t=1, other=1)
    first = Consumer(world, "m1", regex="t.*")
    assert first.beat().assignment == {T: (0,)}
    world.pass_time(10_000)
    for name in ("t2", "t3"):
        world.topics.create(name, 1)
        world.topics_changed()
        first.settle()
    assert len(first.owned) == 2  # t3 came too soon after t2
    assert (world.group.is_subscribed("t2"), world.group.is_subscribed("t3")) == (True, False)
    world.pass_time(10_000)
    first.settle()
    assert sorted(first.owned) == [T, topic_id("t2"), topic_id("t3")]
    assert world.replayed(world.log).is_subscribed("t3")


def test_an_expression_that_nobody_uses_any_more_is_forgotten() -> None:
    world = World(t=1, u=1)
    first, second = Consumer(world, "m1", regex="t"), Consumer(world, "m2", regex="u")
    settle(first, second)
    assert sorted(world.group.regexes) == ["t", "u"]
    second.leave()
    assert sorted(world.group.regexes) == ["t"]
    world.heartbeat(replace(first.request(), subscribed_topic_regex="", subscribed_topic_names=("u",)))
    assert sorted(world.group.regexes) == []
    assert (world.group.is_subscribed("u"), world.group.is_subscribed("t")) == (True, False)


# --- Assignors, description, records --------------------------------------------------------------------------------


def test_the_assignor_is_the_one_that_most_members_want() -> None:
    world = World(t=4)
    group = world.group
    wanted = ["range", "uniform", "range"]
    consumers = [Consumer(world, f"m{number}", "t", assignor=name) for number, name in enumerate(wanted)]
    said = []
    for consumer in consumers:
        consumer.beat()
        said.append(group.describe().assignor)
    assert said == ["range", "uniform", "range"]  # of two that are wanted as much, the first of the settings


def test_a_description_tells_what_a_member_has_and_what_it_shall_have() -> None:
    world = World(t=2)
    first, second = Consumer(world, "m1", "t"), Consumer(world, "m2", "t", instance_id="i2")
    first.settle()
    second.beat()
    first.beat()
    told = world.group.describe()
    assert (told.state, told.group_epoch, told.assignment_epoch) == ("Reconciling", 2, 2)
    m1, m2 = told.members
    assert (m1.member_id, m1.member_epoch, m1.assignment, m1.target_assignment) == ("m1", 1, {T: (0,)}, {T: (0,)})
    assert (m2.group_instance_id, m2.member_epoch, m2.assignment, m2.target_assignment) == ("i2", 2, {}, {T: (1,)})
    assert (m2.client_id, m2.client_host, m2.subscribed_topic_names) == ("client", "/127.0.0.1", ("t",))


def test_tombstones_leave_nothing() -> None:
    world = World(t=2)
    settle(Consumer(world, "m1", "t"), Consumer(world, "m2", regex="t"))
    world.log += world.group.tombstones()
    left = [decode(key, value) for key, value in world.compacted()]
    assert all(record.value is None for record in left)
    assert left[-1].is_group_tombstone


def test_a_new_coordinator_gives_every_member_a_whole_session() -> None:
    world = World(t=2)
    first, second = Consumer(world, "m1", "t"), Consumer(world, "m2", "t")
    first.settle()
    second.beat()
    first.beat()  # it has to revoke
    world.pass_time(SESSION_MS - 1)
    world.fail_over(world.log)
    world.pass_time(SESSION_MS - 1)
    assert sorted(world.group.members) == ["m1", "m2"]
    first.beat()
    second.beat()
    world.pass_time(REBALANCE_TIMEOUT_MS - SESSION_MS + 1)
    assert sorted(world.group.members) == ["m2"]  # a whole rebalance timeout, too, and it did not revoke
    world.fail_over(world.log)
    world.pass_time(SESSION_MS)
    assert world.group.is_empty
