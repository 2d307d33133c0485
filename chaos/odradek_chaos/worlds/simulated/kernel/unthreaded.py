"""The parts of an event loop that one thread without sockets answers once and for all.

Rules of this module. Threads do not exist: `run_in_executor` and `call_soon_threadsafe` raise. An error that reaches
the loop is logged and kept in `unhandled`, where a run looks for it at its end.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek_chaos.worlds.simulated.kernel.process import SimulationError

if TYPE_CHECKING:  # the stubs call every method abstract; at run time those that we lack raise NotImplementedError
    EventLoop = asyncio.BaseEventLoop
else:
    EventLoop = asyncio.AbstractEventLoop

logger = logging.getLogger(__name__)


class UnthreadedLoop(EventLoop):
    """What asyncio asks of a loop beside running callbacks: its state, its errors, and what it does not have."""

    def __init__(self) -> None:
        self.unhandled: list[dict[str, Any]] = []  # what reached `call_exception_handler`; a sound run has none
        self._running = False
        self._closed = False

    get_debug = staticmethod(bool)  # no; asked for each future and task, and answered without a frame

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            logger.error("%s", context.get("message"), exc_info=context.get("exception"))
            self.unhandled.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def _report(self, callback: Callable[..., object], error: BaseException) -> None:
        """A callback raised."""
        self.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})

    def call_soon_threadsafe(
        self, callback: object, *args: object, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        raise SimulationError("there are no threads in the simulated world")

    def run_in_executor(self, executor: Any, func: object, *args: object) -> asyncio.Future[Any]:
        raise SimulationError("there are no executors in the simulated world: use Files.offload")

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators are closed when they are dropped."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is none."""
