"""The coordinator of all groups of one partition of `__consumer_offsets`, for one leader epoch (K-42).

It has what both kinds of groups share: the list of groups, their records, their offsets, and their timers. A group
belongs to the protocol of its first member; an empty one can convert (K-61).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import assert_never

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import OFFSETS_TOPIC, TopicPartition

from odradek_broker.core.delayed import DelayedOperations
from odradek_broker.core.groups import consumer_records, records
from odradek_broker.core.groups.classic import ClassicGroup
from odradek_broker.core.groups.commit_queue import CommitQueue
from odradek_broker.core.groups.consumer import ConsumerGroup
from odradek_broker.core.groups.consumer_groups import ConsumerGroups
from odradek_broker.core.groups.fields import LONGEST_OLD_STRING
from odradek_broker.core.groups.messages import (
    JOIN_EPOCH,
    Answer,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeConsumerGroupAnswer,
    DescribeGroup,
    DescribeGroupAnswer,
    Effect,
    ErrorAnswer,
    GroupReply,
    GroupSettings,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    ListedGroup,
    ListGroups,
    ListGroupsAnswer,
    MetadataView,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    Request,
    SyncGroup,
)
from odradek_broker.core.groups.offsets import CommittedOffsets, commit_records
from odradek_broker.core.groups.records import ClassicRecord, CommittedOffset, GroupRecord, OffsetRecord
from odradek_broker.core.groups.waits import Waits

LONGEST_NAME = LONGEST_OLD_STRING - 64  # bytes; a member id is longer by a uuid
VARINT_BYTES = 5  # at most, of a length
UNLISTED_STATE = "Dead"  # of a group that is not there, in a description


class GroupCoordinatorShard:
    """Memory is what the log says and what is on its way there. An answer leaves when what it rests on is committed."""

    def __init__(self, settings: GroupSettings, metadata: MetadataView, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._metadata = metadata
        self._new_id = new_id
        self._queue = CommitQueue()
        self.waits: Waits = DelayedOperations()
        self.groups: dict[str, ClassicGroup] = {}  # a group is in one of these two
        self.consumers = ConsumerGroups(settings, metadata, new_id, self._queue)
        self.offsets = CommittedOffsets()
        self._next_expiry_ms: int | None = None

    # --- Loading ----------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """One record of the log. Unknown key types are skipped. Raises ValueError for what cannot be read."""
        del timestamp_ms  # the records have the times that count
        kind = records.key_type(key)
        if kind in records.KEY_TYPES:
            self._apply(records.decode(key, value))
        elif kind in consumer_records.KEY_TYPES:
            record = consumer_records.decode(key, value)
            if record.value is not None:
                self._forget(record.group_id)  # made by offsets, or the tombstone of the classic group is compacted
            self.consumers.replay(record)

    def on_loaded(self, now_ms: int) -> list[Effect]:
        self._queue.begin(now_ms)
        self._next_expiry_ms = now_ms + self._settings.offsets_retention_check_interval_ms
        for group in self.groups.values():
            group.on_loaded()
        self.consumers.on_loaded()
        return self._queue.end()

    def unload(self, error: ErrorCode) -> list[GroupReply]:
        return self._queue.refuse_all(error)

    # --- Steps ------------------------------------------------------------------------------------------------------

    def handle(self, request: Request, token: object, now_ms: int, wall_ms: int) -> list[Effect]:
        self._queue.begin(now_ms, wall_ms)
        self._queue.ask(token)
        if not _can_be_written(request):
            self._queue.reply(token, ErrorAnswer(ErrorCode.INVALID_REQUEST))
            return self._queue.end()
        match request:
            case JoinGroup():
                self._join(request, token)
            case SyncGroup():
                self._sync(request, token)
            case Heartbeat():
                self._queue.reply(token, self._heartbeat(request))
            case OffsetCommit():
                self._queue.reply(token, *self._commit(request))
            case ListGroups():
                self._queue.reply(token, self._list(request), self._queue.last_write())
            case _:
                answer = self._answer(request)
                self._queue.reply(token, answer, self._queue.last_write(request.group_id))
        return self._queue.end()

    def cancel(self, token: object) -> None:
        """The caller is gone. Its member is not: it has its session to come back."""
        self._queue.cancel(token)

    def on_written(self, write_id: int, now_ms: int) -> list[Effect]:
        self._queue.begin(now_ms)
        self._queue.on_committed(write_id)
        return self._queue.end()

    def on_time(self, now_ms: int, wall_ms: int) -> list[Effect]:
        self._queue.begin(now_ms, wall_ms)
        for wait, outcome in self.waits.on_time(now_ms):
            wait.complete(outcome)
        for group_id in self.consumers.on_time():
            self._downgrade(group_id)
        if self._next_expiry_ms is not None and self._next_expiry_ms <= now_ms:
            self._next_expiry_ms = now_ms + self._settings.offsets_retention_check_interval_ms
            self._expire()
        return self._queue.end()

    def next_deadline_ms(self) -> int | None:
        deadlines = self.waits.next_deadline_ms(), self.consumers.next_deadline_ms(), self._next_expiry_ms
        return min((each for each in deadlines if each is not None), default=None)

    def on_topics_changed(self, deleted: Collection[str], now_ms: int, wall_ms: int) -> list[Effect]:
        """What was committed for topics that are gone goes with them."""
        self._queue.begin(now_ms, wall_ms)
        self._write(self.offsets.of_topics(deleted))
        self.consumers.on_topics_changed()
        return self._queue.end()

    # --- What is counted ------------------------------------------------------------------------------------------

    def take_rebalances(self) -> Counter[str]:
        """By kind of group, since it was last asked."""
        taken, self._queue.rebalances = self._queue.rebalances, Counter()
        return taken

    def states(self) -> Counter[tuple[str, str]]:
        """How many groups are in which state, by kind and state."""
        return Counter((each.type, each.state) for each in self._list(ListGroups()).groups)

    # --- Classic groups ---------------------------------------------------------------------------------------------

    def _join(self, request: JoinGroup, token: object) -> None:
        group, consumers = self.groups.get(request.group_id), self.consumers.get(request.group_id)
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not self._takes_session_timeout(request.session_timeout_ms):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif consumers is not None and not consumers.is_empty:
            answer = self.consumers.join(request)
            self._downgrade(request.group_id)  # it may have replaced the last member of KIP-848
            self._queue.reply(token, answer, self._queue.last_write(request.group_id))
            return
        elif group is None and request.member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif group is None and consumers is None and not self._has_room():
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
        if error is not ErrorCode.NONE:
            self._queue.reply(token, JoinGroupAnswer(error, request.member_id))
            return
        if group is None:
            before = [] if consumers is None else self.consumers.delete(request.group_id)
            group = self._new_group(request.group_id)
            # So that it is in the log, like everything that others can see (KAFKA-14869).
            record = records.encode(GroupRecord(request.group_id, group.stored({})))
            self._queue.write((request.group_id,), (*before, record))
        group.on_join(request, token, self._new_id)

    def _takes_session_timeout(self, timeout_ms: int) -> bool:
        return self._settings.min_session_timeout_ms <= timeout_ms <= self._settings.max_session_timeout_ms

    def _sync(self, request: SyncGroup, token: object) -> None:
        if self.consumers.get(request.group_id) is not None:
            self._queue.reply(token, self.consumers.sync(request), self._queue.last_write(request.group_id))
            return
        error = self._refusal(request.group_id)
        if error is not ErrorCode.NONE:
            self._queue.reply(token, ErrorAnswer(error))
        else:
            self.groups[request.group_id].on_sync(request, token)

    def _heartbeat(self, request: Heartbeat) -> ErrorAnswer:
        if self.consumers.get(request.group_id) is not None:
            return self.consumers.classic_heartbeat(request)
        error = self._refusal(request.group_id)
        return self.groups[request.group_id].on_heartbeat(request) if error is ErrorCode.NONE else ErrorAnswer(error)

    def _leave(self, request: LeaveGroup) -> Answer:
        if self.consumers.get(request.group_id) is not None:
            answer = self.consumers.classic_leave(request)
            self._downgrade(request.group_id)
            return answer
        error = self._refusal(request.group_id)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:  # of each of them, as if the group were there
            return LeaveGroupAnswer(ErrorCode.NONE, tuple((each, error) for each in request.members))
        return self.groups[request.group_id].on_leave(request) if error is ErrorCode.NONE else ErrorAnswer(error)

    def _refusal(self, group_id: str) -> ErrorCode:
        """Of a request that a member of a classic group makes."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return ErrorCode.NONE if group_id in self.groups else ErrorCode.UNKNOWN_MEMBER_ID

    # --- Consumer groups --------------------------------------------------------------------------------------------

    def _consumer_heartbeat(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatAnswer:
        """A classic group that is empty makes way, one of consumers takes the new member in (K-61)."""
        classic = self.groups.get(request.group_id)
        upgraded = classic if classic is not None and not classic.is_empty else None
        if upgraded is not None and not self._may_upgrade(upgraded):
            text = f"Group {request.group_id} is not a consumer group."
            return ConsumerGroupHeartbeatAnswer(ErrorCode.GROUP_ID_NOT_FOUND, text)
        joins = request.member_epoch == JOIN_EPOCH
        if joins and self._either(request.group_id) is None and not self._has_room():
            text = f"There are {self._settings.max_groups} groups in this partition of {OFFSETS_TOPIC}."
            return ConsumerGroupHeartbeatAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        names = request.subscribed_topic_names or ()
        if sum(len(name.encode()) + VARINT_BYTES for name in names) > self._settings.max_record_bytes // 2:
            text = f"{len(names)} names of topics are more than a record can hold."
            return ConsumerGroupHeartbeatAnswer(ErrorCode.INVALID_REQUEST, text)
        before = [] if classic is None else [records.encode(GroupRecord(request.group_id, None))]
        answer = self.consumers.heartbeat(request, before, upgraded)
        if self.consumers.get(request.group_id) is not None:
            self._forget(request.group_id)
        self._downgrade(request.group_id)
        return answer

    def _may_upgrade(self, group: ClassicGroup) -> bool:
        settings = self._settings
        return settings.upgrades and group.has_consumers and len(group.members) <= settings.consumer_max_size

    def _downgrade(self, group_id: str) -> None:
        """If the last member of KIP-848 has gone: those of the classic protocol go on as a classic group."""
        group, settings = self.consumers.get(group_id), self._settings
        if group is None or not settings.downgrades or not group.is_all_classic:
            return
        stored, protocols = group.as_classic(self._queue.wall_ms)
        record = records.encode(GroupRecord(group_id, stored))
        if len(stored.members) > settings.max_size or sum(map(len, filter(None, record))) > settings.max_record_bytes:
            return
        self._queue.write((group_id,), (*self.consumers.delete(group_id), record))
        classic = self._new_group(group_id)
        classic.replay(stored)
        classic.on_downgraded(protocols)

    def _describe_consumers(self, request: DescribeConsumerGroup) -> DescribeConsumerGroupAnswer:
        if (group := self.consumers.get(request.group_id)) is not None:
            return group.describe()
        what = "is not a consumer group" if request.group_id in self.groups else "not found"
        return DescribeConsumerGroupAnswer(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")

    def _either(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        return self.groups.get(group_id) or self.consumers.get(group_id)

    # --- Offsets ----------------------------------------------------------------------------------------------------

    def _commit(self, request: OffsetCommit) -> tuple[OffsetCommitAnswer, int]:
        """The answer, and the write that it rests on; 0: none."""
        group = self._either(request.group_id)
        epoch = request.generation_id_or_member_epoch
        if group is not None:
            error = group.validate_commit(request.member_id, request.group_instance_id, epoch)
        elif epoch >= 0:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        else:  # a tool or a consumer that assigns itself makes a simple group: empty, of no protocol (K-53)
            error = ErrorCode.NONE if self._has_room() else ErrorCode.GROUP_MAX_SIZE_REACHED
        if error is not ErrorCode.NONE:
            return OffsetCommitAnswer(error, tuple((each.topic_partition, error) for each in request.offsets)), 0
        written, partitions = commit_records(request, self._settings.offset_metadata_max_bytes, self._queue.wall_ms)
        return OffsetCommitAnswer(ErrorCode.NONE, partitions), self._write(written)

    def _delete_offsets(self, request: OffsetDelete) -> OffsetDeleteAnswer:
        group = self._either(request.group_id)
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif not group.is_empty and not group.has_consumers:
            error = ErrorCode.NON_EMPTY_GROUP
        if group is None or error is not ErrorCode.NONE:
            return OffsetDeleteAnswer(error)
        partitions = {
            tp: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(tp.topic) else ErrorCode.NONE
            for tp in request.topic_partitions
        }
        free = [tp for tp, each in partitions.items() if each is ErrorCode.NONE]
        self._write(self.offsets.tombstones(request.group_id, free))
        return OffsetDeleteAnswer(ErrorCode.NONE, tuple((tp, partitions[tp]) for tp in request.topic_partitions))

    def _expire(self) -> None:
        """Offsets that nobody uses go, and then groups that have neither offsets nor members (K-55)."""
        for group_id in [*self.groups, *self.consumers.ids()]:
            group = self._either(group_id)
            assert group is not None, group_id

            def counts_from(
                tp: TopicPartition, offset: CommittedOffset, group: ClassicGroup | ConsumerGroup = group
            ) -> int | None:
                return None if group.is_subscribed(tp.topic) else group.offset_counts_from(offset)

            retention_ms = self._settings.offsets_retention_ms
            expired = self.offsets.expired(group_id, retention_ms, self._queue.wall_ms, counts_from)
            is_over = group.is_empty and len(expired) == len(self.offsets.of(group_id))
            if is_over:
                self._delete(group_id)
            else:
                self._write(self.offsets.tombstones(group_id, expired))

    # --- Groups as a whole ------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        """Whether one more group may be made. Unlike in Kafka there is a bound; groups that hold nothing make room."""
        most = self._settings.max_groups
        if len(self.groups) + len(self.consumers) >= most:
            for group_id in [*self.groups, *self.consumers.ids()]:
                if self._holds_nothing(group_id):
                    self._delete(group_id)
        return len(self.groups) + len(self.consumers) < most

    def _holds_nothing(self, group_id: str) -> bool:
        classic = self.groups.get(group_id)
        group = classic or self.consumers.get(group_id)
        is_pending = classic is not None and bool(classic.pending)
        return group is not None and group.is_empty and not is_pending and not self.offsets.of(group_id)

    def _answer(
        self,
        request: LeaveGroup
        | OffsetFetch
        | OffsetDelete
        | DeleteGroup
        | DescribeGroup
        | DescribeConsumerGroup
        | ConsumerGroupHeartbeat,
    ) -> Answer:
        """Of requests that are answered as soon as what is known now is committed."""
        match request:
            case LeaveGroup():
                return self._leave(request)
            case OffsetFetch():
                error = self.consumers.fetch_refusal(request)
                return OffsetFetchAnswer(error, () if error else self.offsets.fetch(request))
            case OffsetDelete():
                return self._delete_offsets(request)
            case DeleteGroup():
                return self._delete_group(request)
            case DescribeGroup():
                return self._describe(request)
            case DescribeConsumerGroup():
                return self._describe_consumers(request)
            case ConsumerGroupHeartbeat():
                return self._consumer_heartbeat(request)
            case _:
                assert_never(request)

    def _list(self, request: ListGroups) -> ListGroupsAnswer:
        states = {state.strip().lower() for state in request.states}
        types = {kind.lower() for kind in request.types}
        groups = [
            ListedGroup(group_id, group.protocol_type or "", group.state, group.kind)
            for group_id, group in self.groups.items()
        ]
        return ListGroupsAnswer(
            ErrorCode.NONE,
            tuple(
                each
                for each in groups + self.consumers.listed()
                if (not states or each.state.lower() in states) and (not types or each.type in types)
            ),
        )

    def _describe(self, request: DescribeGroup) -> DescribeGroupAnswer:
        if (group := self.groups.get(request.group_id)) is not None:
            return group.describe()
        what = "not found" if self.consumers.get(request.group_id) is None else "is not a classic group"
        text = f"Group {request.group_id} {what}."
        return DescribeGroupAnswer(ErrorCode.GROUP_ID_NOT_FOUND, UNLISTED_STATE, message=text)

    def _delete_group(self, request: DeleteGroup) -> ErrorAnswer:
        if (group := self._either(request.group_id)) is None:
            return ErrorAnswer(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            return ErrorAnswer(ErrorCode.NON_EMPTY_GROUP)
        self._delete(request.group_id)
        return ErrorAnswer(ErrorCode.NONE)

    def _delete(self, group_id: str) -> None:
        offsets = self.offsets.tombstones(group_id, self.offsets.of(group_id))
        if self.consumers.get(group_id) is None:
            self._write([*offsets, GroupRecord(group_id, None)])
        else:
            self._write(offsets)
            self._queue.write((group_id,), self.consumers.delete(group_id))

    # --- Records ----------------------------------------------------------------------------------------------------

    def _write(self, written: Collection[ClassicRecord]) -> int:
        """One batch for all of them, applied at once. Returns its id; 0: there was nothing to write."""
        if not written:
            return 0
        for record in written:
            self._apply(record)
        group_ids = dict.fromkeys(record.group_id for record in written)
        return self._queue.write(tuple(group_ids), [records.encode(record) for record in written])

    def _apply(self, record: ClassicRecord) -> None:
        match record:
            case OffsetRecord():
                self.offsets.replay(record)
                if record.value is not None and self._either(record.group_id) is None:
                    self._new_group(record.group_id)
            case GroupRecord():
                self._forget(record.group_id)
                if record.value is not None:
                    self._new_group(record.group_id).replay(record.value)

    def _forget(self, group_id: str) -> None:
        if (group := self.groups.pop(group_id, None)) is not None:
            group.close()

    def _new_group(self, group_id: str) -> ClassicGroup:
        group = self.groups[group_id] = ClassicGroup(group_id, self._settings, self._queue, self.waits)
        return group


def _can_be_written(request: Request) -> bool:
    """Whether what names a group and its members has room in a record; newer versions of requests can bring more."""
    names: list[str | None] = [] if isinstance(request, ListGroups) else [request.group_id]
    if isinstance(request, JoinGroup):
        names += [request.group_instance_id, request.client_id, request.client_host, request.protocol_type]
        names += [protocol.name for protocol in request.protocols]
    elif isinstance(request, ConsumerGroupHeartbeat):
        names += [request.member_id, request.group_instance_id, request.client_id, request.client_host]
        names += [request.rack_id, request.subscribed_topic_regex]
    return all(name is None or len(name.encode()) <= LONGEST_NAME for name in names)
