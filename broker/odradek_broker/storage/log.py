"""The log of one partition: what the core decided, as bytes on the disk.

Rules of this module. It does what it is told and checks it: it keeps its own log end offset and refuses a batch that
does not fit. It never touches what the core owns (log end offset, high watermark, epochs), but for the producer state
after a truncation, which can only be had from the disk (R-247). Everything runs on the event loop, save the methods
that say "blocking": those capture what they need first, so that they may run in a thread while the loop goes on.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from odradek_proto.formats import LEADER_EPOCH_CHECKPOINT, encode_leader_epochs
from odradek_proto.records import BatchHeader, Buffer, CorruptBatch
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Files

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.storage.atomic import replace_file
from odradek_broker.storage.cache import RecentBatches, slice_buffers
from odradek_broker.storage.errors import AppendOutOfOrder, DiskFull, LogCorrupted, LogDirectoryFailed
from odradek_broker.storage.lookup import TimestampAndOffset, largest_timestamp, offset_for_timestamp
from odradek_broker.storage.opening import Opened, open_files
from odradek_broker.storage.reading import read_batches
from odradek_broker.storage.retention import new_log_start, segments_below
from odradek_broker.storage.segment import LARGEST_RELATIVE_OFFSET, Segment
from odradek_broker.storage.settings import LogSettings
from odradek_broker.storage.snapshots import replay

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Log:
    """One replica's log, made by `Log.open`.

    Always: log_start_offset <= recovery_point <= end_offset. After `failed` is set nothing is written any more.
    """

    __slots__ = (
        "_end_offset",
        "_epochs_dirty",
        "_failed",
        "_files",
        "_floor",
        "_flushed",
        "_generation",
        "_segments",
        "_snapshots",
        "_tail",
        "_unflushed_since_ms",
        "_wall_ms",
        "directory",
        "log_start_offset",
        "on_recovery_point_lowered",
        "recovery",
        "segment_jitter_ms",
        "settings",
        "state",
        "topic_partition",
    )

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        *,
        settings: LogSettings,
        topic_id: bytes = b"",
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        clean: bool,
        wall_ms: int,
        cache: RecentBatches | None = None,
        segment_jitter_ms: int = 0,
        on_recovery_point_lowered: Callable[[Log, int], None] | None = None,
    ) -> Log:
        """Open a log, recover it when it was not closed cleanly, create it when it is absent. Blocking.

        Offsets are those of the checkpoints. `on_recovery_point_lowered` is told (log, offset) before a cut below the
        recovery point, and makes this durable. Raises `InconsistentTopicId`, `LogCorrupted`, `OSError`.
        """
        opened = open_files(
            files,
            directory,
            topic_partition,
            settings=settings,
            topic_id=topic_id,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            clean=clean,
            wall_ms=wall_ms,
        )
        log = cls(files, directory, opened, settings, wall_ms, cache or RecentBatches())
        log.segment_jitter_ms = segment_jitter_ms
        log.on_recovery_point_lowered = on_recovery_point_lowered
        return log

    def __init__(
        self, files: Files, directory: str, opened: Opened, settings: LogSettings, wall_ms: int, cache: RecentBatches
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.state = opened.state
        self.topic_partition = opened.state.topic_partition
        self.recovery = opened.recovery
        self.log_start_offset = opened.state.log_start_offset
        self.segment_jitter_ms = 0
        self.on_recovery_point_lowered: Callable[[Log, int], None] | None = None
        self._files = files
        self._segments = opened.segments
        self._snapshots = opened.snapshots
        self._tail = cache.tail()
        self._end_offset = opened.state.log_end_offset
        self._generation = 0  # rises with every cut
        self._floor = opened.recovery_point  # the recovery point of this generation before its first flush
        self._flushed = (0, opened.recovery_point)  # (generation, offset) of the last flush
        self._epochs_dirty = False
        self._failed: LogDirectoryFailed | None = None
        self._unflushed_since_ms: int | None = None
        self._wall_ms = wall_ms  # as it was last told

    # --- What it is ------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """The log end offset as storage counts it."""
        return self._end_offset

    @property
    def recovery_point(self) -> int:
        """Everything below is known to be on the disk (R-1).

        A flush in another thread speaks for the log as it was when the flush began; if the log was cut since, its word
        does not count. Whoever hears that a flush ended reads this, not what the flush returned.
        """
        generation, offset = self._flushed
        return max(offset if generation == self._generation else self._floor, self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        return self._segments.size

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments.all

    @property
    def first_segment_base(self) -> int:
        """A log start offset at or below it needs no entry in the checkpoint (R-3)."""
        return self._segments.first.base_offset

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return self._snapshots.offsets

    @property
    def failed(self) -> LogDirectoryFailed | None:
        return self._failed

    @contextmanager
    def _failing(self, act: str) -> Iterator[None]:
        """Turn what the disk says into `LogDirectoryFailed`, for good."""
        if self._failed is not None:
            raise self._failed
        try:
            yield
        except OSError as error:
            self._failed = LogDirectoryFailed(f"{self.topic_partition}: {act} failed: {error}")
            raise self._failed from error
        except CorruptBatch as error:
            raise LogCorrupted(self._segments.active.path, error.position, self._end_offset, error.reason) from None

    # --- Append ----------------------------------------------------------------------------------------------------

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
            if header.base_offset < end:
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

    def _must_roll(self, active: Segment, headers: Sequence[BatchHeader], size: int, end: int) -> bool:
        """Whether these batches do not all belong into the active segment (R-225)."""
        settings = self.settings
        if active.size + size > settings.segment_bytes and (active.size or len(headers) > 1):
            return True
        if end - 1 - active.base_offset > LARGEST_RELATIVE_OFFSET:
            return True
        if not active.size:
            return False
        if (len(active.index) + len(headers)) * 12 > settings.segment_index_bytes:
            return True  # 12: an entry of the time index, the larger one
        timestamp = headers[-1].max_timestamp
        if active.first_timestamp >= 0 and timestamp >= 0:
            waited = timestamp - active.first_timestamp
        else:
            waited = self._wall_ms - active.created_ms
        return waited > settings.segment_ms - self.segment_jitter_ms

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
        if base_offset > self.log_start_offset:
            self._snapshots.write(base_offset, producers)

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
            segment = self._segments.active
            segment.file.truncate(segment.size)
        if not isinstance(error, OSError):
            raise error
        if error.errno in NO_ROOM:
            raise DiskFull(f"{self.topic_partition}: no room for an append: {error}") from error
        self._failed = LogDirectoryFailed(f"{self.topic_partition}: append failed: {error}")
        raise self._failed from error

    def roll(self, wall_ms: int) -> None:
        """Begin a new segment now, unless the active one is empty. Raises `LogDirectoryFailed`."""
        self._wall_ms = wall_ms
        if self._segments.active.size:
            with self._failing("roll"):
                self._roll((), 0)

    # --- Read ------------------------------------------------------------------------------------------------------

    def is_hot(self, offset: int) -> bool:
        """Whether a read there is served from memory, and need not leave the event loop."""
        first = self._tail.first_offset
        return offset >= self._end_offset or (first is not None and offset >= first)

    def read(self, offset: int, max_bytes: int, limit: int, *, at_least_one: bool = True) -> list[Buffer]:
        """Whole batches from the one that contains `offset` on (or the next, in a gap), all of them below `limit`.

        Together at most `max_bytes`; the first one whatever its size with `at_least_one` (R-39). Blocking unless
        `is_hot`. A read from the disk that met a truncation returns nothing. Raises `LogCorrupted`: damaged bytes are
        never served.
        """
        limit = min(limit, self._end_offset)
        if offset >= limit:
            return []
        first = self._tail.first_offset
        if first is not None and offset >= first:
            return self._tail.read(offset, max_bytes, limit, at_least_one)
        generation = self._generation
        segments = self._segments
        try:
            out = read_batches(segments.all[segments.find(offset) :], offset, max_bytes, limit, at_least_one)
        except LogCorrupted:
            if generation == self._generation:
                raise
            return []
        return out if generation == self._generation else []

    def offset_for_timestamp(self, timestamp_ms: int, limit: int) -> TimestampAndOffset | None:
        """The first record below `limit` that is not older than a timestamp. Blocking. Raises `LogCorrupted`."""
        return offset_for_timestamp(self._segments.all, timestamp_ms, self.log_start_offset, limit)

    def max_timestamp(self, limit: int) -> TimestampAndOffset | None:
        """The first record below `limit` that has the largest timestamp. Blocking. Raises `LogCorrupted`."""
        return largest_timestamp(self._segments.all, self.log_start_offset, limit)

    # --- Truncate --------------------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> int:
        """Drop the records at `offset` and above, and all that hangs on them (R-230); returns the new log end offset.

        A batch that spans the offset goes as a whole, and the log ends at its base offset. Producer state becomes that
        of the log that is left (R-247). Epoch entries are the core's: it writes them right after.
        Raises `LogDirectoryFailed`.
        """
        if offset < 0:
            raise ValueError(f"{self.topic_partition}: truncation to {offset}")
        if offset >= self._end_offset:
            return self._end_offset  # nothing but epoch entries, which the core drops
        if offset < self._segments.first.base_offset:
            self.restart_at(offset)
            return offset
        with self._failing("truncation"):
            place, position, next_offset, end = self._segments.cut_point(offset)
            self._before_cut(end)
            self._segments.cut(place, position, next_offset)
            self._end_offset = end
            self.log_start_offset = min(self.log_start_offset, end)
            self._rebuild_producers()
            if self.settings.flush_before_ack:
                self._flush_files()
        return end

    def _before_cut(self, end: int) -> None:
        """From here on nothing at `end` or above is in memory, or counts as flushed, on the disk neither."""
        self._tail.clear()
        lowered = end < self.recovery_point
        self._floor = min(self.recovery_point, end)
        self._generation += 1
        if lowered and self.on_recovery_point_lowered is not None:
            self.on_recovery_point_lowered(self, end)

    def _rebuild_producers(self) -> None:
        """Producer state of the log as it is now: newest snapshot, then the batches behind it (R-247)."""
        producers, end = self.state.producers, self._end_offset
        self._snapshots.restore(producers, self.log_start_offset, end)
        replay(producers, self._segments.headers(producers.end_offset, end), end)
        if end > self.log_start_offset:
            self._snapshots.write(end, producers)

    def restart_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset` (R-231). Raises `LogDirectoryFailed`."""
        with self._failing("restart"):
            self._before_cut(min(offset, self._segments.first.base_offset))
            # First the epochs: what they say must not outlive the records. Where a crash leaves records, it is read
            # again from them.
            replace_file(self._files, self.directory, LEADER_EPOCH_CHECKPOINT, encode_leader_epochs(()), durable=True)
            self._segments.restart(offset, self._wall_ms)
            self._snapshots.drop(lambda _: True)
            self._end_offset = self.log_start_offset = offset
            self.state.producers.clear()
            self.state.producers.end_offset = offset
            self._generation += 1
            self._floor = offset
            if self.settings.flush_before_ack:
                self._flush_files()

    def write_epochs(self, entries: Iterable[EpochEntry]) -> None:
        """Replace the leader epoch file (R-60). Raises `LogDirectoryFailed`.

        Flushed at once with `odradek.fsync=before-ack`, otherwise before the next flush lets the recovery point move.
        """
        durable = self.settings.flush_before_ack
        with self._failing("writing the leader epochs"):
            replace_file(
                self._files, self.directory, LEADER_EPOCH_CHECKPOINT, encode_leader_epochs(entries), durable=durable
            )
        if not durable:
            self._epochs_dirty = True

    # --- Log start and retention -----------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> None:
        """Records below `offset` are gone (R-160). Files follow in `delete_before_log_start`."""
        if offset > self.log_start_offset:
            assert offset <= self._end_offset, (self.topic_partition, offset, self._end_offset)
            self.log_start_offset = offset
            self.state.producers.on_log_start(offset)

    def retention_start(self, wall_ms: int, high_watermark: int) -> int | None:
        """Where retention wants the log to start, None for no change (R-163). Blocking when segments are read first."""
        self._wall_ms = wall_ms
        start = new_log_start(self._segments, self.settings, wall_ms, high_watermark)
        return start if start is not None and start > self.log_start_offset else None

    def delete_before_log_start(self, wall_ms: int) -> int:
        """Rename the segments that lie below the log start, to be removed by `purge`. Returns how many.

        When that is everything, a new segment begins first (R-163). Raises `LogDirectoryFailed`.
        """
        self._wall_ms = wall_ms
        with self._failing("deleting segments"):
            if self.log_start_offset >= self._end_offset and self._segments.active.size:
                self._roll((), 0)
            count = segments_below(self._segments, self.log_start_offset)
            if count:
                self._segments.drop_oldest(count, wall_ms + self.settings.file_delete_delay_ms)
                first = self._segments.first.base_offset
                self._snapshots.drop(lambda offset: offset < first)
        return count

    def purge(self, wall_ms: int) -> None:
        """Remove files whose time has come, and close those that nobody reads. Raises `LogDirectoryFailed`."""
        self._wall_ms = wall_ms
        with self._failing("removing segments"):
            self._segments.purge(wall_ms)

    # --- Flush -----------------------------------------------------------------------------------------------------

    def needs_flush(self, now_ms: int) -> bool:
        """Whether `flush.messages`, `flush.ms` or a roll ask for a flush (R-226, R-238)."""
        recovery_point = self.recovery_point
        unflushed = self._end_offset - recovery_point
        if unflushed <= 0:
            self._unflushed_since_ms = None
            return False
        if unflushed >= self.settings.flush_messages or recovery_point < self._segments.active.base_offset:
            return True
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        return now_ms - self._unflushed_since_ms >= self.settings.flush_ms

    def flush(self) -> int:
        """Make the log durable up to its present end; returns the recovery point then. Blocking, safe in a thread.

        One flush at a time. What is appended meanwhile is for the next one. Raises `LogDirectoryFailed`, after which
        nothing is tried again.
        """
        with self._failing("flush"):
            self._flush_files()
        return self.recovery_point

    def _flush_files(self) -> None:
        generation, end, segments = self._generation, self._end_offset, self._segments.all
        for segment in segments:
            if segment.dirty:
                segment.dirty = False
                segment.fsync()
                if segment is not segments[-1]:
                    segment.fsync_indexes()
        for offset in sorted(self._snapshots.dirty):
            self._snapshots.dirty.discard(offset)
            self._snapshots.fsync(offset)
        if self._epochs_dirty:
            self._epochs_dirty = False
            self._fsync_epochs()
        if self._segments.directory_dirty:
            self._segments.directory_dirty = False
            self._files.fsync_dir(self.directory)
        self._unflushed_since_ms = None
        self._flushed = (generation, end)

    def _fsync_epochs(self) -> None:
        file = self._files.open(f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}")
        try:
            file.fsync()
        finally:
            file.close()
        self._segments.directory_dirty = True

    # --- End -------------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Close the files. With `clean` everything is complete and durable first, a producer snapshot too. Blocking."""
        try:
            if clean:
                with self._failing("closing"):
                    active = self._segments.active
                    active.drop_garbage()
                    active.seal()
                    if self._end_offset > self.log_start_offset:
                        self._snapshots.write(self._end_offset, self.state.producers)
                    active.dirty = True
                    active.fsync_indexes()
                    self._flush_files()
        finally:
            self._tail.clear()
            self._segments.close()
