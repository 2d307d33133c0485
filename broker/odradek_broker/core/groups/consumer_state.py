"""The state of a consumer group (KIP-848) as recorded: its members, its epochs, and the owner of each partition.

Every change comes from `replay`, whether the record was read from the log or has just been made.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from odradek_proto.errors import ErrorCode

from odradek_broker.core.groups import consumer_records as records
from odradek_broker.core.groups.assignors import ASSIGNORS
from odradek_broker.core.groups.consumer_records import (
    ConsumerGroupRecord,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    ResolvedRegex,
    TargetAssignment,
    TargetEpoch,
)
from odradek_broker.core.groups.embedded import ClassicMember, read_classic_member
from odradek_broker.core.groups.messages import (
    Assignment,
    CoordinatorRecord,
    DescribeConsumerGroupAnswer,
    DescribedConsumer,
    GroupSettings,
)
from odradek_broker.core.groups.records import CommittedOffset

Subscription: TypeAlias = tuple[tuple[str, ...], str]
"""Topic names, and an expression or nothing."""


class ConsumerMember:
    def __init__(self) -> None:
        self.metadata = MemberMetadata()
        self.current = CurrentAssignment()
        self.classic: ClassicMember | None = None  # of a member of the classic protocol

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state == MemberState.STABLE and self.current.epoch == epoch


class ReplayedGroup:
    kind = "consumer"

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.metadata_hash = 0
        self.settings = settings
        self.members: dict[str, ConsumerMember] = {}
        self.static: dict[str, str] = {}  # member id by instance id
        self.targets: dict[str, Assignment] = {}
        self.owners: dict[tuple[bytes, int], str] = {}  # member id
        self.subscriptions: Counter[Subscription] = Counter()
        self.regexes: dict[str, ResolvedRegex] = {}
        self._has_partition_metadata = False

    # --- What others ask ------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def has_consumers(self) -> bool:
        """Of a classic group it is a question."""
        return True

    def offset_counts_from(self, offset: CommittedOffset) -> int | None:
        """Since when an offset of a topic without subscription is not in use (K-55)."""
        return offset.commit_timestamp_ms

    def is_subscribed(self, topic_name: str) -> bool:
        return any(topic_name in self.names(subscription) for subscription in self.subscriptions)

    def validate_commit(self, member_id: str, instance_id: str | None, epoch: int) -> ErrorCode:
        """Kafka looks at the member id alone, not at the instance id."""
        del instance_id
        if epoch < 0 and not self.members:  # a tool, or a consumer that assigns itself
            return ErrorCode.NONE
        return self._validate_epoch(member_id, epoch)

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if not member_id and epoch < 0:  # who does not say who he is may read
            return ErrorCode.NONE
        return self._validate_epoch(member_id or "", epoch)

    def _validate_epoch(self, member_id: str, epoch: int) -> ErrorCode:
        if (member := self.members.get(member_id)) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.current.epoch == epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION

    def describe(self) -> DescribeConsumerGroupAnswer:
        return DescribeConsumerGroupAnswer(
            ErrorCode.NONE,
            state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.target_epoch,
            assignor=self.assignor(),
            members=tuple(self._described(member_id) for member_id in sorted(self.members)),
        )

    def _described(self, member_id: str) -> DescribedConsumer:
        member = self.members[member_id]
        metadata = member.metadata
        return DescribedConsumer(
            member_id=member_id,
            group_instance_id=metadata.instance_id,
            rack_id=metadata.rack_id,
            member_epoch=member.current.epoch,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topic_names=metadata.topic_names,
            subscribed_topic_regex=metadata.regex or None,
            assignment=member.current.assigned,
            target_assignment=self.targets.get(member_id, {}),
            is_classic=member.classic is not None,
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        """Everything of this group removed; it is not to be used any more."""
        members = sorted(self.members)
        kinds = [(records.CURRENT, name) for name in members]
        kinds += [(records.TARGET, name) for name in sorted(self.targets)]
        kinds += [(records.TARGET_EPOCH, "")]
        kinds += [(records.MEMBER, name) for name in members]
        kinds += [(records.REGEX, expression) for expression in sorted(self.regexes)]
        kinds += [(records.PARTITIONS, "")] if self._has_partition_metadata else []
        kinds += [(records.GROUP, "")]
        return [records.encode(ConsumerGroupRecord(kind, self.group_id, name)) for kind, name in kinds]

    def names(self, subscription: Subscription) -> set[str]:
        names, regex = subscription
        resolved = self.regexes.get(regex)
        return {*names, *(resolved.topic_names if resolved is not None else ())}

    def assignor(self) -> str:
        """What most members want; the broker's first one where nobody says."""
        wanted = Counter(member.metadata.assignor for member in self.members.values() if member.metadata.assignor)
        offered = [name for name in self.settings.consumer_assignors if name in ASSIGNORS]
        return max(offered, key=lambda name: wanted[name])  # the first of several that are wanted as much

    # --- Records --------------------------------------------------------------------------------------------------

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Applies one record. Any order that a compacted log can have is accepted."""
        name, value = record.name, record.value
        match value:
            case GroupEpoch():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case MemberMetadata():
                self._set_metadata(name, value)
            case TargetEpoch():
                self.target_epoch = value.epoch
            case TargetAssignment():
                self.targets[name] = value.assignment
            case CurrentAssignment():
                self._set_current(name, value)
            case ResolvedRegex():
                self.regexes[name] = value
            case None:
                self._replay_tombstone(record.type, name)
        if record.type == records.PARTITIONS:
            self._has_partition_metadata = value is not None

    def _replay_tombstone(self, kind: int, name: str) -> None:
        if kind == records.TARGET:
            self.targets.pop(name, None)
        elif kind == records.REGEX:
            self.regexes.pop(name, None)
        elif kind == records.CURRENT and name in self.members:
            self._set_current(name, CurrentAssignment())
        elif kind == records.MEMBER and name in self.members:
            self._set_current(name, CurrentAssignment())
            self._unsubscribe(name)
            del self.members[name]

    def _member(self, member_id: str) -> ConsumerMember:
        if (member := self.members.get(member_id)) is None:
            member = self.members[member_id] = ConsumerMember()
            self.subscriptions[subscription_of(member.metadata)] += 1
        return member

    def _set_metadata(self, member_id: str, metadata: MemberMetadata) -> None:
        member = self._member(member_id)
        self._unsubscribe(member_id)
        member.metadata = metadata
        member.classic = None if metadata.classic is None else read_classic_member(metadata.classic)
        self.subscriptions[subscription_of(metadata)] += 1
        if metadata.instance_id is not None:
            self.static[metadata.instance_id] = member_id

    def _unsubscribe(self, member_id: str) -> None:
        metadata = self.members[member_id].metadata
        subscription = subscription_of(metadata)
        if self.subscriptions[subscription] <= 1:
            del self.subscriptions[subscription]
        else:
            self.subscriptions[subscription] -= 1
        if metadata.instance_id is not None and self.static.get(metadata.instance_id) == member_id:
            del self.static[metadata.instance_id]

    def _set_current(self, member_id: str, current: CurrentAssignment) -> None:
        member = self._member(member_id)
        for partition in _owned(member.current):
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        member.current = current
        for partition in _owned(current):
            self.owners[partition] = member_id


def _owned(current: CurrentAssignment) -> list[tuple[bytes, int]]:
    both = (*current.assigned.items(), *current.to_revoke.items())
    return [(topic_id, partition) for topic_id, partitions in both for partition in partitions]


def subscription_of(metadata: MemberMetadata) -> Subscription:
    return metadata.topic_names, metadata.regex or ""
