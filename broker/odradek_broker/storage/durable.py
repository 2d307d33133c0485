"""What a log is made of, how much of it is on the disk, and what happens when the disk fails.

Rules of this module. The recovery point never runs ahead of an fsync, and no cut of the log can make it lie (R-238). A
failure is final: nothing is written any more, and no failed fsync is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek_proto.formats import LEADER_EPOCH_CHECKPOINT
from odradek_proto.records import CorruptBatch
from odradek_proto.transport.ports import Files

from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.errors import LogCorrupted, LogDirectoryFailed
from odradek_broker.storage.opening import Opened
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.settings import LogSettings


class DurableLog:
    """The files of one log and how far they are flushed. `Log` adds everything that one does with a log.

    Always: log_start_offset <= recovery_point <= end_offset. After `failed` is set nothing is written any more.
    """

    __slots__ = (
        "_closed",
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
        self.on_recovery_point_lowered: Callable[[DurableLog, int], None] | None = None
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
        self._closed = False
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

    def _fail(self, act: str, error: OSError) -> LogDirectoryFailed:
        self._failed = LogDirectoryFailed(f"{self.topic_partition}: {act} failed: {error}")
        return self._failed

    @contextmanager
    def _failing(self, act: str) -> Iterator[None]:
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

        One flush at a time. What is appended meanwhile is for the next one. A log that is closed meanwhile, since its
        partition was deleted, is no failure. Raises `LogDirectoryFailed`, after which nothing is tried again.
        """
        self._unless_closed("flush", self._flush_files)
        return self.recovery_point

    def _unless_closed(self, act: str, function: Callable[[], None]) -> None:
        """Work for a thread: the log may be closed, and its directory renamed, before it begins or while it runs."""
        if self._failed is not None:
            raise self._failed
        if self._closed:
            return
        try:
            function()
        except OSError as error:
            if not self._closed:
                raise self._fail(act, error) from error

    def _flush_files(self) -> None:
        generation, end, segments = self._generation, self._end_offset, self._segments.all
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

    # --- End -------------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Close the files. With `clean` everything is complete and durable first, a producer snapshot too. Blocking."""
        try:
            if clean:
                with self._failing("closing"):
                    active = self._segments.active
                    active.drop_garbage()
                    active.seal()
                    self._snapshots.write(self._end_offset, self.state.producers, self.log_start_offset)
                    active.dirty = True
                    active.fsync_indexes()
                    self._flush_files()
        finally:
            self._closed = True
            self._tail.clear()
            self._segments.close()
