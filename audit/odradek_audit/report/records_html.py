"""The records of each replica side by side, and what is said where a batch's records cannot be shown."""

from __future__ import annotations

from odradek_audit.excerpt import (
    ACCUSED,
    NO_BATCH,
    OTHER,
    REFERENCE,
    BatchLine,
    Bytes,
    Excerpt,
    ExcerptSide,
    RecordView,
    batch_words,
    wrong_offsets,
)
from odradek_audit.inputs.records import first_apart
from odradek_audit.report.markup import SafeMarkup, instant, join, name, plain_bytes, shown, tag
from odradek_audit.words import plural

_SHOWN_VALUE = 48
"""Bytes of a value that fit into a column before the first difference is looked for."""


def heads(excerpt: Excerpt, corner: str) -> SafeMarkup:
    cells = [tag("th", corner, scope="col", class_="corner")]
    for side in excerpt.sides:
        sign, word = _standing(excerpt, side)
        cells.append(
            tag(
                "th",
                tag("span", "replica ", name(side.replica), class_="who"),
                tag("span", tag("span", sign, aria_hidden="true"), " ", word, class_="standing"),
                scope="col",
                class_=f"side {side.role}",
            )
        )
    return tag("thead", tag("tr", *cells))


def _standing(excerpt: Excerpt, side: ExcerptSide) -> tuple[str, str]:
    """A sign and a word for what a replica is at this place."""
    if side.role == ACCUSED:
        return "✗", "the finding is about this copy"
    if side.absent:
        return "–", side.absent
    if side.role == REFERENCE:
        return "✓", "compared with this copy"
    if side.replica in excerpt.agreeing:
        return "=", "same bytes as the reference"
    return "≠", "differs from the reference"


def records_table(excerpt: Excerpt) -> SafeMarkup:
    """A row for each offset that is shown, a column for each replica; a batch without records has one cell for all."""
    offsets = sorted({record.offset for side in excerpt.sides if side.batch for record in side.batch.records})
    wrong = wrong_offsets(excerpt)
    sides = (excerpt.side(ACCUSED), excerpt.side(REFERENCE))
    alike = all(side is not None and side.batch is not None and side.batch.records for side in sides)
    if not wrong and not alike and not any(_silent(side) for side in excerpt.sides):
        wrong = [excerpt.offset]
    if not any(side.batch is not None and side.batch.line.holds(excerpt.offset) for side in excerpt.sides):
        offsets = [excerpt.offset, *offsets]  # nobody has what is missing
    rows = [_record_row(excerpt, offset, offset in wrong, offsets) for offset in offsets]
    return tag("table", heads(excerpt, "offset"), tag("tbody", *rows), class_="records")


def left_out(excerpt: Excerpt) -> SafeMarkup:
    """How many records of the batch stand before and behind the ones that are shown, or nothing."""
    side = next((side for side in excerpt.sides if side.batch is not None and side.batch.records), None)
    if side is None or side.batch is None:
        return SafeMarkup("")
    shown_offsets = [record.offset for record in side.batch.records]
    line, lacked = side.batch.line, excerpt.lacked
    first, last, of = line.base_offset, line.last_offset, f"the batch's {plural(side.batch.record_count, 'record')}"
    if lacked is not None:
        first, last = min(first, excerpt.offset), lacked.end_offset - 1
        of = f"the {plural(lacked.records, 'record')} ({plural(lacked.batches, 'batch', 'batches')})"
    said = []
    if first < shown_offsets[0]:
        said.append(f"before them stand {_span(first, shown_offsets[0] - 1)}")
    if last > shown_offsets[-1]:
        said.append(f"behind them follow {_span(shown_offsets[-1] + 1, last)}")
    if not said:
        return SafeMarkup("")
    some = f"{len(shown_offsets)} of {of} on replica "
    return tag("p", some, name(side.replica), f" are shown; {' and '.join(said)}.", class_="note more")


def _span(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last} ({last - first + 1:,} more)"


def _record_row(excerpt: Excerpt, offset: int, here: bool, offsets: list[int]) -> SafeMarkup:
    batches = [side.batch.line for side in excerpt.sides if side.batch is not None]
    missing = bool(batches) and all(line.base_offset > offset for line in batches)
    last = min(line.base_offset for line in batches) - 1 if missing else offset
    cells = [tag("th", f"{offset} to {last}" if last > offset else f"{offset}", scope="row")]
    for side in excerpt.sides:
        replica = f"replica {side.replica}"
        counterpart = excerpt.counterpart(side)
        if _silent(side):
            if offset == offsets[0]:
                cells.append(_silent_cell(side, len(offsets), replica))
            continue
        record = _record(side, offset)
        other = _record(counterpart, offset) if counterpart is not None else None
        apart = _elsewhere(side, offset) or (counterpart is not None and _elsewhere(counterpart, offset))
        differs = _comparable(counterpart) and (record.digest if record else "") != (other.digest if other else "")
        differs = differs and not apart
        marked = (differs and side.role != REFERENCE) or (missing and side.role == ACCUSED)
        content = _record_cell(record, other if differs else None) if record is not None else _nothing(side, offset)
        title = "differs from the reference" if differs else "missing"
        sign = tag("span", "≠ " if differs else "✗ ", class_="sign", title=title) if marked else SafeMarkup("")
        same = "same" if side.role == OTHER and side.replica in excerpt.agreeing else None
        kind = "differs" if marked else "meant" if differs else same
        cells.append(tag("td", sign, content, class_=kind, data_replica=replica))
    return tag("tr", *cells, class_="here" if here else None)


def _comparable(side: ExcerptSide | None) -> bool:
    return side is not None and not _silent(side) and (side.batch is not None or bool(side.absent))


def _silent(side: ExcerptSide) -> bool:
    """Whether there is a batch whose records cannot be shown."""
    return side.batch is not None and not side.batch.records and bool(side.batch.trouble)


def _silent_cell(side: ExcerptSide, rows: int, replica: str) -> SafeMarkup:
    """What is wrong with the batch, once for all of its offsets."""
    trouble = side.batch.trouble if side.batch is not None else ""
    wrong = side.role == ACCUSED
    sign = tag("span", "✗ ", class_="sign", aria_hidden="true") if wrong else SafeMarkup("")
    said = tag("span", f"The {batch_words(side)} {trouble}.", class_="none")
    return tag("td", sign, said, rowspan=rows, class_="differs" if wrong else None, data_replica=replica)


def _record(side: ExcerptSide | None, offset: int) -> RecordView | None:
    records = side.batch.records if side is not None and side.batch is not None else ()
    return next((record for record in records if record.offset == offset), None)


def _elsewhere(side: ExcerptSide, offset: int) -> BatchLine | None:
    """The batch that holds an offset on a replica without one at the finding's place."""
    lines = side.lines if side.absent else ()
    return next((line for line in lines if line.base_offset <= offset <= line.last_offset), None)


def _nothing(side: ExcerptSide, offset: int) -> SafeMarkup:
    line = _elsewhere(side, offset)
    if line is not None:
        return tag(
            "span", f"another batch: {line.base_offset} to {line.last_offset}, epoch {line.epoch}", class_="none"
        )
    if side.absent and side.absent != NO_BATCH:
        return tag("span", f"no record: {side.absent}", class_="none")
    return tag("span", "no record", class_="none")


def _record_cell(record: RecordView, other: RecordView | None) -> SafeMarkup:
    key = _content(record.key, other.key if other is not None else None)
    value = _content(record.value, other.value if other is not None else None)
    rest = []
    if other is not None and (record.key, record.value) == (other.key, other.value):
        if record.timestamp != other.timestamp:
            rest.append(tag("span", f"timestamp {instant(record.timestamp)}", class_="rest"))
        else:
            rest.append(tag("span", f"headers differ ({record.headers})", class_="rest"))
    return join(tag("span", key, class_="key"), tag("span", value, class_="value"), *rest)


def _content(part: Bytes, other: Bytes | None) -> SafeMarkup:
    """Bytes as text, cut around the first difference, with what differs marked."""
    if part.size <= 0:
        return tag("em", "(null)" if part.size < 0 else "(empty)")
    content = part.content
    first, last = _different(content, other.content) if other is not None and other.start == part.start else (0, 0)
    begin = max(0, first - 8) if first > _SHOWN_VALUE - 4 else 0
    end = min(len(content), max(begin + _SHOWN_VALUE, min(last, begin + _SHOWN_VALUE)))
    first, last = max(first, begin), min(last, end)
    skipped = part.start + begin
    lead = tag("span", f"{plural(skipped, 'byte')}, then …", class_="cut") if skipped else SafeMarkup("")
    left = part.size - part.start - end
    tail = f"… +{plural(left, 'byte')}" if left > 0 else ""
    if other is None or first >= last:
        return join(lead, _text(content[begin:end]), tag("span", tail, class_="cut"))
    return join(
        lead,
        _text(content[begin:first]),
        tag("mark", _text(content[first:last])),
        _text(content[last:end]),
        tag("span", tail, class_="cut"),
    )


def _different(one: bytes, other: bytes) -> tuple[int, int]:
    """The part of `one` that is left without the common beginning and the common end."""
    shorter, first = min(len(one), len(other)), first_apart(one, other)
    back = 0
    while back < shorter - first and one[len(one) - 1 - back] == other[len(other) - 1 - back]:
        back += 1
    return first, len(one) - back


def _text(content: bytes) -> SafeMarkup:
    return shown(plain_bytes(content), limit=1000)
