"""Groups of both protocols in one shard (K-61): members of both in one group, what it keeps when it changes over."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

import pytest
from odradek_broker.core.groups.embedded import read_assignment, read_subscription, write_assignment
from odradek_broker.core.groups.fields import int16, int32, old_string
from odradek_broker.core.groups.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Answer,
    Assignment,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    CoordinatorRecord,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeConsumerGroupAnswer,
    DescribeGroup,
    Effect,
    ErrorAnswer,
    GroupReply,
    GroupSettings,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    ListGroupsAnswer,
    MemberProtocol,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    Request,
    SyncGroup,
    SyncGroupAnswer,
)
from odradek_broker.core.groups.reconciliation import minus
from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.values import replace

from tests.groups.consumers import Consumer, Topics, topic_id
from tests.seeds import seeds

TOPIC, TOPIC_ID, PARTITIONS = "orders", topic_id("orders"), 6
SESSION_MS, REBALANCE_MS, BEAT_MS = 45_000, 30_000, 3_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, consumer_session_timeout_ms=SESSION_MS)
NO_LOADED = 0  # a wall clock that nobody looks at
NO_ANSWER = ErrorAnswer(ErrorCode.NONE)  # yet


class World:
    """A shard, what it wrote, and its clients. Writes are committed at once."""

    def __init__(self, settings: GroupSettings = SETTINGS, log: Sequence[CoordinatorRecord] = ()) -> None:
        self.settings = settings
        self.log = list(log)
        self.now_ms = 0
        self.told: dict[object, Answer] = {}
        self._ids = iter(range(10_000))
        self.fail_over()

    def fail_over(self) -> None:
        """The next leader has loaded the log; who waited is told to look for it."""
        self.shard = GroupCoordinatorShard(self.settings, Topics(orders=PARTITIONS), lambda: f"id-{next(self._ids)}")
        for key, value in self.log:
            self.shard.replay(key, value, NO_LOADED)
        self._carry_out(self.shard.on_loaded(self.now_ms))

    def send(self, request: Request, token: object) -> None:
        self._carry_out(self.shard.handle(request, token, self.now_ms, self.now_ms))

    def ask(self, request: Request) -> Answer:
        token = object()
        self.send(request, token)
        return self.told.pop(token, NO_ANSWER)

    def heartbeat(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatAnswer:
        answer = self.ask(request)
        assert isinstance(answer, ConsumerGroupHeartbeatAnswer)
        return answer

    def pass_time(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._carry_out(self.shard.on_time(self.now_ms, self.now_ms))
        self.now_ms = end_ms

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, GroupReply):
                self.told[effect.token] = effect.answer
            else:
                self.log += effect.records
                self._carry_out(self.shard.on_written(effect.write_id, self.now_ms))

    def groups(self) -> list[tuple[str, str]]:
        answer = self.ask(ListGroups())
        assert isinstance(answer, ListGroupsAnswer)
        return [(each.type, each.state) for each in answer.groups]

    @property
    def kind(self) -> str:
        (group,) = self.groups()
        return " ".join(group)

    def members(self) -> list[tuple[bool, Assignment]]:
        """Of a group of KIP-848: whether each is a classic one, and what it is assigned."""
        answer = self.ask(DescribeConsumerGroup("g"))
        assert isinstance(answer, DescribeConsumerGroupAnswer)
        return [(each.is_classic, each.assignment) for each in answer.members]


class Classic:
    """As Kafka's classic consumer, with an eager or a cooperative assignor; its leader shares out evenly."""

    def __init__(self, world: World, *, is_eager: bool = False) -> None:
        self.world = world
        self.owned: Assignment = {}
        self.is_eager = is_eager
        self.name = "range" if is_eager else "cooperative-sticky"
        self.abandon()

    def abandon(self) -> None:
        self.member_id, self.generation, self.owned = "", -1, {}
        self.next: str = "join"
        self.token: object = None
        self.answer: JoinGroupAnswer | None = None

    @property
    def partitions(self) -> tuple[int, ...]:
        return self.owned.get(TOPIC_ID, ())

    def step(self) -> None:
        """One call, or a look at whether the one that waits has been answered."""
        if self.token is None:
            self.token = object()
            self.world.send(self._request(), self.token)
        if (told := self.world.told.pop(self.token, None)) is not None:
            self.token = None
            self._on_answer(told)

    def lose(self) -> None:
        """The connection breaks: what was or will be answered is not heard."""
        if self.token is not None:
            self.world.shard.cancel(self.token)
            self.token = None
            self.next = "join" if self.next == "sync" else self.next

    def leave(self) -> None:
        self.lose()
        self.world.ask(LeaveGroup("g", (LeavingMember(self.member_id),)))
        self.abandon()

    def subscription(self) -> bytes:
        owned = [] if self.is_eager else [old_string(TOPIC) + numbers(self.partitions)]
        return int16(1) + array([old_string(TOPIC)]) + int32(-1) + array(owned)

    def _request(self) -> Request:
        if self.next == "join":
            if self.is_eager:
                self.owned = {}
            protocol = MemberProtocol(self.name, self.subscription())
            return JoinGroup("g", self.member_id, None, "consumer", (protocol,), SESSION_MS, REBALANCE_MS)
        if self.next == "sync":
            assert self.answer is not None
            return SyncGroup("g", self.generation, self.member_id, assignments=shared(self.answer))
        return Heartbeat("g", self.generation, self.member_id)

    def _on_answer(self, told: Answer) -> None:
        if told.error is ErrorCode.MEMBER_ID_REQUIRED and isinstance(told, JoinGroupAnswer):
            self.member_id = told.member_id
        elif told.error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            self.next = "join"
        elif told.error is not ErrorCode.NONE:
            self.abandon()
        elif isinstance(told, JoinGroupAnswer):
            self.answer, self.generation, self.member_id, self.next = told, told.generation_id, told.member_id, "sync"
        elif isinstance(told, SyncGroupAnswer):
            self._take(told.assignment)

    def _take(self, assignment: bytes) -> None:
        found = read_assignment(assignment)[0] if assignment else {}
        assigned = {TOPIC_ID: found[TOPIC]} if found.get(TOPIC) else {}
        surplus = minus(self.owned, assigned)
        self.owned = assigned
        self.next = "join" if surplus else "heartbeat"  # others may have now what it gave up


class New(Consumer):
    """A consumer of KIP-848."""

    def __init__(self, world: World, member_id: str) -> None:
        super().__init__(world, member_id, TOPIC)

    @property
    def partitions(self) -> tuple[int, ...]:
        return self.owned.get(TOPIC_ID, ())

    def step(self) -> None:
        self.reconcile()
        if self.beat().error is ErrorCode.GROUP_ID_NOT_FOUND:
            self.abandon()  # the group has changed over since


Client = Classic | New


def array(rows: list[bytes]) -> bytes:
    return int32(len(rows)) + b"".join(rows)


def numbers(partitions: Iterable[int]) -> bytes:
    return array([int32(each) for each in partitions])


def shared(answer: JoinGroupAnswer) -> Mapping[str, bytes]:
    """What the leader assigns: evenly, but nothing that another member still owns."""
    owned = {each.member_id: read_subscription(each.metadata).owned.get(TOPIC, ()) for each in answer.members}
    ids = sorted(owned)
    wanted = {member_id: range(PARTITIONS)[place :: len(ids)] for place, member_id in enumerate(ids)}
    free = {
        member_id: tuple(each for each in mine if not any(each in owned[other] for other in ids if other != member_id))
        for member_id, mine in wanted.items()
    }
    return {member_id: write_assignment(1, [(TOPIC, each)]) for member_id, each in free.items()}


def settle(world: World, *clients: Client) -> None:
    """Everybody has its turns; all partitions are read by one of them each then."""
    for _ in range(40):
        for each in clients:
            each.step()
        world.pass_time(BEAT_MS)
    assert sorted(number for each in clients for number in each.partitions) == list(range(PARTITIONS))


def with_a_classic_member() -> tuple[World, Classic, New]:
    """And a consumer that has not joined yet."""
    world = World()
    classic, new = Classic(world), New(world, "new")
    settle(world, classic)
    return world, classic, new


def test_a_classic_group_takes_a_new_consumer_in_and_is_classic_again_when_it_leaves() -> None:
    """Online, both ways: classic members keep what they need not give up, and the log says the same at each moment."""
    world = World()
    old = [Classic(world), Classic(world)]
    settle(world, *old)
    assert world.kind == "classic Stable"
    before = [set(each.partitions) for each in old]
    new = New(world, "new")
    new.step()
    assert world.kind.startswith("consumer ")
    assert [set(each.partitions) for each in old] == before
    settle(world, *old, new)
    assert [len(each.partitions) for each in old] + [len(new.partitions)] == [2, 2, 2]
    assert all(set(each.partitions) < known for each, known in zip(old, before, strict=True))
    assert [is_classic for is_classic, _ in world.members()] == [True, True, False]
    world.fail_over()
    settle(world, *old, new)
    assert world.kind == "consumer Stable"
    new.leave()
    assert world.kind == "classic PreparingRebalance"
    world.fail_over()
    settle(world, *old)
    assert world.kind == "classic Stable"


def test_silence_ends_memberships_of_both_kinds() -> None:
    """Each by its own session timeout; the group is what those are who are left."""
    world, classic, new = with_a_classic_member()
    settle(world, classic, new)
    for _ in range(SESSION_MS // BEAT_MS + 1):
        classic.step()
        world.pass_time(BEAT_MS)
    settle(world, classic)
    assert world.kind == "classic Stable"
    settle(world, classic, new)
    for _ in range(SESSION_MS // BEAT_MS + 1):
        new.step()
        world.pass_time(BEAT_MS)
    settle(world, new)
    assert [is_classic for is_classic, _ in world.members()] == [False]


def test_a_classic_member_that_does_not_join_again_goes() -> None:
    """It may heartbeat for ever: its rebalance timeout counts from when it was told."""
    world, classic, new = with_a_classic_member()
    new.step()
    beat = Heartbeat("g", classic.generation, classic.member_id)
    assert world.ask(beat).error is ErrorCode.REBALANCE_IN_PROGRESS
    world.pass_time(REBALANCE_MS - 1)
    assert world.ask(beat).error is ErrorCode.REBALANCE_IN_PROGRESS
    new.step()
    world.pass_time(1)
    assert world.ask(beat).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_is_told_to_join_until_it_has_revoked() -> None:
    """It is reconciled by what it says at its joins; a generation that is over is none."""
    world, classic, new = with_a_classic_member()
    new.step()
    generation = classic.generation
    assert world.ask(SyncGroup("g", generation, classic.member_id)).error is ErrorCode.REBALANCE_IN_PROGRESS
    classic.next = "join"
    classic.step()  # it owns everything, and has to give up half of it
    beat = Heartbeat("g", classic.generation, classic.member_id)
    classic.step()
    assert (classic.next, len(classic.partitions)) == ("join", PARTITIONS // 2)
    new.step()
    assert not new.assigned
    assert world.ask(beat).error is ErrorCode.REBALANCE_IN_PROGRESS
    classic.step()
    new.step()
    assert len(new.assigned[TOPIC_ID]) == PARTITIONS // 2
    assert classic.generation > generation
    beat = Heartbeat("g", generation, classic.member_id)
    assert world.ask(beat).error is ErrorCode.ILLEGAL_GENERATION


def test_commits_of_classic_members_are_judged_by_their_words() -> None:
    """A generation that is not its own is illegal, not stale (KIP-848)."""
    world, classic, new = with_a_classic_member()
    settle(world, classic, new)

    def commit(generation: int) -> ErrorCode:
        offset = OffsetToCommit(TopicPartition(TOPIC, 0), 5)
        return world.ask(OffsetCommit("g", generation, classic.member_id, None, (offset,))).error

    assert commit(classic.generation) is ErrorCode.NONE
    assert commit(classic.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.ask(SyncGroup("g", 1, "new")).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("upgrades", "downgrades", "seen"), [(False, False, "classic Stable"), (True, False, "consumer Stable")]
)
def test_the_migration_policy_decides(upgrades: bool, downgrades: bool, seen: str) -> None:
    """group.consumer.migration.policy: what is not allowed leaves the group of the kind that it has."""
    world = World(GroupSettings(initial_rebalance_delay_ms=0, upgrades=upgrades, downgrades=downgrades))
    classic, new = Classic(world), New(world, "new")
    settle(world, classic)
    joined = world.ask(ConsumerGroupHeartbeat(
        "g", "new", JOIN_EPOCH, rebalance_timeout_ms=9, subscribed_topic_names=(TOPIC,), owned={}
    ))  # fmt: skip
    assert joined.error is (ErrorCode.NONE if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
    if upgrades:
        new.leave()
    settle(world, classic)
    assert world.kind == seen


@pytest.mark.parametrize("seed", seeds(25, every_day=10))
def test_no_partition_has_two_readers_whatever_comes_and_goes(seed: int) -> None:
    """Members of both protocols come, leave, crash and lose answers, coordinators fail over; then all is read again."""
    world, rng = World(), random.Random(seed)
    clients: list[Client] = []
    for number in range(400):
        deed = rng.choices(("step", "come", "leave", "crash", "lose", "fail over", "time"), (60, 4, 2, 1, 3, 1, 10))[0]
        if deed == "come" and len(clients) < 5:
            kind = rng.randrange(3)
            clients.append(New(world, f"new-{number}") if kind == 0 else Classic(world, is_eager=kind == 1))
        elif deed == "time":
            world.pass_time(rng.randrange(BEAT_MS))
        elif deed == "fail over":
            for each in clients:
                if isinstance(each, Classic):
                    each.lose()
            world.fail_over()
        elif clients:
            chosen = rng.choice(clients)
            if deed == "step":
                chosen.step()
            elif deed in ("leave", "crash"):
                clients.remove(chosen)
                if deed == "leave":
                    chosen.leave()
            elif isinstance(chosen, Classic):
                chosen.lose()
        for each in clients:  # nobody is silent for a session
            if rng.randrange(2):
                each.step()
        owned = [partition for each in clients for partition in each.partitions]
        assert len(owned) == len(set(owned)), [(type(each).__name__, each.partitions) for each in clients]
    world.pass_time(2 * BEAT_MS)
    settle(world, *(clients or [Classic(world)]))


ORDERS = TopicPartition(TOPIC, 0)
EXPIRING = replace(SETTINGS, offsets_retention_ms=1_000_000)
JOIN = ConsumerGroupHeartbeat(
    "g", "", JOIN_EPOCH, rebalance_timeout_ms=9_000, subscribed_topic_names=(TOPIC,), owned={}
)
CLASSIC = JoinGroup("g", "", None, "consumer", (MemberProtocol("range", b""),), 6_000, 6_000)


class Stage(World):
    """The same without clients, to be asked by hand."""

    def __init__(self, log: Sequence[CoordinatorRecord] = (), settings: GroupSettings = EXPIRING) -> None:
        super().__init__(settings, log)

    def join(self) -> ConsumerGroupHeartbeatAnswer:
        return self.heartbeat(JOIN)

    def commit(self) -> None:
        offset = OffsetToCommit(ORDERS, 7)
        assert self.ask(OffsetCommit("g", -1, "", None, (offset,))).error is ErrorCode.NONE

    def committed(self) -> int:
        answer = self.ask(OffsetFetch("g", (ORDERS,)))
        assert isinstance(answer, OffsetFetchAnswer)
        return answer.offsets[0].offset

    def again(self) -> Stage:
        """What the next leader loads."""
        return Stage(self.log)


@pytest.fixture
def stage() -> Stage:
    """With nothing in its log."""
    return Stage()


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(stage: Stage) -> None:
    """From a commit of nobody to KIP-848 and to the classic protocol; each time the next leader knows as much."""
    stage.commit()
    assert stage.groups() == [("classic", "Empty")]
    joined = stage.join()
    assert joined.assignment == {TOPIC_ID: tuple(range(PARTITIONS))}
    for each in (stage, stage.again()):
        assert (each.groups(), each.committed()) == ([("consumer", "Stable")], 7)
    left = ConsumerGroupHeartbeat("g", joined.member_id or "", LEAVE_EPOCH)
    assert stage.ask(left).error is ErrorCode.NONE
    assert stage.groups() == [("consumer", "Empty")]
    assert stage.ask(CLASSIC).error is ErrorCode.MEMBER_ID_REQUIRED
    for each in (stage, stage.again()):
        assert [kind for kind, _ in each.groups()] == ["classic"]
        assert each.committed() == 7


def test_a_group_with_members_is_not_for_the_other_protocol(stage: Stage) -> None:
    """Each request is refused as Kafka refuses it, and nothing is written."""
    stage.join()
    written = len(stage.log)
    assert stage.ask(CLASSIC).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.ask(Heartbeat("g", 1, "m")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.ask(DescribeGroup("g")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.ask(DeleteGroup("g")).error is ErrorCode.NON_EMPTY_GROUP
    assert len(stage.log) == written
    other = Stage()
    other.ask(replace(CLASSIC, requires_known_member_id=False))
    written = len(other.log)
    assert other.ask(JOIN).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert other.ask(DescribeConsumerGroup("g")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert len(other.log) == written


def test_silent_members_go_and_then_the_group(stage: Stage) -> None:
    """After a session without heartbeats, and once its offsets have expired. The log then says nothing of it."""
    stage.commit()
    stage.join()
    stage.pass_time(SESSION_MS - 1)
    assert stage.groups() == [("consumer", "Stable")]
    stage.pass_time(1)
    assert stage.groups() == [("consumer", "Empty")]
    loaded = stage.again()
    assert loaded.groups() == [("consumer", "Empty")]
    stage.pass_time(3_000_000)
    assert stage.groups() == []
    assert stage.ask(DescribeConsumerGroup("g")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert {value for _, value in dict(stage.log).items()} == {None}
    assert stage.again().groups() == []


def test_a_heartbeat_of_a_group_that_is_not_there(stage: Stage) -> None:
    """Only who joins makes one; a refused join makes none."""
    assert stage.ask(ConsumerGroupHeartbeat("g", "m", 3, owned={})).error is ErrorCode.GROUP_ID_NOT_FOUND
    bare = ConsumerGroupHeartbeat("g", "m", JOIN_EPOCH, rebalance_timeout_ms=9_000, owned={})
    assert stage.ask(bare).error is ErrorCode.INVALID_REQUEST
    names = tuple(f"topic-{number}" for number in range(100_000))
    many = ConsumerGroupHeartbeat(
        "g", "m", JOIN_EPOCH, rebalance_timeout_ms=9_000, subscribed_topic_names=names, owned={}
    )
    assert stage.ask(many).error is ErrorCode.INVALID_REQUEST
    assert (stage.groups(), stage.log) == ([], [])


def test_groups_that_hold_something_are_bounded() -> None:
    """A stranger can make no more of them, in any way; those that hold nothing make room, and the others go on."""
    stage = Stage(settings=replace(EXPIRING, max_groups=3))
    offset = OffsetToCommit(ORDERS, 7)
    commits = [OffsetCommit(f"offsets-{number}", -1, "", None, (offset,)) for number in range(2)]
    assert [stage.ask(each).error for each in commits] == [ErrorCode.NONE] * 2
    joined = stage.join()
    refused = ErrorCode.GROUP_MAX_SIZE_REACHED
    classic, offsets = replace(CLASSIC, group_id="h"), replace(commits[0], group_id="h")
    others: list[Request] = [classic, offsets, replace(JOIN, group_id="h")]
    assert [stage.ask(each).error for each in others] == [refused] * 3
    assert [stage.ask(each).error for each in commits] == [ErrorCode.NONE] * 2
    assert stage.ask(JOIN).error is ErrorCode.NONE
    for member in (joined.member_id, "id-1"):
        stage.ask(ConsumerGroupHeartbeat("g", member or "", LEAVE_EPOCH))
    assert stage.groups() == [("classic", "Empty"), ("classic", "Empty"), ("consumer", "Empty")]
    assert stage.ask(classic).error is ErrorCode.MEMBER_ID_REQUIRED
    assert stage.again().ask(DescribeConsumerGroup("g")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.ask(JOIN).error is refused  # whoever was given an id may come with it
