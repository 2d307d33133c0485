"""Offloaded work ends before the task that wanted it does."""

from __future__ import annotations

import asyncio
import threading

import pytest
from odradek_broker.runtime.offloading import finish
from odradek_proto.transport.files import OsFiles


async def test_a_cancelled_task_waits_for_its_thread() -> None:
    """A stop that cancels a flush, even twice, goes on when the flush is over and not before."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def flush() -> None:
        begun.set()
        assert may_end.wait(10)
        ended.set()

    task = asyncio.ensure_future(finish(OsFiles(), flush))
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(2):
        task.cancel()
        await asyncio.wait((task,), timeout=0.02)
        assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_what_the_work_returned_or_raised_comes_back() -> None:
    """Without a cancellation it is an offload like any other."""
    assert await finish(OsFiles(), lambda: 6 * 7) == 42
    with pytest.raises(ZeroDivisionError):
        await finish(OsFiles(), lambda: 1 // 0)
