"""Appending: batches go to the end of the active segment, or of a new one (R-221, R-225, R-226)."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from odradek_proto.records import BatchHeader, Buffer
from odradek_proto.transport.chance import chance

from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.storage.cache import slice_buffers
from odradek_broker.storage.durable import DurableLog
from odradek_broker.storage.errors import AppendOutOfOrder, DiskFull
from odradek_broker.storage.segment import LARGEST_RELATIVE_OFFSET, Segment

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class AppendableLog(DurableLog):
    """A log that grows. Storage keeps its own log end offset and refuses a batch that does not fit."""

    __slots__ = ()

    def append(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer], wall_ms: int | None = None) -> None:
        """Write batches at the end of the log: one vectored write, one more for each segment that begins on the way.

        The buffers, one behind the other, are exactly these batches, offsets and epochs stamped; they belong to the log
        from now on and must not change. Raises `AppendOutOfOrder` below the log end offset, `DiskFull` (the log is as
        before) and `LogDirectoryFailed`.
        """
        if self._failed is not None:
            raise self._failed
        if wall_ms is not None:
            self._wall_ms = wall_ms
        end = self._end_offset
        size = 0
        for header in headers:
            if header.base_offset < end and not (self.settings.accept_straddling and header.last_offset >= end):
                raise AppendOutOfOrder(
                    f"{self.topic_partition}: batch at {header.base_offset} below the log end offset {end}"
                )
            end = header.base_offset + header.last_offset_delta + 1
            size += header.length + 12
        active = self._segments.active
        before = (active, active.size, active.next_offset)
        try:
            if self._must_roll(active, headers, size, end):
                self._append_in_parts(headers, buffers)
            else:
                active.append(headers, buffers, size)
        except (OSError, ValueError) as error:
            self._undo(before, error)
        self._end_offset = end
        self._tail.enter(headers, buffers, size, end)
        if chance("cache-forgets", 0.02):
            self._tail.clear()

    def _must_roll(self, active: Segment, headers: Sequence[BatchHeader], size: int, end: int) -> bool:
        """Whether these batches do not all belong into the active segment (R-225)."""
        settings = self.settings
        if active.size + size > settings.segment_bytes and (active.size or len(headers) > 1):
            return True
        if end - 1 - active.base_offset > LARGEST_RELATIVE_OFFSET:
            return True
        if not active.size:
            return False
        if chance("segment-rolls-early", 0.01):
            return True
        if (len(active.index) + len(headers)) * 12 > settings.segment_index_bytes:
            return True  # 12: an entry of the time index, the larger one
        timestamp = headers[-1].max_timestamp
        if active.first_timestamp >= 0 and timestamp >= 0:
            waited = timestamp - active.first_timestamp
        else:
            waited = self._wall_ms - active.created_ms
        return waited > settings.segment_ms - self.segment_jitter_ms % settings.segment_ms

    def _append_in_parts(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer]) -> None:
        """Append batch after batch to where each belongs, writing what lies together at once."""
        place = position = 0
        while place < len(headers):
            active = self._segments.active
            if self._must_roll(active, headers[place : place + 1], headers[place].size, headers[place].next_offset):
                self._roll(headers, place)
                active = self._segments.active
            stop, size = place + 1, headers[place].size
            while stop < len(headers):
                larger = size + headers[stop].size
                if self._must_roll(active, headers[place : stop + 1], larger, headers[stop].next_offset):
                    break
                stop, size = stop + 1, larger
            part = slice_buffers(buffers, position, position + size)
            active.append(headers[place:stop], part, size)
            place, position = stop, position + size

    def _roll(self, headers: Sequence[BatchHeader], done: int) -> None:
        """Begin a new segment where the active one ends (R-225, R-226); the first `done` headers are written already.

        Unlike Kafka, the base offset is the end of the segment before also when the next batch begins higher: segments
        touch, and recovery can see that a segment's end is missing. Only a gap that no index could span is left open.
        """
        active = self._segments.active
        base_offset = active.next_offset
        if headers and headers[done].last_offset - base_offset > LARGEST_RELATIVE_OFFSET:
            base_offset = headers[done].base_offset
        producers = self.state.producers
        if done:
            entries, end_offset = producers.entries(), producers.end_offset
            producers = ProducerStates(producers.expiration_ms)
            producers.restore(entries, end_offset)
            for header in headers[:done]:
                producers.update(header)
        self._segments.roll(base_offset, self._wall_ms)
        self._snapshots.write(base_offset, producers, self.log_start_offset)

    def _undo(self, before: tuple[Segment, int, int], error: OSError | ValueError) -> None:
        """Take back an append that failed in the middle, then raise what it means."""
        segment, size, next_offset = before
        with self._failing("taking back an append"):
            place = self._segments.all.index(segment) if segment in self._segments.all else None
            if place is None:  # an empty active segment was made anew
                self._segments.active.cut(0, self._segments.active.base_offset)
            elif segment is not self._segments.active or segment.size != size:
                self._segments.cut(place, size, next_offset)
                self._snapshots.drop(lambda offset: offset > self._end_offset)
            self._segments.active.drop_garbage()
        if not isinstance(error, OSError):
            raise error
        if error.errno in NO_ROOM:
            raise DiskFull(f"{self.topic_partition}: no room for an append: {error}") from error
        raise self._fail("append", error) from error

    def roll(self, wall_ms: int) -> None:
        """Begin a new segment now, unless the active one is empty. Raises `LogDirectoryFailed`."""
        self._wall_ms = wall_ms
        if self._segments.active.size:
            with self._failing("roll"):
                self._roll((), 0)
