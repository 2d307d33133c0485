"""Clients on the background loop that nobody has closed: they are closed when the process ends.

Rules of this module. It holds them until they are closed, so that one that the application has dropped still sends what
it took, and leaves its group. In the child of a fork they belong to the parent, and nothing is done for them.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
from collections.abc import Callable
from typing import Protocol

from odradek_proto.transport.background import BackgroundLoop

from odradek.shared.errors import OdradekError

logger = logging.getLogger("odradek")


class UnclosedClient(Protocol):
    """A client with something left to do when the process ends; `unclosed` is what its warning says of that."""

    loop: BackgroundLoop
    unclosed: str

    async def end_with_process(self) -> None: ...

    def leave_to_parent(self) -> None:
        """In the child of a fork."""


_unclosed: dict[UnclosedClient, None] = {}
_is_ending = False


async def apart(function: Callable[..., None], *arguments: object) -> None:
    """Call what may block in a thread of its own, unless the process ends: no thread can be started then."""
    if _is_ending:
        logger.warning("the process ends before a consumer was closed: its callback is not called")
    else:
        await asyncio.to_thread(function, *arguments)


def hold(client: UnclosedClient) -> None:
    if not _unclosed:
        _see_to_the_end_of_a_child()
    _unclosed[client] = None


def release(client: UnclosedClient) -> None:
    _unclosed.pop(client, None)


def is_held(client: object) -> bool:
    return client in _unclosed


def _leave_to_parent() -> None:
    for client in _unclosed:
        client.leave_to_parent()
    _unclosed.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


@atexit.register
def _end_all() -> None:
    global _is_ending
    _is_ending = True
    for client in [*_unclosed]:
        try:
            client.loop.run(client.end_with_process())
        except ExceptionGroup as failures:
            logger.error("at the end of the process, %s: %s", failures, "; ".join(map(str, failures.exceptions)))
        except Exception as error:  # of a callback, too; the others are ended all the same
            logger.error("at the end of the process: %s", error, exc_info=not isinstance(error, OdradekError))


def _see_to_the_end_of_a_child() -> None:
    """Processes of multiprocessing that were forked end without atexit."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _end_all, exitpriority=0)
