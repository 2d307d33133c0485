"""One line on a terminal that says how far a campaign is: seeds, simulated time, faults, records, findings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from odradek_proto.words import noun

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.campaign.campaign import SeedSummary

BAR, SMALLEST_BAR = 24, 4
USUAL_COLUMNS = 80  # of a terminal that does not say
CLEAR = "\r\x1b[2K"


class CampaignProgress:
    """Draws on `out`, over the same line again and again. When `out` is no terminal it writes nothing."""

    def __init__(self, out: TextIO, total: int, enabled: bool = True) -> None:
        self.is_shown = enabled and out.isatty()
        self._out = out
        self._total = total
        self._seeds = self._virtual_ms = self._faults = self._records = self._found = 0

    def add(self, summary: SeedSummary) -> None:
        """One more seed is done."""
        self._seeds += 1
        self._virtual_ms += summary.virtual_ms
        self._faults += sum(summary.faults.values())
        self._records += summary.acknowledged
        self._found += bool(summary.checks)
        if self.is_shown:
            self._out.write(CLEAR + self.line())
            self._out.flush()

    def line(self) -> str:
        """Shorter than the terminal is wide now, the bar first: what went over into the next row would stay there."""
        words = (
            f"{self._seeds}/{self._total} {noun(self._total, 'seed')}, "
            f"{clock(self._virtual_ms)} simulated, {self._faults:,} {noun(self._faults, 'fault')}, "
            f"{self._records:,} {noun(self._records, 'record')}, "
            f"{self._found or 'no'} {noun(self._found, 'finding')}"
        )
        room = self._columns() - 1  # a character in the last column may begin the next row
        bar = min(BAR, room - len(words) - len("[] "))
        if bar >= SMALLEST_BAR:
            full = bar * self._seeds // self._total
            return f"[{'#' * full}{'.' * (bar - full)}] {words}"
        return words if len(words) <= room else f"{words[: max(0, room - 1)]}…"

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or USUAL_COLUMNS
        except (OSError, ValueError):
            return USUAL_COLUMNS

    def clear(self) -> None:
        """Make room for something else, or end."""
        if self.is_shown:
            self._out.write(CLEAR)
            self._out.flush()


def clock(milliseconds: int) -> str:
    """1:02:03."""
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
