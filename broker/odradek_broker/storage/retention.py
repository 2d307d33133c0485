"""Which segments have served their time (R-163).

From the oldest on, and never behind the first one that is kept. Only what lies below the high watermark goes: a replica
that deletes more than that could lead an election with a log that nobody else has.
"""

from __future__ import annotations

from odradek_broker.storage.segments import Segments
from odradek_broker.storage.settings import LogSettings


def new_log_start(
    segments: Segments, settings: LogSettings, wall_ms: int, high_watermark: int, at_most: int
) -> int | None:
    """Where the log should start by `retention.ms` and `retention.bytes`; None when everything may stay. Blocking.

    Looks at no more than `at_most` segments, the oldest ones.
    """
    surplus = segments.size - settings.retention_bytes if settings.retention_bytes >= 0 else -1
    start = None
    for place, segment in enumerate(segments.all[:at_most]):
        end = segments.end_of(place)
        if high_watermark < end or not segment.size:
            break
        old = _too_old(segment.largest_timestamp, segment.created_ms, settings.retention_ms, wall_ms)
        if not old and surplus < segment.size:
            break
        surplus -= segment.size
        start = end
    return start


def _too_old(timestamp: int, created_ms: int, retention_ms: int, wall_ms: int) -> bool:
    """By the largest timestamp of a segment; without any, by when this process first saw it."""
    return retention_ms >= 0 and wall_ms - (timestamp if timestamp >= 0 else created_ms) > retention_ms


def segments_below(segments: Segments, log_start_offset: int) -> int:
    """How many segments, from the oldest on, lie wholly below the log start. The active one never counts."""
    count = 0
    while count + 1 < len(segments.all) and segments.end_of(count) <= log_start_offset:
        count += 1
    return count
