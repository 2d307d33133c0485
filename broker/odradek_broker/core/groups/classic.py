"""A group of the classic protocol: its members join, one of them assigns, all of them sync (R-271 to R-277).

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable
                 joins wait            syncs wait for the leader's assignment, and that for its commit

Subscriptions and assignments of members are opaque here (K-44), except to find the topics to which a group of consumers
is subscribed. Corresponds to GroupMetadataManager of Kafka 4.1.1; differences are marked.

A group's waits are delayed operations: the join and sync phases, under the group's id, and one session for each member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from odradek_proto.errors import ErrorCode

from odradek_broker.core.groups.commit_queue import CommitQueue
from odradek_broker.core.groups.members import (
    ClassicGroupMember,
    common_protocols,
    elect_protocol,
    size_of,
    subscriptions_of,
)
from odradek_broker.core.groups.messages import (
    CoordinatorRecord,
    DescribeGroupAnswer,
    ErrorAnswer,
    GroupSettings,
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    LeavingMember,
    MemberProtocol,
    SyncGroup,
    SyncGroupAnswer,
)
from odradek_broker.core.groups.records import NO_TIMESTAMP, CommittedOffset, GroupRecord, StoredGroup, encode
from odradek_broker.core.groups.waits import GroupPhase, Sessions, Waits, never

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
MOST_RECORDS: Final = 8  # that what members bring, and what they cost, would fill: of several protocols one is written
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000  # group.new.member.join.timeout.ms of Kafka's code: it is no setting there


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


_MOVES: Final = {
    GroupState.EMPTY: (GroupState.PREPARING,),
    GroupState.PREPARING: (GroupState.COMPLETING, GroupState.EMPTY),
    GroupState.COMPLETING: (GroupState.STABLE, GroupState.PREPARING),
    GroupState.STABLE: (GroupState.PREPARING,),
}
"""R-271."""


class ClassicGroup:
    kind = "classic"

    def __init__(self, group_id: str, settings: GroupSettings, queue: CommitQueue, waits: Waits) -> None:
        self.group_id = group_id
        self._settings = settings
        self._queue = queue
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = queue.wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}  # in the order in which they came
        self.pending: dict[str, int] = {}  # ids that were given out, and have not joined yet (KIP-394), and their sizes
        self.static: dict[str, str] = {}  # member id by instance id
        self._subscribed: frozenset[str] | None = None  # None: not known
        self._sessions = Sessions(queue, waits, self._on_session_over)
        self._phase = GroupPhase(group_id, queue, waits)  # joining or syncing
        self._is_initial = False  # of the join phase: the group was empty
        self._joined_meanwhile = False  # somebody new, in the present turn of the initial delay
        self._to_sync: dict[str, None] = {}  # members that have not synced in this generation
        self._assigned_generation = -1  # whose assignment is being written

    # --- What others ask --------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def validate_commit(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Also keeps the session of the member alive, as a heartbeat does (R-276, K-50)."""
        if generation_id < 0 and self.is_empty:
            return ErrorCode.NONE
        if generation_id < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID  # a simple consumer, and the group has members
        if (error := self._validate_generation(member_id, instance_id, generation_id)) is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._heard_of(self.members[member_id])
        return ErrorCode.NONE

    @property
    def has_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed(self, topic: str) -> bool:
        """Of consumers whose subscriptions cannot be read: any topic may be one of them."""
        if self._subscribed is None:
            return self.has_consumers
        return topic in self._subscribed

    def offset_counts_from(self, offset: CommittedOffset) -> int | None:
        """Since when an offset of a topic without subscription is not in use; None: it is (K-55)."""
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if self.is_empty:
            return offset.commit_timestamp_ms if self.state_timestamp_ms == NO_TIMESTAMP else self.state_timestamp_ms
        is_known = self.has_consumers and self._subscribed is not None
        return offset.commit_timestamp_ms if is_known and self.state is GroupState.STABLE else None

    def describe(self) -> DescribeGroupAnswer:
        is_stable = self.state is GroupState.STABLE
        return DescribeGroupAnswer(
            ErrorCode.NONE,
            state=self.state,
            protocol_type=self.protocol_type or "",
            protocol_name=self.protocol_name or "" if is_stable else "",
            members=tuple(each.described(self.protocol_name if is_stable else None) for each in self.members.values()),
        )

    def stored(self, assignments: Mapping[str, bytes]) -> StoredGroup:
        """As it is written, with these assignments."""
        kind, name, since_ms = self.protocol_type or "", self.protocol_name, self.state_timestamp_ms
        members = tuple(each.stored(name, assignments.get(each.member_id, b"")) for each in self.members.values())
        return StoredGroup(kind, self.generation_id, name, self.leader, since_ms, members)

    # --- Loading and going ------------------------------------------------------------------------------------------

    def replay(self, stored: StoredGroup) -> None:
        """Of a group that was just made: only stable and empty groups are written."""
        self.state = GroupState.STABLE if stored.members else GroupState.EMPTY
        self.state_timestamp_ms = stored.state_timestamp_ms
        self.generation_id = stored.generation_id
        self.protocol_type = stored.protocol_type or None
        self.protocol_name = stored.protocol_name
        self.leader = stored.leader
        for each in stored.members:
            self.members[each.member_id] = ClassicGroupMember.of(each, stored)
            if each.group_instance_id is not None:
                self.static[each.group_instance_id] = each.member_id
        self._read_subscriptions()

    def on_loaded(self) -> None:
        """Every member has a whole session to come to this coordinator (K-42)."""
        for member in self.members.values():
            self._heard_of(member)
        if len(self.members) > self._settings.max_size:  # the setting has changed
            self._prepare_rebalance()

    def on_downgraded(self, protocols: Mapping[str, tuple[MemberProtocol, ...]]) -> None:
        """It was a group of KIP-848 (mixed.py), of members that support these: all of them have to join."""
        for member in self.members.values():
            member.protocols = protocols[member.member_id]
            self._heard_of(member)
        self._prepare_rebalance()

    def close(self) -> None:
        """The group is deleted, or is one of KIP-848 now: nothing of it may come later."""
        for member in self.members.values():
            self._answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
            self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._sessions.close()
        self._phase.close()

    # --- JoinGroup --------------------------------------------------------------------------------------------------

    def on_join(self, request: JoinGroup, token: object, new_id: Callable[[], str]) -> None:
        """K-45 in Kafka's order; the empty id and the session timeout were looked at before."""
        member_id = request.member_id
        if not self._has_room_for(member_id):
            self._remove(member_id)
            self._queue.reply(token, JoinGroupAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not self._has_bytes_for(request):
            self._queue.reply(token, JoinGroupAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, member_id))
        elif not self._supports(request):
            self._queue.reply(token, JoinGroupAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif not member_id:
            self._on_new_member(request, token, new_id)
        elif member_id in self.pending and request.group_instance_id is None:
            self._add(member_id, request, token)
        elif (error := self._validate(member_id, request.group_instance_id)) is not ErrorCode.NONE:
            self._queue.reply(token, JoinGroupAnswer(error, member_id))
        else:
            self._on_rejoin(self.members[member_id], request, token)

    def _has_room_for(self, member_id: str) -> bool:
        """Kafka's `acceptJoiningMember`: while members join, those that came are counted, so that the last stay out."""
        if self.state is GroupState.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING:
            if member is not None and member.join is not None:
                return True
            return sum(each.join is not None for each in self.members.values()) < self._settings.max_size
        return member is not None or len(self.members) < self._settings.max_size

    def _has_bytes_for(self, request: JoinGroup) -> bool:
        """Unlike Kafka, which finds out when the group is written, and keeps whatever was brought until then."""
        others = sum(each.size for each in self.members.values() if each.member_id != request.member_id)
        wanted = others + sum(self.pending.values()) + size_of(request)
        return wanted <= MOST_RECORDS * self._settings.max_record_bytes

    def _supports(self, request: JoinGroup) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        common = common_protocols(self.members.values())
        known = not self.members or any(each.name in common for each in request.protocols)  # all may have left
        return request.protocol_type == self.protocol_type and bool(request.protocols) and known

    def _on_new_member(self, request: JoinGroup, token: object, new_id: Callable[[], str]) -> None:
        instance_id = request.group_instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{new_id()}"
        if instance_id is not None and instance_id in self.static:
            self._replace_static(self.static[instance_id], member_id, request, token)
        elif instance_id is None and request.requires_known_member_id:
            self.pending[member_id] = size_of(request)
            self._sessions.start(member_id, request.session_timeout_ms)
            self._queue.reply(token, JoinGroupAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(member_id, request, token)

    def _on_rejoin(self, member: ClassicGroupMember, request: JoinGroup, token: object) -> None:
        unchanged = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING and unchanged:  # the answer was lost
            self._queue.reply(token, self._joined(member))
        elif self.state is GroupState.STABLE and unchanged and member.member_id != self.leader:
            self._queue.reply(token, self._joined(member, tell_members=False))
        else:
            # A leader that joins again wants a new assignment: its topics have changed, perhaps.
            self._update(member, request, token)
            self._rebalance_or_complete_join()

    def _add(self, member_id: str, request: JoinGroup, token: object) -> None:
        member = ClassicGroupMember(member_id, request)
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        self.pending.pop(member_id, None)
        if member.instance_id is not None:
            self.static[member.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        member.join = token
        self._joined_meanwhile = True
        # It does not know its id, and so it cannot send heartbeats. It is not kept forever if its client went.
        self._sessions.start(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete_join()

    def _update(self, member: ClassicGroupMember, request: JoinGroup, token: object) -> None:
        """Unlike in Kafka, the call that waited is answered: it would wait for nothing."""
        self._answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.protocols, member.size = request.protocols, size_of(request)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join = token

    def _replace_static(self, old_id: str, new_id: str, request: JoinGroup, token: object) -> None:
        """Another process with the instance id: the place is its own now, whoever had it is fenced (K-51)."""
        member = self.members.pop(old_id)
        self._answer_join(member, ErrorCode.FENCED_INSTANCE_ID)
        self._answer_sync(member, ErrorCode.FENCED_INSTANCE_ID)
        old_leader = self.leader
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        assert member.instance_id is not None, old_id
        self.static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        self._sessions.end(old_id)
        self._heard_of(member)
        self._update(member, request, token)
        if self.state is GroupState.COMPLETING:  # the leader assigns to the old id
            self._prepare_rebalance()
        elif self.state is GroupState.STABLE and elect_protocol(self.members.values()) == self.protocol_name:
            self._keep_place(member, request, token, old_leader)
        else:
            self._rebalance_or_complete_join()

    def _keep_place(
        self, member: ClassicGroupMember, request: JoinGroup, token: object, old_leader: str | None
    ) -> None:
        """No rebalance: the new id is written, and the member takes over the assignment."""
        record = self._record({each.member_id: each.assignment for each in self.members.values()})
        if not self._can_be_written(record):
            self._prepare_rebalance()
            return
        generation_id = self.generation_id

        def joined() -> None:
            if member.join is not token or self.state is not GroupState.STABLE or self.generation_id != generation_id:
                return  # a rebalance has begun meanwhile: it waits in that
            member.join = None
            self._heard_of(member)
            answer = self._joined(member, skip_assignment=True)
            if not request.supports_skipping_assignment:
                # Such a client would assign if it heard that it leads, and nobody would rejoin (KIP-814).
                answer = self._joined(member, tell_members=False, leader=old_leader)
            self._queue.reply(token, answer)

        self._queue.then(self._queue.write((self.group_id,), (record,)), joined)

    # --- SyncGroup --------------------------------------------------------------------------------------------------

    def on_sync(self, request: SyncGroup, token: object) -> None:
        if (error := self._sync_refusal(request)) is not ErrorCode.NONE:
            self._queue.reply(token, SyncGroupAnswer(error))
            return
        member = self.members[request.member_id]
        self._to_sync.pop(member.member_id, None)
        if self.state is GroupState.STABLE:
            self._phase.check()
            self._queue.reply(token, self._synced(member))
            return
        self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)  # unlike in Kafka: as in `_update`
        member.sync = token
        self._phase.check()
        if member.member_id == self.leader and self._assigned_generation != self.generation_id:
            self._assign(request.assignments)

    def _sync_refusal(self, request: SyncGroup) -> ErrorCode:
        if self.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._validate_generation(request.member_id, request.group_instance_id, request.generation_id)
        if error is not ErrorCode.NONE:
            return error
        for said, known in ((request.protocol_type, self.protocol_type), (request.protocol_name, self.protocol_name)):
            if said is not None and known is not None and said != known:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        """The group is stable once this is committed. The first assignment of a generation counts: it is in the log."""
        record = self._record(assignments)
        if not self._can_be_written(record):  # as Kafka, which finds it out when it appends
            for member in self.members.values():
                self._answer_sync(member, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._prepare_rebalance()
            return
        generation_id = self._assigned_generation = self.generation_id

        def stable() -> None:
            if self.state is not GroupState.COMPLETING or self.generation_id != generation_id:
                return  # a rebalance has begun meanwhile
            for member in self.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            self._move(GroupState.STABLE)
            for member in self.members.values():
                if member.sync is not None:
                    self._reply_sync(member, self._synced(member))
                    self._heard_of(member)

        self._queue.then(self._queue.write((self.group_id,), (record,)), stable)

    # --- Heartbeat and LeaveGroup -----------------------------------------------------------------------------------

    def on_heartbeat(self, request: Heartbeat) -> ErrorAnswer:
        error = self._validate_generation(request.member_id, request.group_instance_id, request.generation_id)
        if error is ErrorCode.NONE:
            self._heard_of(self.members[request.member_id])
            if self.state is GroupState.PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorAnswer(error)

    def on_leave(self, request: LeaveGroup) -> LeaveGroupAnswer:
        """The answer rests on the last write of the group: it may be empty now."""
        answers = tuple((each, self._leave(each)) for each in request.members)
        if any(error is ErrorCode.NONE for _, error in answers):
            if self.state is GroupState.PREPARING:
                self._phase.check()
            elif self.state is not GroupState.EMPTY:
                self._prepare_rebalance()
        return LeaveGroupAnswer(ErrorCode.NONE, answers)

    def _leave(self, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if not member_id:  # by an administrator
            member_id = self.static.get(leaving.group_instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id not in self.pending:
            error = self._validate(member_id, leaving.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._remove(member_id)
        return ErrorCode.NONE

    # --- The join phase ---------------------------------------------------------------------------------------------

    def _rebalance_or_complete_join(self) -> None:
        if self.state is GroupState.PREPARING:
            self._phase.check()
        else:
            self._prepare_rebalance()

    def _prepare_rebalance(self) -> None:
        if self.state is GroupState.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                if member.sync is not None:
                    self._answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
                    self._heard_of(member)
        self._phase.end()
        self._to_sync.clear()
        self._is_initial = self.is_empty
        self._move(GroupState.PREPARING)
        if self._is_initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._joined_meanwhile = False
            self._delay_initial(delay_ms, max(self._rebalance_timeout_ms() - delay_ms, 0))
        else:
            self._phase.start(self._rebalance_timeout_ms(), self._all_have_joined, lambda _: self._complete_join())
            self._phase.check()

    def _delay_initial(self, delay_ms: int, remaining_ms: int) -> None:
        """The first members of a group wait for others, as long as others come (KIP-134)."""

        def over(_: ErrorCode) -> None:
            if self._joined_meanwhile and remaining_ms:
                self._joined_meanwhile = False
                longer_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
                self._delay_initial(longer_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._complete_join()

        self._phase.start(delay_ms, never, over)

    def _all_have_joined(self) -> bool:
        return not self.pending and all(member.join is not None for member in self.members.values())

    def _complete_join(self) -> None:
        """Everybody came, or the time is over: the next generation is who is here."""
        self._phase.end()
        for member in list(self.members.values()):
            if member.join is None and member.instance_id is None:
                self._remove(member.member_id)
        if self.members and not self._elect_leader():
            # Static members alone, and none of them came: sessions decide.
            self._phase.start(self._rebalance_timeout_ms(), self._all_have_joined, lambda _: self._complete_join())
            return
        self.generation_id += 1
        self._queue.rebalances[self.kind] += 1
        if not self.members:
            self.protocol_name = None
            self._read_subscriptions()
            self._move(GroupState.EMPTY)
            self._queue.write((self.group_id,), (self._record({}),))
            return
        self.protocol_name = elect_protocol(self.members.values())
        self._read_subscriptions()
        self._move(GroupState.COMPLETING)
        for member in self.members.values():
            if member.join is not None:
                self._reply_join(member, self._joined(member))
            self._heard_of(member)
            member.is_new = False
            self._to_sync[member.member_id] = None
        self._phase.start(self._rebalance_timeout_ms(), lambda: not self._to_sync, self._on_sync_phase_over)

    def _on_sync_phase_over(self, outcome: ErrorCode) -> None:
        if outcome is ErrorCode.NONE:  # all have synced
            return
        for member_id in list(self._to_sync):
            self._remove(member_id)
        self._prepare_rebalance()

    def _elect_leader(self) -> bool:
        """The leader stays if it came; else who came first. Whether anybody came."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join is None:
            came = next((each for each in self.members.values() if each.join is not None), None)
            if came is None:
                return False
            self.leader = came.member_id
        return True

    # --- Members ----------------------------------------------------------------------------------------------------

    def _validate(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            if (holder := self.static.get(instance_id)) is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _validate_generation(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        if (error := self._validate(member_id, instance_id)) is not ErrorCode.NONE:
            return error
        return ErrorCode.NONE if generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION

    def _remove(self, member_id: str) -> None:
        """Also of an id that is pending. A rebalance, if one has to follow, is the caller's."""
        self._sessions.end(member_id)
        self.pending.pop(member_id, None)
        self._to_sync.pop(member_id, None)
        if (member := self.members.pop(member_id, None)) is None:
            return
        self._answer_join(member, ErrorCode.UNKNOWN_MEMBER_ID, member_id="")
        self._answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _read_subscriptions(self) -> None:
        members = self.members.values()
        self._subscribed = subscriptions_of(members, self.protocol_name) if self.has_consumers else None

    # --- Answers ----------------------------------------------------------------------------------------------------

    def _joined(
        self,
        member: ClassicGroupMember,
        *,
        tell_members: bool = True,
        skip_assignment: bool = False,
        leader: str | None = None,
    ) -> JoinGroupAnswer:
        leads = member.member_id == self.leader
        members: tuple[JoinedMember, ...] = ()
        if leads and tell_members:
            members = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol_name))
                for each in self.members.values()
            )
        return JoinGroupAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            leader or self.leader or "",
            leads and skip_assignment,
            members,
        )

    def _synced(self, member: ClassicGroupMember) -> SyncGroupAnswer:
        return SyncGroupAnswer(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _answer_join(self, member: ClassicGroupMember, error: ErrorCode, member_id: str | None = None) -> None:
        if member.join is not None:
            self._reply_join(member, JoinGroupAnswer(error, member.member_id if member_id is None else member_id))

    def _answer_sync(self, member: ClassicGroupMember, error: ErrorCode) -> None:
        if member.sync is not None:
            self._reply_sync(member, SyncGroupAnswer(error))

    def _reply_join(self, member: ClassicGroupMember, answer: JoinGroupAnswer) -> None:
        token, member.join = member.join, None
        self._queue.reply(token, answer)

    def _reply_sync(self, member: ClassicGroupMember, answer: SyncGroupAnswer) -> None:
        token, member.sync = member.sync, None
        self._queue.reply(token, answer)

    def _record(self, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
        return encode(GroupRecord(self.group_id, self.stored(assignments)))

    def _can_be_written(self, record: CoordinatorRecord) -> bool:
        key, value = record
        return len(key) + len(value or b"") <= self._settings.max_record_bytes

    # --- Time -------------------------------------------------------------------------------------------------------

    def _move(self, state: GroupState) -> None:
        assert state in _MOVES[self.state], (self.group_id, self.state, state)
        self.state = state
        self.state_timestamp_ms = self._queue.wall_ms

    def _heard_of(self, member: ClassicGroupMember) -> None:
        self._sessions.start(member.member_id, member.session_timeout_ms)

    def _on_session_over(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None and not member.is_new and (member.join is not None or member.sync is not None):
            return  # it waits for us; its session begins anew with the answer
        was_pending = member is None
        self._remove(member_id)
        if self.state is GroupState.PREPARING:
            if self._all_have_joined():  # as in Kafka, this ends even the initial delay
                self._complete_join()
        elif not was_pending:
            self._prepare_rebalance()
