"""What a gRPC server takes on, so that clients that mean harm cost it little and the others are served.

gRPC's Python API has no resource quota. So streams are counted here, and so are large responses of single calls, which
stay in gRPC's memory until their caller reads them.
"""

from __future__ import annotations

from collections import Counter

STREAMS_OF_EVERYBODY = 2  # a connection may always have these, a full server or not: produce and fetch


class StreamAdmission:
    """Counts open streams by connection. A full server takes more only from those that have few."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all = 0
        self._by_peer: Counter[str] = Counter()

    def admit(self, peer: str) -> bool:
        """Whether one more stream of this connection may be opened; it then counts until `release`."""
        if self._all >= self._most and self._by_peer[peer] >= STREAMS_OF_EVERYBODY:
            return False
        self._all += 1
        self._by_peer[peer] += 1
        return True

    def release(self, peer: str) -> None:
        self._all -= 1
        self._by_peer[peer] -= 1
        if not self._by_peer[peer]:
            del self._by_peer[peer]


class UnreadResponses:
    """Bytes of large responses whose callers have not taken them."""

    def __init__(self, most_bytes: int, counted_from_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._counted_from_bytes = counted_from_bytes
        self._bytes = 0

    def admit(self, size: int) -> int | None:
        """How many bytes to `release` when the call is over; None when the response must not be sent."""
        if size < self._counted_from_bytes:
            return 0
        if self._bytes and self._bytes + size > self._most_bytes:  # the first one passes whatever its size
            return None
        self._bytes += size
        return size

    def release(self, size: int) -> None:
        self._bytes -= size
