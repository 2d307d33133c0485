"""Opening a directory of segments: what is litter, what is complete, and what has to be walked (R-233 to R-237).

The rule: a log that was closed cleanly is believed; of any other, everything from the segment that contains the
recovery point on is read and checked, and the log is cut at the first thing that is wrong. Nothing behind a cut stays.
What lies above the recovery point is written again as it is: the process may have ended by an fsync that failed, after
which a flush of the same bytes would succeed and do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.formats import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_ENTRY_SIZE,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_ENTRY_SIZE,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    CorruptFile,
    parse_segment_file_name,
    segment_file_name,
)
from odradek_proto.records import BatchHeader, CorruptBatch
from odradek_proto.transport.ports import Files
from odradek_proto.values import Value

from odradek_broker.core.partition.epochs import UNDEFINED_EPOCH, EpochCache, EpochEntry
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.storage.atomic import TEMPORARY_SUFFIX
from odradek_broker.storage.errors import LogCorrupted, log_rebuilt
from odradek_broker.storage.segment import LARGEST_RELATIVE_OFFSET, Segment
from odradek_broker.storage.segments import CLEANED_SUFFIX, SWAP_SUFFIX, Segments
from odradek_broker.storage.snapshots import ProducerSnapshots
from odradek_broker.storage.walk import walk_verified

LAST_OFFSET = (1 << 63) - 1
LITTER = (DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class Recovery(Value, frozen=True):
    """What opening a log found. Everything is zero after a clean shutdown.

    `cut_offset` is where the log ends because of damage, None without any. `below_recovery_point` says that the damage
    is in what was flushed once: no torn write, the disk lost or changed it. Nothing needs to be left of that to be cut.
    """

    segments: int = 0
    batches: int = 0
    bytes: int = 0
    cut_offset: int | None = None
    cut_bytes: int = 0
    reason: str = ""
    below_recovery_point: bool = False


class DirectoryContent(Value, frozen=True):
    """Base offsets of the segments, those whose index files are missing or torn, and the offsets of the snapshots."""

    bases: Sequence[int]
    without_index: frozenset[int]
    snapshots: Sequence[int]


def tidy(files: Files, directory: str) -> DirectoryContent:
    """Remove litter and complete swaps, then say what is there (R-236)."""
    found = files.list(directory)
    if any(name.endswith((*LITTER, SWAP_SUFFIX)) for name in found):
        _remove_litter(files, directory, found)
        found = files.list(directory)
    names = [parsed for name in found if (parsed := parse_segment_file_name(name)) is not None]
    bases = sorted(name.base_offset for name in names if name.suffix == LOG_SUFFIX)
    known = set(bases)
    indexed: dict[str, set[int]] = {
        OFFSET_INDEX_SUFFIX: set(),
        TIME_INDEX_SUFFIX: set(),
        TRANSACTION_INDEX_SUFFIX: set(),
    }
    for base_offset, suffix in names:
        if suffix in indexed and base_offset in known:
            indexed[suffix].add(base_offset)
        elif suffix in indexed:
            files.remove(f"{directory}/{segment_file_name(base_offset, suffix)}")
    complete = {
        base
        for base in indexed[OFFSET_INDEX_SUFFIX] & indexed[TIME_INDEX_SUFFIX]
        if files.size(f"{directory}/{segment_file_name(base, OFFSET_INDEX_SUFFIX)}") % OFFSET_INDEX_ENTRY_SIZE == 0
        and files.size(f"{directory}/{segment_file_name(base, TIME_INDEX_SUFFIX)}") % TIME_INDEX_ENTRY_SIZE == 0
    }
    snapshots = sorted(name.base_offset for name in names if name.suffix == PRODUCER_SNAPSHOT_SUFFIX)
    return DirectoryContent(bases, frozenset(known - complete), snapshots)


def _remove_litter(files: Files, directory: str, found: Sequence[str]) -> None:
    swapped = [
        name
        for name in found
        if (parsed := parse_segment_file_name(name)) is not None and parsed.suffix == LOG_SUFFIX + SWAP_SUFFIX
    ]
    for name in found:
        if name.endswith(LITTER):
            files.remove(f"{directory}/{name}")
    for name in swapped:
        _complete_swap(files, directory, name)
    for name in files.list(directory):
        if parse_segment_file_name(name.removesuffix(SWAP_SUFFIX)) is not None and name.endswith(SWAP_SUFFIX):
            # An index of a log that was not complete, or has its name already.
            files.remove(f"{directory}/{name}")


def _complete_swap(files: Files, directory: str, name: str) -> None:
    """Finish a replacement of segments (R-236): the old ones go, then the new one gets its name."""
    start = int(name.removesuffix(LOG_SUFFIX + SWAP_SUFFIX))
    path = f"{directory}/{name}"
    end = start + 1
    file = files.open(path)
    try:
        for _, header in walk_verified(file, 0, file.size()):
            end = header.next_offset
    except CorruptBatch:
        files.remove(path)
        return
    finally:
        file.close()
    for other in files.list(directory):
        parsed = parse_segment_file_name(other)
        if parsed is not None and parsed.suffix in SEGMENT_SUFFIXES and start <= parsed.base_offset < end:
            files.remove(f"{directory}/{other}")
    files.fsync_dir(directory)  # the old ones must not come back beside it
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX):
        named = f"{directory}/{segment_file_name(start, suffix)}"
        if files.exists(named + SWAP_SUFFIX):
            files.rename(named + SWAP_SUFFIX, named)


def load_clean(segments: Segments, content: DirectoryContent) -> bool:
    """Believe the segments, but for missing indexes. Returns false when the end of the log is not whole after all."""
    for place, segment in enumerate(segments.all[:-1]):
        segment.next_offset = segments.all[place + 1].base_offset
        if segment.base_offset in content.without_index:
            log_rebuilt(f"an index of {segment.path}", "missing or torn")
            segment.rebuild_indexes()
    active = segments.active
    try:
        if active.base_offset in content.without_index:
            log_rebuilt(f"an index of {active.path}", "missing or torn")
            active.forget()
            active.rebuild_indexes()
        active.load_indexes()
        active.load_tail()
    except (CorruptBatch, CorruptFile, LogCorrupted) as error:
        log_rebuilt(f"an index of {active.path}", error)
        return False
    return True


class Recoverer:
    """One walk over the segments that may be damaged; rebuilds all that hangs on them."""

    def __init__(
        self,
        segments: Segments,
        snapshots: ProducerSnapshots,
        epochs: EpochCache,
        epochs_on_disk: Sequence[EpochEntry],
        producers: ProducerStates,
        recovery_point: int,
    ) -> None:
        """`epochs_on_disk` is what the file says, nothing if it is bad; `epochs` knows all below the first segment."""
        self._segments = segments
        self._snapshots = snapshots
        self._epochs = epochs
        self._producers = producers
        self._recovery_point = recovery_point
        self._on_disk = EpochCache(epochs_on_disk)
        self._starts = dict(epochs_on_disk[1:])  # the first may be the log start's
        self._start_offsets = frozenset(self._starts.values())
        self._passed: dict[int, tuple[int, int, int]] = {}  # (place, position, offset) of batches at these offsets
        self._latest_epoch = -1
        self._alone: tuple[int, int, int] | None = None  # (place, position, offset) of the only batch of that epoch
        self._doubted: tuple[int, int, int] | None = None  # where a log ends whose epochs fall
        self._epoch_end = 0  # below it the epoch file agrees that the latest epoch goes on
        self._batches = 0

    def run(self, first: int) -> Recovery:
        """Walk from the segment at place `first` on; cut at the first damage. `producers` is valid up to its start."""
        segments = self._segments
        all_bytes = sum(segment.file.size() for segment in segments.all[first:])
        expected = segments.all[first].base_offset
        for place in range(first, len(segments.all)):
            segment = segments.all[place]
            reason = ""
            if segment.base_offset != expected and not self._may_begin(segment, expected):
                reason = f"{segment.path} begins at {segment.base_offset}: the log before it ends at {expected}"
                segments.cut(place - 1, segments.all[place - 1].size, expected)
                return self._report(first, place, expected, all_bytes, reason)
            reason = self._walk(segment, place)
            expected = segment.next_offset
            if reason:
                end, position, expected = self._doubted or (place, segment.size, expected)
                segments.cut(end, position, expected)
                return self._report(first, place + 1, expected, all_bytes, reason)
            if segment is not segments.active:
                segment.seal()
        if expected < self._recovery_point:
            reason = f"{segments.active.path} ends at {expected}: the log was flushed up to {self._recovery_point}"
            return self._report(first, len(segments.all), expected, all_bytes, reason)
        return Recovery(len(segments.all) - first, self._batches, all_bytes)

    def _may_begin(self, segment: Segment, expected: int) -> bool:
        """Whether a segment may begin behind where the one before it ends: where no index could span the gap (R-226).

        Otherwise segments touch, also where a cleaner has been: it keeps the last batch of each, and a segment whose
        end did not survive is found by that.
        """
        return not self._segments.contiguous and segment.base_offset - expected > LARGEST_RELATIVE_OFFSET // 2

    def _report(self, first: int, end: int, offset: int, all_bytes: int, reason: str) -> Recovery:
        kept_bytes = sum(segment.size for segment in self._segments.all[first:])
        return Recovery(
            segments=end - first,
            batches=self._batches,
            bytes=kept_bytes,
            cut_offset=offset,
            cut_bytes=all_bytes - kept_bytes,
            reason=reason,
            below_recovery_point=offset < self._recovery_point,
        )

    def _walk(self, segment: Segment, place: int) -> str:
        """Check a segment and rebuild its indexes; returns what is wrong with its first bad batch, if there is one."""
        producers = self._producers
        if self._batches:
            self._snapshots.write(segment.base_offset, producers)
        end = segment.file.size()
        segment.forget()
        segment.size = flushed_bytes = 0
        reason = ""
        try:
            for position, header in walk_verified(segment.file, 0, end):
                expected = segment.next_offset
                if header.base_offset < expected or (segment.contiguous and header.base_offset > expected):
                    # Unlike Kafka, which drops the whole segment: what stands before it is sound.
                    raise CorruptBatch(f"offset {header.base_offset} instead of {expected}", position)
                segment.check_span(header, position)
                self._take_epoch(header, place, position)
                segment.enter(header, position)
                segment.size = position + header.size
                if header.next_offset <= self._recovery_point:
                    flushed_bytes = segment.size
                if header.next_offset > producers.end_offset:
                    producers.update(header)
                self._batches += 1
        except CorruptBatch as error:
            reason = f"{segment.path}: {error.reason} at byte {error.position}"
        segment.write_again(flushed_bytes)
        return reason

    def _take_epoch(self, header: BatchHeader, place: int, position: int) -> None:
        """Make the epoch cache say what the batch says (R-61), and refuse an epoch that cannot be: no CRC covers it.

        What was flushed has an epoch that the flushed file knows. Unlike Kafka, above the recovery point an epoch that
        contradicts the file counts even when it is lower than the newest entry: the file may be the one from before a
        truncation, which the power loss brought back. But no epoch begins at two offsets, and of two that fall a batch
        that is alone with its epoch is doubted.
        """
        epoch, offset = header.leader_epoch, header.base_offset
        if epoch < UNDEFINED_EPOCH:
            raise CorruptBatch(f"leader epoch {epoch}", position)
        if offset in self._start_offsets:
            self._passed[offset] = (place, position, offset)
        flushed = self._on_disk.epoch_for_offset(offset) if header.next_offset <= self._recovery_point else None
        if flushed is not None and epoch != flushed:
            raise CorruptBatch(f"leader epoch {epoch} instead of {flushed}", position)
        if epoch == self._latest_epoch:
            self._alone = None
        if epoch < 0 or (epoch == self._latest_epoch and offset < self._epoch_end):
            return
        if epoch < self._latest_epoch:
            self._doubted = self._alone
            raise CorruptBatch(f"leader epoch {epoch} after {self._latest_epoch}", position)
        start = self._starts.get(epoch, offset)
        if offset < start or (epoch > self._latest_epoch and start in self._passed and start < offset):
            self._doubted = self._passed.get(start)
            raise CorruptBatch(f"leader epoch {epoch}, which begins at {start}, at {offset}", position)
        if epoch > self._latest_epoch:
            self._alone = (place, position, offset) if self._latest_epoch >= 0 else None
        self._latest_epoch = epoch
        self._epoch_end = next((entry.offset for entry in self._epochs.entries if entry.offset > offset), LAST_OFFSET)
        if self._epochs.epoch_for_offset(offset) != epoch:
            self._epochs.truncate_from_end(offset)
            self._epochs.assign(epoch, offset)
            self._epoch_end = LAST_OFFSET
