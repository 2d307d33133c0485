"""Groups of both protocols in one shard: which one a group has, and what it keeps when it changes over (K-61)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek_broker.core.groups.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Answer,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    CoordinatorRecord,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    Effect,
    ErrorAnswer,
    GroupSettings,
    Heartbeat,
    JoinGroup,
    ListGroups,
    ListGroupsAnswer,
    MemberProtocol,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    Reply,
    Request,
)
from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.values import replace

ORDERS = TopicPartition("orders", 0)
ORDERS_ID = bytes(15) + b"\1"
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=1_000_000)
JOIN = ConsumerGroupHeartbeat(
    "g", "", JOIN_EPOCH, rebalance_timeout_ms=9_000, subscribed_topic_names=("orders",), owned={}
)
NO_ANSWER = ErrorAnswer(ErrorCode.NONE)  # yet
CLASSIC = JoinGroup("g", "", None, "consumer", (MemberProtocol("range", b""),), 6_000, 6_000)


class Topics:
    def topic_id(self, name: str) -> bytes | None:
        return ORDERS_ID if name == "orders" else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return "orders" if topic_id == ORDERS_ID else None

    def partition_count(self, name: str) -> int | None:
        return 2 if name == "orders" else None

    def topic_names(self) -> Iterable[str]:
        return ["orders"]

    def group_configs(self, group_id: str) -> dict[str, str]:
        return {}


class Stage:
    """A shard whose writes are committed at once; `log` is what it wrote."""

    def __init__(self, log: Sequence[CoordinatorRecord] = (), settings: GroupSettings = SETTINGS) -> None:
        self.log = list(log)
        self.now_ms = 0
        self._ids = iter(range(1_000))
        self._told: dict[object, Answer] = {}
        self.shard = GroupCoordinatorShard(settings, Topics(), lambda: f"id-{next(self._ids)}")
        for key, value in log:
            self.shard.replay(key, value, 0)
        self._carry_out(self.shard.on_loaded(self.now_ms))

    def ask(self, request: Request) -> Answer:
        token = object()
        self._carry_out(self.shard.handle(request, token, self.now_ms, self.now_ms))
        return self._told.pop(token, NO_ANSWER)

    def wait(self, until_ms: int) -> None:
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._carry_out(self.shard.on_time(self.now_ms, self.now_ms))
        self.now_ms = until_ms

    def join(self) -> ConsumerGroupHeartbeatAnswer:
        answer = self.ask(JOIN)
        assert isinstance(answer, ConsumerGroupHeartbeatAnswer)
        return answer

    def commit(self) -> None:
        offset = OffsetToCommit(ORDERS, 7)
        assert self.ask(OffsetCommit("g", -1, "", None, (offset,))).error is ErrorCode.NONE

    def groups(self) -> list[tuple[str, str]]:
        answer = self.ask(ListGroups())
        assert isinstance(answer, ListGroupsAnswer)
        return [(each.type, each.state) for each in answer.groups]

    def committed(self) -> int:
        answer = self.ask(OffsetFetch("g", (ORDERS,)))
        assert isinstance(answer, OffsetFetchAnswer)
        return answer.offsets[0].offset

    def again(self) -> Stage:
        """What the next leader loads."""
        return Stage(self.log)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._told[effect.token] = effect.answer
            else:
                self.log += effect.records
                self._carry_out(self.shard.on_written(effect.write_id, self.now_ms))


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets() -> None:
    """From a commit of nobody to KIP-848 and to the classic protocol; each time the next leader knows as much."""
    stage = Stage()
    stage.commit()
    assert stage.groups() == [("classic", "Empty")]
    joined = stage.join()
    assert joined.assignment == {ORDERS_ID: (0, 1)}
    for each in (stage, stage.again()):
        assert (each.groups(), each.committed()) == ([("consumer", "Stable")], 7)
    left = ConsumerGroupHeartbeat("g", joined.member_id or "", LEAVE_EPOCH)
    assert stage.ask(left).error is ErrorCode.NONE
    assert stage.groups() == [("consumer", "Empty")]
    assert stage.ask(CLASSIC).error is ErrorCode.MEMBER_ID_REQUIRED
    for each in (stage, stage.again()):
        assert [kind for kind, _ in each.groups()] == ["classic"]
        assert each.committed() == 7


def test_a_group_with_members_is_not_for_the_other_protocol() -> None:
    """Each request is refused as Kafka refuses it, and nothing is written."""
    stage = Stage()
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


def test_silent_members_go_and_then_the_group() -> None:
    """After a session without heartbeats, and once its offsets have expired. The log then says nothing of it."""
    stage = Stage()
    stage.commit()
    stage.join()
    session_ms = SETTINGS.consumer_session_timeout_ms
    stage.wait(session_ms - 1)
    assert stage.groups() == [("consumer", "Stable")]
    stage.wait(session_ms)
    assert stage.groups() == [("consumer", "Empty")]
    loaded = stage.again()
    assert loaded.groups() == [("consumer", "Empty")]
    stage.wait(3_000_000)
    assert stage.groups() == []
    assert stage.ask(DescribeConsumerGroup("g")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert {value for _, value in dict(stage.log).items()} == {None}
    assert stage.again().groups() == []


def test_a_heartbeat_of_a_group_that_is_not_there() -> None:
    """Only who joins makes one; a refused join makes none."""
    stage = Stage()
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
    stage = Stage(settings=replace(SETTINGS, max_groups=3))
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
