"""The evidence of a finding: the replicas side by side, from what a person reads first to the bytes.

First the records at each offset, one column for each replica; then the fields of the batch's header; then the bytes.
What differs from the reference is marked three times: by a sign, by a frame and by a colour.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_audit.exhibit import ACCUSED, REFERENCE, BatchView, Bytes, Exhibit, RecordView, Side
from odradek_audit.report.dumps import dumps, raw_files
from odradek_audit.report.markup import Safe, join, name, plain_bytes, shown, tag

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SHOWN_VALUE = 48
"""Bytes of a value that fit into a column before the first difference is looked for."""


def exhibit_html(exhibit: Exhibit, *, opened: bool) -> Safe:
    """The whole evidence of one finding. `opened` shows the bytes at once."""
    parts = []
    if any(side.batch is not None for side in exhibit.sides):
        parts += [
            _scrolling("Records of each replica", _records_table(exhibit)),
            _details("Batch headers", _scrolling("Batch headers", _fields_table(exhibit)), opened),
            _details("Batches before and behind", _neighbours(exhibit), False),
            _details("Bytes", dumps(exhibit), opened),
        ]
    elif any(side.absent for side in exhibit.sides):
        parts.append(_scrolling("Records of each replica", _records_table(exhibit)))
    if any(side.raw is not None for side in exhibit.sides):
        parts.append(_details("Bytes of the file", raw_files(exhibit), opened))
    return tag("div", *parts, class_="exhibit")


def _details(title: str, content: Safe, opened: bool) -> Safe:
    return tag("details", tag("summary", title), content, open=opened)


def _scrolling(label: str, content: Safe) -> Safe:
    """A table that may be wider than the screen; it can be reached and scrolled by keyboard."""
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def _heads(exhibit: Exhibit, corner: str) -> Safe:
    cells = [tag("th", corner, scope="col", class_="corner")]
    for side in exhibit.sides:
        sign, word = _standing(exhibit, side)
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


def _standing(exhibit: Exhibit, side: Side) -> tuple[str, str]:
    """A sign and a word for what a replica is at this place."""
    if side.role == ACCUSED:
        return "✗", "the finding is about this copy"
    if side.absent:
        return "–", side.absent
    if side.role == REFERENCE:
        return "✓", "compared with this copy"
    if side.replica in exhibit.agreeing:
        return "=", "same bytes as the reference"
    return "≠", "differs from the reference"


# --- Records ---------------------------------------------------------------------------------------------


def _records_table(exhibit: Exhibit) -> Safe:
    offsets = sorted({record.offset for side in exhibit.sides if side.batch for record in side.batch.records})
    wrong = wrong_offsets(exhibit) or [exhibit.offset]
    rows = [_record_row(exhibit, offset, offset in wrong) for offset in offsets]
    if not rows:
        rows = [
            tag("tr", tag("th", exhibit.offset, scope="row"), *(tag("td", _nothing(side)) for side in exhibit.sides))
        ]
    return tag("table", _heads(exhibit, "offset"), tag("tbody", *rows), class_="records")


def wrong_offsets(exhibit: Exhibit) -> list[int]:
    """Offsets whose record, as far as it is shown, is not the same on the accused replica and on the reference."""
    accused, reference = exhibit.side(ACCUSED), exhibit.side(REFERENCE)
    if accused is None or reference is None or accused.batch is None or reference.batch is None:
        return []
    mine = {record.offset: record.digest for record in accused.batch.records}
    theirs = {record.offset: record.digest for record in reference.batch.records}
    if not mine or not theirs:
        return []
    return sorted(offset for offset in mine | theirs if mine.get(offset) != theirs.get(offset))


def _record_row(exhibit: Exhibit, offset: int, here: bool) -> Safe:
    cells = [tag("th", f"{offset}", scope="row")]
    for side in exhibit.sides:
        record = _record(side, offset)
        counterpart = exhibit.counterpart(side)
        other = _record(counterpart, offset) if counterpart is not None else None
        comparable = counterpart is not None and (counterpart.batch is not None or bool(counterpart.absent))
        differs = comparable and (record.digest if record else "") != (other.digest if other else "")
        marked = differs and side.role != REFERENCE
        content = _record_cell(record, other if differs else None) if record is not None else _nothing(side)
        sign = tag("span", "≠ ", class_="sign", title="differs from the reference") if marked else Safe("")
        cells.append(tag("td", sign, content, class_="differs" if marked else "meant" if differs else None))
    return tag("tr", *cells, class_="here" if here else None)


def _record(side: Side | None, offset: int) -> RecordView | None:
    records = side.batch.records if side is not None and side.batch is not None else ()
    return next((record for record in records if record.offset == offset), None)


def _nothing(side: Side) -> Safe:
    if side.absent:
        return tag("span", f"no record: {side.absent}", class_="none")
    if side.batch is not None and side.batch.trouble:
        return tag("span", side.batch.trouble, class_="none")
    return tag("span", "no record", class_="none")


def _record_cell(record: RecordView, other: RecordView | None) -> Safe:
    key = _content(record.key, other.key if other is not None else None)
    value = _content(record.value, other.value if other is not None else None)
    rest = []
    if other is not None and (record.key, record.value) == (other.key, other.value):
        if record.timestamp != other.timestamp:
            rest.append(tag("span", f"timestamp {record.timestamp}", class_="rest"))
        else:
            rest.append(tag("span", f"headers differ ({record.headers})", class_="rest"))
    return join([tag("span", key, class_="key"), tag("span", value, class_="value"), *rest])


def _content(part: Bytes, other: Bytes | None) -> Safe:
    """Bytes as text, cut around the first difference, with what differs marked."""
    if part.size < 0:
        return tag("em", "null")
    content = part.content
    first, last = _different(content, other.content) if other is not None and other.start == part.start else (0, 0)
    begin = max(0, first - 8) if first > _SHOWN_VALUE - 4 else 0
    end = min(len(content), max(begin + _SHOWN_VALUE, min(last, begin + _SHOWN_VALUE)))
    first, last = max(first, begin), min(last, end)
    skipped = part.start + begin
    lead = tag("span", f"{skipped:,} bytes, then …", class_="cut") if skipped else Safe("")
    left = part.size - part.start - end
    tail = f"… +{left:,} bytes" if left > 0 else ""
    if other is None or first >= last:
        return join([lead, _text(content[begin:end]), tag("span", tail, class_="cut")])
    return join(
        [
            lead,
            _text(content[begin:first]),
            tag("mark", _text(content[first:last])),
            _text(content[last:end]),
            tag("span", tail, class_="cut"),
        ]
    )


def _different(one: bytes, other: bytes) -> tuple[int, int]:
    """The part of `one` that is left without the common beginning and the common end."""
    shorter = min(len(one), len(other))
    first = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    back = 0
    while back < shorter - first and one[len(one) - 1 - back] == other[len(other) - 1 - back]:
        back += 1
    return first, len(one) - back


def _text(content: bytes) -> Safe:
    return shown(plain_bytes(content), limit=1000)


# --- Header fields ---------------------------------------------------------------------------------------


def _fields_table(exhibit: Exhibit) -> Safe:
    known = {side.replica: dict(_fields(side.batch)) for side in exhibit.sides if side.batch is not None}
    names = next((list(fields) for fields in known.values()), [])
    rows = []
    for field in names:
        cells = [tag("th", field, scope="row")]
        for side in exhibit.sides:
            value = known.get(side.replica, {}).get(field, "")
            counterpart = exhibit.counterpart(side)
            other = known.get(counterpart.replica, {}).get(field) if counterpart is not None else None
            differs = bool(value) and other is not None and value != other
            wrong_crc = field == "CRC of the bytes" and value.endswith("✗")
            marked = (differs and side.role != REFERENCE) or wrong_crc
            sign = tag("span", "≠ ", class_="sign") if marked else Safe("")
            cells.append(tag("td", sign, value or "–", class_="differs" if marked else None))
        rows.append(tag("tr", *cells))
    return tag("table", _heads(exhibit, "field"), tag("tbody", *rows), class_="fields")


def _fields(batch: BatchView) -> Iterator[tuple[str, str]]:
    line = batch.line
    yield "offsets", f"{line.base_offset} to {line.last_offset}" if line.last_offset >= 0 else "not known"
    yield "leader epoch", str(line.epoch)
    yield "records", str(batch.record_count)
    yield "size", f"{line.size:,} bytes"
    yield "CRC in the header", f"{line.crc:#010x}"
    if batch.computed_crc < 0:
        yield "CRC of the bytes", "not computed"
    else:
        yield "CRC of the bytes", f"{batch.computed_crc:#010x} {'✓' if batch.computed_crc == line.crc else '✗'}"
    yield "codec", _CODECS[batch.attributes & 7] if batch.attributes & 7 < len(_CODECS) else "unknown"
    yield "kind", _kind(batch.attributes)
    yield "producer id, epoch", f"{batch.producer_id}, {batch.producer_epoch}"
    yield "base sequence", str(batch.base_sequence)
    yield "max timestamp", str(batch.max_timestamp)
    yield "place in the file", f"byte {line.position:,}"


def _kind(attributes: int) -> str:
    kind = "control" if attributes & 0x20 else "data"
    return f"{kind}, transactional" if attributes & 0x10 else kind


def _neighbours(exhibit: Exhibit) -> Safe:
    columns = []
    for side in exhibit.sides:
        rows = [
            tag(
                "tr",
                tag("td", f"{line.base_offset} to {line.last_offset}" if line.last_offset >= 0 else "?"),
                tag("td", line.epoch),
                tag("td", f"{line.crc:08x}"),
                tag("td", f"{line.size:,}"),
                class_="here" if side.batch is not None and line == side.batch.line else None,
            )
            for line in side.lines
        ]
        head = tag("tr", *(tag("th", title, scope="col") for title in ("offsets", "epoch", "CRC", "bytes")))
        caption = tag("caption", "replica ", name(side.replica), ", ", side.file or "no file")
        columns.append(tag("table", caption, tag("thead", head), tag("tbody", *rows), class_="lines"))
    return tag("div", *columns, class_="columns")
