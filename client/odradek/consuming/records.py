"""Records for the application: rows of a fetched batch, deserialized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_proto.records import Record

from odradek.core.fetch_state import FetchState
from odradek.shared.errors import OdradekError
from odradek.shared.results import ConsumerRecord, K, V
from odradek.shared.serialization import deserialize


def as_records(
    state: FetchState,
    rows: list[Record],
    read_key: Callable[[bytes | None], K] | None,
    read_value: Callable[[bytes | None], V] | None,
) -> list[ConsumerRecord[K, V]]:
    """Rows that were taken from a partition, as records.

    Raises `SerializationError` for the first row; one that comes later is put back, with all after it, so that what
    can be read is read before.
    """
    topic, partition = state.name
    epoch, new = state.rows_epoch, tuple.__new__  # a call of the class costs as much as all the rest
    if read_key is None and read_value is None:
        return [
            new(ConsumerRecord, (topic, partition, offset, timestamp, key, value, headers, epoch))
            for offset, timestamp, key, value, headers in rows
        ]
    records: list[ConsumerRecord[K, V]] = []
    for offset, timestamp, key, value, headers in rows:
        where = f"{state.name} at offset {offset}"
        try:
            made_key: Any = key if read_key is None else deserialize(key, read_key, "key", where)
            made_value: Any = value if read_value is None else deserialize(value, read_value, "value", where)
        except OdradekError:
            state.put_back(rows[len(records) :])
            if records:
                break
            raise
        records.append(new(ConsumerRecord, (topic, partition, offset, timestamp, made_key, made_value, headers, epoch)))
    return records
