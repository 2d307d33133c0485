"""Asking a cluster of real processes again until it has come to say what it must."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 90  # of a busy machine; the condition is what counts


def until(look: Callable[[], T], is_so: Callable[[T], object], patience_s: float = PATIENCE_S) -> T:
    """What is seen once it is so. Fails with what was seen last; to look must take a while, as a command does."""
    deadline = time.monotonic() + patience_s
    while not is_so(seen := look()):
        assert time.monotonic() < deadline, seen
    return seen
