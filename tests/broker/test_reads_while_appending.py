"""Cold reads run in threads while the loop appends and cuts: what happens meanwhile is not seen (R-229)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from odradek_broker.storage.segment import Segment

from tests.broker.log_bench import LogBench, batch

LIMIT = 3


@pytest.fixture
def bench() -> LogBench:
    """A log that ends at the limit, and no batch of it in memory."""
    made = LogBench()
    made.open()
    made.fill(LIMIT)
    made.cold()
    return made


def interrupt(segment: Segment, meanwhile: Callable[[], object]) -> None:
    """Let something happen just before a segment's file is read for the first time."""
    whole = segment.file
    happened = False

    class Interrupted:
        """The file, with a loop that goes on while a thread reads it."""

        def __getattr__(self, name: str) -> object:
            return getattr(whole, name)

        def pread(self, offset: int, length: int) -> bytes:
            nonlocal happened
            if not happened:
                happened = True
                meanwhile()
            return whole.pread(offset, length)

    segment.file = Interrupted()  # type: ignore[assignment]  # a file for all that a read asks of it


def test_a_read_at_the_end_does_not_see_what_is_appended_meanwhile(bench: LogBench) -> None:
    """The limit was the end of the file when the read began, and is so no more (KAFKA-9835, R-229)."""
    (segment,) = bench.log.segments
    before = segment.size
    interrupt(segment, lambda: bench.fill(3, epoch=1))
    found = bench.log.read(0, 10_000, LIMIT)
    assert segment.size > before, "the appended batches stand in the file that was read"
    assert b"".join(found) == b"".join(batch(offset) for offset in range(LIMIT))


@pytest.mark.parametrize("kept", range(LIMIT))
def test_a_read_that_meets_a_truncation_does_not_fail(bench: LogBench, kept: int) -> None:
    """What was to be read is gone: that is nothing to read, not a damaged log; the next read is right (KAFKA-9838)."""
    (segment,) = bench.log.segments
    interrupt(segment, lambda: bench.truncate(kept))
    assert bench.log.read(kept, 10_000, LIMIT) == []
    assert bench.log.end_offset == kept
    assert b"".join(bench.log.read(0, 10_000, LIMIT)) == b"".join(batch(offset) for offset in range(kept))
