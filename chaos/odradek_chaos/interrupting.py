"""A command that started brokers must stop them, however it is told to end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM and a closed terminal do what Ctrl-C does: asyncio tidies up and raises `KeyboardInterrupt`.

    Also where Ctrl-C itself is ignored, as in a process that a script has started with `&`.
    """

    def interrupt(number: int, frame: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.signal(number, interrupt) for number in ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, whatever ends a command waits until the end: a process that was just started is not lost before it is
    noted anywhere."""
    held: list[int] = []

    def hold(number: int, frame: object) -> None:
        held.append(number)

    heard = [number for number in (signal.SIGINT, *ENDS) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, hold) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])
