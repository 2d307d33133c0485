"""The quorum as one of its nodes sees it, in the form of `DescribeQuorum`."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.leader import Leader, Position
from odradek_broker.core.quorum.messages import NO_NODE


def describe_quorum(core: QuorumCore | None, node_id: int, now_ms: int) -> admin_messages.DescribeQuorumResponse:
    """Voters and observers as the leader sees them; NOT_LEADER_OR_FOLLOWER with the known leader elsewhere.

    `core` is None when the node does not run.
    """
    if core is None:
        return admin_messages.DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=NO_NODE)
    role = core.role
    leads = isinstance(role, Leader)
    answer = admin_messages.DescribeQuorumResponse(
        error_code=ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=core.leader_id,
        leader_epoch=core.state.epoch,
        high_watermark=core.log.high_watermark,
    )
    if not isinstance(role, Leader):
        return answer
    itself = admin_messages.QuorumReplica(node_id=node_id, log_end_offset=core.log.log_end_offset)
    return replace(
        answer,
        log_start_offset=core.log.log_start_offset,
        snapshot_end_offset=None if core.latest_snapshot is None else core.latest_snapshot.end_offset,
        voters=[itself, *_replicas(role.voters, now_ms)],
        observers=_replicas(role.observers, now_ms),
    )


def _replicas(positions: Mapping[int, Position], now_ms: int) -> list[admin_messages.QuorumReplica]:
    return [
        admin_messages.QuorumReplica(
            node_id=replica_id,
            log_end_offset=position.end_offset,
            last_fetch_ms=-1 if position.last_fetch_ms is None else now_ms - position.last_fetch_ms,
            last_caught_up_ms=-1 if position.last_caught_up_ms is None else now_ms - position.last_caught_up_ms,
        )
        for replica_id, position in sorted(positions.items())
    ]
