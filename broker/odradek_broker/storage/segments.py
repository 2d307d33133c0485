"""The segments of one log, in order, and what happens to their files.

Rules of this module. Segments touch: each begins where the last batch of the one before it ends, so that recovery can
tell when the end of a segment did not survive (R-239). Files go from the newest to the oldest when a log is cut, and
from the oldest to the newest when its start moves, with the directory flushed in between: whatever a crash leaves is a
log without a hole. A cut is durable before anything is appended behind it: what it dropped never comes back below, or
above, newer batches. `all` is replaced, never changed, so that a reader in another thread keeps what it took.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from odradek_proto.formats import DELETED_SUFFIX, LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file_name
from odradek_proto.records import BatchHeader, CorruptBatch
from odradek_proto.transport.ports import Files

from odradek_broker.storage.cache import LogTail
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.snapshots import ProducerSnapshots

CLEANED_SUFFIX = ".cleaned"  # of a segment that a cleaner writes
SWAP_SUFFIX = ".swap"  # of a segment that is complete and has not got its name yet
_base_offset = attrgetter("base_offset")


class Segments:
    """At least one segment; the last one, `active`, is appended to."""

    __slots__ = (
        "_doomed",
        "_files",
        "_sealed",
        "_unfinished",
        "active",
        "all",
        "contiguous",
        "directory",
        "directory_dirty",
        "interval",
    )

    def __init__(
        self, files: Files, directory: str, segments: Sequence[Segment], interval: int, *, contiguous: bool = True
    ) -> None:
        self._files = files
        self.contiguous = contiguous  # batches follow each other without gaps, also from one segment to the next
        self.directory = directory
        self.interval = interval  # index.interval.bytes of new segments
        self.all: tuple[Segment, ...] = tuple(segments)
        self.active = self.all[-1]
        self.directory_dirty = True  # names were made or removed since the last flush of the directory
        self._doomed: list[tuple[Segment, int | None]] = []  # removal time; None: only to be closed
        self._sealed = list(segments[:-1])  # complete ones whose indexes may still be open
        self._unfinished: Callable[[], None] | None = None

    @property
    def first(self) -> Segment:
        return self.all[0]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.all)

    def find(self, offset: int) -> int:
        """The place of the last segment that begins at or below `offset`; the first one when there is none."""
        return max(bisect_right(self.all, offset, key=_base_offset) - 1, 0)

    def allow_gaps(self) -> None:
        """From now on batches and segments need not touch."""
        self.contiguous = False
        for segment in self.all:
            segment.contiguous = False

    def end_of(self, place: int) -> int:
        """Where a segment ends: where the next one begins."""
        following = place + 1
        return self.all[following].base_offset if following < len(self.all) else self.active.next_offset

    def headers(self, offset: int, end: int) -> Iterator[BatchHeader]:
        """The headers of the batches from the one that contains `offset` on, in the segments that begin below `end`."""
        for segment in self.all[self.find(offset) :]:
            if segment.base_offset >= end:
                break
            start = segment.lookup(offset) if segment.base_offset <= offset else 0
            for _, header in segment.batches(start):
                if header.next_offset > offset:
                    yield header

    def roll(self, base_offset: int, created_ms: int) -> Segment:
        """Begin a new segment; an empty active one makes way for it (R-225). After an `OSError` all is as before."""
        old = self.active
        if old.size and base_offset < old.next_offset:
            raise ValueError(f"{self.directory}: no segment can begin at {base_offset}, below {old.next_offset}")
        if old.size:
            old.seal()
        new = self._create_or_leave_nothing(base_offset, created_ms)
        if old.size:
            self._sealed.append(old)
        else:
            old.close()
            if old.base_offset != base_offset:
                old.remove()
            self._replace(self.all[:-1])
        self.all = (*self.all, new)
        self.active = new
        old.dirty = True  # its indexes; set last, since a flush that runs takes the active one's for what can wait
        self.directory_dirty = True
        return new

    def _create_or_leave_nothing(self, base_offset: int, created_ms: int) -> Segment:
        """A start would take what is left of a segment that was not made for the end of the log."""
        try:
            return self._create(base_offset, created_ms)
        except OSError:
            if all(segment.base_offset != base_offset for segment in self.all):
                for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                    path = f"{self.directory}/{segment_file_name(base_offset, suffix)}"
                    if self._files.exists(path):
                        self._files.remove(path)
            raise

    def exchange(self, old: Sequence[Segment], new: Segment, due_ms: int) -> None:
        """Put a segment where others stood in a row. They are renamed, to be removed from `due_ms` on."""
        place = self.all.index(old[0])
        for segment in old:
            self._set_aside(segment, due_ms)
        self._replace((*self.all[:place], new, *self.all[place + len(old) :]))

    def while_unfinished(self, settle: Callable[[], None] | None) -> None:
        """A replacement is on its way: `settle` ends it at once, before anything else is done to closed segments."""
        self._unfinished = settle

    def settle(self) -> None:
        """End what is unfinished. Raises `OSError`."""
        if self._unfinished is not None:
            self._unfinished()

    def cut_point(self, offset: int) -> tuple[int, int, int]:
        """Where a truncation to `offset` cuts: (place of the segment, position, where what stays ends).

        A batch that spans the offset goes as a whole. The log ends where the last batch that stays says, whatever
        `offset` is: only what is there may be promised (R-230). What stands behind a damaged batch goes, too.
        """
        place = bisect_right(self.all, offset, key=_base_offset) - 1
        segment = self.all[place]
        start = segment.lookup(offset - 1)
        next_offset = segment.base_offset
        try:
            for position, header in segment.batches(start):
                if header.last_offset >= offset:
                    return place, position, next_offset
                next_offset = header.next_offset
        except CorruptBatch as error:
            return place, error.position, next_offset
        return place, segment.size, next_offset

    def cut(self, place: int, position: int, next_offset: int) -> None:
        """Remove the segments behind `place`, newest first, and cut that one at `position`; all of it durably."""
        self._remove_newest(place + 1)
        self.all[place].cut(position, next_offset)

    def restart(self, base_offset: int, created_ms: int) -> None:
        """Remove everything; one empty segment begins at `base_offset` (R-231)."""
        self.settle()
        self._remove_newest(0)
        new = self._create(base_offset, created_ms)
        self._files.fsync_dir(self.directory)  # if only a later one survived, the log would seem to begin there
        self.all = (new,)
        self.active = new

    def _create(self, base_offset: int, created_ms: int) -> Segment:
        return Segment(
            self._files,
            self.directory,
            base_offset,
            interval=self.interval,
            created_ms=created_ms,
            create=True,
            contiguous=self.contiguous,
        )

    def _remove_newest(self, keep: int) -> None:
        for segment in reversed(self.all[keep:]):
            segment.remove()
            self._doomed.append((segment, None))
            self._files.fsync_dir(self.directory)  # or else it could come back next to what is appended now
        self._replace(self.all[:keep])

    def _replace(self, segments: tuple[Segment, ...]) -> None:
        self.all = segments
        if segments:
            self.active = segments[-1]
        kept = set(segments)
        self._sealed = [each for each in self._sealed if each in kept]

    def drop_oldest(self, count: int, due_ms: int) -> int:
        """Give up the first `count` segments: renamed now, to be removed from `due_ms` on. Returns their bytes."""
        self.settle()
        doomed = self.all[:count]
        self._replace(self.all[count:])
        for segment in doomed:
            self._set_aside(segment, due_ms)
            if len(doomed) > 1:
                self._files.fsync_dir(self.directory)
        self.directory_dirty = self.directory_dirty or bool(doomed)
        return sum(segment.size for segment in doomed)

    def _set_aside(self, segment: Segment, due_ms: int) -> None:
        for path in segment.paths:
            if self._files.exists(path):
                self._files.rename(path, path + DELETED_SUFFIX)
        self._doomed.append((segment, due_ms))

    @property
    def next_due_ms(self) -> int | None:
        """The wall time at which the first given up segment may be removed; None when none waits."""
        return min((due_ms for _, due_ms in self._doomed if due_ms is not None), default=None)

    def due(self, wall_ms: int) -> list[str]:
        """Close what nobody reads any more; returns the files that have waited for long enough to be removed."""
        paths: list[str] = []
        waiting: list[tuple[Segment, int | None]] = []
        for segment, due_ms in self._doomed:
            if due_ms is not None and due_ms > wall_ms:
                waiting.append((segment, due_ms))
                continue
            segment.close()
            if due_ms is not None:
                paths.extend(path + DELETED_SUFFIX for path in segment.paths)
        self._doomed = waiting
        return paths

    def close_indexes(self, recovery_point: int) -> None:
        """Close the indexes of segments that were completed since the last time, below the recovery point.

        No flush in a thread has to do with them any more. They open again when somebody needs them. A log of thousands
        of small segments would run out of descriptors.
        """
        waiting = []
        for segment in self._sealed:
            if segment.dirty or segment.next_offset > recovery_point:
                waiting.append(segment)
            else:
                segment.index.close()
                segment.time_index.close()
        self._sealed = waiting

    def flush_directory(self) -> None:
        self._files.fsync_dir(self.directory)

    def close(self) -> None:
        for segment, _ in self._doomed:
            segment.close()
        self._doomed.clear()
        self._sealed.clear()
        for segment in self.all:
            segment.close()


class SegmentReplacement:
    """One segment takes the place of several, as a cleaner wants it (K-88, R-236). A crash leaves the old or the new.

        BASE.log.cleaned   written and flushed; a start drops it
        BASE.log.swap      complete: a start removes what it replaces, and gives it its name
        BASE.log           once the names of the old ones are gone for good

    `begin`, flush the directory, `exchange`, flush it, `finish`, flush it; each may raise `OSError`. Names change on
    the event loop, where logs are cut; only the flushes may be waited for elsewhere. Who cuts the log meanwhile calls
    `settle` first: otherwise a start would complete the replacement with records that were cut.
    """

    def __init__(
        self,
        segments: Segments,
        snapshots: ProducerSnapshots,
        tail: LogTail,
        old: Sequence[Segment],
        new: Segment,
        due_ms: int,
    ) -> None:
        self.old = tuple(old)
        self.new = new
        self.ended = False
        self.undone = False  # the log was cut before the exchange
        self._segments = segments
        self._snapshots = snapshots
        self._tail = tail
        self._exchanged = False
        self._due_ms = due_ms

    def begin(self) -> bool:
        """Say that the new segment is complete. False when the old ones are not all there any more: nothing is done."""
        there = self._segments.all
        place = there.index(self.old[0]) if self.old[0] in there else -1
        if place < 0 or there[place : place + len(self.old)] != self.old or self.old[-1] is self._segments.active:
            return False
        self.new.rename(SWAP_SUFFIX)
        self._segments.while_unfinished(self.settle)
        return True

    def exchange(self) -> None:
        """After the flush: reads find the new segment from now on."""
        self._segments.exchange(self.old, self.new, self._due_ms)
        self._tail.drop_below(self.new.next_offset)
        self._exchanged = True

    def finish(self) -> None:
        """After the next flush: the new segment gets its name, and snapshots of producers at offsets inside go."""
        self.new.rename("")
        self.ended = True
        self._segments.while_unfinished(None)
        gone = {segment.base_offset for segment in self.old[1:]}
        self._snapshots.drop(gone.__contains__)
        self._segments.directory_dirty = True

    def settle(self) -> None:
        """End it now, in one of the two ways, for good. Blocking."""
        if self._exchanged:
            self._segments.flush_directory()
            self.finish()
        else:
            self.ended = self.undone = True
            self._segments.while_unfinished(None)
            self.new.close()
            self.new.remove()
        self._segments.flush_directory()
