"""The rim of a lesson: prints pages, reads keys, waits. Colours are left to rich, which honours NO_COLOR."""

from __future__ import annotations

import os
import select
import sys
import termios
import textwrap
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.text import Text

from odradek_chaos.lessons.drawing import LOWEST, NARROWEST, Space
from odradek_chaos.lessons.pages import Page
from odradek_chaos.lessons.player import KeyPress, keys_in, turn_pages

HINT = "Enter on · b back · q quit"
RESIZE_CHECK_S = 0.25
MOST_BYTES = 64  # of typed keys at once
PLAIN_SIGNS = str.maketrans({"│": "|", "─": "-", "►": ">", "✗": "x", "✓": "+", "▲": "^", "≠": "#", "→": ">", "·": "-"})


def plain_space() -> Space:
    """For output that is no terminal: always the same, whatever COLUMNS says."""
    return Space()


def print_all(pages: Sequence[Page], file: TextIO) -> None:
    """All pages, one behind the other, with an empty line between them."""
    console = Console(file=file, highlight=False, soft_wrap=True)
    for number, page in enumerate(pages):
        if number:
            console.print()
        console.print(_joined(page(plain_space(), ""), file))


def show_on_terminal(pages: Sequence[Page], *, auto: bool, pace_s: float) -> bool:
    """Pages on the terminal's other screen: by keys, or with `auto` each `pace_s` seconds (keys work as well).

    Returns whether the last page was shown last.
    """
    console = Console(highlight=False, soft_wrap=True)

    def show(number: int) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        console.clear()
        page = drawn(pages[number], Space(size.columns, size.lines, steady=True))
        console.print(_joined(page, sys.stdout), end="")

    with console.screen(hide_cursor=True), _keyboard() as keyboard:
        return turn_pages(len(pages), show, _keys(keyboard, pace_s if auto else None)) == len(pages) - 1


def drawn(page: Page, space: Space) -> list[Text]:
    """A page; on a terminal that cannot hold one what it needs, which can be read there."""
    if space.holds_a_page:
        return page(space, HINT)
    words = f"a lesson needs {NARROWEST} columns and {LOWEST} lines; here are {space.columns} and {space.lines}"
    return [Text(line) for line in (*textwrap.wrap(words, max(space.columns - 1, 10)), HINT)]


def _joined(lines: Sequence[Text], file: TextIO) -> Text:
    text = Text("\n").join(lines)
    if not (file.encoding or "").lower().startswith("utf"):
        text.plain = text.plain.translate(PLAIN_SIGNS)
    return text


@contextmanager
def _keyboard() -> Iterator[int | None]:
    """Keys one by one, unseen; None when standard input is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _keys(keyboard: int | None, pace_s: float | None) -> Iterator[KeyPress]:
    """Keys as they are pressed, and one for every change of the size; with a pace, NEXT when nobody presses any."""
    if keyboard is None:
        while True:
            time.sleep(pace_s or 0)
            yield KeyPress.NEXT
    size = os.get_terminal_size(keyboard)
    due = None if pace_s is None else time.monotonic() + pace_s
    while True:
        left = RESIZE_CHECK_S if due is None else max(0.0, min(RESIZE_CHECK_S, due - time.monotonic()))
        if select.select([keyboard], [], [], left)[0]:
            typed = os.read(keyboard, MOST_BYTES)
            if not typed:
                yield KeyPress.QUIT
            yield from keys_in(typed.decode(errors="replace"))
        elif due is not None and time.monotonic() >= due:
            yield KeyPress.NEXT
        elif (now := os.get_terminal_size(keyboard)) != size:
            size = now
            yield KeyPress.REDRAW
            continue
        else:
            continue
        due = None if pace_s is None else time.monotonic() + pace_s
