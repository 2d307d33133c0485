"""What a client logs of outages: a warning when one begins and while it lasts, an info when it is over."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from odradek.core.outages import OutageLine

logger = logging.getLogger("odradek")


def log_outages(lines: Iterable[OutageLine]) -> None:
    for line in lines:
        logger.log(logging.INFO if line.ended else logging.WARNING, "%s", line.text)
