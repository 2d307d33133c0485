"""Which commands answer programs: all of them take `--json`, but for a short list with reasons."""

from __future__ import annotations

from typing import Any

import pytest

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


def test_the_commands_without_json_exist() -> None:
    """The list names commands that there are, `demo` is seen beside its lessons, and groups without words are not."""
    assert set(WITHOUT_JSON) < set(acting())
    assert {"demo", "demo divergence"} < set(acting())
    assert not {"", "topic", "cluster", "audit"} & set(acting())
