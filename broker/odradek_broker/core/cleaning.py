"""Decisions of the log cleaner (K-86, K-87): which compacted log is next, up to where, and which records stay. Pure.

Rules of this module. Only whole segments are cleaned, never the active one, and nothing at or above the stable end of
the log: the high watermark, the first open transaction, and the flushed end. A record is removed only if a newer one of
its key is below the end of the cleaned range, or if it is a tombstone whose delete horizon has passed. The last batch
of a known producer stays, empty if necessary, since sequence and epoch are in its header; so does the last batch of a
segment, which marks the end of the segment. Batches of transactions stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from odradek_proto.headers import CONTROL, DELETE_HORIZON, TRANSACTIONAL
from odradek_proto.records import BatchHeader, OpenBatch, RecordPlace
from odradek_proto.values import Value

LARGEST_SPAN = (1 << 31) - 1  # of offsets in a segment: an index has 32 bits for them
Key = TypeVar("Key", bound=Hashable)


class CompactionSettings(Value, frozen=True):
    """Of a compacted topic; the names are Kafka's, the defaults as well."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    delete_retention_ms: int = 86_400_000
    deletes: bool = False  # cleanup.policy is `compact,delete`


class SegmentFacts(Value, frozen=True):
    """A segment that is not the active one. Timestamps are -1 where no record has one."""

    base_offset: int
    end_offset: int
    size: int
    first_timestamp: int = -1
    largest_timestamp: int = -1


class Cleanable(Value, frozen=True):
    """What a cleaner would find in a log: from `first_dirty_offset` to `end_offset` no cleaner has been."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    wanted: bool

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)


def assess(
    segments: Sequence[SegmentFacts],
    first_dirty_offset: int,
    stable_offset: int,
    settings: CompactionSettings,
    wall_ms: int,
) -> Cleanable:
    """How dirty a log is. `first_dirty_offset` is what the checkpoint says, whatever became of the log since."""
    end = segments[0].base_offset if segments else 0
    if not segments or not end <= first_dirty_offset <= segments[-1].end_offset:
        first_dirty_offset = end  # the log was cut, or begins anew: nobody has cleaned what is there now
    dirty: list[SegmentFacts] = []
    clean_bytes = 0
    for segment in segments:
        if segment.end_offset > stable_offset:
            break
        if segment.end_offset <= first_dirty_offset:
            clean_bytes += segment.size
        elif settings.min_compaction_lag_ms and segment.largest_timestamp > wall_ms - settings.min_compaction_lag_ms:
            break
        else:
            dirty.append(segment)
        end = segment.end_offset
    dirty_bytes = sum(segment.size for segment in dirty)
    oldest = min((segment.first_timestamp for segment in dirty if segment.first_timestamp >= 0), default=wall_ms)
    found = Cleanable(first_dirty_offset, end, clean_bytes, dirty_bytes, False)
    overdue = dirty_bytes > 0 and wall_ms - oldest > settings.max_compaction_lag_ms
    return Cleanable(
        first_dirty_offset,
        end,
        clean_bytes,
        dirty_bytes,
        overdue or found.dirty_ratio > settings.min_cleanable_dirty_ratio,
    )


def dirtiest(found: Mapping[Key, Cleanable]) -> Key | None:
    """The log to clean next; None when no one needs it."""
    wanted = {key: each for key, each in found.items() if each.wanted and each.dirty_bytes}
    return max(wanted, key=lambda key: wanted[key].dirty_ratio, default=None)


def groups(segments: Sequence[SegmentFacts], segment_bytes: int) -> list[int]:
    """How many segments in a row become one, group after group: as large as a segment may be before it is cleaned."""
    counts: list[int] = []
    size = base_offset = 0
    for segment in segments:
        fits = size + segment.size <= segment_bytes and segment.end_offset - base_offset <= LARGEST_SPAN
        if counts and fits:
            counts[-1] += 1
            size += segment.size
        else:
            counts.append(1)
            size, base_offset = segment.size, segment.base_offset
    return counts


class Revision(Value, frozen=True):
    """What becomes of a batch. `kept` None: it stays as it is. Without any it goes, unless it `keeps_place`, empty."""

    kept: Sequence[RecordPlace] | None
    delete_horizon_ms: int | None = None
    keeps_place: bool = False


AS_IS = Revision(None)


def is_left_alone(header: BatchHeader) -> bool:
    """Whether its records neither go nor make others go: what a transaction wrote may have been aborted."""
    return header.attributes & (CONTROL | TRANSACTIONAL) != 0


def revise(
    batch: OpenBatch,
    newest: Callable[[bytes], int | None],
    end_offset: int,
    wall_ms: int,
    delete_retention_ms: int,
    *,
    keeps_place: bool,
) -> Revision:
    """Which records of a batch stay. `newest` knows the last offset of each key of the dirty range below `end_offset`.

    A tombstone that is seen for the first time gives its batch a delete horizon; it goes when that is over.
    """
    header, base_offset = batch.header, batch.header.base_offset
    if is_left_alone(header):
        return AS_IS
    horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
    over = horizon is not None and wall_ms >= horizon
    kept = [
        each
        for each in batch.records
        if (offset := base_offset + each.offset_delta) >= end_offset
        or (
            each.key is not None
            and not (each.is_tombstone and over)
            and ((last := newest(each.key)) is None or last <= offset)
        )
    ]
    stamped = None
    if horizon is None and any(each.is_tombstone for each in kept):
        stamped = wall_ms + delete_retention_ms
    if kept and stamped is None and len(kept) == len(batch.records):
        return AS_IS
    if not header.record_count and keeps_place:
        return AS_IS
    return Revision(kept, stamped, keeps_place)
