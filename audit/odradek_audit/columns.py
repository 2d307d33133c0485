"""Columns of a table in Spark's words, `offset BIGINT, headers ARRAY<STRUCT<key: STRING>>`, as Arrow's schema."""

from __future__ import annotations

from typing import Any


def arrow_schema(columns: str) -> Any:
    """The schema of these columns. Raises `ImportError` without pyarrow."""
    import pyarrow as pa

    simple = {
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "BOOLEAN": pa.bool_(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    }

    def kind_of(text: str) -> Any:
        outer, _, inner = text.removesuffix(">").partition("<")
        if outer == "ARRAY":
            return pa.list_(kind_of(inner))
        if outer == "STRUCT":
            return pa.struct([(name, kind_of(kind)) for name, kind in _named(inner, ": ")])
        return simple[text]

    return pa.schema([(name, kind_of(kind)) for name, kind in _named(columns, " ")])


def _named(columns: str, sign: str) -> list[tuple[str, str]]:
    """Names and types; commas inside of a type separate nothing."""
    found: list[str] = []
    for part in columns.split(", "):
        if found and found[-1].count("<") > found[-1].count(">"):
            found[-1] += f", {part}"
        else:
            found.append(part)
    return [(name, kind) for name, _, kind in (each.partition(sign) for each in found)]
