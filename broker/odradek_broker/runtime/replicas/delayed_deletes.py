"""DeleteRecords requests of one partition that wait until every live replica has moved its log start offset (R-125).

A waiting request completes exactly once, and its deadline belongs to whoever waits: one that has given up is passed
over, and leaves when the next one comes. Few ever wait at the same time, so they are kept in a list.
"""

from __future__ import annotations

import asyncio

from odradek_proto.errors import ErrorCode


class DelayedDeletes:
    """Those who wait, by the offset that they wait for."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[ErrorCode]]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int) -> asyncio.Future[ErrorCode]:
        """Ends with NONE once the low watermark has reached the offset, or with what became of the leadership."""
        # While no follower is heard of nobody looks at the list: those who gave up must not pile up in it.
        self._waiting = [waiting for waiting in self._waiting if not waiting[1].done()]
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        return future

    def on_low_watermark(self, low_watermark: int) -> None:
        """A follower told its log start offset, or a broker or a replica came or went."""
        waiting, self._waiting = self._waiting, []
        for offset, future in waiting:
            if future.done():
                continue
            if offset <= low_watermark:
                future.set_result(ErrorCode.NONE)
            else:
                self._waiting.append((offset, future))

    def fail_all(self, error: ErrorCode) -> None:
        """This replica leads no more, or its disk failed."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_result(error)
