"""All groups of KIP-848 of one partition of `__consumer_offsets`: their list, and when each is checked."""

from __future__ import annotations

from collections.abc import Callable, Collection

from odradek_proto.errors import ErrorCode

from odradek_broker.core.groups.classic import ClassicGroup
from odradek_broker.core.groups.commit_queue import CommitQueue
from odradek_broker.core.groups.consumer_records import ConsumerGroupRecord
from odradek_broker.core.groups.deadlines import Deadlines
from odradek_broker.core.groups.messages import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    CoordinatorRecord,
    ErrorAnswer,
    GroupSettings,
    Heartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    ListedGroup,
    MetadataView,
    OffsetFetch,
    SyncGroup,
    SyncGroupAnswer,
)
from odradek_broker.core.groups.mixed import MixedGroup

KIND = PROTOCOL_TYPE = "consumer"


class ConsumerGroups:
    """Memory is what the records say. Writes go into the queue of the shard."""

    def __init__(
        self, settings: GroupSettings, metadata: MetadataView, new_id: Callable[[], str], queue: CommitQueue
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._new_id = new_id
        self._queue = queue
        self._groups: dict[str, MixedGroup] = {}
        self._deadlines = Deadlines()

    def get(self, group_id: str) -> MixedGroup | None:
        return self._groups.get(group_id)

    def __len__(self) -> int:
        return len(self._groups)

    def ids(self) -> list[str]:
        return list(self._groups)

    def listed(self) -> list[ListedGroup]:
        return [ListedGroup(each.group_id, PROTOCOL_TYPE, each.state, KIND) for each in self._groups.values()]

    # --- Records ----------------------------------------------------------------------------------------------------

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Any order that a compacted log can have: of a group that is gone, tombstones may be all that is left."""
        group = self._groups.get(record.group_id)
        if record.is_group_tombstone:
            self._forget(record.group_id)
            return
        if group is None:
            if record.value is None:
                return
            group = self._groups[record.group_id] = self._new_group(record.group_id)
        group.replay(record)

    def on_loaded(self) -> None:
        for group in self._groups.values():
            group.on_loaded(self._queue.now_ms)
            self._note_deadline(group)

    def delete(self, group_id: str) -> list[CoordinatorRecord]:
        """Its tombstones, for the caller to write."""
        tombstones = self._groups[group_id].tombstones()
        self._forget(group_id)
        return tombstones

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._deadlines.clear(group_id)

    def _new_group(self, group_id: str) -> MixedGroup:
        return MixedGroup(group_id, self._settings, self._metadata, self._new_id)

    # --- Steps ------------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeat, before: Collection[CoordinatorRecord], classic: ClassicGroup | None
    ) -> ConsumerGroupHeartbeatAnswer:
        """`before` is what has to go when the group begins: the records of a classic group of this name.

        `classic` is that one where it has members: they are members of this group from then on.
        """
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_epoch != JOIN_EPOCH:
                text = f"Group {request.group_id} not found."
                return ConsumerGroupHeartbeatAnswer(ErrorCode.GROUP_ID_NOT_FOUND, text)
            group = self._new_group(request.group_id)
            if classic is not None:
                try:
                    before = [*before, *group.take_over(classic)]
                except ValueError as why:
                    text = f"Cannot upgrade classic group {request.group_id} to consumer group: {why}."
                    return ConsumerGroupHeartbeatAnswer(ErrorCode.GROUP_ID_NOT_FOUND, text)
                group.on_loaded(self._queue.now_ms)
        before_epoch = group.epoch
        written, answer = group.heartbeat(request, self._queue.now_ms, self._queue.wall_ms)
        self._queue.rebalances[KIND] += group.epoch - before_epoch
        if written:
            self._groups[request.group_id] = group
            self._queue.write((request.group_id,), (*before, *written))
        if request.group_id in self._groups:
            self._note_deadline(group)
        return answer

    # --- Members of the classic protocol, in a group that is there -----------------------------------------------

    def join(self, request: JoinGroup) -> JoinGroupAnswer:
        group = self._groups[request.group_id]
        before_epoch = group.epoch
        written, answer = group.join(request, self._queue.now_ms)
        self._queue.rebalances[KIND] += group.epoch - before_epoch
        self._take(group, written)
        return answer

    def sync(self, request: SyncGroup) -> SyncGroupAnswer:
        group = self._groups[request.group_id]
        answer = group.sync(request, self._queue.now_ms)
        self._note_deadline(group)
        return answer

    def classic_heartbeat(self, request: Heartbeat) -> ErrorAnswer:
        group = self._groups[request.group_id]
        answer = group.classic_heartbeat(request, self._queue.now_ms)
        self._note_deadline(group)
        return answer

    def classic_leave(self, request: LeaveGroup) -> LeaveGroupAnswer:
        group = self._groups[request.group_id]
        written, answer = group.classic_leave(request)
        self._queue.rebalances[KIND] += bool(written)
        self._take(group, written)
        return answer

    def _take(self, group: MixedGroup, written: Collection[CoordinatorRecord]) -> None:
        if written:
            self._queue.write((group.group_id,), tuple(written))
        self._note_deadline(group)

    def on_time(self) -> list[str]:
        """Returns the groups of which members were removed."""
        changed = []
        for group_id in self._deadlines.take_due(self._queue.now_ms):
            group = self._groups[group_id]
            if written := group.on_time(self._queue.now_ms):
                self._queue.rebalances[KIND] += 1
                changed.append(group_id)
            self._take(group, written)
        return changed

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def on_topics_changed(self) -> None:
        for group in self._groups.values():
            group.on_topics_changed()

    def fetch_refusal(self, request: OffsetFetch) -> ErrorCode:
        group = self._groups.get(request.group_id)
        return ErrorCode.NONE if group is None else group.validate_fetch(request.member_id, request.member_epoch)

    def _note_deadline(self, group: MixedGroup) -> None:
        if (deadline_ms := group.next_deadline_ms()) is None:
            self._deadlines.clear(group.group_id)
        else:
            self._deadlines.set(group.group_id, deadline_ms)
