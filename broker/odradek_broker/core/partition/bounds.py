"""The offsets that a leader returns to clients: LATEST and by timestamp (ListOffsets), and the limit of DeleteRecords.

Rules of this module. A client never gets an offset at or above the high watermark. And until the high watermark has
reached the start of this leadership, LATEST is not answered at all: the previous leader may have returned a larger one,
and end offsets must not go back (KIP-207, R-26).
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.values import Value

from odradek_broker.core.partition.fencing import check_leader_epoch
from odradek_broker.core.partition.messages import NO_OFFSET, ReplicaLog


class ClientBounds(Value, frozen=True):
    """One leader's log and where its epoch began (-1: hide nothing, L-10).

    Transactions do not exist yet, so the last stable offset is the high watermark and `read_committed` has no say.
    """

    log: ReplicaLog
    leader_epoch: int
    epoch_start_offset: int

    def latest(self, current_leader_epoch: int, *, replica: bool) -> tuple[ErrorCode, int]:
        """The log end offset for a replica, the high watermark for a client."""
        error = check_leader_epoch(current_leader_epoch, self.leader_epoch)
        if error != ErrorCode.NONE:
            return error, NO_OFFSET
        if replica:
            return ErrorCode.NONE, self.log.log_end_offset
        if self.log.high_watermark < self.epoch_start_offset:
            return ErrorCode.OFFSET_NOT_AVAILABLE, NO_OFFSET
        return ErrorCode.NONE, self.log.high_watermark

    def by_timestamp(self, current_leader_epoch: int, found_offset: int, *, replica: bool) -> tuple[ErrorCode, int]:
        """`found_offset` if it may be told; -1 for one that is not visible yet, or when none was found."""
        if found_offset != NO_OFFSET and found_offset < self.log.high_watermark:
            return check_leader_epoch(current_leader_epoch, self.leader_epoch), found_offset
        error, bound = self.latest(current_leader_epoch, replica=replica)
        return error, found_offset if error == ErrorCode.NONE and found_offset < bound else NO_OFFSET

    def delete_up_to(self, offset: int) -> tuple[ErrorCode, int]:
        """The new log start offset (R-160, R-161): never above the high watermark, and it does not go back."""
        wanted = self.log.high_watermark if offset == NO_OFFSET else offset
        if not 0 <= wanted <= self.log.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE, NO_OFFSET
        return ErrorCode.NONE, max(wanted, self.log.log_start_offset)
