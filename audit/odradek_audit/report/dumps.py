"""Bytes as people read them: place, hexadecimal, text, in columns beside each other."""

from __future__ import annotations

from odradek_audit.excerpt import BatchView, Bytes, Excerpt
from odradek_audit.report.markup import SafeMarkup, join, name, shown, tag

BYTES_A_ROW = 8


def dumps(excerpt: Excerpt) -> SafeMarkup:
    """The bytes of each replica's batch, with what is not the reference's marked."""
    columns = []
    for side in excerpt.sides:
        if side.batch is None:
            continue
        counterpart = excerpt.counterpart(side)
        other = counterpart.batch if counterpart is not None else None
        dump = join(*(_dump(window, other) for window in side.batch.windows), separator="\n   ⋮\n")
        title = tag("figcaption", "replica ", name(side.replica), f", from byte {side.batch.line.position:,}")
        columns.append(tag("figure", title, tag("pre", dump, tabindex="0"), class_=f"dump {side.role}"))
    note = tag(
        "p",
        "Places are hexadecimal and count from the batch's first byte. The header, in decimal: base offset 0, "
        "length 8, leader epoch 12, magic 16, CRC 17, attributes 21. Marked and underlined: not the "
        "reference's bytes.",
        class_="note",
    )
    return join(note, tag("div", *columns, class_="columns"))


def raw_files(excerpt: Excerpt) -> SafeMarkup:
    """The bytes of a file beside the log, on each replica that has it."""
    columns = []
    for side in excerpt.sides:
        if side.raw is not None:
            title = tag("figcaption", "replica ", name(side.replica), f", from byte {side.raw.start:,}")
            columns.append(
                tag("figure", title, tag("pre", _dump(side.raw, None), tabindex="0"), class_=f"dump {side.role}")
            )
    return tag("div", *columns, class_="columns")


def _dump(window: Bytes, other: BatchView | None) -> SafeMarkup:
    """Rows of eight bytes: place, hexadecimal, text."""
    theirs = _bytes_of(other)
    content = window.content
    rows = []
    for start in range(0, len(content), BYTES_A_ROW):
        row = content[start : start + BYTES_A_ROW]
        marks = [
            bool(theirs) and theirs.get(window.start + start + number) not in (None, byte)
            for number, byte in enumerate(row)
        ]
        codes = _marked([f"{byte:02x}" for byte in row], marks, " ")
        padding = "   " * (BYTES_A_ROW - len(row))
        letters = _marked([chr(byte) if 32 <= byte < 127 else "·" for byte in row], marks, "")
        rows.append(join(f"{window.start + start:06x}  ", codes, padding, "  ", letters))
    return join(*rows, separator="\n")


def _bytes_of(batch: BatchView | None) -> dict[int, int]:
    if batch is None:
        return {}
    return {window.start + place: byte for window in batch.windows for place, byte in enumerate(window.content)}


def _marked(cells: list[str], marks: list[bool], separator: str) -> SafeMarkup:
    """Neighbouring marked cells in one mark, so that the page stays small."""
    parts: list[object] = []
    place = 0
    while place < len(cells):
        end = place
        while end < len(cells) and marks[end] == marks[place]:
            end += 1
        piece = separator.join(cells[place:end])
        parts.append(tag("mark", shown(piece)) if marks[place] else shown(piece))
        place = end
    return join(*parts, separator=separator)
