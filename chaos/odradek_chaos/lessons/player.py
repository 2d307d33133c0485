"""Turns the pages: forward, back, or away. Knows no terminal; keys come from whoever has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto


class KeyPress(Enum):
    """What the spectator wants."""

    NEXT = auto()
    BACK = auto()
    QUIT = auto()
    REDRAW = auto()  # the terminal has another size now


_NEXT = ("\r", "\n", " ", "n", "j", "l", "\x1b[C", "\x1b[B", "\x1b[6~")  # arrows right and down, page down
_BACK = ("b", "p", "k", "h", "\x7f", "\b", "\x1b[D", "\x1b[A", "\x1b[5~")  # arrows left and up, page up
_QUIT = ("q", "Q", "\x1b", "\x04")
_KEYS = {
    **dict.fromkeys(_NEXT, KeyPress.NEXT),
    **dict.fromkeys(_BACK, KeyPress.BACK),
    **dict.fromkeys(_QUIT, KeyPress.QUIT),
}
_LONGEST = max(map(len, _KEYS))


def keys_in(typed: str) -> list[KeyPress]:
    """The keys in what was typed, perhaps several at once; others mean nothing."""
    found: list[KeyPress] = []
    while typed:
        size = next((size for size in range(_LONGEST, 0, -1) if typed[:size] in _KEYS and len(typed) >= size), 0)
        if typed.startswith("\x1b[") and size < len("\x1b[C"):
            return found  # a key of the keyboard that we do not know
        if size:
            found.append(_KEYS[typed[:size]])
        typed = typed[size or 1 :]
    return found


def turn_pages(count: int, show: Callable[[int], None], keys: Iterable[KeyPress]) -> int:
    """Show page 0, and whichever the keys ask for, until somebody quits, or goes on behind the last page.

    Returns the number of the page that was shown last.
    """
    at = 0
    show(at)
    for key in keys:
        if key is KeyPress.QUIT or (key is KeyPress.NEXT and at == count - 1):
            return at
        if key is KeyPress.NEXT:
            at += 1
        elif key is KeyPress.BACK:
            at = max(0, at - 1)
        show(at)
    return at
