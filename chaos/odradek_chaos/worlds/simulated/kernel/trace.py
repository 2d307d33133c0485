"""The trace of a run: a hash of everything that happened, in order.

Two runs of a seed that did the same have the same trace, in every process, on every machine and in every Python: it is
a BLAKE2b of numbers written out as bytes. Steps are gathered, so that each costs no more than an append.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array

GATHERED = 4_096  # numbers that are hashed at once


class Trace:
    """Grows by `steps`: the indexes of the processes that ran, and what the world said of itself in between; none is
    negative. The moment in which they happened follows them as its complement, which is.
    """

    __slots__ = ("_hash", "steps")

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self.steps: list[int] = []  # what happened, and is not yet part of the hash

    def label(self, label: str) -> None:
        self.steps.append(zlib.crc32(label.encode()))

    def mix(self, now_us: int) -> None:
        """What happens from here on happens later than what happened at this instant."""
        steps = self.steps
        steps.append(~now_us)
        if len(steps) >= GATHERED:
            self._hash.update(_bytes_of(steps))
            steps.clear()

    def digest(self, now_us: int) -> str:
        """16 hexadecimal digits for all that happened until now; to look at them changes nothing."""
        looked_at = self._hash.copy()
        looked_at.update(_bytes_of([*self.steps, ~now_us]))
        return looked_at.hexdigest()


def _bytes_of(numbers: list[int]) -> bytes:
    """Eight bytes for each, little-endian everywhere."""
    words = array("q", numbers)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
