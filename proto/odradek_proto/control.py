"""Control records: transaction markers and the quorum's own entries, which no consumer is given.

    key:   version int16 = 0 | type int16 value of ABORT and COMMIT: version int16 = 0 | coordinator epoch int32 value
    of LEADER_CHANGE: version int16 = 0 | leader id int32 | voters | granting voters | 0, as a flexible message of
    Kafka

A control batch holds one record and is never compressed.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from odradek_proto.decoding import Record
from odradek_proto.encoding import encode_batch
from odradek_proto.headers import CorruptBatch
from odradek_proto.varint import encode_unsigned_varint


class ControlType(IntEnum):
    """What a control record says. A number that is not here is to be skipped, as Kafka does."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_KEY: Final = struct.Struct(">hh")
_END_TRANSACTION: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_NO_TAGGED_FIELDS: Final = b"\x00"


def control_type(record: Record) -> int:
    """The type of a control record, to be compared with `ControlType`.

    Raises `CorruptBatch` when the key holds none.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch(f"the control record at offset {record.offset} has no type", 0)
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptBatch(f"the control record at offset {record.offset} has version {version}", 0)
    return int(number)


def coordinator_epoch(record: Record) -> int:
    """The epoch of the transaction coordinator that wrote an ABORT or COMMIT marker. Raises `CorruptBatch`."""
    if record.value is None or len(record.value) < _END_TRANSACTION.size:
        raise CorruptBatch(f"the transaction marker at offset {record.offset} has no coordinator epoch", 0)
    return int(_END_TRANSACTION.unpack_from(record.value)[1])


def end_transaction_value(coordinator_epoch: int) -> bytes:
    """The value of an ABORT or COMMIT marker."""
    return _END_TRANSACTION.pack(0, coordinator_epoch)


def leader_change_value(leader_id: int, voters: Sequence[int], granting_voters: Sequence[int] = ()) -> bytes:
    """The value of LEADER_CHANGE (LeaderChangeMessage, version 0): who leads, who may vote, who voted for it."""
    pieces = [_END_TRANSACTION.pack(0, leader_id)]
    for ids in (voters, granting_voters):
        pieces.append(encode_unsigned_varint(len(ids) + 1))
        pieces += (_INT32.pack(voter) + _NO_TAGGED_FIELDS for voter in ids)
    pieces.append(_NO_TAGGED_FIELDS)
    return b"".join(pieces)


def encode_control_batch(
    control: ControlType,
    value: bytes,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """A batch of one control record, `timestamp` in milliseconds; ABORT and COMMIT are marked as transactional."""
    return encode_batch(
        [(timestamp, _KEY.pack(0, control), value, ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=control in (ControlType.ABORT, ControlType.COMMIT),
        control=True,
    )
