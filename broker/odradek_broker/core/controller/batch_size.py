"""Limit on the size of the one batch of a request.

Followers fetch a batch in one gRPC message, of 16 MiB at most with everything else in it: a larger batch would stop the
metadata quorum forever. So a request that needs more is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek_proto.errors import ErrorCode

from odradek_broker.core.controller.decision import Refusal
from odradek_broker.core.metadata.records import MetadataRecord, encode

MAX_BATCH_BYTES: Final = 8 << 20  # half of a message
RECORD_OVERHEAD: Final = 16  # of a record beside its value: two lengths of up to 4 bytes, offset, and what is empty


def batch_bytes(records: Iterable[MetadataRecord]) -> int:
    """What the records take of a batch, a little too much rather than too little."""
    return sum(len(encode(record)) + RECORD_OVERHEAD for record in records)


def check_batch_bytes(size: int, room: int, remedy: str) -> None:
    """Raise `Refusal` for more than there is room for."""
    if size > room:
        reason = f"one request writes at most {MAX_BATCH_BYTES} bytes of metadata: {remedy}"
        raise Refusal(ErrorCode.POLICY_VIOLATION, reason)
