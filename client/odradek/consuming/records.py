"""Records for the application: rows of a fetched batch, deserialized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.core.fetch_state import FetchState, Row
from odradek.shared.errors import OdradekError
from odradek.shared.results import ConsumerRecord, K, V, make_record
from odradek.shared.serialization import deserialize


def as_records(
    state: FetchState,
    rows: list[Row],
    read_key: Callable[[bytes | None], K] | None,
    read_value: Callable[[bytes | None], V] | None,
) -> list[ConsumerRecord[K, V]]:
    """Rows that were taken from a partition, as records.

    Raises `SerializationError` for the first row; one that comes later is put back, with all after it, so that what
    can be read is read before.
    """
    topic, partition = state.name
    records: list[ConsumerRecord[K, V]] = []
    for offset, timestamp, key, value, headers, epoch in rows:
        made_key: Any = key
        made_value: Any = value
        if read_key is not None or read_value is not None:
            where = f"{state.name} at offset {offset}"
            try:
                if read_key is not None:
                    made_key = deserialize(key, read_key, "key", where)
                if read_value is not None:
                    made_value = deserialize(value, read_value, "value", where)
            except OdradekError:
                state.put_back(rows[len(records) :])
                if records:
                    break
                raise
        records.append(make_record(topic, partition, offset, timestamp, made_key, made_value, headers, epoch))
    return records
