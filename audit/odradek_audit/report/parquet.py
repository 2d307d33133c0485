"""Findings as Parquet: one row a finding, one schema for both engines, described in docs/audit.md.

The schema only grows at its end. Numbers that do not apply are null here, not -1; bytes are binary. pyarrow writes it,
in the process that wrote the page: what Spark's executors write to their own disks nobody finds again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from odradek_audit.catalogue import CHECKS
from odradek_audit.columns import arrow_schema
from odradek_audit.excerpt import ExcerptSide
from odradek_audit.findings import Finding

_COPY = (
    "replica: STRING, role: STRING, file: STRING, absent: STRING, position: BIGINT, size: BIGINT, base_offset: BIGINT, "
    "last_offset: BIGINT, epoch: INT, crc: BIGINT, computed_crc: BIGINT, "
    "bytes: ARRAY<STRUCT<start: BIGINT, data: BINARY>>"
)
COLUMNS = (
    "topic STRING, partition INT, check STRING, severity STRING, replica STRING, other_replica STRING, "
    "first_offset BIGINT, end_offset BIGINT, epoch INT, file STRING, position BIGINT, sentence STRING, cause STRING, "
    "reference STRING, rules ARRAY<STRING>, evidence_json STRING, first_differing_byte INT, differing_bytes INT, "
    f"copies ARRAY<STRUCT<{_COPY}>>, replicas ARRAY<STRING>"
)


def rows(findings: Iterable[Finding]) -> Iterator[tuple[Any, ...]]:
    """Findings as rows of the schema, in their order."""
    for finding in findings:
        excerpt = finding.excerpt
        yield (
            _text(finding.topic),
            _number(finding.partition),
            finding.check,
            finding.severity.value,
            _text(finding.replica),
            _text(finding.other_replica) or None,
            _number(finding.offset),
            _number(finding.end_offset),
            _number(finding.epoch),
            _text(finding.file) or None,
            _number(finding.position),
            _text(finding.sentence),
            _text(finding.cause) or None,
            _text(finding.reference) or None,
            list(CHECKS[finding.check].rules),
            json.dumps(finding.evidence, sort_keys=True),
            _number(excerpt.first_difference) if excerpt is not None else None,
            excerpt.differing_bytes if excerpt is not None else None,
            [_copy(side) for side in excerpt.sides] if excerpt is not None else [],
            [_text(replica) for replica in finding.replicas],
        )


def _text(text: str) -> str:
    """File names may hold bytes that are no UTF-8; Parquet's strings may not."""
    return text.encode("utf-8", "backslashreplace").decode()


def _number(value: int) -> int | None:
    return value if value >= 0 else None


def _copy(side: ExcerptSide) -> tuple[Any, ...]:
    names = (_text(side.replica), side.role, _text(side.file) or None, _text(side.absent) or None)
    if side.batch is None:
        return (*names, None, None, None, None, None, None, None, [])
    line, batch = side.batch.line, side.batch
    windows = [(window.start, window.content) for window in batch.windows]
    numbers = (line.position, line.size, _number(line.base_offset), _number(line.last_offset), _number(line.epoch))
    return (*names, *numbers, line.crc, _number(batch.computed_crc), windows)


def write_parquet(findings: Iterable[Finding], path: Path) -> None:
    """One file, by pyarrow. Raises `OSError`, and `ImportError` without pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(COLUMNS)
    columns = list(zip(*rows(findings), strict=True)) or [()] * len(schema)
    arrays = [
        pa.array([_shaped(value, field.type) for value in values], type=field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)


def _shaped(value: Any, kind: Any) -> Any:
    """Rows hold structures as tuples, as Spark takes them; pyarrow wants them by name."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_list(kind):
        return [_shaped(entry, kind.value_type) for entry in value]
    if pa.types.is_struct(kind):
        return {field.name: _shaped(entry, field.type) for field, entry in zip(kind, value, strict=True)}
    return value
