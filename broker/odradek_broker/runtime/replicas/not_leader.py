"""The response of a replica that may not serve a request: it does not lead, or its disk failed.

The epoch of the request decides between the errors: an old one is fenced, a newer one is unknown here (R-36).
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.messages import FetchDecision, ReplicaLog
from odradek_broker.runtime.replicas.purgatory import ProduceAnswer


def not_leader(tp: TopicPartition, registration: PartitionRegistration | None) -> ProduceAnswer:
    """A producer is told who leads, as far as it is known here."""
    return ProduceAnswer(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"{tp}: this broker does not lead it",
        leader_id=registration.leader if registration is not None else -1,
        leader_epoch=registration.leader_epoch if registration is not None else -1,
    )


def fetch_refusal(
    state: ReplicaLog, registration: PartitionRegistration | None, current_leader_epoch: int, *, offline: bool
) -> FetchDecision:
    """A follower or a consumer is told why it gets nothing, with the bounds of this log."""
    known = registration.leader_epoch if registration is not None else -1
    if offline:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    elif 0 <= current_leader_epoch < known:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif current_leader_epoch > known:
        error = ErrorCode.UNKNOWN_LEADER_EPOCH
    else:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return FetchDecision(error, state.high_watermark, state.high_watermark, state.log_start_offset)
