"""Which commands answer programs: all of them take `--json`, but for a short list with reasons."""

from __future__ import annotations

import re
from typing import Any

import pytest
from odradek.cli.records.format import ESCAPES, PARTS

from tests.commands_of_odradek import tree

WITHOUT_JSON = {
    "server run": "it goes on until it is stopped, and what it says is its log",
}


def acting() -> dict[str, Any]:
    """The commands that do something when they are called, by their words."""
    return {
        " ".join(path[1:]): command
        for path, command in tree().items()
        if not hasattr(command, "commands") or (command.invoke_without_command and not command.no_args_is_help)
    }


@pytest.mark.parametrize(("words", "command"), acting().items(), ids=lambda value: value if type(value) is str else "")
def test_every_command_answers_programs_or_says_why_not(words: str, command: Any) -> None:
    """A command takes the flag `--json`, or stands in the list; one that learned it leaves the list."""
    flags = [parameter for parameter in command.params if "--json" in parameter.opts]
    assert [flag.is_flag for flag in flags] == ([] if words in WITHOUT_JSON else [True])


def test_json_is_short_only_for_what_there_is() -> None:
    """A command without --output says itself what its --json prints."""
    for words, command in acting().items():
        options = [option for parameter in command.params for option in parameter.opts]
        for parameter in command.params:
            if "--json" in parameter.opts and "--output" not in options:
                assert "--output" not in parameter.help, words


def test_the_help_of_a_format_names_all_that_it_may_hold() -> None:
    """Whoever writes one looks there, and not at the error for a letter that means nothing."""
    told = next(each.help for each in acting()["consume"].params if "--format" in each.opts)
    assert set(re.findall(r"%(.)", told)) == {*PARTS, "%"}
    assert set(re.findall(r"\\(.)", told)) == set(ESCAPES)


def test_the_commands_without_json_exist() -> None:
    """The list names commands that there are, `demo` is seen beside its lessons, and groups without words are not."""
    assert set(WITHOUT_JSON) < set(acting())
    assert {"demo", "demo divergence"} < set(acting())
    assert not {"", "topic", "cluster", "audit"} & set(acting())
