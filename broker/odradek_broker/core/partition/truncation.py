"""How far a follower truncates its log, given the end of an epoch on the leader (KIP-101, KIP-279, R-75).

Rules of this module: functions without state. A truncation never goes beyond the own log end offset, and a step that is
not complete removes at least one epoch from the follower's log, so the rounds end (R-77).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_broker.core.partition.epochs import UNDEFINED, UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochCache, EpochEntry


class TruncationStep(NamedTuple):
    """Records at `offset` and above are removed. Unless it is `complete`, another request to the leader follows."""

    offset: int
    complete: bool


def cut_for(answer: EpochEntry, epochs: EpochCache, log_end_offset: int, fallback_offset: int) -> TruncationStep:
    """The cut that follows from the leader's `answer`, an epoch and the offset at which it ends there (R-75).

    `fallback_offset` is where to cut when the leader knows nothing of our epochs: the high watermark.
    """
    if answer.offset == UNDEFINED_OFFSET:
        return TruncationStep(min(fallback_offset, log_end_offset), True)
    if answer.epoch == UNDEFINED_EPOCH:
        return TruncationStep(min(answer.offset, log_end_offset), True)
    own = epochs.end_offset_for(answer.epoch, log_end_offset)
    if own == UNDEFINED:
        return TruncationStep(min(answer.offset, log_end_offset), True)
    if own.epoch != answer.epoch:
        # We never had the leader's epoch: our log parts from its somewhere below, and only the end of our own next
        # lower epoch is sure to be needed no more (KIP-279).
        return TruncationStep(min(own.offset, log_end_offset), False)
    return TruncationStep(min(own.offset, answer.offset, log_end_offset), True)
