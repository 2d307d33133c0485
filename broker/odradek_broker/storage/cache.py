"""Recently appended batches in memory, so that a read near the end of a log costs no system call.

Rules of this module. A run of batches enters only after it was written. What a log has here is always the unbroken end
of that log: the oldest leave first, and a truncation drops everything of its log before anything else happens. The
budget is charged with the buffers that are kept alive, each once, however many runs look into it, and with a share for
the objects around them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from odradek_proto.records import PREFIX_SIZE, BatchHeader, Buffer

DEFAULT_BUDGET = 32 << 20  # bytes per broker: some seconds of a busy one, a tenth of what an idle JVM takes
RUN_BYTES = 768  # what Python takes for a run of one batch: its header, lists, views
TRIM_AT = 256  # dead places at the head of a list before they are cut off


class _Run:
    """Batches that were appended together."""

    __slots__ = ("base_offset", "buffers", "headers", "next_offset", "owners", "size", "tail")

    def __init__(
        self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer], size: int, next_offset: int, tail: LogTail
    ) -> None:
        self.headers = headers
        self.buffers = buffers
        self.size = size
        self.base_offset = headers[0].base_offset
        self.next_offset = next_offset
        self.tail: LogTail | None = tail  # None: dropped
        self.owners: tuple[int, ...] = ()


class RecentBatches:
    """The memory that the logs of one broker share. `used_bytes` never stays above the budget."""

    __slots__ = ("_owners", "_runs", "budget_bytes", "used_bytes")

    def __init__(self, budget_bytes: int = DEFAULT_BUDGET) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._runs: deque[_Run] = deque()  # of all logs, oldest first
        self._owners: dict[int, list[int]] = {}  # id of a buffer -> [runs that hold it, its size]

    def tail(self) -> LogTail:
        """The place of one log."""
        return LogTail(self)

    def clear(self) -> None:
        """Drop everything of all logs, so that their memory is back at once, without a collector.

        Only the simulated world calls it, of brokers that are dead: a real one takes its memory with it.
        """
        for run in self._runs:
            tail = run.tail
            if tail is not None:
                tail.forget()
        self._runs.clear()
        self._owners.clear()
        self.used_bytes = 0

    def hold(self, run: _Run) -> None:
        owners = self._owners
        used = RUN_BYTES
        for buffer in run.buffers:
            if len(buffer) <= PREFIX_SIZE:
                continue  # a stamped prefix of its own
            owner = buffer.obj if type(buffer) is memoryview else buffer
            key = id(owner)
            held = owners.get(key)
            if held is None:
                size = len(owner) if type(owner) is bytes or type(owner) is bytearray else len(buffer)
                owners[key] = [1, size]
                used += size
            else:
                held[0] += 1
            run.owners += (key,)
        self.used_bytes += used
        self._runs.append(run)
        if self.used_bytes > self.budget_bytes:
            self._evict()

    def _evict(self) -> None:
        runs = self._runs
        while runs and self.used_bytes > self.budget_bytes:
            run = runs.popleft()
            if run.tail is not None:
                run.tail.drop_oldest(run)

    def release(self, run: _Run) -> None:
        """Let go of a run's buffers."""
        run.tail = None
        owners = self._owners
        self.used_bytes -= RUN_BYTES
        for key in run.owners:
            held = owners[key]
            held[0] -= 1
            if not held[0]:
                self.used_bytes -= held[1]
                del owners[key]
        run.headers = run.buffers = ()
        run.owners = ()


class LogTail:
    """The end of one log, as far as it is in memory."""

    __slots__ = ("_bases", "_cache", "_head", "_runs")

    def __init__(self, cache: RecentBatches) -> None:
        self._cache = cache
        self._runs: list[_Run] = []
        self._bases: list[int] = []  # base offsets of the runs
        self._head = 0  # the runs before it are dropped

    @property
    def first_offset(self) -> int | None:
        """From here on everything is in memory; None: nothing is."""
        return self._bases[self._head] if self._head < len(self._bases) else None

    def enter(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer], size: int, next_offset: int) -> None:
        """Take batches that were just written behind all others. The buffers must not change any more."""
        run = _Run(headers, buffers, size, next_offset, self)
        self._runs.append(run)
        self._bases.append(run.base_offset)
        self._cache.hold(run)

    def drop_oldest(self, run: _Run) -> None:
        """Called by the cache, which needs the room."""
        assert self._runs[self._head] is run, (run.base_offset, self._bases[self._head])
        self._cache.release(run)
        self._head += 1
        if self._head >= TRIM_AT and self._head * 2 >= len(self._runs):
            del self._runs[: self._head], self._bases[: self._head]
            self._head = 0

    def drop_below(self, offset: int) -> None:
        """Drop what ends at or below `offset`: the log does not have it in this form any more."""
        while self._head < len(self._runs) and self._runs[self._head].next_offset <= offset:
            self.drop_oldest(self._runs[self._head])

    def clear(self) -> None:
        """Drop everything of this log."""
        for run in self._runs[self._head :]:
            self._cache.release(run)
        self.forget()

    def forget(self) -> None:
        """Called by the cache and by `clear`, which have let go of the runs or are about to."""
        self._runs.clear()
        self._bases.clear()
        self._head = 0

    def read(self, offset: int, max_bytes: int, limit: int, at_least_one: bool) -> list[Buffer]:
        """Whole batches from the one that contains `offset` on, all of them below `limit`, without a copy.

        `offset` is not below `first_offset`.
        """
        out: list[Buffer] = []
        room = max_bytes
        place = max(bisect_right(self._bases, offset, self._head) - 1, self._head)
        runs = self._runs
        while place < len(runs):
            run = runs[place]
            place += 1
            if run.base_offset >= limit:
                break
            if offset <= run.base_offset and run.next_offset <= limit and run.size <= room:
                out.extend(run.buffers)
                room -= run.size
                continue
            start, stop, more = _fitting(run.headers, offset, room, limit, at_least_one and not out)
            out.extend(slice_buffers(run.buffers, start, stop))
            room -= stop - start
            if not more:
                break
        return out

    def count(self, offset: int, limit: int, enough: int) -> tuple[int, int]:
        """Bytes of the whole batches that `read` finds from `offset` on, and the offset behind those that are counted.

        It stops when it has counted `enough`. `offset` is not below `first_offset`; nothing is touched but sizes.
        """
        size = 0
        place = max(bisect_right(self._bases, offset, self._head) - 1, self._head)
        runs = self._runs
        while place < len(runs) and size < enough:
            run = runs[place]
            place += 1
            if run.base_offset >= limit:
                break
            if offset <= run.base_offset and run.next_offset <= limit:
                size += run.size
                offset = run.next_offset
                continue
            for header in run.headers:
                next_offset = header.next_offset
                if next_offset > limit:
                    return size, offset
                if next_offset > offset:
                    size += header.size
                    offset = next_offset
        return size, offset


def _fitting(
    headers: Sequence[BatchHeader], offset: int, room: int, limit: int, at_least_one: bool
) -> tuple[int, int, bool]:
    """The bytes (start, stop) of a run that a read gets, and whether it may go on behind them."""
    start = stop = 0
    for header in headers:
        next_offset = header.next_offset
        size = header.size
        if next_offset <= offset:
            start = stop = stop + size
            continue
        first = at_least_one and start == stop
        if next_offset > limit or (stop + size - start > room and not first):
            return start, stop, False
        stop += size
    return start, stop, stop - start <= room


def slice_buffers(buffers: Sequence[Buffer], start: int, stop: int) -> list[Buffer]:
    """The bytes from `start` to `stop` of buffers that stand one behind the other, without a copy."""
    out: list[Buffer] = []
    position = 0
    for buffer in buffers:
        length = len(buffer)
        low, high = max(start - position, 0), min(stop - position, length)
        if low < high:
            out.append(buffer if high - low == length else memoryview(buffer)[low:high])
        position += length
        if position >= stop:
            break
    return out
