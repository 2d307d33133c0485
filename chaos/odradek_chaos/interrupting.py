"""A command that started brokers must stop them, however it is told to end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM and a closed terminal do what Ctrl-C does: asyncio tidies up and raises `KeyboardInterrupt`."""

    def interrupt(number: int, frame: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Inside, Ctrl-C waits until the end: a process that was just started is not lost before it is noted anywhere."""
    held = False

    def hold(number: int, frame: object) -> None:
        nonlocal held
        held = True

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)
