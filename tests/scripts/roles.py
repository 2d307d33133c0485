"""Leaders, followers and logs in a given state, and short forms of what they are told, for tests of the partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.epochs import EpochCache, EpochEntry
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import (
    AppendBatches,
    Effect,
    FetchAnswer,
    FollowerFetch,
    FollowerFetchRequest,
    IsrAnswer,
    IsrProposal,
    PartitionSettings,
    ProposeIsr,
    ReplicaLog,
    Transition,
    TruncationMode,
)
from odradek_broker.core.partition.policy import policy_for
from odradek_broker.core.partition.producers import ProducerStates
from odradek_chaos.stage.metadata import ORDERS, TOPIC_ID, Brokers
from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader

WALL_MS = 1_763_700_000_000
LAG_MS = 10_000
E = TypeVar("E", bound=Effect)


def header(
    base_offset: int = 0,
    count: int = 1,
    *,
    leader_epoch: int = -1,
    timestamp: int = WALL_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    length: int = 0,
) -> BatchHeader:
    """The header of a batch with `count` records, as a producer sends it unless offset and epoch are given.

    Without a `length` it is as long as such a batch may be.
    """
    return BatchHeader(
        base_offset=base_offset,
        length=length or max(100, 49 + 7 * count),
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        record_count=count,
    )


def replica_log(
    log_end_offset: int = 0,
    high_watermark: int = 0,
    epochs: Iterable[tuple[int, int]] = (),
    log_start_offset: int = 0,
) -> ReplicaLog:
    """A log's state without a log; `epochs` are (epoch, start offset)."""
    cache = EpochCache(EpochEntry(epoch, offset) for epoch, offset in epochs)
    return ReplicaLog(
        ORDERS, TOPIC_ID, log_start_offset, log_end_offset, high_watermark, cache, ProducerStates(), log_end_offset
    )


def registration(
    leader: int = 0,
    *,
    replicas: Sequence[int] = (0, 1, 2),
    isr: Sequence[int] | None = None,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
) -> PartitionRegistration:
    """A partition's metadata; the ISR is all replicas unless given."""
    members = tuple(replicas if isr is None else isr)
    return PartitionRegistration(tuple(replicas), members, leader, leader_epoch, partition_epoch)


def leader(
    log: ReplicaLog | None = None,
    *,
    metadata: PartitionRegistration | None = None,
    brokers: Brokers | None = None,
    mode: TruncationMode = TruncationMode.FETCH,
    min_isr: int = 1,
    now_ms: int = 0,
    flush_before_ack: bool = False,
) -> LeaderPartition:
    """Broker 0 as a started leader."""
    partition = LeaderPartition(
        log or replica_log(),
        broker_id=0,
        registration=metadata or registration(),
        settings=PartitionSettings(
            min_insync_replicas=min_isr, replica_lag_time_max_ms=LAG_MS, flush_before_ack=flush_before_ack
        ),
        policy=policy_for(mode),
        brokers=brokers or Brokers(range(4)),
        now_ms=now_ms,
    )
    partition.start(now_ms)
    return partition


def follower(
    log: ReplicaLog | None = None,
    *,
    metadata: PartitionRegistration | None = None,
    mode: TruncationMode = TruncationMode.FETCH,
    previous_leader: int = -1,
    flush_before_ack: bool = False,
) -> FollowerPartition:
    """Broker 1 as a follower of broker 0 in epoch 5, not started yet."""
    return FollowerPartition(
        log or replica_log(),
        broker_id=1,
        registration=metadata or registration(leader_epoch=5),
        settings=PartitionSettings(flush_before_ack=flush_before_ack),
        policy=policy_for(mode),
        now_ms=0,
        previous_leader=previous_leader,
    )


def started(
    log_end_offset: int = 0, high_watermark: int = 0, epochs: tuple[tuple[int, int], ...] = ()
) -> FollowerPartition:
    """Broker 1 as a started follower of broker 0 in epoch 5, over such a log."""
    partition = follower(replica_log(log_end_offset, high_watermark, epochs))
    partition.start(0)
    return partition


def append(partition: LeaderPartition, count: int = 1, now_ms: int = 0, acks: int = 1) -> list[Effect]:
    """One batch goes through both steps of an append."""
    decision = partition.prepare_append(header(count=count), acks, now_ms, WALL_MS)
    assert decision.header is not None, decision
    return partition.on_appended([decision.header], now_ms)


def fetch(
    replica_id: int,
    offset: int,
    *,
    epoch: int = 0,
    last_epoch: int = -1,
    broker_epoch: int | None = None,
    log_start: int = 0,
) -> FollowerFetch:
    """A follower's fetch, from the incarnation that `Brokers` knows at the beginning."""
    incarnation = 100 + replica_id if broker_epoch is None else broker_epoch
    return FollowerFetch(replica_id, incarnation, offset, epoch, last_epoch, log_start)


def position(partition: LeaderPartition, replica_id: int) -> int:
    """What the leader knows of a follower's log end offset."""
    remote = partition.replicas.by_id.get(replica_id)
    assert remote is not None, replica_id
    return remote.log_end_offset


def of_kind(effects: Iterable[Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def proposals(effects: Iterable[Effect]) -> list[tuple[int, ...]]:
    """The ISRs that are proposed."""
    return [members(effect.proposal) for effect in of_kind(effects, ProposeIsr)]


def members(proposal: IsrProposal) -> tuple[int, ...]:
    return tuple(member.broker_id for member in proposal.new_isr)


def events(effects: Iterable[Effect]) -> list[str]:
    return [effect.event for effect in of_kind(effects, Transition)]


def accepted(
    proposal: IsrProposal, *, leader_epoch: int | None = None, partition_epoch: int | None = None
) -> IsrAnswer:
    """The controller's "yes"."""
    return IsrAnswer(
        ErrorCode.NONE,
        0,
        proposal.leader_epoch if leader_epoch is None else leader_epoch,
        proposal.partition_epoch + 1 if partition_epoch is None else partition_epoch,
        members(proposal),
    )


def ask(partition: FollowerPartition, now_ms: int = 0) -> FollowerFetchRequest:
    """The follower's next request, which is to be a fetch."""
    request = partition.next_request(now_ms)
    assert isinstance(request, FollowerFetchRequest), request
    return request


def answer(
    request: FollowerFetchRequest,
    headers: Sequence[BatchHeader] = (),
    *,
    high_watermark: int = 0,
    log_start: int = 0,
    error: ErrorCode = ErrorCode.NONE,
) -> FetchAnswer:
    """The leader's answer to a fetch."""
    return FetchAnswer(
        request.fetch_offset, error, high_watermark, log_start, headers, None, request.current_leader_epoch
    )


def take(partition: FollowerPartition, effects: list[Effect], now_ms: int = 0) -> list[Effect]:
    """Write what is to be appended, and return what follows."""
    (order,) = of_kind(effects, AppendBatches)
    return partition.on_appended(order.headers, now_ms)
