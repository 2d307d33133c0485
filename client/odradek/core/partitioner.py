"""Which partition a record goes to, as Kafka's default partitioner decides it.

With a key: murmur2 of its bytes, so that every Kafka client sends a key to the same partition. Without one: stay with
a partition until about a batch's worth of bytes went there, then take another at random (KIP-480, KIP-794), so that
batches fill instead of being spread thin.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

SEED = 0x9747B28C
M = 0x5BD1E995
R = 24
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's `Utils.murmur2`, as an unsigned 32-bit number."""
    length = len(data)
    h = SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * M & MASK
        k ^= k >> R
        h = (h * M ^ k * M) & MASK
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * M & MASK
    h ^= h >> 13
    h = h * M & MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Kafka's `toPositive(murmur2(key)) % partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChoice:
    """The partition of a topic that records without a key go to at the moment."""

    __slots__ = ("_left", "_rng", "_sticky_bytes", "current")

    def __init__(self, sticky_bytes: int, rng: random.Random) -> None:
        self._sticky_bytes = max(sticky_bytes, 1)
        self._rng = rng
        self._left = 0
        self.current = -1

    def take(self, size: int, available: Sequence[int]) -> int:
        """The partition for a record of `size` bytes; `available` are those with a leader, or all when none has one."""
        if self._left <= 0:
            self.move_on(available)
        self._left -= size
        return self.current

    def spend(self, size: int) -> None:
        """So many bytes more went to the current partition."""
        self._left -= size

    def move_on(self, available: Sequence[int]) -> None:
        """Take another partition than the current one, if there is another."""
        at = self._rng.randrange(len(available)) if len(available) > 1 else 0
        if available[at] == self.current and len(available) > 1:
            at = (at + self._rng.randrange(1, len(available))) % len(available)
        self.current = available[at]
        self._left = self._sticky_bytes
