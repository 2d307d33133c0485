"""Options that are seconds, in all commands: what is no time is refused by the option's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from odradek_proto.command_line import USAGE

from tests.commands_of_odradek import tree

Run = Callable[..., Any]


def options_of_time() -> list[tuple[tuple[str, ...], str]]:
    """Command lines that are complete without an option in seconds, and that option."""
    found = []
    for path, command in tree().items():
        arguments = ["1" for each in command.params if each.param_type_name == "argument" and each.required]
        for each in command.params:
            if each.metavar == "SECONDS":
                found.append(((*path[1:], *arguments), each.opts[0]))
    return found


@pytest.mark.parametrize("value", ["inf", "1e300", "nan", "-1"])
@pytest.mark.parametrize(
    ("words", "option"), options_of_time(), ids=lambda each: each if isinstance(each, str) else " ".join(each)
)
def test_what_is_no_time_is_refused(odradek: Run, words: tuple[str, ...], option: str, value: str) -> None:
    """Code 2 and the name of the option, before anything is done; endless seconds ended in an OverflowError."""
    outcome = odradek(*words, option, value)
    assert outcome.code == USAGE, outcome
    assert option in outcome.err
    assert not outcome.out


def test_the_options_are_found() -> None:
    """Those that a newcomer tries are among them."""
    assert {(("produce", "1"), "--timeout"), (("chaos", "run"), "--faults")} <= set(options_of_time())
