"""Clients on the background loop that nobody has closed: they are closed when the process ends.

Rules of this module. It holds them until they are closed, so that one that the application has dropped still sends what
it took, and leaves its group. In the child of a fork they belong to the parent, and nothing is done for them.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import Protocol

from odradek_proto.transport.background import BackgroundLoop

from odradek.shared.errors import OdradekError

logger = logging.getLogger("odradek")


class Ending(Protocol):
    """A client with something left to do when the process ends; `unclosed` is what its warning says of that."""

    loop: BackgroundLoop
    unclosed: str

    async def end_with_process(self) -> None: ...

    def leave_to_parent(self) -> None:
        """In the child of a fork."""


_unclosed: dict[Ending, None] = {}


def hold(client: Ending) -> None:
    if not _unclosed:
        _see_to_the_end_of_a_child()
    _unclosed[client] = None


def release(client: Ending) -> None:
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
    for client in [*_unclosed]:
        try:
            client.loop.run(client.end_with_process())
        except ExceptionGroup as failures:
            logger.error("at the end of the process, %s: %s", failures, "; ".join(map(str, failures.exceptions)))
        except OdradekError as error:
            logger.error("at the end of the process: %s", error)


def _see_to_the_end_of_a_child() -> None:
    """Processes of multiprocessing that were forked end without atexit."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _end_all, exitpriority=0)
