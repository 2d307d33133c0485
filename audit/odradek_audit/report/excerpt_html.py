"""The evidence of a finding: the replicas side by side, from what a person reads first to the bytes.

First the records at each offset, one column for each replica; then the fields of the batch's header; then the bytes.
What differs from the reference is marked three times: by a sign, by a frame and by a colour.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_audit.excerpt import REFERENCE, BatchView, Excerpt
from odradek_audit.report.dumps import dumps, raw_files
from odradek_audit.report.markup import SafeMarkup, head, instant, name, scrolling, tag
from odradek_audit.report.records_html import heads, left_out, records_table

PLACE = "place in the file"  # equal batches may stand at other bytes: no difference
OWN_CRC, RIGHT_CRC, WRONG_CRC = "CRC of the bytes", ", as the header says", ", not what the header says"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def excerpt_html(excerpt: Excerpt, steps: SafeMarkup, *, opened: bool) -> SafeMarkup:
    """The whole evidence of one finding. `opened` shows the bytes at once; `steps` stand behind the records."""
    parts = []
    if any(side.batch is not None for side in excerpt.sides):
        parts += [
            scrolling("Records of each replica", records_table(excerpt)),
            left_out(excerpt),
            steps,
            _details("Batch headers", scrolling("Batch headers", _fields_table(excerpt)), opened),
            _details("Batches before and behind", _neighbours(excerpt), False),
            _details("Bytes", dumps(excerpt), opened),
        ]
    elif any(side.absent for side in excerpt.sides):
        parts += [scrolling("Records of each replica", records_table(excerpt)), steps]
    else:
        parts.append(steps)
    if any(side.raw is not None for side in excerpt.sides):
        parts.append(_details("Bytes of the file", raw_files(excerpt), opened))
    return tag("div", *parts, class_="excerpt")


def _details(title: str, content: SafeMarkup, opened: bool) -> SafeMarkup:
    return tag("details", tag("summary", title), content, open=opened)


def _fields_table(excerpt: Excerpt) -> SafeMarkup:
    known = {side.replica: dict(_fields(side.batch)) for side in excerpt.sides if side.batch is not None}
    names = next((list(fields) for fields in known.values()), [])
    rows = []
    for field in names:
        cells = [tag("th", field, scope="row")]
        for side in excerpt.sides:
            value = known.get(side.replica, {}).get(field, "")
            counterpart = excerpt.counterpart(side)
            other = known.get(counterpart.replica, {}).get(field) if counterpart is not None else None
            differs = bool(value) and other is not None and value != other and field not in (OWN_CRC, PLACE)
            wrong_crc = field == OWN_CRC and value.endswith(WRONG_CRC)
            marked = (differs and side.role != REFERENCE) or wrong_crc
            sign = tag("span", "≠ ", class_="sign") if marked else ""
            word = tag("span", " differs from the reference", class_="rest") if differs and marked else ""
            cells.append(
                tag(
                    "td",
                    sign,
                    value or "–",
                    word,
                    class_="differs" if marked else None,
                    data_replica=f"replica {side.replica}",
                )
            )
        rows.append(tag("tr", *cells))
    return tag("table", heads(excerpt, "field"), tag("tbody", *rows), class_="fields")


def _fields(batch: BatchView) -> Iterator[tuple[str, str]]:
    line = batch.line
    yield "offsets", f"{line.base_offset} to {line.last_offset}" if line.last_offset >= 0 else "not known"
    yield "leader epoch", str(line.epoch)
    yield "records", str(batch.record_count)
    yield "size", f"{line.size:,} bytes"
    yield "CRC in the header", f"{line.crc:#010x}"
    if batch.computed_crc < 0:
        yield OWN_CRC, "not computed"
    else:
        yield OWN_CRC, f"{batch.computed_crc:#010x}{RIGHT_CRC if batch.computed_crc == line.crc else WRONG_CRC}"
    yield "codec", _CODECS[batch.attributes & 7] if batch.attributes & 7 < len(_CODECS) else "unknown"
    yield "kind", _kind(batch.attributes)
    yield "producer id, epoch", f"{batch.producer_id}, {batch.producer_epoch}"
    yield "base sequence", str(batch.base_sequence)
    yield "max timestamp", instant(batch.max_timestamp)
    yield PLACE, f"byte {line.position:,}"


def _kind(attributes: int) -> str:
    kind = "control" if attributes & 0x20 else "data"
    return f"{kind}, transactional" if attributes & 0x10 else kind


def _neighbours(excerpt: Excerpt) -> SafeMarkup:
    columns = []
    for side in excerpt.sides:
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
        caption = tag("caption", "replica ", name(side.replica), ", ", side.file or "no file")
        columns.append(
            tag("table", caption, head("offsets", "epoch", "CRC", "bytes"), tag("tbody", *rows), class_="lines")
        )
    return tag("div", *columns, class_="columns")
