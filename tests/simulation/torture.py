"""`make torture`: what takes hours. Each campaign adds a row to docs/torture.md, which is committed.

    python -m tests.simulation.torture [--hours 2] [--jobs 2]

The time is shared among the campaigns. Seeds go on where the last row of the same campaign on the same core ended. Exit
code 3 when one of them found something.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import odradek_broker
import odradek_proto
from odradek_chaos.cli.simulation import parse
from odradek_chaos.worlds.simulated.campaign.campaign import Campaign, SeedSummary, run_campaign

PAGE = Path(__file__).parents[2] / "docs/torture.md"
COMMANDS = "commands"
ROW = re.compile(r"^\| `(?P<core>\w+)` \| (?P<what>[^|]+) \| \d+\.\.(?P<last>\d+) \|", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Torture:
    """A campaign. `share` is of the time."""

    what: str
    options: str  # of `odradek chaos run`
    share: float


CAMPAIGNS = (
    Torture("long seeds", "--faults 148", 0.5),
    Torture("short seeds", "", 0.2),
    Torture("power losses", "--fsync before-ack --nemeses power,kill,cut", 0.1),
    Torture("blackouts", "--fsync before-ack --nemeses blackout,kill-leader-and-successor,pause", 0.1),
    Torture("failing disks", "--fsync before-ack --nemeses blackout,io-error,kill", 0.1),
)


def core_digest() -> str:
    """Of the sources of the broker and of the protocol's package, by name and content; commands aside."""
    digest = hashlib.sha256()
    for package in (odradek_broker, odradek_proto):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            name = path.relative_to(root)
            if COMMANDS not in name.parts:
                digest.update(f"{root.name}/{name.as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def row(torture: Torture, core: str, first: int, campaign: Campaign) -> str:
    """A line of the table on the page."""
    found = ", ".join(f"{number} {name}" for name, number in sorted(campaign.checks.items())) or "none"
    cells = (
        f"`{core}`",
        torture.what,
        f"{first}..{first + campaign.seeds - 1}",
        f"{campaign.virtual_ms / 3_600_000:.2f}",
        f"{sum(campaign.faults.values()):,}",
        f"{campaign.acknowledged:,}",
        found,
        ", ".join(campaign.unreached()) or "-",
    )
    return f"| {' | '.join(cells)} |"


def next_seed(page: str, torture: Torture, core: str) -> int:
    """Behind the seeds that this campaign has on this core, or 1."""
    ended = [int(each["last"]) for each in ROW.finditer(page) if (each["core"], each["what"]) == (core, torture.what)]
    return max(ended, default=0) + 1


def say(summary: SeedSummary) -> None:
    if summary.report:
        print(summary.report, file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.torture", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="for all campaigns together")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    given = parser.parse_args()
    core, failed = core_digest(), False
    for torture in CAMPAIGNS:
        first = next_seed(PAGE.read_text(), torture, core)
        seconds = given.hours * 3600 * torture.share
        options = parse(shlex.split(torture.options))
        print(f"{torture.what}: from seed {first} on, {seconds / 60:.0f} minutes", file=sys.stderr)
        campaign = run_campaign(count(first), options, jobs=given.jobs, seconds=seconds, on_seed=say)
        with PAGE.open("a") as page:
            page.write(row(torture, core, first, campaign) + "\n")
        failed = failed or bool(campaign.failed_seeds)
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
