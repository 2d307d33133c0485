"""The log of one partition: what the core decided, as bytes on the disk.

Rules of this module. It does what it is told and checks it: it keeps its own log end offset and refuses a batch that
does not fit. It never touches what the core owns (log end offset, high watermark, epochs), but for the producer state
after a truncation, which can only be had from the disk (R-247). Everything runs on the event loop, save the methods
that say "blocking": those capture what they need first, so that they may run in a thread while the loop goes on.

The recovery point never runs ahead of an fsync, and no cut of the log can make it lie (R-238). A failure is final:
nothing is written any more, and no failed fsync is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from odradek_proto.formats import LEADER_EPOCH_CHECKPOINT, encode_leader_epochs
from odradek_proto.records import BatchHeader, Buffer, CorruptBatch
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Files

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.storage.atomic import remove_files, replace_file
from odradek_broker.storage.cache import RecentBatches, slice_buffers
from odradek_broker.storage.errors import NO_ROOM, AppendOutOfOrder, DiskFull, LogCorrupted, LogDirectoryFailed
from odradek_broker.storage.lookup import TimestampAndOffset, largest_timestamp, offset_for_timestamp
from odradek_broker.storage.opening import KnownLog, OpenedLog, open_files
from odradek_broker.storage.producer_loading import READ_BACK_BATCHES_ON_LOOP, load_producers, read_back
from odradek_broker.storage.reading import read_batches
from odradek_broker.storage.retention import new_log_start, segments_below
from odradek_broker.storage.segment import LARGEST_RELATIVE_OFFSET, Segment
from odradek_broker.storage.segments import SegmentReplacement
from odradek_broker.storage.settings import NEVER, LogSettings

UNKNOWN_LOG = KnownLog()


class Log:
    """One replica's log, made by `Log.open`.

    Always: log_start_offset <= recovery_point <= end_offset. After `failed` is set nothing is written any more.
    """

    __slots__ = (
        "_end_offset",
        "_epochs_dirty",
        "_epochs_due",
        "_failed",
        "_files",
        "_floor",
        "_flushed",
        "_segments",
        "_snapshots",
        "_tail",
        "_unflushed_since_ms",
        "_wall_ms",
        "closed",
        "directory",
        "generation",
        "log_start_offset",
        "on_cut",
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
        known: KnownLog = UNKNOWN_LOG,
        clean: bool,
        wall_ms: int,
        cache: RecentBatches | None = None,
    ) -> Log:
        """Open a log, recover it when it was not closed cleanly, create it when it is absent. Blocking.

        Raises `InconsistentTopicId`, `LogCorrupted`, `OSError`."""
        opened = open_files(
            files, directory, topic_partition, settings=settings, known=known, clean=clean, wall_ms=wall_ms
        )
        log = cls(files, directory, opened, settings, wall_ms, cache or RecentBatches())
        log.close_indexes()
        return log

    def __init__(
        self, files: Files, directory: str, opened: OpenedLog, settings: LogSettings, wall_ms: int, cache: RecentBatches
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.state = opened.state
        self.topic_partition = opened.state.topic_partition
        self.recovery = opened.recovery
        self.log_start_offset = opened.state.log_start_offset
        self.segment_jitter_ms = 0
        # Called with an offset, and make durable what follows from it: before a cut below the recovery point, and
        # before every cut, with where the log will end.
        self.on_recovery_point_lowered: Callable[[Log, int], None] | None = None
        self.on_cut: Callable[[Log, int], None] | None = None
        self._files = files
        self._segments = opened.segments
        self._snapshots = opened.snapshots
        self._tail = cache.tail()
        self._end_offset = opened.state.log_end_offset
        self.generation = 0  # rises with every cut
        self._floor = opened.recovery_point  # the recovery point of this generation before its first flush
        self._flushed = (0, opened.recovery_point)  # (generation, offset) of the last flush
        self._epochs_dirty = False
        self._epochs_due: bytes | None = None
        self._failed: LogDirectoryFailed | None = None
        self.closed = False
        self._unflushed_since_ms: int | None = None
        self._wall_ms = wall_ms  # as it was last told

    # --- What it is --------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """The log end offset as storage counts it."""
        return self._end_offset

    @property
    def recovery_point(self) -> int:
        """Everything below is known to be on the disk (R-1).

        A flush in another thread speaks for the log as it was when it began; after a cut it does not count.
        """
        generation, offset = self._flushed
        return max(offset if generation == self.generation else self._floor, self.log_start_offset)

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

    def allow_gaps(self) -> None:
        """Offsets may be missing from now on: a cleaner takes records out, or those of a leader's log were."""
        self.state.gaps = True
        self._segments.allow_gaps()

    def replace(self, old: Sequence[Segment], new: Segment) -> SegmentReplacement:
        """Let a segment that stands ready take the place of others: to be begun while the generation is the same."""
        due_ms = self._wall_ms + self.settings.file_delete_delay_ms
        return SegmentReplacement(self._segments, self._snapshots, self._tail, old, new, due_ms)

    def _fail(self, act: str, error: OSError) -> LogDirectoryFailed:
        self._failed = LogDirectoryFailed(f"{self.topic_partition}: {act} failed: {error}")
        return self._failed

    @contextmanager
    def failing(self, act: str) -> Iterator[None]:
        """Turn what the disk says into `LogDirectoryFailed`, for good."""
        if self._failed is not None:
            raise self._failed
        try:
            yield
        except OSError as error:
            raise self._fail(act, error) from error
        except CorruptBatch as error:
            raise LogCorrupted(self._segments.active.path, error.position, self._end_offset, error.reason) from None

    def use(self, settings: LogSettings) -> None:
        """Go by other settings from now on. The active segment keeps its index.interval.bytes, as in Kafka."""
        self.settings = settings
        self._segments.interval = settings.index_interval_bytes

    # --- Append ------------------------------------------------------------------------------------------------------

    def append(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer], wall_ms: int | None = None) -> None:
        """Write batches at the end of the log: one vectored write, one more for each segment that begins on the way.

        The buffers, one behind the other, are exactly these batches, offsets and epochs stamped; they belong to the log
        from now on and must not change. Raises `AppendOutOfOrder` unless they go on where the log ends, `DiskFull` (the
        log is as before) and `LogDirectoryFailed`.
        """
        if self._failed is not None:
            raise self._failed
        if wall_ms is not None:
            self._wall_ms = wall_ms
        self._write_due_epochs()
        end = self._end_offset
        size = 0
        for header in headers:
            first = header.base_offset
            straddles = self.settings.accept_straddling and header.last_offset >= end
            if (first < end and not straddles) or (first > end and self._segments.contiguous):
                raise AppendOutOfOrder(f"{self.topic_partition}: batch at {first}, the log end offset is {end}")
            end = header.base_offset + header.last_offset_delta + 1
            size += header.length + 12
        active = self._segments.active
        before = (active, active.size, active.next_offset)
        try:
            if self._must_roll(headers, size):
                self._append_in_parts(headers, buffers)
            else:
                active.append(headers, buffers, size)
        except (OSError, ValueError) as error:
            self._undo(before, error)
        self._end_offset = end
        self._tail.enter(headers, buffers, size, end)
        if chance("cache-forgets", 0.02):
            self._tail.clear()

    def _must_roll(self, headers: Sequence[BatchHeader], size: int) -> bool:
        active, settings = self._segments.active, self.settings
        return active.is_full_for(headers, size, settings, self._wall_ms, self.segment_jitter_ms)

    def _append_in_parts(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer]) -> None:
        """Append batch after batch to where each belongs, writing what lies together at once."""
        place = position = 0
        while place < len(headers):
            if self._must_roll(headers[place : place + 1], headers[place].size):
                self._roll(headers, place)
            active = self._segments.active
            stop, size = place + 1, headers[place].size
            while stop < len(headers):
                larger = size + headers[stop].size
                if self._must_roll(headers[place : stop + 1], larger):
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
        with self.failing("taking back an append"):
            place = self._segments.all.index(segment) if segment in self._segments.all else None
            if place is None:  # an empty active segment was made anew
                self._segments.active.cut(0, self._segments.active.base_offset)
            elif segment is not self._segments.active or segment.size != size:
                self._segments.cut(place, size, next_offset)
                self._snapshots.drop(lambda offset: offset > self._end_offset)
            self._segments.active.drop_garbage()
        if not isinstance(error, OSError):
            raise error
        raise self._refusal("an append", error) from error

    def _refusal(self, act: str, error: OSError) -> DiskFull | LogDirectoryFailed:
        no_room = DiskFull(f"{self.topic_partition}: no room for {act}: {error}")
        return no_room if error.errno in NO_ROOM else self._fail(act, error)

    def roll(self, wall_ms: int) -> None:
        """Begin a new segment now, unless the active one is empty. Raises `LogDirectoryFailed`."""
        self._wall_ms = wall_ms
        if self._segments.active.size:
            with self.failing("roll"):
                self._roll((), 0)

    # --- Read --------------------------------------------------------------------------------------------------------

    def is_hot(self, offset: int) -> bool:
        """Whether a read there is served from memory, and need not leave the event loop."""
        first = self._tail.first_offset
        return offset >= self._end_offset or (first is not None and offset >= first)

    def read(self, offset: int, max_bytes: int, limit: int, *, at_least_one: bool = True) -> list[Buffer]:
        """Whole batches from the one that contains `offset` on (or the next, in a gap), all of them below `limit`.
        Together at most `max_bytes`; the first one whatever its size with `at_least_one` (R-39). Blocking unless
        `is_hot`. A read from the disk that met a truncation returns nothing. Raises `LogCorrupted`, since damaged
        bytes are never served, and `LogDirectoryFailed`.
        """
        limit = min(limit, self._end_offset)
        if offset >= limit:
            return []
        first = self._tail.first_offset
        if first is not None and offset >= first:
            return self._tail.read(offset, max_bytes, limit, at_least_one)
        generation, segments = self.generation, self._segments.all
        try:
            out = read_batches(segments[self._segments.find(offset) :], offset, max_bytes, limit, at_least_one)
        except (LogCorrupted, OSError) as error:
            if self.closed or generation != self.generation or segments is not self._segments.all:
                return []  # the files were cut, given up or closed under the reader
            if isinstance(error, OSError):
                raise self._fail("read", error) from error
            raise
        return out if generation == self.generation else []

    def count_in_memory(self, offset: int, limit: int, enough: int) -> tuple[int, int]:
        """Bytes that a read from `offset` on would find, `enough` or all, and the offset behind what was counted.

        Nothing is read: what is no longer in memory, or not there, counts as none.
        """
        limit = min(limit, self._end_offset)
        first = self._tail.first_offset
        if offset >= limit or first is None or offset < first:
            return 0, offset
        return self._tail.count(offset, limit, enough)

    def offset_for_timestamp(self, timestamp_ms: int, limit: int) -> TimestampAndOffset | None:
        """The first record below `limit` not older than a timestamp. Blocking. Raises `LogCorrupted`,
        `CannotDecompress`."""
        return offset_for_timestamp(self._segments.all, timestamp_ms, self.log_start_offset, limit)

    def max_timestamp(self, limit: int) -> TimestampAndOffset | None:
        """The first record below `limit` that has the largest timestamp. Blocking. Errors as `offset_for_timestamp`."""
        return largest_timestamp(self._segments.all, self.log_start_offset, limit)

    # --- Truncate ----------------------------------------------------------------------------------------------------

    def truncate(self, offset: int) -> int:
        """Drop the records at `offset` and above, and all that hangs on them (R-230); returns the new log end offset.

        A batch that spans the offset goes as a whole, the log ends with the last that stays. Producer state becomes
        that of this log (R-247). Epoch entries are the core's: it writes them right after. Raises `LogDirectoryFailed`.
        """
        if offset < 0:
            raise ValueError(f"{self.topic_partition}: truncation to {offset}")
        if offset >= self._end_offset:
            return self._end_offset  # nothing but epoch entries, which the core drops
        if offset < self._segments.first.base_offset:
            self.restart_at(offset)
            return offset
        with self.failing("truncation"):
            self._segments.settle()
            place, position, end = self._segments.cut_point(offset)
            self._before_cut(end, end)
            self._segments.cut(place, position, end)
            self._end_offset = end
            self.generation += 1  # a flush that began during the cut has seen the end of before
            self.log_start_offset = min(self.log_start_offset, end)
            self._rebuild_producers()
            if self.settings.flush_before_ack:
                self._flush_files()
        return end

    def _before_cut(self, flushed: int, end: int) -> None:
        """From here on nothing at `flushed` or above is in memory, or counts as flushed, on the disk neither.

        Nor does a checkpoint say that the log starts, or is committed, above `end`, where it will end.
        """
        self._tail.clear()
        lowered = flushed < self.recovery_point
        self._floor = min(self.recovery_point, flushed)
        self.generation += 1
        if lowered and self.on_recovery_point_lowered is not None:
            self.on_recovery_point_lowered(self, flushed)
        if self.on_cut is not None:
            self.on_cut(self, end)

    def _rebuild_producers(self) -> None:
        """Producer state of the log as it is now (R-247)."""
        producers, end = self.state.producers, self._end_offset
        load_producers(producers, self._snapshots, self._segments, end)
        read_back(producers, self._segments, READ_BACK_BATCHES_ON_LOOP)
        self._snapshots.write(end, producers, self.log_start_offset)

    def restart_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset` (R-231). Raises `LogDirectoryFailed`."""
        with self.failing("restart"):
            self._before_cut(min(offset, self._segments.first.base_offset), offset)
            # First the epochs: what they say must not outlive the records. Where a crash leaves records, it is read
            # again from them.
            replace_file(self._files, self.directory, LEADER_EPOCH_CHECKPOINT, encode_leader_epochs(()), durable=True)
            self._segments.restart(offset, self._wall_ms)
            self._snapshots.drop(lambda _: True)
            self._end_offset = self.log_start_offset = offset
            self.state.producers.clear()
            self.state.producers.end_offset = offset
            self.generation += 1
            self._floor = offset
            if self.settings.flush_before_ack:
                self._flush_files()

    def write_epochs(self, entries: Iterable[EpochEntry]) -> None:
        """Replace the leader epoch file (R-60), on a full disk before the next append. Raises `LogDirectoryFailed`.

        Flushed at once with `odradek.fsync=before-ack`, else before the next flush lets the recovery point move."""
        self._epochs_due = encode_leader_epochs(entries)
        with suppress(DiskFull), self.failing("writing the leader epochs"):
            self._write_due_epochs()

    def _write_due_epochs(self) -> None:
        if self._epochs_due is not None:
            durable = self.settings.flush_before_ack
            try:
                replace_file(self._files, self.directory, LEADER_EPOCH_CHECKPOINT, self._epochs_due, durable=durable)
            except OSError as error:
                raise self._refusal("the leader epochs", error) from error
            self._epochs_due, self._epochs_dirty = None, not durable

    # --- Log start and retention -------------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> None:
        """Records below `offset` are gone (R-160). Files follow in `delete_before_log_start`."""
        if offset > self.log_start_offset:
            assert offset <= self._end_offset, (self.topic_partition, offset, self._end_offset)
            self.log_start_offset = offset
            self.state.producers.on_log_start(offset)

    def retention_start(self, wall_ms: int, high_watermark: int, at_most: int = NEVER) -> int | None:
        """Where retention wants the log to start, None for no change (R-163). Blocking when segments are read first.

        Looks at the `at_most` oldest segments, so that whoever asks can go step by step.
        """
        self._wall_ms = wall_ms
        start = new_log_start(self._segments, self.settings, wall_ms, high_watermark, at_most)
        return start if start is not None and start > self.log_start_offset else None

    def delete_before_log_start(self, wall_ms: int, at_most: int = NEVER) -> int:
        """Rename the `at_most` oldest segments that lie below the log start, until they are `due`. Returns how many.

        When that is everything, a new segment begins first (R-163). A single rename is not flushed: `flush_directory`
        does that, before the next one goes. Raises `LogDirectoryFailed`.
        """
        self._wall_ms = wall_ms
        with self.failing("deleting segments"):
            if self.log_start_offset >= self._end_offset and self._segments.active.size:
                self._roll((), 0)
            count = min(segments_below(self._segments, self.log_start_offset), at_most)
            if count:
                self._segments.drop_oldest(count, wall_ms + self.settings.file_delete_delay_ms)
                first = self._segments.first.base_offset
                self._snapshots.drop(lambda offset: offset < first)
        return count

    @property
    def next_due_ms(self) -> int | None:
        """The wall time at which the next files are `due`; None when none wait."""
        return self._segments.next_due_ms

    def due(self, wall_ms: int) -> list[str]:
        """Close the files that nobody reads any more; returns those whose time has come, for `remove`."""
        self._wall_ms = wall_ms
        with self.failing("closing segments"):
            return self._segments.due(wall_ms)

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files that were `due`. Blocking, safe in a thread. Raises `LogDirectoryFailed`."""
        self._unless_closed("removing segments", lambda: remove_files(self._files, paths))

    def purge(self, wall_ms: int) -> None:
        """All of it at once, for a log of few segments. Blocking. Raises `LogDirectoryFailed`."""
        self.remove(self.due(wall_ms))

    def flush_directory(self) -> None:
        """Make it durable which files there are. Blocking, safe in a thread. Raises `LogDirectoryFailed`."""
        self._unless_closed("flushing the directory", lambda: self._files.fsync_dir(self.directory))

    def close_indexes(self) -> None:
        """Close the indexes that are durable and that no append needs any more: at the opening, and after a flush."""
        self._segments.close_indexes(self.recovery_point)

    # --- Flush -------------------------------------------------------------------------------------------------------

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

        One flush at a time. What is appended meanwhile is for the next one. A log that is closed meanwhile, since its
        partition was deleted, is no failure. Raises `LogDirectoryFailed`, after which nothing is tried again.
        """
        self._unless_closed("flush", self._flush_files)
        return self.recovery_point

    def _unless_closed(self, act: str, function: Callable[[], None]) -> None:
        """Work for a thread: the log may be closed, and its directory renamed, before it begins or while it runs."""
        if self._failed is not None:
            raise self._failed
        if self.closed:
            return
        try:
            function()
        except OSError as error:
            if not self.closed:
                raise self._fail(act, error) from error

    def _flush_files(self) -> None:
        generation, end, segments = self.generation, self._end_offset, self._segments.all
        for segment in segments:
            if segment.dirty:
                segment.dirty = False
                self._flush_segment(segment)
        for offset in sorted(self._snapshots.dirty):
            self._snapshots.dirty.discard(offset)
            self._snapshots.fsync(offset)
            self._segments.directory_dirty = True
        if self._epochs_dirty:
            self._epochs_dirty = False
            self._fsync_epochs()
        if self._segments.directory_dirty:
            self._segments.directory_dirty = False
            self._files.fsync_dir(self.directory)
        self._unflushed_since_ms = None
        self._flushed = (generation, end)

    def _flush_segment(self, segment: Segment) -> None:
        """One that was removed meanwhile, by a truncation or retention, may be closed already: nobody needs it."""
        try:
            segment.fsync()
            if segment is not self._segments.active:  # it may have been when the flush began
                segment.fsync_indexes()
        except OSError:
            if segment in self._segments.all:
                raise

    def _fsync_epochs(self) -> None:
        file = self._files.open(f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}")
        try:
            file.fsync()
        finally:
            file.close()
        self._segments.directory_dirty = True

    # --- End ---------------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Close the files. With `clean` everything is complete and durable first, a producer snapshot too. Blocking."""
        try:
            if clean:
                with self.failing("closing"):
                    self._segments.settle()
                    active = self._segments.active
                    active.drop_garbage()
                    active.seal()
                    self._snapshots.write(self._end_offset, self.state.producers, self.log_start_offset)
                    active.dirty = True
                    active.fsync_indexes()
                    self._flush_files()
        finally:
            self.closed = True
            self._tail.clear()
            self._segments.close()
