"""What the log says of files that were bad although nothing is lost with them: all they say stands in the log as well.

Whoever finds one says what is done about it. Called from threads, too.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("odradek.storage")


def ignored(path: str, reason: object) -> None:
    """What it said is not used; what hangs on it is found out again."""
    logger.info("%s is bad and ignored: %s", path, reason)


def made_anew(path: str, reason: object) -> None:
    """It is written again from the log."""
    logger.info("%s is bad and made anew from the log: %s", path, reason)
