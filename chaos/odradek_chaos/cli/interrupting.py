"""A command that started brokers must stop them, however it is told to end.

asyncio is loaded when something runs: `--help` needs none of it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

ENDS = (signal.SIGTERM, signal.SIGHUP)
ALL = (signal.SIGINT, *ENDS)


@contextlib.contextmanager
def _handled(numbers: Iterable[signal.Signals], handler: Callable[[int, object], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM and a closed terminal do what Ctrl-C does: asyncio tidies up and raises `KeyboardInterrupt`.

    Also where Ctrl-C itself is ignored, as in a process that a script has started with `&`; a closed terminal is
    ignored still where `nohup` has said so.
    """

    def interrupt(number: int, frame: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    with _handled(_not_ignored(ENDS), interrupt):
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, whatever ends a command waits until the end: a process that was just started is not lost before it is
    noted anywhere."""
    held: list[int] = []
    try:
        with _handled(_not_ignored(ALL), lambda number, frame: held.append(number)):
            yield
    finally:
        if held:
            signal.raise_signal(held[0])


def _not_ignored(numbers: Iterable[signal.Signals]) -> list[signal.Signals]:
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


class Interrupts:
    """How often a command was told to end, while `listening`."""

    def __init__(self) -> None:
        self.times = 0
        self.when_told_again: Callable[[], None] = lambda: None  # runs in the signal's handler
        self._task: asyncio.Task[None] | None = None

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it to its end. It is cancelled each time that the command is told to end, and not begun after that.

        Raises what it raises, and `asyncio.CancelledError` when it was cancelled.
        """

        import asyncio

        async def cancelled_when_told() -> None:
            self._task = asyncio.current_task()
            if self.times:
                work.close()
                raise asyncio.CancelledError
            await work

        try:
            asyncio.run(cancelled_when_told())
        finally:
            self._task = None

    def hear(self, number: int, frame: object) -> None:
        """The handler. Raises nothing: it may come at any moment, also while what was begun is tidied up."""
        self.times += 1
        if self.times > 1:
            self.when_told_again()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._task.get_loop().call_soon_threadsafe(lambda: None)  # the loop sleeps until something is to be done


@contextlib.contextmanager
def listening() -> Iterator[Interrupts]:
    """Inside, Ctrl-C, SIGTERM and a closed terminal cancel what `Interrupts.run` runs, and interrupt nothing else.

    So whoever tidies up inside is never left half-way, however often Ctrl-C comes. At the end they are
    `KeyboardInterrupt`.
    """
    import asyncio

    told = Interrupts()
    try:
        with _handled(_not_ignored(ALL), told.hear):
            yield told
    except asyncio.CancelledError:
        if not told.times:
            raise
    if told.times:
        raise KeyboardInterrupt
