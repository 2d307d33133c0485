"""Members of the classic protocol in a group of KIP-848: their generation is their member epoch (K-61).

Such a member joins with the partitions it owns, is reconciled like the others, and requests its assignment by
SyncGroup. It leads nothing: the coordinator assigns. REBALANCE_IN_PROGRESS, as the response to its heartbeat, makes it
rejoin: when the group epoch has risen, when it has to revoke, and when the partitions that it waits for are free. It
has a session timeout of its own, and its rebalance timeout for each of those steps. As in Kafka 4.1.1.

A classic group of consumers becomes such a group when the first member of KIP-848 joins, and a classic one again when
the last of those has left, as far as `group.consumer.migration.policy` allows it.
"""

from __future__ import annotations

from collections import Counter

from odradek_proto.errors import ErrorCode

from odradek_broker.core.groups import consumer_records as records
from odradek_broker.core.groups.classic import CONSUMER_PROTOCOL_TYPE, MOST_RECORDS, ClassicGroup
from odradek_broker.core.groups.consumer import ConsumerGroup, GroupRefusal
from odradek_broker.core.groups.consumer_records import (
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    TargetAssignment,
    TargetEpoch,
)
from odradek_broker.core.groups.consumer_state import ConsumerMember, subscription_of
from odradek_broker.core.groups.embedded import (
    ClassicMember,
    Subscribed,
    read_assignment,
    read_subscription,
    write_assignment,
    write_classic_member,
)
from odradek_broker.core.groups.members import elect_protocol, size_of
from odradek_broker.core.groups.messages import (
    Assignment,
    CoordinatorRecord,
    ErrorAnswer,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    LeavingMember,
    MemberProtocol,
    SyncGroup,
    SyncGroupAnswer,
)
from odradek_broker.core.groups.records import StoredGroup, StoredMember


class MixedGroup(ConsumerGroup):
    """Any group of KIP-848: most have no classic member."""

    # --- JoinGroup --------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroup, now_ms: int) -> tuple[list[CoordinatorRecord], JoinGroupAnswer]:
        """The session timeout was looked at before. A dynamic member is told its id first, as in a classic group."""
        try:
            answer = self._join(request, now_ms)
        except GroupRefusal as why:
            assert not self._written, request
            return [], JoinGroupAnswer(why.error, request.member_id)
        return self._take_written(), answer

    def _join(self, request: JoinGroup, now_ms: int) -> JoinGroupAnswer:
        self._check_room(request.member_id)
        subscribed = self._subscribed(request)
        member_id, instance_id = request.member_id or self._new_id(), request.group_instance_id
        if not request.member_id and instance_id is None and request.requires_known_member_id:
            return JoinGroupAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        replaced = None if instance_id is None else self._holder(request.member_id, instance_id)
        known = self.members.get(replaced or member_id)
        after = MemberMetadata(
            instance_id=instance_id,
            rack_id=subscribed.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=tuple(sorted(set(subscribed.topics))),
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            classic=write_classic_member(ClassicMember(request.session_timeout_ms, request.protocols)),
        )
        resubscribes = known is None or subscription_of(known.metadata) != subscription_of(after)

        # From here on nothing is refused.
        self._take_in(member_id, replaced, after)
        self._drop_unused_regexes()
        metadata_hash = self._hash_of_topics()
        if resubscribes or metadata_hash != self.metadata_hash:
            self._write(records.GROUP, "", GroupEpoch(self.epoch + 1, metadata_hash))
        if self.epoch > self.target_epoch:
            self._assign()
        self._reconcile(member_id, self._by_id(subscribed), now_ms)
        self._start_session(member_id, now_ms)
        self._steps.set(member_id, now_ms + request.rebalance_timeout_ms)
        epoch, name = self.members[member_id].current.epoch, request.protocols[0].name
        return JoinGroupAnswer(ErrorCode.NONE, member_id, epoch, CONSUMER_PROTOCOL_TYPE, name)

    def _subscribed(self, request: JoinGroup) -> Subscribed:
        """What its most wanted protocol says. Raises `GroupRefusal`."""
        refusal = GroupRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
            raise refusal
        others = [each.classic for key, each in self.members.items() if each.classic and key != request.member_id]
        counts = Counter(name for each in others for name in {protocol.name for protocol in each.protocols})
        if others and not any(counts[each.name] == len(others) for each in request.protocols):
            raise refusal
        size, most = size_of(request), self.settings.max_record_bytes
        held = sum(len(each.metadata.classic or b"") for each in self.members.values())
        if size > most // 2 or held + size > MOST_RECORDS * most:
            raise GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        try:
            return read_subscription(request.protocols[0].metadata)
        except ValueError:
            raise refusal from None

    def _holder(self, member_id: str, instance_id: str) -> str | None:
        """Whom a static member replaces, None for nobody. Raises `GroupRefusal`."""
        holder = self.static.get(instance_id)
        if member_id and holder is None:
            raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, "")
        if member_id and holder != member_id:
            raise GroupRefusal(ErrorCode.FENCED_INSTANCE_ID, "")
        return None if member_id else holder

    def _by_id(self, subscribed: Subscribed) -> Assignment:
        known = {name: self._metadata.topic_id(name) for name in subscribed.owned}
        return {topic_id: subscribed.owned[name] for name, topic_id in known.items() if topic_id is not None}

    # --- SyncGroup, Heartbeat, LeaveGroup ---------------------------------------------------------------------------

    def sync(self, request: SyncGroup, now_ms: int) -> SyncGroupAnswer:
        member, error = self._classic_member(request.member_id, request.group_instance_id)
        if member is None or member.classic is None:
            return SyncGroupAnswer(error)
        classic, current = member.classic, member.current
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            return SyncGroupAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name not in (None, classic.protocol_name):
            return SyncGroupAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.generation_id != current.epoch:
            return SyncGroupAnswer(ErrorCode.ILLEGAL_GENERATION)
        if self.epoch > current.epoch and current.state != MemberState.UNREVOKED_PARTITIONS:
            self._has_to_join(request.member_id, now_ms)
            return SyncGroupAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
        self._steps.clear(request.member_id)
        self._start_session(request.member_id, now_ms)
        assignment = self._written_for(classic, current.assigned)
        return SyncGroupAnswer(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, classic.protocol_name, assignment)

    def classic_heartbeat(self, request: Heartbeat, now_ms: int) -> ErrorAnswer:
        member, error = self._classic_member(request.member_id, request.group_instance_id)
        if member is None:
            return ErrorAnswer(error)
        current = member.current
        if request.generation_id != current.epoch:
            return ErrorAnswer(ErrorCode.ILLEGAL_GENERATION)
        self._start_session(request.member_id, now_ms)
        is_free = current.state == MemberState.UNRELEASED_PARTITIONS and not self._waits(request.member_id, current)
        if current.epoch < self.epoch or current.state == MemberState.UNREVOKED_PARTITIONS or is_free:
            self._has_to_join(request.member_id, now_ms)
            return ErrorAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
        return ErrorAnswer(ErrorCode.NONE)

    def classic_leave(self, request: LeaveGroup) -> tuple[list[CoordinatorRecord], LeaveGroupAnswer]:
        answers, gone = [], dict[str, None]()
        for each in request.members:
            member_id, error = self._leaving(each)
            if error is ErrorCode.NONE and member_id in gone:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif error is ErrorCode.NONE:
                gone[member_id] = None
            answers.append((each, error))
        if gone:
            self._remove(list(gone))
        return self._take_written(), LeaveGroupAnswer(ErrorCode.NONE, tuple(answers))

    def _leaving(self, leaving: LeavingMember) -> tuple[str, ErrorCode]:
        if not leaving.member_id:  # by an administrator, of either protocol
            holder = self.static.get(leaving.group_instance_id or "", "")
            return holder, ErrorCode.NONE if holder else ErrorCode.UNKNOWN_MEMBER_ID
        return leaving.member_id, self._classic_member(leaving.member_id, leaving.group_instance_id)[1]

    def _classic_member(self, member_id: str, instance_id: str | None) -> tuple[ConsumerMember | None, ErrorCode]:
        """The member, or why it is none of the classic protocol here."""
        if instance_id is not None and (holder := self.static.get(instance_id)) != member_id:
            return None, ErrorCode.UNKNOWN_MEMBER_ID if holder is None else ErrorCode.FENCED_INSTANCE_ID
        member = self.members.get(member_id)
        if member is None or member.classic is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        return member, ErrorCode.NONE

    def _has_to_join(self, member_id: str, now_ms: int) -> None:
        """It has its rebalance timeout to do so, from when it was told first."""
        if not self._steps.is_set(member_id):
            self._steps.set(member_id, now_ms + self.members[member_id].metadata.rebalance_timeout_ms)

    def _waits(self, member_id: str, current: CurrentAssignment) -> bool:
        """Whether another member still owns a partition of its target."""
        return any(
            partition not in current.assigned.get(topic_id, ()) and (topic_id, partition) in self.owners
            for topic_id, partitions in self.targets.get(member_id, {}).items()
            for partition in partitions
        )

    def _written_for(self, classic: ClassicMember, assignment: Assignment) -> bytes:
        named = ((self._metadata.topic_name(topic_id), partitions) for topic_id, partitions in assignment.items())
        return write_assignment(classic.subscription.version, [(name, each) for name, each in named if name])

    # --- Upgrade and downgrade --------------------------------------------------------------------------------------

    def take_over(self, group: ClassicGroup) -> list[CoordinatorRecord]:
        """This group, which is new, becomes what the classic one is. Raises ValueError where that cannot be read.

        Its members have what they were assigned, at the epoch of their generation.
        """
        name = group.protocol_name or elect_protocol(group.members.values())
        for member_id, member in group.members.items():
            subscribed = read_subscription(member.metadata(name))
            topics, user_data = read_assignment(member.assignment) if member.assignment else ({}, b"")
            if user_data:
                raise ValueError("an unsupported custom assignor is in use")
            assigned = self._by_id(Subscribed(0, (), topics))
            wanted_first = sorted(member.protocols, key=lambda each: each.name != name)
            metadata = MemberMetadata(
                instance_id=member.instance_id,
                rack_id=subscribed.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                topic_names=tuple(sorted(set(subscribed.topics))),
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=write_classic_member(ClassicMember(member.session_timeout_ms, tuple(wanted_first))),
            )
            epoch = group.generation_id
            self._write(records.MEMBER, member_id, metadata)
            self._write(records.TARGET, member_id, TargetAssignment(assigned))
            self._write(records.CURRENT, member_id, CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned))
        self._write(records.GROUP, "", GroupEpoch(group.generation_id, self._hash_of_topics()))
        self._write(records.TARGET_EPOCH, "", TargetEpoch(group.generation_id))
        return self._take_written()

    @property
    def is_all_classic(self) -> bool:
        return bool(self.members) and all(each.classic is not None for each in self.members.values())

    def as_classic(self, wall_ms: int) -> tuple[StoredGroup, dict[str, tuple[MemberProtocol, ...]]]:
        """As it is written, and all protocols of its members. It has to be rebalanced."""
        classic = {key: each.classic for key, each in sorted(self.members.items()) if each.classic is not None}
        counts = Counter(protocol.name for each in classic.values() for protocol in each.protocols)
        name = max(counts, key=lambda each: counts[each])
        members = tuple(self._stored(member_id, each, name) for member_id, each in classic.items())
        protocols = {member_id: each.protocols for member_id, each in classic.items()}
        return StoredGroup(CONSUMER_PROTOCOL_TYPE, self.epoch, name, None, wall_ms, members), protocols

    def _stored(self, member_id: str, classic: ClassicMember, name: str) -> StoredMember:
        metadata = self.members[member_id].metadata
        return StoredMember(
            member_id,
            metadata.instance_id,
            metadata.client_id,
            metadata.client_host,
            metadata.rebalance_timeout_ms,
            classic.session_timeout_ms,
            next((each.metadata for each in classic.protocols if each.name == name), b""),
            self._written_for(classic, self.targets.get(member_id, {})),
        )
