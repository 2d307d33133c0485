"""Whether this replica may answer a request at all, and where its reader's log diverges from this one.

Rules of this module: functions without state, shared by both roles and by every reader, since there is one fetch
(followers and consumers alike). The epoch is compared before leadership is checked (R-110).
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode

from odradek_broker.core.partition.epochs import UNDEFINED, EpochEntry
from odradek_broker.core.partition.messages import NO_EPOCH, FetchDecision, ReplicaLog


def check_leader_epoch(requested: int, own: int) -> ErrorCode:
    """Compare the leader epoch of a request with ours; `requested` -1 is absent and passes (R-110)."""
    if requested in (own, NO_EPOCH):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if requested < own else ErrorCode.UNKNOWN_LEADER_EPOCH


def refuse(log: ReplicaLog, error: ErrorCode, diverging: EpochEntry | None = None) -> FetchDecision:
    """A fetch that is answered without records."""
    return FetchDecision(error, log.high_watermark, log.high_watermark, log.log_start_offset, diverging=diverging)


def decide_read(log: ReplicaLog, fetch_offset: int, last_fetched_epoch: int, limit: int) -> FetchDecision:
    """Read, or divergence, or out of range (R-36, R-37). `limit` is the reader's; offsets are captured here, once.

    Divergence is not checked below the log start offset: deleted records cannot be compared (R-36.2).
    """
    log_end_offset = log.log_end_offset
    if last_fetched_epoch != NO_EPOCH:
        end = log.epochs.end_offset_for(last_fetched_epoch, log_end_offset)
        if end == UNDEFINED or fetch_offset < log.log_start_offset:
            return refuse(log, ErrorCode.OFFSET_OUT_OF_RANGE)
        if end.epoch < last_fetched_epoch or end.offset < fetch_offset:
            return refuse(log, ErrorCode.NONE, end)
    if not log.log_start_offset <= fetch_offset <= log_end_offset:
        return refuse(log, ErrorCode.OFFSET_OUT_OF_RANGE)
    high_watermark = log.high_watermark
    return FetchDecision(ErrorCode.NONE, high_watermark, high_watermark, log.log_start_offset, limit)
