"""A consumer group of KIP-848: members report their subscriptions and partitions, the coordinator assigns.

Three epochs (K-58). The group epoch rises with every change of members, subscriptions and topics; the target assignment
is computed once for a group epoch and carries it; each member reaches the epoch of the target in its own time
(reconciliation.py), at its heartbeats.

All state comes from records: a heartbeat creates records and applies them with `replay`, as loading does, so memory
always matches the records. Only timers are not recorded; after loading they restart. A request is refused before its
first record.

Unlike Kafka, topic name patterns are resolved at once, within the heartbeat that brings them: patterns.py takes bounded
time.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from odradek_broker.core.groups import consumer_records as records
from odradek_broker.core.groups.assignors import ASSIGNORS, AssignedMember
from odradek_broker.core.groups.consumer_records import (
    ConsumerGroupRecord,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    RecordValue,
    ResolvedRegex,
    TargetAssignment,
    TargetEpoch,
)
from odradek_broker.core.groups.consumer_state import ConsumerMember, ReplayedGroup, Subscription, subscription_of
from odradek_broker.core.groups.deadlines import Deadlines
from odradek_broker.core.groups.messages import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    Assignment,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    CoordinatorRecord,
    GroupSettings,
    MetadataView,
)
from odradek_broker.core.groups.patterns import InvalidPattern, matching
from odradek_broker.core.groups.reconciliation import contains, reconcile
from odradek_broker.core.metadata.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT

REGEX_REFRESH_MS = 10_000  # expressions are resolved again at most once in this time; Kafka's
_NO_VERSION = 0  # of the metadata that an expression was resolved with


class GroupRefusal(Exception):
    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class ConsumerGroup(ReplayedGroup):
    def __init__(
        self, group_id: str, settings: GroupSettings, metadata: MetadataView, new_id: Callable[[], str]
    ) -> None:
        super().__init__(group_id, settings)
        self._metadata = metadata
        self._new_id = new_id
        self._written: list[CoordinatorRecord] = []
        self._sessions = Deadlines()
        self._rebalances = Deadlines()  # of members that have partitions to revoke
        self._steps = Deadlines()  # of classic members that have to join again, or to ask for their assignment
        self._timers = (self._sessions, self._rebalances, self._steps)
        self._topics_changed = True  # also after loading: topics may have changed meanwhile
        self._regexes_resolved_ms: int | None = None

    # --- Events ---------------------------------------------------------------------------------------------------

    def on_topics_changed(self) -> None:
        """Topics came, grew or went: the next heartbeat of any member looks what that means."""
        self._topics_changed = True

    def on_loaded(self, now_ms: int) -> None:
        """Every member has a whole session to come to this coordinator."""
        for member_id, member in self.members.items():
            self._start_session(member_id, now_ms)
            self._start_rebalance(member_id, member, now_ms)

    def next_deadline_ms(self) -> int | None:
        times = [at for timer in self._timers if (at := timer.next_ms()) is not None]
        return min(times, default=None)

    def on_time(self, now_ms: int) -> list[CoordinatorRecord]:
        """Removes members that were silent for a session, or did not do their part within their rebalance timeout."""
        late = dict.fromkeys(member_id for timer in self._timers for member_id in timer.take_due(now_ms))
        if late:
            self._remove(list(late))
        return self._take_written()

    def _start_session(self, member_id: str, now_ms: int) -> None:
        classic = self.members[member_id].classic
        if classic is None:
            timeout_ms = self._configured(SESSION_TIMEOUT, self.settings.consumer_session_timeout_ms)
        else:
            timeout_ms = classic.session_timeout_ms
        self._sessions.set(member_id, now_ms + timeout_ms)

    def _configured(self, name: str, default: int) -> int:
        """What is set for this group, as of now; a session that runs ends when it would have."""
        value = self._metadata.group_configs(self.group_id).get(name)
        return default if value is None else int(value)

    def _start_rebalance(self, member_id: str, member: ConsumerMember, now_ms: int) -> None:
        if member.current.state == MemberState.UNREVOKED_PARTITIONS:
            self._rebalances.set(member_id, now_ms + member.metadata.rebalance_timeout_ms)
        else:
            self._rebalances.clear(member_id)

    def heartbeat(
        self, request: ConsumerGroupHeartbeat, now_ms: int, wall_ms: int
    ) -> tuple[list[CoordinatorRecord], ConsumerGroupHeartbeatAnswer]:
        try:
            _check(request, self.settings)
            if request.member_epoch < JOIN_EPOCH:
                answer = self._leave(request)
            else:
                answer = self._beat(request, now_ms, wall_ms)
        except GroupRefusal as why:
            assert not self._written, request
            return [], ConsumerGroupHeartbeatAnswer(why.error, why.message)
        return self._take_written(), answer

    # --- Leaving --------------------------------------------------------------------------------------------------

    def _leave(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatAnswer:
        member_id, member = self._known(request)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            # It keeps its place until its session is over, or it comes back with another member id.
            self._rebalances.clear(member_id)
            away = replace(member.current, epoch=STATIC_LEAVE_EPOCH, to_revoke={})
            self._write(records.CURRENT, member_id, away)
        else:
            self._remove([member_id])
        return ConsumerGroupHeartbeatAnswer(
            ErrorCode.NONE, member_id=member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
        )

    def _remove(self, member_ids: list[str]) -> None:
        """One rise of the group epoch for all of them; whoever stays gets a new target at its next heartbeat."""
        for member_id in member_ids:
            self._forget(member_id)
        self._drop_unused_regexes()
        self._write(records.GROUP, "", GroupEpoch(self.epoch + 1, self._hash_of_topics()))

    def _forget(self, member_id: str) -> None:
        for kind in (records.CURRENT, records.TARGET, records.MEMBER):
            self._write(kind, member_id, None)
        for timer in self._timers:
            timer.clear(member_id)

    # --- Heartbeats -----------------------------------------------------------------------------------------------

    def _beat(self, request: ConsumerGroupHeartbeat, now_ms: int, wall_ms: int) -> ConsumerGroupHeartbeatAnswer:
        member_id = request.member_id or self._new_id()
        replaced = self._admit(request, member_id)
        known = self.members.get(replaced or member_id)
        before = MemberMetadata() if known is None else known.metadata
        after = _updated(before, request)
        resubscribes = subscription_of(after) != subscription_of(before)
        topics_of_regex = self._resolve_new(after.regex, request) if resubscribes else None

        # From here on nothing is refused.
        self._take_in(member_id, replaced, after)
        if after.regex and topics_of_regex is not None:
            self._write(records.REGEX, after.regex, ResolvedRegex(topics_of_regex, _NO_VERSION, wall_ms))
        self._refresh_topics(resubscribes, request, now_ms, wall_ms)
        if self.epoch > self.target_epoch:
            self._assign()
        member = self.members[member_id]
        assigned_before = member.current.assigned
        self._reconcile(member_id, request.owned, now_ms)
        self._start_session(member_id, now_ms)
        is_full = request.rebalance_timeout_ms != -1 and request.owned is not None
        is_full = is_full and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        tells = is_full or request.member_epoch == JOIN_EPOCH or member.current.assigned != assigned_before
        return ConsumerGroupHeartbeatAnswer(
            ErrorCode.NONE,
            member_id=member_id,
            member_epoch=member.current.epoch,
            heartbeat_interval_ms=self._configured(HEARTBEAT_INTERVAL, self.settings.consumer_heartbeat_interval_ms),
            assignment=member.current.assigned if tells else None,
        )

    def _take_in(self, member_id: str, replaced: str | None, metadata: MemberMetadata) -> None:
        if replaced is not None:
            self._replace(replaced, member_id)
        known = self.members.get(member_id)
        if known is None or known.metadata != metadata:
            self._write(records.MEMBER, member_id, metadata)
        if metadata.classic is None:
            self._steps.clear(member_id)

    def _admit(self, request: ConsumerGroupHeartbeat, member_id: str) -> str | None:
        """Raises `GroupRefusal`. Returns the id of the static member that this one replaces."""
        joins = request.member_epoch == JOIN_EPOCH
        self._check_room(member_id)
        instance_id = request.group_instance_id
        holder = self.static.get(instance_id) if instance_id is not None else None
        if joins and holder is not None:
            away = self.members[holder].current.epoch == STATIC_LEAVE_EPOCH
            # Unlike Kafka, a static member whose first answer was lost may ask again, as a dynamic one may.
            may_be_replaced = away or self.members[holder].classic is not None
            if not may_be_replaced and holder != member_id:
                raise GroupRefusal(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                    f"instance id is owned by {holder} member.",
                )
            if away or holder != member_id:
                return holder
        if joins and member_id not in self.members:
            return None
        self._check_epoch(*self._known(request), request)
        return None

    def _check_room(self, member_id: str) -> None:
        most = self.settings.consumer_max_size
        if len(self.members) >= most and member_id not in self.members:
            message = f"The consumer group has reached its maximum capacity of {most} members."
            raise GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def _known(self, request: ConsumerGroupHeartbeat) -> tuple[str, ConsumerMember]:
        if (instance_id := request.group_instance_id) is not None:
            if (holder := self.static.get(instance_id)) is None:
                raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            if holder != request.member_id:
                raise GroupRefusal(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {request.member_id} with instance id {instance_id} was fenced by member {holder}.",
                )
        if (member := self.members.get(request.member_id)) is None:
            raise GroupRefusal(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {self.group_id}.",
            )
        return request.member_id, member

    def _check_epoch(self, member_id: str, member: ConsumerMember, request: ConsumerGroupHeartbeat) -> None:
        """The epoch before is accepted from a member that owns nothing but its assignment: an answer was lost."""
        received, current = request.member_epoch, member.current
        if received == current.epoch:
            return
        lost_answer = received < current.epoch and received == current.previous_epoch
        if lost_answer and request.owned is not None and contains(current.assigned, request.owned):
            return
        size = "greater" if received > current.epoch else "smaller"
        raise GroupRefusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member {member_id} has a {size} member epoch ({received}) than the one known by the "
            f"group coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
        )

    def _replace(self, old_id: str, new_id: str) -> None:
        """A static member is back: what its predecessor had is its own, at the epoch of one who joins."""
        old, target = self.members[old_id], self.targets.get(old_id, {})
        current = replace(old.current, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        metadata = old.metadata
        self._forget(old_id)
        self._write(records.MEMBER, new_id, metadata)
        self._write(records.TARGET, new_id, TargetAssignment(target))
        self._write(records.CURRENT, new_id, current)

    def _reconcile(self, member_id: str, owned: Assignment | None, now_ms: int) -> None:
        member = self.members[member_id]
        target = self.targets.get(member_id, {})
        moved = reconcile(
            member.current,
            self.target_epoch,
            target,
            lambda topic_id, partition: (topic_id, partition) in self.owners,
            owned,
        )
        if moved == member.current:
            return
        self._write(records.CURRENT, member_id, moved)
        self._start_rebalance(member_id, member, now_ms)

    # --- Topics and targets ---------------------------------------------------------------------------------------

    def _resolve_new(self, regex: str | None, request: ConsumerGroupHeartbeat) -> tuple[str, ...] | None:
        """The topics of an expression that nobody here has had before. Raises `GroupRefusal`."""
        if not regex or regex in self.regexes:
            return None
        try:
            return self._found(regex, request)
        except InvalidPattern as error:
            message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
            raise GroupRefusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None

    def _found(self, regex: str, request: ConsumerGroupHeartbeat) -> tuple[str, ...]:
        """As in Kafka, what the member may describe that has it resolved. Raises `InvalidPattern`."""
        found = matching(regex, self._metadata.topic_names())
        may = request.may_describe
        return found if may is None else tuple(name for name in found if may(name))

    def _refresh_topics(self, resubscribed: bool, request: ConsumerGroupHeartbeat, now_ms: int, wall_ms: int) -> None:
        """Raises the group epoch where subscriptions, or the topics behind them, are not what they were."""
        if not resubscribed and not self._topics_changed:
            return
        self._drop_unused_regexes()
        if self._topics_changed:
            self._topics_changed = not self._refresh_regexes(request, now_ms, wall_ms)
        metadata_hash = self._hash_of_topics()
        if resubscribed or metadata_hash != self.metadata_hash:
            self._write(records.GROUP, "", GroupEpoch(self.epoch + 1, metadata_hash))

    def _refresh_regexes(self, request: ConsumerGroupHeartbeat, now_ms: int, wall_ms: int) -> bool:
        """Whether it was time to do it."""
        if not self.regexes:
            return True
        last = self._regexes_resolved_ms
        if last is not None and now_ms < last + REGEX_REFRESH_MS:
            return False
        self._regexes_resolved_ms = now_ms
        for regex, resolved in sorted(self.regexes.items()):
            try:
                found = self._found(regex, request)
            except InvalidPattern:  # grown too costly with the topics: what it found stays
                continue
            if found != resolved.topic_names:
                self._write(records.REGEX, regex, ResolvedRegex(found, _NO_VERSION, wall_ms))
        return True

    def _drop_unused_regexes(self) -> None:
        used = {regex for _, regex in self.subscriptions}
        for regex in sorted(self.regexes.keys() - used):
            self._write(records.REGEX, regex, None)

    def _hash_of_topics(self) -> int:
        """Of all topics that are subscribed to and exist; 0 for none. Unlike Kafka's it is no XXH3: equality counts."""
        names = {name for subscription in self.subscriptions for name in self.names(subscription)}
        digest = blake2b(digest_size=8)
        counted = 0
        for name in sorted(names):
            if (known := self._topic(name)) is not None:
                topic_id, partitions = known
                digest.update(b"%s %d %s\n" % (topic_id, partitions, name.encode()))
                counted += 1
        return int.from_bytes(digest.digest(), "big", signed=True) if counted else 0

    def _topic(self, name: str) -> tuple[bytes, int] | None:
        topic_id, partitions = self._metadata.topic_id(name), self._metadata.partition_count(name)
        return None if topic_id is None or partitions is None else (topic_id, partitions)

    def _assign(self) -> None:
        partition_counts: dict[bytes, int] = {}
        topic_ids: dict[Subscription, frozenset[bytes]] = {}
        for subscription in self.subscriptions:
            topics = [known for name in self.names(subscription) if (known := self._topic(name)) is not None]
            partition_counts.update(topics)
            topic_ids[subscription] = frozenset(topic_id for topic_id, _ in topics)
        members = {
            member_id: AssignedMember(
                topic_ids[subscription_of(member.metadata)],
                member.metadata.instance_id,
                self.targets.get(member_id, {}),
            )
            for member_id, member in self.members.items()
        }
        for member_id, target in ASSIGNORS[self.assignor()](members, partition_counts).items():
            if target != self.targets.get(member_id):
                self._write(records.TARGET, member_id, TargetAssignment(target))
        self._write(records.TARGET_EPOCH, "", TargetEpoch(self.epoch))

    # --- Records --------------------------------------------------------------------------------------------------

    def _write(self, kind: int, name: str, value: RecordValue | None) -> None:
        record = ConsumerGroupRecord(kind, self.group_id, name, value)
        self._written.append(records.encode(record))
        self.replay(record)

    def _take_written(self) -> list[CoordinatorRecord]:
        written, self._written = self._written, []
        return written


def _updated(metadata: MemberMetadata, request: ConsumerGroupHeartbeat) -> MemberMetadata:
    """None and -1 leave what was said before."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    return MemberMetadata(
        instance_id=metadata.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=metadata.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=metadata.topic_names if names is None else tuple(sorted(set(names))),
        regex=metadata.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=metadata.assignor if request.server_assignor is None else request.server_assignor,
    )


def _check(request: ConsumerGroupHeartbeat, settings: GroupSettings) -> None:
    """Raises `GroupRefusal` for a request that no group would take."""

    def require(true: bool, message: str) -> None:
        if not true:
            raise GroupRefusal(ErrorCode.INVALID_REQUEST, message)

    epoch = request.member_epoch
    require(request.group_id != "", "GroupId can't be empty.")
    require(request.group_instance_id != "", "InstanceId can't be empty.")
    require(request.rack_id != "", "RackId can't be empty.")
    require(epoch >= STATIC_LEAVE_EPOCH, f"MemberEpoch {epoch} is invalid.")
    if epoch == JOIN_EPOCH:
        require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        require(request.owned is not None and not request.owned, "TopicPartitions must be empty when (re-)joining.")
        require(
            bool(request.subscribed_topic_names or request.subscribed_topic_regex),
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null and non-empty when (re-)joining.",
        )
    else:
        require(request.member_id != "", "MemberId can't be empty.")
    if epoch == STATIC_LEAVE_EPOCH:
        require(request.group_instance_id is not None, "InstanceId can't be null.")
    require(request.rebalance_timeout_ms >= -1, "RebalanceTimeoutMs must not be negative.")
    if request.server_assignor is not None and request.server_assignor not in settings.consumer_assignors:
        raise GroupRefusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(settings.consumer_assignors)}.",
        )
