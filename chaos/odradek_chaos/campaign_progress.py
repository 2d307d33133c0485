"""One line on a terminal that says how far a campaign is: seeds, simulated time, faults, records, findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from odradek.words import noun

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.campaign import SeedSummary

BAR = 24
CLEAR = "\r\x1b[2K"


class Progress:
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
        full = BAR * self._seeds // self._total
        return (
            f"[{'#' * full}{'.' * (BAR - full)}] {self._seeds}/{self._total} {noun(self._total, 'seed')}, "
            f"{clock(self._virtual_ms)} simulated, {self._faults:,} {noun(self._faults, 'fault')}, "
            f"{self._records:,} {noun(self._records, 'record')}, "
            f"{self._found or 'no'} {noun(self._found, 'finding')}"
        )

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
