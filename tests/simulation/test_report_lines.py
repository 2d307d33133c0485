"""The lines of a failure's timeline: whole in a file, and cut on a terminal with a mark where something is missing."""

from __future__ import annotations

import io

from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.cluster.timeline import Timeline, TimelineEvent
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.world.board import EVENT_WIDTH, Board, fitted

COMMAND = "again: odradek chaos run --seeds 7 --nemeses " + ",".join(["kill"] * 40)


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_line_that_was_cut_says_so_and_a_file_has_all_of_it() -> None:
    """An event with many facts; a short one and a command that is to be pasted are left as they are."""
    timeline = Timeline(SimCluster(SimLoop(1)))
    facts = {f"fact{number}": number for number in range(20)}
    timeline.moments += [
        TimelineEvent(1_000_000, 1, "truncated", "t-0", facts),
        TimelineEvent(2_000_000, 0, "!kill", "", {"on": 1}),
    ]
    header, names, long, short = Board().screen(timeline, "t-0", 2_000_000, [1])
    assert long.endswith("fact18=18 fact19=19")
    report = "\n".join([header, names, long, short, "", COMMAND])
    assert fitted(report, io.StringIO()) == report
    cut = fitted(report, Terminal()).splitlines()
    assert cut == [header, names, f"{long[: EVENT_WIDTH - 1]}…", short, "", COMMAND]
