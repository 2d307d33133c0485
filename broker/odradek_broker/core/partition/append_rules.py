"""Validation of a client's batch before a leader appends it (R-220). Pure; the rim has checked the batch's CRC.

Only the header is read. So timestamps are validated by its two: the first record's against
`message.timestamp.before.max.ms` and the largest against `message.timestamp.after.max.ms`. Unlike Kafka, a record in
the middle that is older than the first one is not detected.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_proto.errors import ErrorCode
from odradek_proto.headers import CODEC_MASK, DELETE_HORIZON, LAST_CODEC
from odradek_proto.records import DEFAULT_LIMIT, HEADER_SIZE, BatchHeader

from odradek_broker.core.partition.messages import PartitionSettings

ALLOWED_ACKS = (-1, 0, 1)
ACKS_ALL = -1
NO_TIMESTAMP = -1
_SMALLEST_RECORD = 7  # bytes: length, attributes, two deltas, lengths of key and value, header count


class BatchRefusal(NamedTuple):
    """Why a batch is not taken: the code for the client, a sentence for people."""

    error: ErrorCode
    message: str


def refusal_of(header: BatchHeader, settings: PartitionSettings, wall_ms: int) -> BatchRefusal | None:
    """Why this batch may not be appended, None when it may. `wall_ms` is the broker's wall clock."""
    size = header.size
    if size > settings.max_message_bytes:
        limit = settings.max_message_bytes
        return BatchRefusal(ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes are more than max.message.bytes={limit}")
    if size > settings.segment_bytes:
        limit = settings.segment_bytes
        return BatchRefusal(ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes are more than segment.bytes={limit}")
    return _shape_fault(header) or _timestamp_fault(header, settings, wall_ms)


def _shape_fault(header: BatchHeader) -> BatchRefusal | None:
    invalid = ErrorCode.INVALID_RECORD
    if header.base_offset != 0:
        return BatchRefusal(invalid, f"a produced batch starts at offset 0, not {header.base_offset}")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        count, delta = header.record_count, header.last_offset_delta
        return BatchRefusal(invalid, f"{count} records do not end at last offset delta {delta}")
    attributes = header.attributes
    if attributes & CODEC_MASK > LAST_CODEC:
        return BatchRefusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {attributes & CODEC_MASK}")
    room = DEFAULT_LIMIT if attributes & CODEC_MASK else header.size - HEADER_SIZE
    if header.record_count * _SMALLEST_RECORD > room:  # each would take the offsets of a segment, and make a new one
        return BatchRefusal(invalid, f"{header.record_count} records do not fit into {room} bytes")
    if header.is_control:
        return BatchRefusal(invalid, "clients may not write control batches")
    if attributes & DELETE_HORIZON:
        return BatchRefusal(invalid, "only a cleaner may give a batch a delete horizon")
    if header.is_transactional:
        return BatchRefusal(ErrorCode.INVALID_TXN_STATE, "transactions are not supported yet")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        sequence, epoch = header.base_sequence, header.producer_epoch
        return BatchRefusal(invalid, f"producer {header.producer_id} with epoch {epoch} and sequence {sequence}")
    return None


def _timestamp_fault(header: BatchHeader, settings: PartitionSettings, wall_ms: int) -> BatchRefusal | None:
    invalid = ErrorCode.INVALID_TIMESTAMP
    if header.timestamp_type_log_append:
        return BatchRefusal(invalid, "only a broker may say that timestamps are those of the append")
    if settings.log_append_time:
        return None  # the client's times count for nothing
    if (
        header.max_timestamp != NO_TIMESTAMP
        and header.max_timestamp - wall_ms > settings.message_timestamp_after_max_ms
    ):
        limit = settings.message_timestamp_after_max_ms
        text = f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms={limit} after {wall_ms}"
        return BatchRefusal(invalid, text)
    first = header.base_timestamp
    if first != NO_TIMESTAMP and wall_ms - first > settings.message_timestamp_before_max_ms:
        limit = settings.message_timestamp_before_max_ms
        return BatchRefusal(
            invalid, f"timestamp {first} is more than message.timestamp.before.max.ms={limit} before {wall_ms}"
        )
    return None
