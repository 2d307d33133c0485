"""Runs the asynchronous part of a command: one event loop, one deadline, one way to be interrupted.

Rules of this module. asyncio is loaded when something runs; half of what `--help` takes would be its import. There is
one loop for all that a command asks: gRPC's poller speaks to a loop that is closed, and logs what comes of it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from odradek_proto.command_line import TIMED_OUT, CommandFailed
from odradek_proto.words import noun

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Run to the end, at most `timeout` seconds. Raises `CommandFailed` (5) then, and what the work raises.

    Ctrl-C cancels the work, waits until it has tidied up, and raises `KeyboardInterrupt`.
    """
    import asyncio
    import logging

    logging.getLogger("odradek").addHandler(logging.NullHandler())  # outages are told by the command; -v shows these
    return asyncio.run(within(work, timeout))


async def within(work: Coroutine[Any, Any, T], timeout: float | None) -> T:
    """Await it, at most `timeout` seconds. Raises `CommandFailed` (5) then, and what the work raises."""
    import asyncio

    try:
        async with asyncio.timeout(timeout) as limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise CommandFailed(
            f"not done after {timeout:g} {noun(timeout or 0, 'second')}",
            hint="give it more time with --timeout; `odradek doctor` shows whether the cluster is well",
            exit_code=TIMED_OUT,
        ) from error
