"""Options that are seconds, in all commands: what is no time is refused by the option's name."""

from __future__ import annotations

import itertools

from odradek_proto.command_line import USAGE

from tests.cli.conftest import Run
from tests.commands_of_odradek import tree

NO_TIMES = ("inf", "1e300", "nan", "-1")


def options_of_time() -> list[tuple[tuple[str, ...], str]]:
    """Command lines that are complete without an option in seconds, and that option."""
    found = []
    for path, command in tree().items():
        arguments = ["1" for each in command.params if each.param_type_name == "argument" and each.required]
        for each in command.params:
            if each.metavar == "SECONDS":
                found.append(((*path[1:], *arguments), each.opts[0]))
    return found


def test_what_is_no_time_is_refused(odradek: Run) -> None:
    """Code 2 and the name of the option, before anything is done; endless seconds ended in an OverflowError.

    All options of a kind share their limits, so each is tried with one value in turn, and the first with all.
    """
    options = options_of_time()
    assert {(("produce", "1"), "--timeout"), (("chaos", "run"), "--faults")} <= {*options}
    tried = [*itertools.product(options[:1], NO_TIMES), *zip(options, itertools.cycle(NO_TIMES), strict=False)]
    for (words, option), value in tried:
        outcome = odradek(*words, option, value)
        assert (outcome.code, outcome.out, option in outcome.err) == (USAGE, "", True), (words, option, value, outcome)
