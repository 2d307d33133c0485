"""How many bytes a fetch session may send before its client has taken what was sent before.

A client that counts for itself grants credit with its messages. For one that grants none there is a default, and naming
a partition again says that its last answer was taken.
"""

from __future__ import annotations

from odradek_proto.topics import TopicPartition


class Credit:
    """`left` is what may still be sent. An answer goes out whole, so it may fall below zero; then nothing is sent."""

    __slots__ = ("_granted", "_untaken", "left")

    def __init__(self, default_bytes: int) -> None:
        self.left = default_bytes
        self._granted = False  # whether the client counts for itself
        self._untaken: dict[TopicPartition, int] = {}  # bytes of a partition's last answer, until it is named again

    def grant(self, size: int) -> None:
        """The client has room for so many bytes more; from the first grant on nothing else gives it any."""
        if not self._granted:
            self._granted, self.left = True, 0
            self._untaken.clear()
        self.left += size

    def answered(self, tp: TopicPartition, size: int) -> None:
        """So many bytes of a partition go into an answer; `spend` charges them."""
        if size and not self._granted:
            self._untaken[tp] = size

    def spend(self, size: int) -> None:
        """An answer with so many bytes of batches is sent."""
        self.left -= size

    def taken(self, tp: TopicPartition) -> bool:
        """The partition is named again or forgotten: its last answer was taken. Returns whether that gave room."""
        untaken = self._untaken.pop(tp, 0)
        self.left += untaken
        return untaken > 0
