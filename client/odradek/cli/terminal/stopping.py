"""How a command that writes is told to stop: by Ctrl-C, by SIGTERM, or by a terminal that is closed.

Such a command does not drop what it has taken: the first signal asks it to take no more, the second one to wait no
longer. What it does then is its own affair; this module only passes on that it was told.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Final

from odradek_proto.words import noun

from odradek.cli.terminal.screen import Screen

TELLING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def told_to_stop(on_told: Callable[[], object]) -> Iterator[None]:
    """Inside, `on_told` is called on the running loop for every such signal, instead of what it did before.

    A signal that is ignored stays so: SIGINT in a process that a script started with `&`, SIGHUP under `nohup`.
    """
    import asyncio  # here: no command's help needs it

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in TELLING}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, on_told)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def say_what_is_waited_for(left: int, screen: Screen) -> None:
    """To whoever told it for the first time, while so many records have no outcome yet."""
    what, them = noun(left, "record is on its way", "records are on their way"), noun(left, "it", "them")
    with contextlib.suppress(OSError):  # the terminal may be closed
        screen.say(f"stopping: {left} {what}, for --timeout at most; a second Ctrl-C does not wait for {them}")


@contextlib.contextmanager
def told_in_vain() -> Iterator[None]:
    """Inside, being told to stop changes nothing: for what is short and must be done to its end."""
    with told_to_stop(lambda: None):
        yield


def hear_no_more() -> None:
    """From now on nothing is left but to say how it ended: who presses Ctrl-C once more does not change that."""
    for number in TELLING:
        signal.signal(number, signal.SIG_IGN)
