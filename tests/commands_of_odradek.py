"""The whole tree of commands, for tests that look at each of them: to load it takes half a second."""

from __future__ import annotations

from functools import cache
from typing import Any

from odradek.cli.main import command_tree
from odradek.cli.reference import commands


@cache
def tree() -> dict[tuple[str, ...], Any]:
    """Each command and group by its words, `odradek` the first of them."""
    return {path: command for path, command, _ in commands(command_tree(), ("odradek",))}
