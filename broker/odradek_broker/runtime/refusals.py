"""Log lines about messages that no correct peer sends, so that an operator can look for the sender.

Rules of this module. A line costs the reader of the log more than the sender, so of each kind the first is logged, the
tenth, the hundredth, and so on.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


def is_said(count: int) -> bool:
    """Of so many, this one."""
    return str(count).strip("0") == "1"


class Refusals:
    """What one service has refused so far, by method."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, method: str, peer: str, reason: str) -> None:
        """`reason` says what is wrong with the message and repeats none of its bytes."""
        count = self._counts[method] = self._counts.get(method, 0) + 1
        if is_said(count):
            before = f" ({count} of these so far)" if count > 1 else ""
            logger.warning("%s from %s: refused, INVALID_REQUEST: %s%s", method, peer, reason, before)
