"""What this broker's replicas hold, where they lie, and cutting their beginning.

- DescribeReplicas answers from memory for every replica here, leaders with what they know of the others.
- AlterReplicaLogDirs: there is one directory, so no replica moves.
- DescribeProducers: the producers that a replica here remembers, leader or not, as in Kafka (KIP-664).
- DeleteRecords: the leader only; answered when its log start offset and those of all replicas on live brokers have
  moved (R-125), or with REQUEST_TIMED_OUT: then the leader's has, and the others take it with their next fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import INTERNAL_TOPICS, TopicPartition
from odradek_proto.values import Value

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.in_sync import RemoteReplicaStatus
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.producers import ProducerEntry
from odradek_broker.requests.access import OPEN, Access
from odradek_broker.requests.context import Lookup, RequestContext
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.purgatory import DelayedDelete
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
    disk_full: bool = False  # read-only until there is room
    waiting_produces: int = 0  # requests in the purgatory
    waiting_fetches: int = 0


class BrokerReplicas(Value, frozen=True):
    broker_id: int
    broker_epoch: int  # -1: not registered
    replicas: Sequence[ReplicaDescription]
    error: ErrorCode = ErrorCode.NONE
    disk_full: bool = False  # of the log directory


class RecordRequests:
    """What `odradek cluster status` and administrators ask of one broker."""

    def __init__(self, *, replicas: ReplicaManager, broker_id: int, access: Access = OPEN) -> None:
        self._access = access
        self._replicas = replicas
        self._broker_id = broker_id

    def describe_replicas(self, context: RequestContext, topics: Collection[str] = ()) -> BrokerReplicas:
        """The replicas here of these topics, by partition; no topic: of all."""
        refused = self._access.refusal(context, "DescribeLogDirs")
        if refused:
            return BrokerReplicas(self._broker_id, -1, (), refused)
        registration = self._replicas.image.brokers.get(self._broker_id)
        now_ms = self._replicas.clock.now_ms()
        found = [
            _describe(replica, now_ms)
            for tp, replica in sorted(self._replicas.replicas.items())
            if not topics or tp.topic in topics
        ]
        epoch = registration.broker_epoch if registration is not None else -1
        return BrokerReplicas(self._broker_id, epoch, found, disk_full=not self._replicas.has_room)

    def refusal_to_move(self, context: RequestContext, tp: TopicPartition, *, is_known: bool) -> ErrorCode:
        """Why a replica cannot be moved to another log directory; NONE where it is in that one already.

        `is_known`: whether the directory is this broker's. In the order of Kafka's checks, and with its codes.
        """
        if refused := self._access.refusal(context, "AlterReplicaLogDirs"):
            return refused
        if not is_known:
            return ErrorCode.LOG_DIR_NOT_FOUND
        replica = self._replicas.lookup(tp, b"")
        if isinstance(replica, ErrorCode):
            absent = replica is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.REPLICA_NOT_AVAILABLE if absent else replica
        return ErrorCode.NONE if replica.offline is None else ErrorCode.KAFKA_STORAGE_ERROR

    def describe_producers(self, context: RequestContext, tp: TopicPartition) -> Sequence[ProducerEntry] | ErrorCode:
        """By producer id."""
        replica = self._access.lookup(self._replicas.lookup, context, "DescribeProducers")(tp, b"")
        if isinstance(replica, ErrorCode):
            return replica
        return sorted(replica.state.producers, key=lambda entry: entry.producer_id)

    async def delete_records(
        self, context: RequestContext, partitions: Sequence[DeleteRecords], timeout_ms: int
    ) -> list[DeletedRecords]:
        """One answer for each partition, in their order, together when the last one is done."""
        lookup = self._access.lookup(self._replicas.lookup, context, "DeleteRecords")
        deletions = [self._delete(lookup, each, timeout_ms) for each in partitions]  # none waits before all have cut
        return list(await asyncio.gather(*deletions))

    def _delete(self, lookup: Lookup, wanted: DeleteRecords, timeout_ms: int) -> Awaitable[DeletedRecords]:
        """Cut the leader's own log; what is awaited is the others' part."""
        internal = wanted.topic_partition.topic in INTERNAL_TOPICS
        replica = ErrorCode.INVALID_TOPIC_EXCEPTION if internal else lookup(wanted.topic_partition, b"")
        if isinstance(replica, ErrorCode):
            return _answered(DeletedRecords(wanted.topic_partition, replica))
        moved: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def answer(error: ErrorCode) -> None:
            if not moved.done():  # the caller may have given up
                moved.set_result(error)

        leader, compaction = replica.leader, replica.log.settings.compaction
        if leader is not None and compaction is not None and not compaction.deletes:
            return _answered(DeletedRecords(wanted.topic_partition, ErrorCode.POLICY_VIOLATION))
        delayed = replica.delete_records(wanted.offset, timeout_ms, answer)
        return _deleted(replica, leader, moved, delayed)


async def _answered(deleted: DeletedRecords) -> DeletedRecords:
    return deleted


async def _deleted(
    replica: Replica, leader: LeaderPartition | None, moved: asyncio.Future[ErrorCode], delayed: DelayedDelete | None
) -> DeletedRecords:
    """R-125: until all replicas on live brokers have moved their log start offsets, too."""
    try:
        error = await moved
    finally:
        if delayed is not None:
            replica.purgatory.cancel(delayed)
    cut = leader is not None and error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
    return DeletedRecords(replica.topic_partition, error, leader.low_watermark() if leader and cut else -1)


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
        disk_full=replica.trouble.is_full,
        waiting_produces=replica.waiting_produces,
        waiting_fetches=replica.waiting_fetches,
    )
