"""Whether the batches of a fetch answer may go to the end of a follower's log (R-81, R-85, R-221). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from odradek_proto.records import BatchHeader

from odradek_broker.core.partition.messages import NO_EPOCH, ReplicaLog
from odradek_broker.core.partition.policy import ReplicaPolicy


class Verdict(Enum):
    """What is to be done with received batches."""

    APPEND = auto()
    RESTARTS_LOG = auto()  # the log is empty and begins inside of the first batch: begin it there instead
    BELOW_LOG_END = auto()  # they would overwrite: the replica fails
    INVALID = auto()  # not one behind the other, or of epochs that the leader cannot have here: ask again


def judge_batches(headers: Sequence[BatchHeader], log: ReplicaLog, leader_epoch: int, policy: ReplicaPolicy) -> Verdict:
    """Judge batches that arrived in answer to a fetch at the log end offset. No CRC covers offsets and epochs.

    In the oldest protocol the *last* offset of the first batch was compared, so one that straddles the end of the log
    was taken whole (L-9): offsets then go backwards inside the log.
    """
    end = log.log_end_offset
    first = headers[0]
    verdict = Verdict.APPEND
    if first.base_offset < end:
        straddles = first.last_offset >= end
        if straddles and log.log_start_offset == end:
            verdict = Verdict.RESTARTS_LOG
        elif not (straddles and policy.appends_straddling_batch):
            return Verdict.BELOW_LOG_END
    next_offset = first.base_offset if first.base_offset < end else end
    rising = policy.sends_last_fetched_epoch  # the older modes let logs part, and epochs fall with them
    epoch = log.epochs.latest_epoch
    for header in headers:
        base_offset = header.base_offset
        if base_offset < next_offset or (base_offset > next_offset and not log.gaps):
            return Verdict.INVALID
        if header.leader_epoch != NO_EPOCH:
            if header.leader_epoch > leader_epoch or (rising and header.leader_epoch < epoch):
                return Verdict.INVALID
            epoch = header.leader_epoch
        next_offset = base_offset + header.last_offset_delta + 1
    return verdict
