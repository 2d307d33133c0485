"""What commands print: data on standard output in the format that was asked for, talk on standard error.

Rules of this module. Tables are plain columns that `awk` can read, as wide as they must be. JSON is one object or one
array; JSON lines is one object a line, written at once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from odradek_proto.command_line import OutputFormat

GAP = "  "
NOTHING = "-"


class Screen:
    """Where one command's words go."""

    def __init__(self, output: OutputFormat = OutputFormat.TABLE, as_json: bool = False, quiet: bool = False) -> None:
        self.output = OutputFormat.JSON if as_json and output is OutputFormat.TABLE else output
        self.quiet = quiet

    @property
    def for_people(self) -> bool:
        return self.output is OutputFormat.TABLE

    def say(self, text: str = "") -> None:
        """Talk, unless --quiet. A line and its end are written at once: an interrupt may come between two writes."""
        if not self.quiet:
            print(f"{text}\n", end="", file=sys.stderr, flush=True)

    def say_each(self, lines: Iterable[str]) -> None:
        """Several lines of talk."""
        for line in lines:
            self.say(line)

    def show(self, data: Mapping[str, Any], text: Callable[[], str]) -> None:
        """One object: as JSON, or as the text that people read."""
        if self.for_people:
            print(text())
        else:
            print(as_line(data) if self.output is OutputFormat.JSONL else json.dumps(data, indent=2, default=str))

    def done(self, sentence: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """What was done: a sentence for people, data for programs."""
        if self.for_people:
            self.say(sentence)
        else:
            self.show_rows(rows, {})

    def show_rows(self, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
        """Many objects: a table with these columns (key to heading), a JSON array, or JSON lines with all keys."""
        if self.for_people:
            if rows:
                print(table([*columns.values()], ([row.get(key) for key in columns] for row in rows)))
        elif self.output is OutputFormat.JSON:
            print(json.dumps(list(rows), indent=2, default=str))
        else:
            for row in rows:
                print(as_line(row))


def drop_output(stream: TextIO) -> None:
    """Whoever read this stream has had enough: what is printed from now on goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def can_move_cursor() -> bool:
    """Whether standard output is a terminal on which a screen can be drawn again; an editor's shell is a dumb one."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def folded(line: str) -> str:
    """A sentence as a terminal shows it whole, between words; elsewhere as it is."""
    if not sys.stdout.isatty():
        return line
    import shutil
    import textwrap

    return textwrap.fill(line, shutil.get_terminal_size().columns, break_on_hyphens=False)


def as_line(data: Mapping[str, Any]) -> str:
    """A JSON object on one line."""
    return json.dumps(data, ensure_ascii=False, default=str)


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or NOTHING
    return str(value)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns with headings; those of numbers, of which some may be missing, are aligned to the right."""
    content = [list(row) for row in rows]
    lines = [list(headings), *([cell(value) for value in row] for row in content)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(headings))]
    right = [
        any(type(row[index]) in (int, float) for row in content)
        and all(row[index] is None or type(row[index]) in (int, float) for row in content)
        for index in range(len(headings))
    ]
    return "\n".join(
        GAP.join(
            text.rjust(width) if at_right else text.ljust(width)
            for text, width, at_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def first_of(items: Sequence[object], most: int = 5) -> str:
    """The first of some things, comma-separated, and how many more there are."""
    named = ", ".join(map(str, items[:most]))
    return f"{named} and {len(items) - most} more" if len(items) > most else named


def human_bytes(count: float) -> str:
    """12.3 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError(count)
