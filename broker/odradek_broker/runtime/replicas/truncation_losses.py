"""Which of the records lost in a truncation this replica had acknowledged.

A record counts as acknowledged if it was below the high watermark, or if this broker led and acknowledged it, or a
later one, to a producer with acks=1. It counts as not acknowledged if this broker led and acknowledged none. For
records that another leader wrote the answer is unknown here. The memory of leading ends with the process.
"""

from __future__ import annotations

from typing import NamedTuple


class LostRecords(NamedTuple):
    """Numbers of records."""

    acknowledged: int
    unacknowledged: int
    unknown: int


class TruncationLosses:
    """The records that this broker wrote as leader, and how far it has told so. Offsets are exclusive ends."""

    __slots__ = ("_led_from", "_led_to", "acknowledged_to")

    def __init__(self) -> None:
        self.acknowledged_to = 0
        self._led_from = 0
        self._led_to = 0  # at or below `_led_from`: nothing is left of what we led

    def leadership_ended(self, epoch_start_offset: int, log_end_offset: int, high_watermark: int) -> None:
        """This broker led until now; what it wrote lies from the start of its first epoch to the log end offset."""
        if self._led_to < epoch_start_offset or self._led_to <= self._led_from:
            self._led_from = epoch_start_offset
        self._led_to = log_end_offset
        self.acknowledged_to = max(self.acknowledged_to, high_watermark)

    def truncated(self, from_offset: int, to_offset: int, high_watermark: int) -> LostRecords:
        """The log was cut from an old end to a new one; `high_watermark` is the one from before the cut."""
        all_lost = from_offset - to_offset
        committed = max(0, min(from_offset, high_watermark) - to_offset)
        open_from = max(to_offset, high_watermark)  # above it, only the leader of that time knows
        led_from, led_to = max(self._led_from, open_from), min(self._led_to, from_offset)
        ours = max(0, led_to - led_from)
        told = min(ours, max(0, self.acknowledged_to - led_from))
        self._led_to = min(self._led_to, to_offset)
        self.acknowledged_to = min(self.acknowledged_to, to_offset)
        return LostRecords(committed + told, ours - told, all_lost - committed - ours)
