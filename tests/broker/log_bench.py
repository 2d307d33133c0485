"""A log on a simulated disk, with the few lines of core that stand around it, for the tests of storage."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.log import Log
from odradek_broker.storage.opening import KnownLog
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.records import encode_batch, iter_batches, read_header
from odradek_proto.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)
DIRECTORY = "/data/orders-0"
SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=200, segment_ms=1 << 60)
START_MS = 1_700_000_000_000


def batch(
    base_offset: int,
    records: int = 1,
    *,
    epoch: int = 0,
    timestamp: int = START_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    size: int = 50,
    transactional: bool = False,
) -> bytes:
    """A batch whose values name their offsets. `producer` is (id, epoch, first sequence)."""
    value = b"at %d in epoch %d " % (base_offset, epoch)
    rows = [(timestamp + place, None, value.ljust(size, b"."), ()) for place in range(records)]
    return encode_batch(
        rows,
        base_offset=base_offset,
        leader_epoch=epoch,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )


class LogBench:
    """One partition's log, opened, closed, killed and read, on a disk that can lose power."""

    def __init__(self, settings: LogSettings = SMALL, *, gaps: bool = False) -> None:
        self.settings = settings
        self.gaps = gaps  # as in a log that was compacted
        self.disk = SimDisk(random.Random(0))
        self.checkpoint = 0  # the recovery point checkpoint, as a log directory would keep it
        self.log_start = 0
        self.files = self.new_files()
        self.log: Log

    def new_files(self) -> SimFiles:
        self.files = SimFiles(self.disk, SimLoop(), random.Random(0))
        return self.files

    def open(self, *, clean: bool = True, cache: RecentBatches | None = None, high_watermark: int = 0) -> Log:
        self.log = Log.open(
            self.files,
            DIRECTORY,
            ORDERS,
            settings=self.settings,
            clean=clean,
            cache=cache,
            known=KnownLog(b"", self.checkpoint, self.log_start, high_watermark, self.gaps),
            wall_ms=START_MS,
        )
        self.log.on_recovery_point_lowered = self._lower
        return self.log

    def _lower(self, log: Log, offset: int) -> None:
        self.checkpoint = min(self.checkpoint, offset)

    def append(self, *batches: bytes) -> None:
        """What the core does around an append: epochs before, producers after (R-222)."""
        headers = [read_header(each) for each in batches]
        state = self.log.state
        changed = [
            state.epochs.assign(each.leader_epoch, each.base_offset) for each in headers if each.leader_epoch >= 0
        ]
        if any(changed):
            self.log.write_epochs(state.epochs.entries)
        self.log.append(headers, [memoryview(b"".join(batches))])
        for header in headers:
            state.producers.update(header)
        state.log_end_offset = headers[-1].next_offset

    def fill(
        self, count: int, *, epoch: int = 0, records: int = 1, timestamp: int = START_MS, size: int = 50
    ) -> list[bytes]:
        """Append so many batches at the end, each on its own; returns them."""
        made = []
        for _ in range(count):
            made.append(batch(self.log.end_offset, records, epoch=epoch, timestamp=timestamp, size=size))
            self.append(made[-1])
        return made

    def truncate(self, offset: int) -> int:
        """A truncation with what the core does after it."""
        end = self.log.truncate(offset)
        state = self.log.state
        state.log_end_offset = end
        state.epochs.truncate_from_end(end)
        self.log.write_epochs(state.epochs.entries)
        return end

    def flush(self) -> None:
        """A flush, then the checkpoint (R-238)."""
        self.log.flush()
        self.checkpoint = self.log.recovery_point

    def close(self, *, clean: bool = True) -> None:
        self.log.close(clean=clean)
        if clean:
            self.checkpoint = self.log.recovery_point

    def reopen(self, *, clean: bool) -> Log:
        """End and begin again: after `clean=False` the log has to be recovered."""
        self.close(clean=clean)
        return self.open(clean=clean)

    def cold(self) -> None:
        """Make the next reads come from the disk."""
        self.log._tail.clear()

    # --- What is there ---------------------------------------------------------------------------------------------

    def read_all(self, *, max_bytes: int = 300) -> list[bytes]:
        """All batches of the log, by many small reads."""
        return read_all(self.log, max_bytes)

    def epochs(self) -> tuple[EpochEntry, ...]:
        return self.log.state.epochs.entries

    def names(self, suffix: str) -> list[int]:
        """Base offsets of the files with a suffix."""
        return [int(name.split(".")[0]) for name in self.files.list(DIRECTORY) if name.endswith(suffix)]

    def path(self, name: str) -> str:
        return f"{DIRECTORY}/{name}"

    def garbage(self, name: str, content: bytes) -> None:
        """Add bytes behind the end of a file."""
        file = self.files.open(self.path(name))
        file.pwritev([content], file.size())

    def garbage_file(self, name: str, content: bytes) -> None:
        """Make a file."""
        self.files.open(self.path(name), create=True).pwritev([content], 0)


def opened(settings: LogSettings = SMALL, *, gaps: bool = False) -> LogBench:
    """An open log on a disk of its own."""
    made = LogBench(settings, gaps=gaps)
    made.open()
    return made


def interrupt(segment: Segment, method: str, meanwhile: Callable[[], object]) -> None:
    """Let the loop do something just before a thread calls this method of a segment's file for the first time."""
    whole = segment.file

    class Interrupted:
        """The file, until then."""

        def __getattr__(self, name: str) -> object:
            if name == method:
                segment.file = whole
                meanwhile()
            return getattr(whole, name)

    segment.file = Interrupted()  # type: ignore[assignment]  # a file for all that is asked of it


def read_all(log: Log, max_bytes: int = 300) -> list[bytes]:
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        data = b"".join(bytes(piece) for piece in log.read(offset, max_bytes, log.end_offset))
        if not data:
            break
        for position, header in iter_batches(data):
            found.append(data[position : position + header.size])
            offset = header.next_offset
    return found


def offsets(batches: Sequence[bytes]) -> list[int]:
    return [read_header(each).base_offset for each in batches]


def indexes(log: Log) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Of each segment the entries of its two indexes, made if they were not known."""
    for segment in log.segments:
        segment.know_indexes()
    return [(segment.index.entries, list(segment.time_index.entries)) for segment in log.segments]
