"""Clients, a log and a coordinator that is lost now and then, by one seed; and what has to hold after every step.

These are the invariants of a group coordinator (K-64): an answer for every call, once; memory equal to the log; one
owner of a partition in a generation; generations that rise; no commit of a generation that is over; offsets that are
read are committed, and those that were acknowledged are not lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from odradek_broker.core.groups import records
from odradek_broker.core.groups.classic import GroupState
from odradek_broker.core.groups.messages import (
    Answer,
    CoordinatorRecord,
    DeleteGroup,
    DescribeGroup,
    Effect,
    FetchedOffset,
    GroupReply,
    GroupSettings,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    MemberProtocol,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    Request,
    SyncGroup,
    SyncGroupAnswer,
    WriteRecords,
)
from odradek_broker.core.groups.offsets import CommittedOffsets
from odradek_broker.core.groups.records import ClassicRecord, GroupRecord, OffsetRecord, StoredGroup
from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.values import replace

from tests.groups.consumers import Topics
from tests.scripts.groups.group_stage import WALL_MS, subscription

GROUPS = ("g", "h")
PARTITIONS = 6
SESSION_MS, REBALANCE_MS = 10_000, 20_000
SETTINGS = GroupSettings(max_size=6, offsets_retention_ms=3_600_000)
QUIET_MS = 2 * (SESSION_MS + REBALANCE_MS) + 300_000  # by then every wait is over, a new member's too


Incarnation = tuple[str, int]


class Client:
    """A member that does what it should, given its answers; the world makes it do other things at times."""

    def __init__(self, name: str, group_id: str, instance_id: str | None) -> None:
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols: tuple[str, ...] = ("range", "sticky")
        self.lose_memory()

    def lose_memory(self) -> None:
        """Another process of the same name: what it hears of the calls before is nothing to it."""
        self.former_id = getattr(self, "member_id", "")
        self.member_id = ""
        self.generation_id = -1
        self.members: tuple[str, ...] = ()
        self.is_in = False  # joined
        self.has_synced = False
        self.waits_for: Call | None = None

    def next_request(self) -> Request:
        if not self.is_in:
            return self.join()
        if not self.has_synced:
            return self.sync()
        return Heartbeat(self.group_id, self.generation_id, self.member_id, self.instance_id)

    def join(self) -> JoinGroup:
        metadata = subscription("orders")
        protocols = tuple(MemberProtocol(name, metadata) for name in self.protocols)
        return JoinGroup(
            self.group_id,
            self.member_id,
            self.instance_id,
            "consumer",
            protocols,
            SESSION_MS,
            REBALANCE_MS,
            client_id=self.name,
        )

    def sync(self, first: int = 0) -> SyncGroup:
        """A leader that is asked twice may assign otherwise: `first` is who gets the first partition."""
        count = len(self.members)
        assignments = {
            member_id: ",".join(str(each) for each in range((number + first) % count, PARTITIONS, count)).encode()
            for number, member_id in enumerate(self.members)
        }
        return SyncGroup(
            self.group_id, self.generation_id, self.member_id, self.instance_id, "consumer", None, assignments
        )

    def on_answer(self, answer: Answer) -> None:
        match answer:
            case JoinGroupAnswer(error=ErrorCode.NONE):
                self.member_id, self.generation_id = answer.member_id, answer.generation_id
                self.members = tuple(each.member_id for each in answer.members)
                self.is_in, self.has_synced = True, False
            case JoinGroupAnswer(error=ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id = answer.member_id
            case SyncGroupAnswer(error=ErrorCode.NONE):
                self.has_synced = True
            case _ if answer.error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
                self.is_in = answer.error is ErrorCode.NOT_COORDINATOR and self.has_synced
            case _ if answer.error is not ErrorCode.NONE:
                self.lose_memory()


class Call:
    """One request, and what was so when it was made."""

    def __init__(self, client: Client | None, request: Request, log_end: int) -> None:
        self.client = client
        self.request = request
        self.log_end = log_end
        self.offsets: tuple[FetchedOffset, ...] = ()  # that a fetch has to answer
        self.generation_id = -1  # older ones were over
        self.holder: str | None = None  # whom the instance id belonged to


class GroupWorld:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.clients = [
            Client(f"c{number}", self.rng.choice(GROUPS), self.rng.choice((None, None, f"i{number}")))
            for number in range(6)
        ]
        self.log: list[tuple[CoordinatorRecord, ClassicRecord]] = []  # everything that is appended
        self.committed = 0  # how many of them are committed
        self.unwritten: list[tuple[int, int]] = []  # writes that are not: id, and where they end
        self.waiting: dict[int, Call] = {}
        self.synced: dict[tuple[Incarnation, int], dict[str, bytes]] = {}  # assignments by generation and member
        self.last_synced: dict[Incarnation, int] = {}  # the newest generation that was answered
        self.last_joined: dict[Incarnation, int] = {}  # and by this coordinator, whether it was committed or not
        self.holders: dict[tuple[Incarnation, str], str] = {}  # who was given an instance id last, by this one
        self.answers = 0
        self.shard = self._new_shard()

    # --- What happens -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        roll = self.rng.random()
        if roll < 0.60:
            client = self.rng.choice(self.clients)
            self.call(client, self._request_of(client))
        elif roll < 0.72:
            self.call(None, self._request_of_a_tool())
        elif roll < 0.86:
            self.commit(self.rng.randint(1, 3))
        elif roll < 0.985:
            self.pass_time(self.rng.choice((100, 500, 1_000, 3_000, 8_000)))
        elif roll < 0.99:
            self.pass_time(self.rng.choice((60_000, 4_000_000)))
        else:
            self.take_over(self.rng.choice((0.0, 0.5, 1.0)))

    def _request_of(self, client: Client) -> Request:
        rng = self.rng
        roll = rng.random()
        if roll < 0.04:
            client.lose_memory()
        elif roll < 0.06:
            # Both are always there: of loaded members the chosen one alone is known, until they join again.
            client.protocols = rng.choice((("range", "sticky"), ("sticky", "range")))
        identity = client.generation_id, client.member_id
        if roll > 0.97:
            return LeaveGroup(client.group_id, (LeavingMember(client.member_id, client.instance_id),))
        if roll > 0.80:
            stale = rng.choice((0, 0, 0, 1, 2))
            offset = OffsetToCommit(TopicPartition("orders", rng.randrange(PARTITIONS)), rng.randrange(1_000))
            generation_id = max(identity[0] - stale, -1)
            member_id = rng.choice((client.member_id, client.member_id, client.former_id))
            return OffsetCommit(client.group_id, generation_id, member_id, client.instance_id, (offset,))
        if roll > 0.77:
            return client.join()
        if roll > 0.72:
            return replace(client.sync(rng.randrange(3)), generation_id=identity[0] + rng.choice((-1, 0, 0, 0, 1)))
        return client.next_request()

    def _request_of_a_tool(self) -> Request:
        group_id, rng = self.rng.choice(GROUPS), self.rng
        tp = TopicPartition(rng.choice(("orders", "others")), rng.randrange(PARTITIONS))
        roll = rng.random()
        if roll < 0.45:
            return OffsetFetch(group_id, None)
        if roll < 0.75:
            return OffsetCommit(group_id, -1, "", None, (OffsetToCommit(tp, rng.randrange(1_000)),))
        return rng.choice((ListGroups(), DescribeGroup(group_id), DeleteGroup(group_id), OffsetDelete(group_id, (tp,))))

    def call(self, client: Client | None, request: Request) -> None:
        call = Call(client, request, len(self.log))
        if isinstance(request, OffsetFetch):
            call.offsets = self._replayed()[1].fetch(request)
        if isinstance(request, OffsetCommit):
            group = self._incarnation(request.group_id, len(self.log))
            call.generation_id = max(self.last_synced.get(group, -1), self.last_joined.get(group, -1))
            call.holder = self.holders.get((group, request.group_instance_id or ""))
        if client is not None and not isinstance(request, OffsetCommit):
            client.waits_for = call
        self.waiting[id(call)] = call
        self._carry_out(self.shard.handle(request, call, self.now_ms, WALL_MS + self.now_ms))

    def commit(self, how_many: int) -> None:
        for _ in range(min(how_many, len(self.unwritten))):
            write_id, self.committed = self.unwritten.pop(0)
            self._carry_out(self.shard.on_written(write_id, self.now_ms))

    def pass_time(self, much_ms: int) -> None:
        until_ms = self.now_ms + much_ms
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self._carry_out(self.shard.on_time(self.now_ms, WALL_MS + self.now_ms))
        self.now_ms = until_ms

    def take_over(self, kept: float) -> None:
        """The coordinator is lost, and this much of what was not committed is kept: whole writes, from the front."""
        for reply in self.shard.unload(ErrorCode.NOT_COORDINATOR):
            self._answer(reply)
        assert not self.waiting, f"{len(self.waiting)} callers were not told"
        ends = [self.committed, *(end for _, end in self.unwritten)]
        self.committed = ends[int(kept * (len(ends) - 1))]
        del self.log[self.committed :]
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupCoordinatorShard:
        self.unwritten = []
        self.last_joined = {}
        self.holders = {}
        ids = self.rng
        shard = GroupCoordinatorShard(SETTINGS, Topics(), lambda: f"{ids.getrandbits(64):016x}")
        for (key, value), _ in self.log:
            shard.replay(key, value, WALL_MS)
        self.shard = shard
        self._carry_out(shard.on_loaded(self.now_ms))
        return shard

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, WriteRecords):
                self.log += [(record, records.decode(*record)) for record in effect.records]
                self.unwritten.append((effect.write_id, len(self.log)))
            else:
                self._answer(effect)
        self.check_memory()

    # --- What has to hold -------------------------------------------------------------------------------------------

    def _answer(self, reply: GroupReply) -> None:
        call = reply.token
        assert isinstance(call, Call), reply
        assert self.waiting.pop(id(call), None) is not None, f"a second answer to {call.request}: {reply.answer}"
        self.answers += 1
        self._check_answer(call, reply.answer)
        if call.client is not None and call.client.waits_for is call:
            call.client.waits_for = None
            call.client.on_answer(reply.answer)

    def _check_answer(self, call: Call, answer: Answer) -> None:
        request = call.request
        assert answer.error is not ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{request}: everybody knows both protocols"
        if answer.error is not ErrorCode.NONE:
            return
        match request:
            case OffsetFetch():
                assert isinstance(answer, OffsetFetchAnswer)
                uncommitted = self.log[self.committed : call.log_end]
                unsafe = [record for _, record in uncommitted if record.group_id == request.group_id]
                assert not unsafe, f"{request} is answered {answer}, before {unsafe} are committed"
                assert answer.offsets == call.offsets, f"{request}: {answer.offsets}, in the log {call.offsets}"
            case OffsetCommit():
                written = {record.topic_partition for record in self._committed_offsets(request.group_id, call.log_end)}
                asked = {offset.topic_partition for offset in request.offsets}
                assert asked <= written, f"{request} is acknowledged, and not in the log"
                generation_id = request.generation_id_or_member_epoch
                if generation_id >= 0:
                    assert generation_id >= call.generation_id, f"{request}: {call.generation_id} was answered"
                    assert call.holder in (None, request.member_id), f"{request}: the instance is {call.holder}"
            case JoinGroup():
                assert isinstance(answer, JoinGroupAnswer)
                group = self._incarnation(request.group_id, len(self.log))
                self.last_joined[group] = answer.generation_id
                if request.group_instance_id is not None:
                    self.holders[group, request.group_instance_id] = answer.member_id
            case SyncGroup():
                assert isinstance(answer, SyncGroupAnswer)
                self._check_owners(request, answer)

    def _check_owners(self, request: SyncGroup, answer: SyncGroupAnswer) -> None:
        group = self._incarnation(request.group_id, self.committed)
        assert request.generation_id >= self.last_synced.get(group, -1), f"{request}: the generation fell"
        self.last_synced[group] = request.generation_id
        owners = self.synced.setdefault((group, request.generation_id), {})
        owners[request.group_instance_id or request.member_id] = answer.assignment
        owned = [each for assignment in owners.values() for each in assignment.split(b",") if each]
        assert len(owned) == len(set(owned)), f"two owners in generation {request.generation_id}: {owners}"

    def check_memory(self) -> None:
        """What the coordinator knows is what the log says, up to its end; a group in between knows more."""
        stored, offsets = self._replayed()
        groups = self.shard.groups
        assert groups.keys() == stored.keys(), f"groups {list(groups)}, in the log {list(stored)}"
        for group_id, group in groups.items():
            known = group.stored({each.member_id: each.assignment for each in group.members.values()})
            logged = replace(stored[group_id], state_timestamp_ms=known.state_timestamp_ms)
            assert logged.generation_id <= known.generation_id, f"{group_id}: {known}, in the log {logged}"
            if group.state in (GroupState.STABLE, GroupState.EMPTY):
                assert known == logged, f"{group_id}: {known}, in the log {logged}"
            held = self.shard.offsets.of(group_id)
            assert held == offsets.of(group_id), f"{group_id}: offsets {held}, in the log {offsets.of(group_id)}"

    def _replayed(self) -> tuple[dict[str, StoredGroup], CommittedOffsets]:
        """What the log says at its end."""
        stored: dict[str, StoredGroup] = {}
        offsets = CommittedOffsets()
        for _, record in self.log:
            if isinstance(record, OffsetRecord):
                offsets.replay(record)
                if record.value is not None:
                    stored.setdefault(record.group_id, StoredGroup())
            elif record.value is None:
                stored.pop(record.group_id, None)
            else:
                before = stored.get(record.group_id, StoredGroup()).generation_id
                assert record.value.generation_id >= before, f"{record} after generation {before}"
                stored[record.group_id] = record.value
        return stored, offsets

    def _incarnation(self, group_id: str, end: int) -> Incarnation:
        """A group that is deleted begins anew."""
        deleted = GroupRecord(group_id, None)
        return group_id, sum(record == deleted for _, record in self.log[:end])

    def _committed_offsets(self, group_id: str, start: int) -> Iterator[OffsetRecord]:
        for _, record in self.log[start : self.committed]:
            if isinstance(record, OffsetRecord) and record.group_id == group_id:
                yield record

    # --- How it ends ------------------------------------------------------------------------------------------------

    def run_dry(self, until: Callable[[], bool], tick: Callable[[], None]) -> None:
        """No more faults: everything is committed at once. Fails if `until` does not hold in time."""
        end_ms = self.now_ms + QUIET_MS
        while not until():
            assert self.now_ms < end_ms, f"after {QUIET_MS} ms: {self.describe()}"
            tick()
            self.commit(len(self.unwritten))
            self.pass_time(500)
            self.commit(len(self.unwritten))

    def describe(self) -> str:
        groups = (f"{key}={group.state} {list(group.members)}" for key, group in self.shard.groups.items())
        return f"{'; '.join(groups)}; {len(self.waiting)} calls wait"

    def everybody_is_gone(self) -> bool:
        return not self.waiting and all(group.is_empty for group in self.shard.groups.values())

    def everybody_is_in(self) -> bool:
        groups = self.shard.groups
        return all(
            client.has_synced
            and (group := groups.get(client.group_id)) is not None
            and group.state is GroupState.STABLE
            and client.member_id in group.members
            for client in self.clients
        )

    def let_clients_go_on(self) -> None:
        for client in self.clients:
            if client.waits_for is None:
                self.call(client, client.next_request())
