"""Log lines about messages that no correct peer sends, so that an operator can look for the sender.

Rules of this module. A line costs the reader of the log more than the sender, so of each kind the first is logged, the
tenth, the hundredth, and so on.
"""

from __future__ import annotations

import logging

from odradek_proto.errors import ErrorCode

logger = logging.getLogger(__name__)


def is_said(count: int) -> bool:
    """Of so many, this one."""
    return str(count).strip("0") == "1"


class Refusals:
    """What one service has refused so far, by method and error."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ErrorCode], int] = {}

    def add(self, method: str, peer: str, reason: str, error: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        """`reason` says what is wrong with the message and repeats none of its bytes."""
        kind = method, error
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if is_said(count):
            before = f" ({count} of these so far)" if count > 1 else ""
            logger.warning("%s from %s: refused, %s: %s%s", method, peer, error.name, reason, before)
