"""The quorum as one of its nodes sees it, in the words of `DescribeQuorum`."""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_pb2

from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import NO_NODE


def describe_quorum(core: QuorumCore | None, node_id: int, now_ms: int) -> admin_pb2.DescribeQuorumResponse:
    """Voters and observers as the leader sees them; NOT_LEADER_OR_FOLLOWER with the known leader elsewhere.

    `core` is None when the node does not run.
    """
    answer = admin_pb2.DescribeQuorumResponse(leader_id=NO_NODE)
    if core is not None:
        answer.leader_id, answer.leader_epoch = core.leader_id, core.state.epoch
        answer.high_watermark = core.log.high_watermark
    if core is None or not isinstance(core.role, Leader):
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return answer
    answer.log_start_offset = core.log.log_start_offset
    if core.latest_snapshot is not None:
        answer.snapshot_end_offset = core.latest_snapshot.end_offset
    answer.voters.add(node_id=node_id, log_end_offset=core.log.log_end_offset)
    for replicas, positions in ((answer.voters, core.role.voters), (answer.observers, core.role.observers)):
        for replica_id, position in sorted(positions.items()):
            fetched, caught_up = position.last_fetch_ms, position.last_caught_up_ms
            replicas.add(
                node_id=replica_id,
                log_end_offset=position.end_offset,
                last_fetch_ms=-1 if fetched is None else now_ms - fetched,
                last_caught_up_ms=-1 if caught_up is None else now_ms - caught_up,
            )
    return answer
