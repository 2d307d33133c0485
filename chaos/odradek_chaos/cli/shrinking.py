"""`--shrink FILE` of `odradek chaos run` and `trace`: make a failing seed small and keep what is left."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.cli.terminal.screen import Screen

from odradek_chaos.cli.interrupting import terminable

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.campaign.shrink import ShrinkResult
    from odradek_chaos.worlds.simulated.plan.options import Options


def shrink_to(file: Path, seed: int, options: Options, screen: Screen) -> ShrinkResult | None:
    """Write the script of the smallest run that still finds something; None when the seed finds nothing.

    Its report is data for people. Programs have the file, and for them standard output belongs to the caller.
    """
    from odradek_chaos.worlds.simulated.campaign.shrink import Shrinker
    from odradek_chaos.worlds.simulated.world.board import fitted

    try:
        with terminable():
            shrunk = Shrinker(seed, options, screen.say).run()
    except KeyboardInterrupt:
        screen.say(f"interrupted: seed {seed} was not made small, and {file} was not written")
        raise
    if shrunk is None:
        screen.say(f"seed {seed} finds nothing")
        return None
    file.write_text(shrunk.script.dump(asdict(shrunk.result.plan.options)) + "\n")
    if screen.for_people:
        print(fitted(shrunk.result.report(), sys.stdout))
    screen.say(f"\n{shrunk.line()}\nagain: odradek chaos trace {seed} --script {file}")
    return shrunk
