"""Work in a thread that its caller waits for even when it is cancelled.

Rule of this module: a cancelled task continues only after its work is over. A thread cannot be cancelled, and a log
directory must not be closed as clean while a flush or a checkpoint still writes to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from odradek_proto.transport.ports import Files

T = TypeVar("T")


async def finish(files: Files, function: Callable[[], T]) -> T:
    """Offload `function`. On cancellation waits for its end first; what it raised then is lost with its result."""
    work = asyncio.ensure_future(files.offload(function))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():  # told to stop a second time: the thread still writes
            try:
                await asyncio.wait((work,))
            except asyncio.CancelledError:
                continue
        if not work.cancelled():
            work.exception()  # nobody is left to hear of it
        raise
