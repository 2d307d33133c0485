"""DescribeReplicas and DeleteRecords: what this broker's replicas hold, and the cutting of their beginning.

- DescribeReplicas answers from memory for every replica here, leaders with what they know of the others.
- DeleteRecords: the leader only; answered when its log start offset and those of all replicas on live brokers have
  moved (R-125), or with REQUEST_TIMED_OUT: then the leader's has, and the others take it with their next fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import CallContext
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.replica import Replica


class ReplicaService:
    """What `odradek cluster status` and administrators ask of one broker."""

    def __init__(self, *, replicas: ReplicaManager, broker_id: int) -> None:
        self._replicas = replicas
        self._broker_id = broker_id

    async def describe(self, request: bytes, context: CallContext) -> bytes:
        message = pb.DescribeReplicasRequest.FromString(request)
        wanted = set(message.topics)
        registration = self._replicas.image.brokers.get(self._broker_id)
        response = pb.DescribeReplicasResponse(
            broker_id=self._broker_id, broker_epoch=registration.broker_epoch if registration is not None else -1
        )
        for tp, replica in sorted(self._replicas.replicas.items()):
            if not wanted or tp.topic in wanted:
                self._describe_one(response.replicas.add(topic=tp.topic, partition=tp.partition), replica)
        return response.SerializeToString()

    def _describe_one(self, described: pb.ReplicaDescription, replica: Replica) -> None:
        state, registration, leader = replica.state, replica.registration, replica.leader
        described.role = "offline" if replica.offline is not None else "leader" if leader is not None else "follower"
        described.leader_id = registration.leader if registration is not None else -1
        described.leader_epoch = registration.leader_epoch if registration is not None else 0
        described.partition_epoch = registration.partition_epoch if registration is not None else 0
        described.log_start_offset = state.log_start_offset
        described.log_end_offset = state.log_end_offset
        described.high_watermark = state.high_watermark
        described.size_bytes = replica.log.size_bytes
        described.isr.extend(registration.isr if registration is not None else ())
        for entry in state.epochs.entries:
            described.epochs.add(epoch=entry.epoch, start_offset=entry.offset)
        if leader is not None:
            for remote in leader.remote_replicas(self._replicas.clock.now_ms()):
                described.remote_replicas.add(
                    broker_id=remote.broker_id,
                    log_end_offset=remote.log_end_offset,
                    lag_ms=remote.lag_ms,
                    in_sync=remote.in_sync,
                )

    async def delete_records(self, request: bytes, context: CallContext) -> bytes:
        message = pb.DeleteRecordsRequest.FromString(request)
        response = pb.DeleteRecordsResponse()
        deadline = asyncio.get_running_loop().time() + max(message.timeout_ms, 0) / 1000
        waits: list[Coroutine[None, None, None]] = []
        for item in message.partitions:
            deleted = response.partitions.add(topic=item.topic, partition=item.partition, low_watermark=-1)
            replica = self._replicas.lookup(TopicPartition(item.topic, item.partition))
            if isinstance(replica, ErrorCode):
                deleted.error_code = int(replica)
            elif replica.offline is not None:
                deleted.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
            elif replica.leader is None:
                deleted.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                leader = replica.leader
                start = self._delete(replica, leader, item.offset, deleted)
                if not deleted.error_code:  # it waits from here on: nobody tells a later one that the leadership ended
                    moved = replica.deletes.add(start) if leader.low_watermark() < start else None
                    waits.append(self._wait_for_followers(leader, moved, deleted, deadline))
        await asyncio.gather(*waits)
        return response.SerializeToString()

    def _delete(self, replica: Replica, leader: LeaderPartition, offset: int, deleted: pb.DeletedRecords) -> int:
        """Move the leader's own log start; returns where it shall be."""
        error, start = leader.check_delete_records(offset)
        if error is ErrorCode.NONE and start > replica.state.log_start_offset:
            replica.on_log_start_advanced(start)
            if replica.offline is not None:
                error = ErrorCode.KAFKA_STORAGE_ERROR
        deleted.error_code = int(error)
        return start

    async def _wait_for_followers(
        self,
        leader: LeaderPartition,
        moved: asyncio.Future[ErrorCode] | None,
        deleted: pb.DeletedRecords,
        deadline: float,
    ) -> None:
        """R-125: until all replicas on live brokers have moved their log start offsets, too; None: they have."""
        if moved is not None:
            try:
                async with asyncio.timeout_at(deadline):
                    deleted.error_code = int(await moved)
            except TimeoutError:
                deleted.error_code = int(ErrorCode.REQUEST_TIMED_OUT)
        deleted.low_watermark = leader.low_watermark()
