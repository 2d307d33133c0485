"""Tasks that run for as long as a client lives. None of them ends in silence.

Rules of this module. Such a task ends by being cancelled. When it ends by an exception, something happened that nobody
was prepared for; whoever started it is told at once, so that all who wait can be told. `asyncio.run` cancels all tasks
of its loop at its end, also these, while tasks of the application still close their clients: what closing needs begins
such a task anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from odradek.core.outages import OutageLine
from odradek.shared.errors import ClientFailed

Failed = Callable[[ClientFailed], None]


def failure_of(cause: BaseException) -> ClientFailed:
    """What to tell those who wait."""
    error = ClientFailed(f"the client failed: {cause!r}", hint="this is a bug in it; make a new one to go on")
    error.__cause__ = cause
    return error


def start_task(work: Coroutine[Any, Any, None], failed: Failed) -> asyncio.Task[None]:
    """Run `work`; `failed` is called with what ended it, unless it returned or was cancelled."""

    def look(task: asyncio.Task[None]) -> None:
        if task.cancelled() or (cause := task.exception()) is None:
            return
        failed(failure_of(cause))

    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(look)
    return task


async def was_cancelled(task: asyncio.Task[None] | None) -> bool:
    """Whether somebody has cancelled a task, which is over then."""
    if task is None:
        return False
    if task.cancelling() and not task.done():
        await asyncio.wait((task,))
    return task.cancelled()


logger = logging.getLogger("odradek")


def log_outages(lines: Iterable[OutageLine]) -> None:
    for line in lines:
        logger.log(logging.INFO if line.ended else logging.WARNING, "%s", line.text)
