"""ListOffsets and OffsetsForLeaderEpoch: what a log's ends and epochs are.

- ListOffsets: -1 is the latest offset (high watermark for consumers, log end for replicas), -2 the earliest, -3 the
  record with the largest timestamp, anything else the first record at or after that time. After an election a leader
  answers OFFSET_NOT_AVAILABLE until its high watermark has reached its epoch's start (KIP-207, R-26).
  A debugger is told a replica's own ends, a follower's, too.
- OffsetsForLeaderEpoch: answered by the leader only, fenced by the sender's epoch (R-69).

In both the epoch that the sender believes in is compared before anybody asks who leads, as for a fetch (R-110).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Files
from odradek_proto.values import Value

from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.requests.access import OPEN, Access
from odradek_broker.requests.context import Lookup, RequestContext
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.errors import CannotDecompress, LogCorrupted, StorageError

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
NO_OFFSET: Final = -1
CONSUMER: Final = -1  # as a replica id
DEBUGGER: Final = -2  # as a replica id, Kafka's ListOffsetsRequest.DEBUGGING_REPLICA_ID


class OffsetQuery(Value, frozen=True):
    topic_partition: TopicPartition
    timestamp_ms: int  # or one of LATEST, EARLIEST, MAX_TIMESTAMP
    current_leader_epoch: int = -1  # -1: not compared


class ListedOffset(Value, frozen=True):
    """With an error, and when no record was found, the numbers are -1."""

    topic_partition: TopicPartition
    error: ErrorCode
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class EpochQuery(Value, frozen=True):
    topic_partition: TopicPartition
    current_leader_epoch: int  # -1: not compared
    leader_epoch: int


class EpochEndOffset(Value, frozen=True):
    """Undefined is (-1, -1) without an error."""

    topic_partition: TopicPartition
    error: ErrorCode
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetRequests:
    """Both requests, for clients and for followers."""

    def __init__(self, *, lookup: Lookup, files: Files, access: Access = OPEN) -> None:
        self._lookup = lookup
        self._access = access
        self._files = files

    async def list_offsets(
        self,
        context: RequestContext,
        queries: Sequence[OffsetQuery],
        replica_id: int = CONSUMER,
        read_committed: bool = False,
    ) -> list[ListedOffset]:
        """One answer for each query, in their order. Look-ups by time read the disk away from the loop."""
        lookup = self._lookup if replica_id >= 0 else self._access.lookup(self._lookup, context, "ListOffsets")
        return [await self._list_one(lookup, query, replica_id, read_committed) for query in queries]

    async def offsets_for_leader_epoch(
        self, context: RequestContext, queries: Sequence[EpochQuery], replica_id: int = CONSUMER
    ) -> list[EpochEndOffset]:
        """One answer for each query, in their order."""
        lookup = self._lookup if replica_id >= 0 else self._access.lookup(self._lookup, context, "OffsetForLeaderEpoch")
        return [self._end_of_epoch(lookup, query) for query in queries]

    async def _list_one(
        self, lookup: Lookup, query: OffsetQuery, replica_id: int, read_committed: bool
    ) -> ListedOffset:
        tp = query.topic_partition
        from_replica = replica_id >= 0 or replica_id == DEBUGGER
        replica = self._leading(lookup, query)
        if replica is ErrorCode.NOT_LEADER_OR_FOLLOWER and replica_id == DEBUGGER:
            return _end_of_follower(lookup(tp, b""), query)
        if isinstance(replica, ErrorCode):
            return ListedOffset(tp, replica)
        leader = replica.leader
        assert leader is not None, tp
        error, bound = leader.offset_bound(
            query.current_leader_epoch, replica=from_replica, read_committed=read_committed
        )
        state = replica.state
        if error not in (ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE):
            return ListedOffset(tp, error)
        if query.timestamp_ms == EARLIEST:
            start = state.log_start_offset
            return ListedOffset(tp, ErrorCode.NONE, start, leader_epoch=_epoch_at(replica, start))
        if query.timestamp_ms == LATEST:
            if error is not ErrorCode.NONE:
                return ListedOffset(tp, error)
            return ListedOffset(tp, error, bound, leader_epoch=leader.leader_epoch)
        limit = state.high_watermark if error else bound
        return await self._by_timestamp(replica, leader, query, limit, from_replica=from_replica)

    async def _by_timestamp(
        self, replica: Replica, leader: LeaderPartition, query: OffsetQuery, limit: int, *, from_replica: bool
    ) -> ListedOffset:
        """Look below `limit` away from the loop. What this broker was before the look-up it need not be after it."""
        log, timestamp_ms, tp = replica.log, query.timestamp_ms, query.topic_partition
        found, failed = None, ErrorCode.NONE
        try:
            if timestamp_ms == MAX_TIMESTAMP:
                found = await self._files.offload(lambda: log.max_timestamp(limit))
            else:
                found = await self._files.offload(lambda: log.offset_for_timestamp(timestamp_ms, limit))
        except (StorageError, OSError) as error:
            failed = ErrorCode.KAFKA_STORAGE_ERROR
            if isinstance(error, LogCorrupted):
                replica.corrupted(error)
            elif isinstance(error, CannotDecompress):  # batches are taken and served without a look into them
                failed = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if replica.leader is not leader:
            return ListedOffset(tp, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if failed or replica.offline is not None:
            return ListedOffset(tp, failed or ErrorCode.KAFKA_STORAGE_ERROR)
        offset = found.offset if found is not None else NO_OFFSET
        bound_error, offset = leader.timestamp_bound(
            query.current_leader_epoch, offset, replica=from_replica, read_committed=False
        )
        if found is None or bound_error is not ErrorCode.NONE or offset == NO_OFFSET:
            return ListedOffset(tp, bound_error)
        return ListedOffset(tp, bound_error, found.offset, found.timestamp, _epoch_at(replica, found.offset))

    def _end_of_epoch(self, lookup: Lookup, query: EpochQuery) -> EpochEndOffset:
        tp = query.topic_partition
        replica = self._leading(lookup, query)
        if isinstance(replica, ErrorCode):
            return EpochEndOffset(tp, replica)
        leader = replica.leader
        assert leader is not None, tp
        error, end = leader.end_offset_for_epoch(query.current_leader_epoch, query.leader_epoch)
        return EpochEndOffset(tp, error) if error is not ErrorCode.NONE else EpochEndOffset(tp, error, *end)

    def _leading(self, lookup: Lookup, query: OffsetQuery | EpochQuery) -> Replica | ErrorCode:
        """The replica, when it leads and its disk is sound; else why it may not answer."""
        replica = lookup(query.topic_partition, b"")
        if isinstance(replica, ErrorCode) or (replica.leader is not None and replica.offline is None):
            return replica
        return replica.refusal(query.current_leader_epoch).error


def _end_of_follower(replica: Replica | ErrorCode, query: OffsetQuery) -> ListedOffset:
    """The first or the last offset of a replica that does not lead; times are looked up by leaders alone."""
    tp, time_ms = query.topic_partition, query.timestamp_ms
    if isinstance(replica, ErrorCode) or time_ms not in (EARLIEST, LATEST):
        return ListedOffset(tp, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    offset = replica.state.log_start_offset if time_ms == EARLIEST else replica.state.log_end_offset
    return ListedOffset(tp, ErrorCode.NONE, offset, leader_epoch=_epoch_at(replica, offset))


def _epoch_at(replica: Replica, offset: int) -> int:
    epoch = replica.state.epochs.epoch_for_offset(offset)
    return -1 if epoch is None else epoch
