"""`odradek chaos pairs`: does a seed say the same thing in every process?

`pairs` is the function of the command. Exit codes: 0 all pairs are equal, 1 some differ, 2 usage, 130
interrupted: the sum is that of the pairs that were done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.terminal.screen import Screen, table
from odradek_proto.command_line import FAILED, FINE
from odradek_proto.words import noun

from odradek_chaos.cli.interrupting import terminable
from odradek_chaos.cli.simulation import MOST_JOBS, Seeds, range_of

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.campaign.determinism import Pair, Pairs
    from odradek_chaos.worlds.simulated.plan.options import Options

MOST_LOAD = 64
FAULTS_S = 2.5  # of a pair, unless another length is given
EVERY = 10  # pairs between two words about how far we are
COLUMNS = ("SEED", "PYTHONHASHSEED", "TRACE HASH", "EVENTS", "VIRTUAL MS", "FINDINGS", "ERROR")


def pairs(
    *,
    seeds: Seeds = "1..20",
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, max=MOST_JOBS, help="Pairs at the same time.")] = 1,
    load: Annotated[
        int, typer.Option("--load", min=0, max=MOST_LOAD, help="Busy processes beside the second run of each pair.")
    ] = 0,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.01, help="Begin no more pairs after so long.")
    ] = None,
    options: Options,
    screen: Screen,
) -> None:
    """Run each seed twice, in two processes with two of three hash seeds: their trace hashes must be equal."""
    from odradek_chaos.worlds.simulated.campaign.determinism import run_pairs

    first, last = range_of(seeds)
    total, done, arguments = last - first + 1, 0, options.words()

    def on_pair(pair: Pair) -> None:
        nonlocal done
        done += 1
        if not pair.is_equal:
            screen.say(f"seed {pair.seed} differs")
        elif done % EVERY == 0:
            screen.say(f"{done} of {total} {noun(total, 'pair')} done")

    def on_interrupt(found: Pairs) -> None:
        if found.pairs or not screen.for_people:
            screen.show(_data(found, arguments), lambda: "\n".join(_lines(found, arguments)))
        screen.say(f"interrupted after {found.pairs} of {total} {noun(total, 'pair')}")

    import asyncio

    work = run_pairs(
        range(first, last + 1),
        options,
        jobs=jobs,
        load=load,
        seconds=None if minutes is None else minutes * 60,
        on_pair=on_pair,
        on_interrupt=on_interrupt,
    )
    with terminable():
        found = asyncio.run(work)
    not_begun = total - found.pairs
    screen.show(_data(found, arguments, not_begun), lambda: "\n".join(_lines(found, arguments, not_begun)))
    raise typer.Exit(FAILED if found.different else FINE)


def _again(pair: Pair, load: int, arguments: str) -> str:
    return f"odradek chaos pairs --seeds {pair.seed} {arguments}" + (f" --load {load}" if load else "")


def _traces(pair: Pair, arguments: str) -> list[str]:
    """What prints the events of both runs."""
    return [
        f"PYTHONHASHSEED={each.hash_seed} odradek chaos trace {pair.seed} {arguments}"
        for each in (pair.first, pair.second)
    ]


def _lines(found: Pairs, arguments: str, not_begun: int = 0) -> list[str]:
    """A table of what differs with the commands to repeat it, and the sum."""
    lines = []
    if found.different:
        outcomes = [(pair.seed, *outcome) for pair in found.different for outcome in (pair.first, pair.second)]
        lines.append(table(COLUMNS, outcomes))
        lines += [f"again: {_again(pair, found.load, arguments)}" for pair in found.different]
        lines.append(f"what differs: diff <({') <('.join(_traces(found.different[0], arguments))})")
    lines.append(found.line())
    if not_begun:
        lines.append(f"{not_begun} {noun(not_begun, 'pair was', 'pairs were')} not begun in time")
    if found.different:
        lines.append(f"seeds that differ: {', '.join(str(pair.seed) for pair in found.different)}")
    return lines


def _data(found: Pairs, arguments: str, not_begun: int | None = None) -> dict[str, object]:
    """The same, as `--json` shows it; who was interrupted does not say what had begun."""
    return {
        "pairs": found.pairs,
        "not_begun": not_begun,
        "interrupted": not_begun is None,
        "equal": found.pairs - len(found.different),
        "with_findings": found.with_findings,
        "load": found.load,
        "virtual_seconds": round(found.virtual_ms / 1000),
        "wall_seconds": round(found.wall_s, 1),
        "different": [
            {
                "seed": pair.seed,
                "first": pair.first._asdict(),
                "second": pair.second._asdict(),
                "again": _again(pair, found.load, arguments),
                "traces": _traces(pair, arguments),
            }
            for pair in found.different
        ],
    }
