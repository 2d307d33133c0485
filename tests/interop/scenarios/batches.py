"""A record batch as a broker answers it: what no client shows of one."""

from __future__ import annotations

import struct

from odradek_proto.headers import BatchHeader, check_batch

from tests.kafka.raw import FETCH, Raw, header, string

_VERSION, _MOST_BYTES = 4, 1 << 20
_BEFORE_TOPIC, _BEFORE_RECORDS = struct.Struct(">iii"), struct.Struct(">iihqqii")


def first_batch(leader: str, topic: str) -> BatchHeader:
    """The header of partition 0's first batch; its CRC is right. `leader` is an address."""
    name = string(topic.encode())
    ask = struct.pack(">iiiib", -1, 10_000, 1, _MOST_BYTES, 0)
    ask += struct.pack(">i", 1) + name + struct.pack(">iiqi", 1, 0, 0, _MOST_BYTES)
    with Raw(leader) as connection:
        told = connection.ask(header(FETCH, _VERSION, 1) + ask)
    assert told is not None
    *_, error, _, _, aborted, size = _BEFORE_RECORDS.unpack_from(told, _BEFORE_TOPIC.size + len(name))
    assert (error, max(aborted, 0)) == (0, 0)
    assert size > 0
    return check_batch(told[_BEFORE_TOPIC.size + len(name) + _BEFORE_RECORDS.size :])
