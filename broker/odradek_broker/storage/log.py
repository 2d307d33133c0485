"""The log of one partition: what the core decided, as bytes on the disk.

Rules of this module. It does what it is told and checks it: it keeps its own log end offset and refuses a batch that
does not fit. It never touches what the core owns (log end offset, high watermark, epochs), but for the producer state
after a truncation, which can only be had from the disk (R-247). Everything runs on the event loop, save the methods
that say "blocking": those capture what they need first, so that they may run in a thread while the loop goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from odradek_proto.formats import LEADER_EPOCH_CHECKPOINT, encode_leader_epochs
from odradek_proto.records import Buffer
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Files

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.storage.appending import AppendableLog
from odradek_broker.storage.atomic import remove_files, replace_file
from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.durable import DurableLog
from odradek_broker.storage.errors import LogCorrupted
from odradek_broker.storage.lookup import TimestampAndOffset, largest_timestamp, offset_for_timestamp
from odradek_broker.storage.opening import open_files
from odradek_broker.storage.producer_loading import load_producers, read_back
from odradek_broker.storage.reading import read_batches
from odradek_broker.storage.retention import new_log_start, segments_below
from odradek_broker.storage.settings import NEVER, LogSettings


class Log(AppendableLog):
    """One replica's log, made by `Log.open`. What `append`, `flush` and `close` do is said in the classes below it."""

    __slots__ = ("on_cut",)
    on_cut: Callable[[DurableLog, int], None] | None

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
        on_recovery_point_lowered: Callable[[DurableLog, int], None] | None = None,
        on_cut: Callable[[DurableLog, int], None] | None = None,
    ) -> Log:
        """Open a log, recover it when it was not closed cleanly, create it when it is absent. Blocking.

        Offsets are those of the checkpoints. `on_recovery_point_lowered` is told (log, offset) before a cut below the
        recovery point, `on_cut` before every cut where the log will end; both make durable what follows from it.
        Raises `InconsistentTopicId`, `LogCorrupted`, `OSError`.
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
        log.on_cut = on_cut
        log.close_indexes()
        return log

    # --- Read ------------------------------------------------------------------------------------------------------

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
        generation, segments = self._generation, self._segments.all
        try:
            out = read_batches(segments[self._segments.find(offset) :], offset, max_bytes, limit, at_least_one)
        except (LogCorrupted, OSError) as error:
            if self._closed or generation != self._generation or segments is not self._segments.all:
                return []  # the files were cut, given up or closed under the reader
            if isinstance(error, OSError):
                raise self._fail("read", error) from error
            raise
        return out if generation == self._generation else []

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
        """The first record below `limit` that is not older than a timestamp.

        Blocking. Raises `LogCorrupted`, `CannotDecompress`.
        """
        return offset_for_timestamp(self._segments.all, timestamp_ms, self.log_start_offset, limit)

    def max_timestamp(self, limit: int) -> TimestampAndOffset | None:
        """The first record below `limit` that has the largest timestamp. Blocking. Errors as `offset_for_timestamp`."""
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
            self._before_cut(end, end)
            self._segments.cut(place, position, next_offset)
            self._end_offset = end
            self._generation += 1  # a flush that began during the cut has seen the end of before
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
        self._generation += 1
        if lowered and self.on_recovery_point_lowered is not None:
            self.on_recovery_point_lowered(self, flushed)
        if self.on_cut is not None:
            self.on_cut(self, end)

    def _rebuild_producers(self) -> None:
        """Producer state of the log as it is now (R-247)."""
        producers, end = self.state.producers, self._end_offset
        load_producers(producers, self._snapshots, self._segments, end)
        read_back(producers, self._segments)
        self._snapshots.write(end, producers, self.log_start_offset)

    def restart_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset` (R-231). Raises `LogDirectoryFailed`."""
        with self._failing("restart"):
            self._before_cut(min(offset, self._segments.first.base_offset), offset)
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

    def retention_start(self, wall_ms: int, high_watermark: int, at_most: int = NEVER) -> int | None:
        """Where retention wants the log to start, None for no change (R-163). Blocking when segments are read first.

        Looks at the `at_most` oldest segments, so that whoever asks can go step by step.
        """
        self._wall_ms = wall_ms
        start = new_log_start(self._segments, self.settings, wall_ms, high_watermark, at_most)
        return start if start is not None and start > self.log_start_offset else None

    def delete_before_log_start(self, wall_ms: int, at_most: int = NEVER) -> int:
        """Rename the `at_most` oldest segments that lie below the log start, until they are `due`. Returns how many.

        When that is everything, a new segment begins first (R-163). The rename of a single one is not flushed: that
        is left to `flush_directory`, before the next one goes. Raises `LogDirectoryFailed`.
        """
        self._wall_ms = wall_ms
        with self._failing("deleting segments"):
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
        with self._failing("closing segments"):
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
