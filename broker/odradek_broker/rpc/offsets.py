"""ListOffsets and OffsetsForLeaderEpoch: what a log's ends and epochs are.

- ListOffsets: -1 is the latest offset (high watermark for consumers, log end for replicas), -2 the earliest, -3 the
  record with the largest timestamp, anything else the first record at or after that time. After an election a leader
  answers OFFSET_NOT_AVAILABLE until its high watermark has reached its epoch's start (KIP-207, R-26).
- OffsetsForLeaderEpoch: answered by the leader only, fenced by the sender's epoch (R-69).

In both the epoch that the sender believes in is compared before anybody asks who leads, as for a fetch (R-110).
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import CallContext, Files
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.errors import CannotDecompress, LogCorrupted, StorageError

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NO_OFFSET = -1

Lookup = Callable[[TopicPartition], Replica | ErrorCode]


class OffsetsService:
    """Both calls, for clients and for followers."""

    def __init__(self, *, lookup: Lookup, files: Files) -> None:
        self._lookup = lookup
        self._files = files

    async def list_offsets(self, request: bytes, context: CallContext) -> bytes:
        message = pb.ListOffsetsRequest.FromString(request)
        response = pb.ListOffsetsResponse()
        for item in message.partitions:
            listed = response.partitions.add(
                topic=item.topic, partition=item.partition, offset=-1, timestamp_ms=-1, leader_epoch=-1
            )
            await self._list_one(item, listed, message.replica_id >= 0, message.read_committed)
        return response.SerializeToString()

    async def _list_one(
        self, item: pb.ListOffsetsPartition, listed: pb.ListedOffset, from_replica: bool, read_committed: bool
    ) -> None:
        replica, leader = self._leader(item, listed)
        if replica is None or leader is None:
            return
        error, bound = leader.offset_bound(
            item.current_leader_epoch, replica=from_replica, read_committed=read_committed
        )
        state = replica.state
        if error not in (ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE):
            listed.error_code = int(error)
        elif item.timestamp_ms == EARLIEST:
            listed.offset = state.log_start_offset
            listed.leader_epoch = _epoch_at(replica, state.log_start_offset)
        elif item.timestamp_ms == LATEST:
            listed.error_code = int(error)
            if error is ErrorCode.NONE:
                listed.offset = bound
                listed.leader_epoch = leader.leader_epoch
        else:
            limit = state.high_watermark if error else bound
            await self._by_timestamp(replica, leader, item, limit, listed, from_replica=from_replica)

    async def _by_timestamp(
        self,
        replica: Replica,
        leader: LeaderPartition,
        item: pb.ListOffsetsPartition,
        limit: int,
        listed: pb.ListedOffset,
        *,
        from_replica: bool,
    ) -> None:
        """Look below `limit` away from the loop. What this broker was before the look-up it need not be after it."""
        log, timestamp_ms = replica.log, item.timestamp_ms
        found, failed = None, ErrorCode.NONE
        try:
            if timestamp_ms == MAX_TIMESTAMP:
                found = await self._files.offload(lambda: log.max_timestamp(limit))
            else:
                found = await self._files.offload(lambda: log.offset_for_timestamp(timestamp_ms, limit))
        except (StorageError, OSError) as error:
            failed = ErrorCode.KAFKA_STORAGE_ERROR
            if isinstance(error, LogCorrupted):
                replica.trouble.corrupted(error)
            elif isinstance(error, CannotDecompress):  # batches are taken and served without a look into them
                failed = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if replica.leader is not leader:
            listed.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if failed or replica.offline is not None:
            listed.error_code = int(failed or ErrorCode.KAFKA_STORAGE_ERROR)
            return
        offset = found.offset if found is not None else NO_OFFSET
        bound_error, offset = leader.timestamp_bound(
            item.current_leader_epoch, offset, replica=from_replica, read_committed=False
        )
        listed.error_code = int(bound_error)
        if found is not None and bound_error is ErrorCode.NONE and offset != NO_OFFSET:
            listed.timestamp_ms, listed.offset = found
            listed.leader_epoch = _epoch_at(replica, listed.offset)

    async def offsets_for_leader_epoch(self, request: bytes, context: CallContext) -> bytes:
        message = pb.OffsetsForLeaderEpochRequest.FromString(request)
        response = pb.OffsetsForLeaderEpochResponse()
        for item in message.partitions:
            answer = response.partitions.add(topic=item.topic, partition=item.partition, leader_epoch=-1, end_offset=-1)
            _hosted, leader = self._leader(item, answer)
            if leader is not None:
                error, end = leader.end_offset_for_epoch(item.current_leader_epoch, item.leader_epoch)
                answer.error_code = int(error)
                if error is ErrorCode.NONE:
                    answer.leader_epoch, answer.end_offset = end.epoch, end.offset
        return response.SerializeToString()

    def _leader(
        self,
        item: pb.ListOffsetsPartition | pb.OffsetForLeaderEpochPartition,
        answer: pb.ListedOffset | pb.EpochEndOffset,
    ) -> tuple[Replica | None, LeaderPartition | None]:
        replica = self._lookup(TopicPartition(item.topic, item.partition))
        if isinstance(replica, ErrorCode):
            answer.error_code = int(replica)
            return None, None
        leader = replica.leader
        if leader is None or replica.offline is not None:
            answer.error_code = int(replica.refusal(item.current_leader_epoch).error)
            return replica, None
        return replica, leader


def _epoch_at(replica: Replica, offset: int) -> int:
    epoch = replica.state.epochs.epoch_for_offset(offset)
    return -1 if epoch is None else epoch
