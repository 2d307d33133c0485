"""A command that started brokers must stop them, however it is told to end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator

ENDS = (signal.SIGTERM, signal.SIGHUP)


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

    Also where Ctrl-C itself is ignored, as in a process that a script has started with `&`.
    """

    def interrupt(number: int, frame: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    with _handled(ENDS, interrupt):
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, whatever ends a command waits until the end: a process that was just started is not lost before it is
    noted anywhere."""
    held: list[int] = []
    heard = [number for number in (signal.SIGINT, *ENDS) if signal.getsignal(number) is not signal.SIG_IGN]
    try:
        with _handled(heard, lambda number, frame: held.append(number)):
            yield
    finally:
        if held:
            signal.raise_signal(held[0])
