"""Where the newest record of each key stands, for the dirty range of a log: a cleaner's memory, which has a limit."""

from __future__ import annotations

from hashlib import blake2b

LONGEST_KEY = 40  # bytes; of a longer key the digest, one byte longer, so that no key is taken for another one's
ENTRY_BYTES = 180  # what Python takes for a key, its offset and their place in a dictionary, on top of the key's bytes


class OffsetMap:
    """From keys to offsets. It may be asked for more than it was meant to hold: look at `is_full` between batches."""

    __slots__ = ("_bytes_left", "_offsets")

    def __init__(self, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0

    def put(self, key: bytes, offset: int) -> None:
        """A record of this key stands at `offset`, behind all that were told before."""
        if len(key) > LONGEST_KEY:
            key = _digest(key)
        if key not in self._offsets:
            self._bytes_left -= ENTRY_BYTES + len(key)
        self._offsets[key] = offset

    def get(self, key: bytes) -> int | None:
        return self._offsets.get(_digest(key) if len(key) > LONGEST_KEY else key)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=LONGEST_KEY + 1).digest()
