"""`odradek chaos coverage`: which functions of the broker do seeds call?

Exit codes: 0 done, 2 usage, 3 some seed has findings, 130 interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from odradek.cli.terminal.screen import Screen, table
from odradek_proto.command_line import FINE
from odradek_proto.words import noun

from odradek_chaos.cli.simulation import FOUND, Seeds, range_of

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.campaign.functions import PartCoverage
    from odradek_chaos.worlds.simulated.plan.options import Options

COLUMNS = ("PART", "FUNCTIONS", "REACHED", "SHARE")


def coverage(*, seeds: Seeds = "1..20", options: Options, screen: Screen) -> None:
    """Run seeds and say which share of the functions of core, runtime and storage they call, and which none calls."""
    from odradek_chaos.worlds.simulated.campaign.functions import CalledFunctions, coverage_of, run_counting

    first, last = range_of(seeds)
    called, with_findings = CalledFunctions(), 0
    for seed in range(first, last + 1):
        with_findings += run_counting([seed], options, called)
        screen.say(f"seed {seed} done")
    parts = coverage_of(called)
    data = {
        "seeds": last - first + 1,
        "with_findings": with_findings,
        "parts": [{"part": each.part, "functions": each.functions, "missing": each.missing} for each in parts],
    }
    screen.show(data, lambda: "\n".join(_lines(parts, last - first + 1, with_findings)))
    raise typer.Exit(FOUND if with_findings else FINE)


def _lines(parts: list[PartCoverage], seeds: int, with_findings: int) -> list[str]:
    rows = [(each.part, each.functions, each.reached, f"{100 * each.reached / each.functions:.0f} %") for each in parts]
    lines = [table(COLUMNS, rows)]
    missing = [name for each in parts for name in each.missing]
    if missing:
        lines += ["", "called by none:", *(f"  {name}" for name in missing)]
    lines.append(f"{seeds} {noun(seeds, 'seed')}, {with_findings} with findings")
    return lines
