"""The committed offsets of the groups of one partition of `__consumer_offsets` (K-53 to K-56).

Independent of members: their group decides whether a commit is allowed, and which offsets are still in use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_broker.core.groups.messages import FetchedOffset, OffsetCommit, OffsetFetch, OffsetToCommit
from odradek_broker.core.groups.records import NO_TIMESTAMP, CommittedOffset, OffsetRecord

_NO_RETENTION_TIME = -1
_LATEST_MS = (1 << 63) - 1


class CommittedOffsets:
    """Changes by `replay` alone, whether a record was read from the log or has just been made."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, CommittedOffset]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    def of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._by_group.get(group_id, {})

    def __iter__(self) -> Iterator[tuple[str, TopicPartition, int]]:
        for group_id, offsets in self._by_group.items():
            for tp, committed in offsets.items():
                yield group_id, tp, committed.offset

    def replay(self, record: OffsetRecord) -> None:
        if record.value is not None:
            self._by_group.setdefault(record.group_id, {})[record.topic_partition] = record.value
        elif (offsets := self._by_group.get(record.group_id)) is not None:
            offsets.pop(record.topic_partition, None)
            if not offsets:
                del self._by_group[record.group_id]

    def fetch(self, request: OffsetFetch) -> tuple[FetchedOffset, ...]:
        offsets = self.of(request.group_id)
        wanted = offsets if request.topic_partitions is None else request.topic_partitions
        return tuple(_fetched(tp, offsets.get(tp)) for tp in wanted)

    def tombstones(self, group_id: str, partitions: Collection[TopicPartition]) -> list[OffsetRecord]:
        """Of those among `partitions` that have an offset."""
        offsets = self.of(group_id)
        return [OffsetRecord(group_id, tp, None) for tp in partitions if tp in offsets]

    def of_topics(self, topics: Collection[str]) -> list[OffsetRecord]:
        """Tombstones for everything that is committed for topics that are gone."""
        if not topics:
            return []  # most changes of the metadata delete none
        return [
            OffsetRecord(group_id, tp, None)
            for group_id, offsets in self._by_group.items()
            for tp in offsets
            if tp.topic in topics
        ]

    def expired(
        self,
        group_id: str,
        retention_ms: int,
        wall_ms: int,
        counts_from: Callable[[TopicPartition, CommittedOffset], int | None],
    ) -> list[TopicPartition]:
        """`counts_from` says since when an offset is not in use, None while it is (KIP-211)."""
        expired: list[TopicPartition] = []
        for tp, offset in self.of(group_id).items():
            if (start_ms := counts_from(tp, offset)) is None:
                continue
            if offset.expire_timestamp_ms != NO_TIMESTAMP:  # the client said when, in versions 2 to 4
                if wall_ms >= offset.expire_timestamp_ms:
                    expired.append(tp)
            elif wall_ms - start_ms >= retention_ms:
                expired.append(tp)
        return expired


def commit_records(
    request: OffsetCommit, longest_metadata: int, wall_ms: int
) -> tuple[list[OffsetRecord], tuple[tuple[TopicPartition, ErrorCode], ...]]:
    """What an allowed commit writes, and what each of its partitions is answered."""
    retention_ms = request.retention_time_ms
    expire_ms = NO_TIMESTAMP if retention_ms == _NO_RETENTION_TIME else min(wall_ms + retention_ms, _LATEST_MS)
    records: list[OffsetRecord] = []
    errors: list[tuple[TopicPartition, ErrorCode]] = []
    for offset in request.offsets:
        error = _refusal(offset, longest_metadata)
        errors.append((offset.topic_partition, error))
        if error is ErrorCode.NONE:
            value = CommittedOffset(offset.offset, offset.leader_epoch, offset.metadata or "", wall_ms, expire_ms)
            records.append(OffsetRecord(request.group_id, offset.topic_partition, value))
    return records, tuple(errors)


def _refusal(offset: OffsetToCommit, longest_metadata: int) -> ErrorCode:
    if offset.error is not ErrorCode.NONE:
        return offset.error
    if offset.metadata is not None and len(offset.metadata) > longest_metadata:  # characters, as Kafka counts
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _fetched(tp: TopicPartition, offset: CommittedOffset | None) -> FetchedOffset:
    if offset is None:
        return FetchedOffset(tp)
    return FetchedOffset(tp, offset.offset, offset.leader_epoch, offset.metadata)
