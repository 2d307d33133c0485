"""DescribeReplicas and DeleteRecords: what this broker's replicas hold, and the cutting of their beginning.

- DescribeReplicas answers from memory for every replica here, leaders with what they know of the others.
- DeleteRecords: the leader only; answered when its log start offset and those of all replicas on live brokers have
  moved (R-125), or with REQUEST_TIMED_OUT: then the leader's has, and the others take it with their next fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.values import Value

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.remote_replica import RemoteReplicaStatus
from odradek_broker.requests.context import RequestContext
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.replica import Replica


class DeleteRecords(Value, frozen=True):
    topic_partition: TopicPartition
    offset: int  # everything below it goes; -1: everything below the high watermark


class DeletedRecords(Value, frozen=True):
    topic_partition: TopicPartition
    error: ErrorCode
    low_watermark: int = -1  # the smallest log start offset of the replicas on live brokers


class ReplicaDescription(Value, frozen=True):
    topic_partition: TopicPartition
    role: str  # leader, follower, offline
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    size_bytes: int
    isr: Sequence[int]
    epochs: Sequence[EpochEntry]  # with their start offsets
    remote_replicas: Sequence[RemoteReplicaStatus] = ()
    damage: Sequence[str] = ()  # batches that failed their check since the start, a sentence each


class BrokerReplicas(Value, frozen=True):
    broker_id: int
    broker_epoch: int  # -1: not registered
    replicas: Sequence[ReplicaDescription]


class RecordRequests:
    """What `odradek cluster status` and administrators ask of one broker."""

    def __init__(self, *, replicas: ReplicaManager, broker_id: int) -> None:
        self._replicas = replicas
        self._broker_id = broker_id

    def describe_replicas(self, context: RequestContext, topics: Collection[str] = ()) -> BrokerReplicas:
        """The replicas here of these topics, by partition; no topic: of all."""
        registration = self._replicas.image.brokers.get(self._broker_id)
        now_ms = self._replicas.clock.now_ms()
        found = [
            _describe(replica, now_ms)
            for tp, replica in sorted(self._replicas.replicas.items())
            if not topics or tp.topic in topics
        ]
        return BrokerReplicas(self._broker_id, registration.broker_epoch if registration is not None else -1, found)

    async def delete_records(
        self, context: RequestContext, partitions: Sequence[DeleteRecords], timeout_ms: int
    ) -> list[DeletedRecords]:
        """One answer for each partition, in their order, together when the last one is done."""
        deadline = asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000
        waits: list[Coroutine[None, None, DeletedRecords]] = []
        for each in partitions:  # none waits before all have cut: a later one would not hear that its leadership ended
            waits.append(_wait(each.topic_partition, *self._delete(each), deadline))
        return list(await asyncio.gather(*waits))

    def _delete(self, wanted: DeleteRecords) -> tuple[ErrorCode | asyncio.Future[ErrorCode], LeaderPartition | None]:
        """Cut the leader's own log; returns what there is to wait for, or the error."""
        replica = self._replicas.lookup(wanted.topic_partition)
        if isinstance(replica, ErrorCode):
            return replica, None
        if replica.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        leader = replica.leader
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        error, start = leader.check_delete_records(wanted.offset)
        if error is not ErrorCode.NONE:
            return error, None
        if start > replica.state.log_start_offset:
            replica.on_log_start_advanced(start)
            if replica.offline is not None:
                return ErrorCode.KAFKA_STORAGE_ERROR, None
        return replica.deletes.add(start) if leader.low_watermark() < start else ErrorCode.NONE, leader


async def _wait(
    tp: TopicPartition,
    moved: ErrorCode | asyncio.Future[ErrorCode],
    leader: LeaderPartition | None,
    deadline: float,
) -> DeletedRecords:
    """R-125: until all replicas on live brokers have moved their log start offsets, too."""
    if isinstance(moved, asyncio.Future):
        try:
            async with asyncio.timeout_at(deadline):
                moved = await moved
        except TimeoutError:
            moved = ErrorCode.REQUEST_TIMED_OUT
    return DeletedRecords(tp, moved, -1 if leader is None else leader.low_watermark())


def _describe(replica: Replica, now_ms: int) -> ReplicaDescription:
    state, registration, leader = replica.state, replica.registration, replica.leader
    return ReplicaDescription(
        topic_partition=replica.topic_partition,
        role="offline" if replica.offline is not None else "leader" if leader is not None else "follower",
        leader_id=registration.leader if registration is not None else -1,
        leader_epoch=registration.leader_epoch if registration is not None else 0,
        partition_epoch=registration.partition_epoch if registration is not None else 0,
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
        high_watermark=state.high_watermark,
        size_bytes=replica.log.size_bytes,
        isr=registration.isr if registration is not None else (),
        epochs=state.epochs.entries,
        remote_replicas=leader.remote_replicas(now_ms) if leader is not None else (),
        damage=replica.trouble.damage,
    )
