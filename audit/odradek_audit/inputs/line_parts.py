"""A large file of lines in parts that different workers can read: a line belongs to the part in which it begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek_audit.inputs.disk import FileSystem

PART_BYTES = 8 * 1024 * 1024
READ_BYTES = 1024 * 1024


class LinePart(NamedTuple):
    """The lines that begin in the bytes [start, end) of a file; the last of them may end behind."""

    path: str
    start: int
    end: int


def line_parts(disk: FileSystem, path: str, part_bytes: int = PART_BYTES) -> list[LinePart]:
    """All parts of a file. Raises `OSError`."""
    size = disk.size(path)
    return [LinePart(path, start, min(start + part_bytes, size)) for start in range(0, size, part_bytes)]


def lines_of(disk: FileSystem, part: LinePart) -> Iterator[bytes]:
    """A part's lines with their newlines; the last line of a file may have none. Raises `OSError`."""
    at = max(part.start - 1, 0)
    begins = part.start == 0  # whether a line begins here; else behind the next newline
    left = b""
    while True:
        data = disk.read(part.path, at, READ_BYTES)
        pieces = (left + data).split(b"\n")
        start = at - len(left)
        left = pieces.pop()
        for piece in pieces:
            if begins and start >= part.end:
                return
            if begins:
                yield piece + b"\n"
            begins, start = True, start + len(piece) + 1
        at += len(data)
        if not data:
            if begins and left and start < part.end:
                yield left
            return
        if begins and start >= part.end:
            return
