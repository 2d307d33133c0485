"""A group coordinator, held to what has to be true of its memory, its members and its waits (K-64).

Every request, answer and step of a shard is seen here, and the records of its log are replayed into a second shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from odradek_broker.core.groups.classic import ClassicGroup, GroupState
from odradek_broker.core.groups.consumer_records import CurrentAssignment, MemberState
from odradek_broker.core.groups.consumer_state import ReplayedGroup
from odradek_broker.core.groups.messages import (
    Answer,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    Effect,
    GroupReply,
    GroupSettings,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    OffsetCommit,
    Request,
    SyncGroup,
)
from odradek_broker.core.groups.records import NO_TIMESTAMP, StoredGroup
from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.runtime.groups.coordinator import ImageView
from odradek_proto.errors import ErrorCode
from odradek_proto.records import Record
from odradek_proto.values import replace

OVER = "group-over-is-refused"
MEMORY, LOST_MEMBER, WAIT = "group-memory-equals-log", "group-no-lost-member", "group-wait-ends"
SLACK_MS = 600  # timers are looked at again after 500 ms when the partition took no writes
LONGEST_LOOK_MS = 100  # of the time between two looks no more counts: the process may have been frozen

Who = tuple[str, str]  # group id and member id


@dataclass(slots=True)
class _Member:
    """A member as it was after the last step."""

    instance_id: str | None
    session_ms: int
    rebalance_ms: int
    waits: bool = False  # of the classic protocol: for the others, or it does not know that it is a member
    generation_id: int = 0  # of a classic group
    revokes: CurrentAssignment | None = None  # of KIP-848: while it has something to give up
    accepted_ms: int = 0  # when it was last heard of with something that was answered without an error
    silent_ms: int = 0
    revoking_ms: int = 0


@dataclass(slots=True)
class _Call:
    request: Request
    asked_ms: int
    is_over: bool = False  # it commits in another generation or member epoch than that of now
    is_replaced: bool = False  # another process has the sender's instance id
    held_ms: int = 0  # it waited, for a write among others
    waited_ms: int = 0  # it waited, and not for a write


@dataclass(slots=True)
class _Unsynced:
    """It has joined a generation whose members have to ask for their assignments, and has not asked."""

    generation_id: int
    ms: int = 0


class CoordinatorCheck:
    """Of one shard, from when it was loaded to when it is thrown away."""

    def __init__(
        self,
        shard: GroupCoordinatorShard,
        settings: GroupSettings,
        commit_timeout_ms: int,
        report: Callable[[str, str], None],
        now_ms: int,
    ) -> None:
        self.shard = shard
        self.replayed_to = -1  # the offset behind the last record that the second shard has; -1: none
        self._settings = settings
        self._commit_timeout_ms = commit_timeout_ms
        self._report = report
        self._replayed = GroupCoordinatorShard(settings, ImageView(MetadataImage), str)
        self._calls: dict[object, _Call] = {}
        self._members: dict[Who, _Member] = {}
        self._unsynced: dict[Who, _Unsynced] = {}
        self._now_ms = now_ms
        self._longest_ms = settings.initial_rebalance_delay_ms
        self.stepped((), now_ms)

    # --- Requests, answers, steps -----------------------------------------------------------------------------------

    def asked(self, request: Request, token: object, now_ms: int) -> None:
        is_over = isinstance(request, OffsetCommit) and self._is_over(request)
        self._calls[token] = _Call(request, now_ms, is_over, self._is_replaced(request))
        if isinstance(request, SyncGroup):
            self._unsynced.pop((request.group_id, request.member_id), None)
        if (who := self._sender(request)) in self._members:
            self._members[who].silent_ms = 0

    def cancelled(self, token: object) -> None:
        self._calls.pop(token, None)

    def stepped(self, effects: Iterable[Effect], now_ms: int, request: Request | None = None) -> None:
        """`request` is what the step began with."""
        self._now_ms = now_ms
        before, self._members = self._members, dict(self._present())
        for who, member in before.items():
            if who not in self._members and not _removes(request, who, member):
                self._judge_removal(who, member)
        for effect in effects:
            if isinstance(effect, GroupReply):
                self._answered(effect)
        self._judge_timer()

    def _judge_timer(self) -> None:
        """A member that may fall silent has a timer: the next one of its kind is due before that session ends."""
        for what, groups, due_ms in (
            ("classic", self.shard.groups, self.shard.waits.next_deadline_ms()),
            ("consumer", self.shard.consumers.ids(), self.shard.consumers.next_deadline_ms()),
        ):
            sessions = [each.session_ms for who, each in self._members.items() if who[0] in groups and not each.waits]
            if sessions and (due_ms is None or due_ms > self._now_ms + min(sessions)):
                self._report(WAIT, f"the next timer of {what} groups is due at {due_ms}, at {self._now_ms}")

    def _answered(self, reply: GroupReply) -> None:
        call, answer = self._calls.pop(reply.token, None), reply.answer
        if call is None:
            self._report(WAIT, f"a second answer to a request: {answer}")
        elif call.is_replaced and answer.error is ErrorCode.UNKNOWN_MEMBER_ID:  # who joins anew then takes it back
            self._report(OVER, f"a process whose place is taken was not told so: {call.request}")
        elif answer.error is ErrorCode.NONE:
            if call.is_over:
                self._report(OVER, f"a commit was taken that was over when it came: {call.request}")
            if (who := self._sender(call.request)) is not None:
                self._heard_of(who, call, answer)

    def _heard_of(self, who: Who, call: _Call, answer: Answer) -> None:
        """A member's request was answered without an error."""
        if isinstance(answer, JoinGroupAnswer):
            who = who[0], answer.member_id
            if self._state(who[0]) is GroupState.COMPLETING:
                self._unsynced[who] = _Unsynced(answer.generation_id)
        if isinstance(call.request, OffsetCommit) and self._state(who[0]) is not GroupState.STABLE:
            return  # whoever does not join again in time is removed, commits or not
        if isinstance(call.request, Heartbeat) and who in self._unsynced:
            return  # and so is who does not sync
        if (member := self._members.get(who)) is not None:
            is_phase = isinstance(call.request, JoinGroup | SyncGroup)  # the session begins anew with its answer
            member.accepted_ms = self._now_ms if is_phase else call.asked_ms
            member.silent_ms = 0 if is_phase else member.silent_ms

    def _sender(self, request: Request) -> Who | None:
        """The member, if a request keeps its session: a commit does so in a classic group alone (K-50), and a static
        member that leaves for a while does not."""
        match request:
            case ConsumerGroupHeartbeat():
                is_kept = request.member_epoch >= 0
            case OffsetCommit():
                is_kept = request.group_id in self.shard.groups
            case Heartbeat() | JoinGroup() | SyncGroup():
                is_kept = True
            case _:
                return None
        return (request.group_id, request.member_id) if is_kept else None

    def _is_replaced(self, request: Request) -> bool:
        """Of a classic group (K-51)."""
        if not isinstance(request, JoinGroup | SyncGroup | Heartbeat | OffsetCommit) or not request.member_id:
            return False
        group = self.shard.groups.get(request.group_id)
        holder = None if group is None else group.static.get(request.group_instance_id or "")
        return holder is not None and holder != request.member_id

    def _is_over(self, commit: OffsetCommit) -> bool:
        """The commit of another generation, or another epoch of its member, than that of now (K-50, K-60)."""
        generation_id = commit.generation_id_or_member_epoch
        if (group := self.shard.groups.get(commit.group_id)) is not None:
            return 0 <= generation_id != group.generation_id
        consumers = self.shard.consumers.get(commit.group_id)
        member = None if consumers is None else consumers.members.get(commit.member_id)
        return member is not None and generation_id != member.current.epoch

    def _state(self, group_id: str) -> GroupState | None:
        group = self.shard.groups.get(group_id)
        return None if group is None else group.state

    def _judge_removal(self, who: Who, member: _Member) -> None:
        """Who was heard of and answered without an error a moment ago is late with nothing, unless it has to revoke."""
        silent_ms = self._now_ms - member.accepted_ms
        if member.revokes is None and silent_ms < min(member.session_ms, member.rebalance_ms):
            group_id, member_id = who
            self._report(LOST_MEMBER, f"{member_id} of {group_id} is removed {silent_ms} ms after it was heard of")

    def _present(self) -> Iterator[tuple[Who, _Member]]:
        for group_id, group in self.shard.groups.items():
            for member_id, each in group.members.items():
                waits = each.join is not None or each.sync is not None or each.is_new
                facts = each.instance_id, each.session_timeout_ms, each.rebalance_timeout_ms
                yield self._seen((group_id, member_id), _Member(*facts, waits, group.generation_id))
        session_ms = self._settings.consumer_session_timeout_ms
        for consumers in _consumer_groups(self.shard):
            for member_id, consumer in consumers.members.items():
                metadata, current = consumer.metadata, consumer.current
                revokes = current if current.state == MemberState.UNREVOKED_PARTITIONS else None
                facts = metadata.instance_id, session_ms, metadata.rebalance_timeout_ms
                yield self._seen((consumers.group_id, member_id), _Member(*facts, revokes=revokes))

    def _seen(self, who: Who, now: _Member) -> tuple[Who, _Member]:
        before = self._members.get(who)
        self._longest_ms = max(self._longest_ms, now.rebalance_ms)
        now.accepted_ms = self._now_ms if before is None else before.accepted_ms
        if before is not None and before.generation_id == now.generation_id:
            now.silent_ms = before.silent_ms  # a generation begins with a session for all, who did not come included
        if before is not None and before.revokes == now.revokes:
            now.revoking_ms = before.revoking_ms
        return who, now

    # --- Time -------------------------------------------------------------------------------------------------------

    def passed(self, ms: int, *, writes: bool) -> None:
        """The process ran and the partition took writes; `writes`: one of them is not committed yet."""
        ms = min(ms, LONGEST_LOOK_MS)
        most_ms = self._longest_ms + SLACK_MS
        for call in self._calls.values():
            call.held_ms += ms
            call.waited_ms += 0 if writes else ms
            if call.waited_ms > most_ms or call.held_ms > most_ms + self._commit_timeout_ms:
                self._report(WAIT, f"no answer after {call.held_ms} ms to {call.request}")
        for (group_id, member_id), member in self._members.items():
            if member.waits:
                continue
            member.silent_ms += ms
            member.revoking_ms += ms if member.revokes is not None else 0
            if member.silent_ms > member.session_ms + SLACK_MS or member.revoking_ms > member.rebalance_ms + SLACK_MS:
                self._report(WAIT, f"{member_id} of {group_id} is a member still: {member}")
        for who, unsynced in tuple(self._unsynced.items()):
            group = self.shard.groups.get(who[0])
            is_over = (
                group is None or group.state is GroupState.PREPARING or group.generation_id != unsynced.generation_id
            )
            if is_over or who not in self._members:
                del self._unsynced[who]
                continue
            unsynced.ms += ms
            if unsynced.ms > most_ms:
                self._report(WAIT, f"{who[1]} of {who[0]} is a member still, {unsynced.ms} ms after it was to sync")

    # --- Memory -----------------------------------------------------------------------------------------------------

    def replay(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.key is not None:
                self._replayed.replay(record.key, record.value, record.timestamp)

    def compare(self) -> None:
        """What was replayed is all that was appended."""
        known, logged = self.shard, self._replayed
        for what, one, other in (
            ("offsets", _offsets(known), _offsets(logged)),
            ("groups", set(known.groups), set(logged.groups)),
            ("groups of KIP-848", *([_recorded(each) for each in _consumer_groups(one)] for one in (known, logged))),
        ):
            if one != other:
                self._report(MEMORY, f"{what} in memory: {one}, in the log: {other}")
                return
        for group_id, group in known.groups.items():
            now, then = _stored(group), _stored(logged.groups[group_id])
            is_written = group.state in (GroupState.STABLE, GroupState.EMPTY)
            if then.generation_id > now.generation_id or (is_written and now != then):
                self._report(MEMORY, f"{group_id} in memory: {now}, in the log: {then}")
                return


def _removes(request: Request | None, who: Who, member: _Member) -> bool:
    """Whether the request asks for it: the member leaves, or another process takes the place of a static one."""
    match request:
        case LeaveGroup() | DeleteGroup():
            return request.group_id == who[0]
        case JoinGroup() | ConsumerGroupHeartbeat():
            leaves = isinstance(request, ConsumerGroupHeartbeat) and request.member_epoch < 0
            same = (request.group_id, request.member_id) == who if leaves else False
            return same or (member.instance_id is not None and request.group_instance_id == member.instance_id)
        case _:
            return False


def _consumer_groups(shard: GroupCoordinatorShard) -> Iterator[ReplayedGroup]:
    for group_id in sorted(shard.consumers.ids()):
        group = shard.consumers.get(group_id)
        assert group is not None, group_id
        yield group


def _offsets(shard: GroupCoordinatorShard) -> dict[str, Any]:
    return {group_id: dict(shard.offsets.of(group_id)) for group_id in sorted({each for each, _, _ in shard.offsets})}


def _stored(group: ClassicGroup) -> StoredGroup:
    """As it is written, but for the time: a group is stable a little later than its record says."""
    stored = group.stored({each.member_id: each.assignment for each in group.members.values()})
    return replace(stored, state_timestamp_ms=NO_TIMESTAMP)


def _recorded(group: ReplayedGroup) -> dict[str, Any]:
    """Everything that records say of a group of KIP-848."""
    return {
        "group": group.group_id,
        "epochs": (group.epoch, group.target_epoch, group.metadata_hash),
        "members": {name: (member.metadata, member.current) for name, member in group.members.items()},
        "targets": {name: target for name, target in group.targets.items() if target},
        "owners": group.owners,
        "static": group.static,
        "regexes": group.regexes,
    }
