"""The help of every command as one page: the source of docs/commands.md.

`python -m odradek.cli.reference > docs/commands.md` writes it; a test finds a page that is not what this prints.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from copy import copy
from textwrap import fill
from typing import Any, Final

WIDTH: Final = 100
MANY: Final = 20  # an option that so many commands have is explained once
INTRODUCTION: Final = """\
# The command `odradek`

This page is generated: `python -m odradek.cli.reference > docs/commands.md`.

Data goes to standard output, messages to standard error. `--json` prints one JSON object or array, `--output jsonl`
one object a line. With `--json`, streaming commands print one object per line: `consume`, `cluster status --watch` and
the lessons of `demo`. With it an error is one JSON object on standard error, too:
`{"error": {"message": ..., "hint": ..., "exit_code": ...}}`.

Exit codes: 0 fine, 1 failed or inconclusive, 2 wrong usage, 3 findings, 4 cluster unreachable, 5 timed out, 130
interrupted. A path or `--data DIR` that is named and is not there, or is a file, is wrong usage (2), and so is
`--broker N` where a cluster that `chaos` strikes has no such broker; where no cluster is named and none was started, or
the one that was started last is gone, there is none to reach (4). A file or directory to be written is tried before the
work begins, and refused (2) where brokers keep their data, also with `--overwrite`.

Without `-b` and `ODRADEK_BOOTSTRAP` a command talks to the cluster that `odradek cluster up` started last on this
machine (`~/.odradek/current`; `ODRADEK_HOME` names another place). `ODRADEK_DEBUG=1` shows where an error came from,
`NO_COLOR=1` turns colours off. `odradek --install-completion` teaches your shell the commands.

Every command has `-h, --help`. Options that many have are named at the end of a command's help, and explained here:
"""


def commands(command: Any, path: tuple[str, ...], parent: Any = None) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """A command and all below it: (path, command, its context)."""
    context = command.make_context(path[-1], [], parent=parent, resilient_parsing=True)
    yield path, command, context
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name), context)


def help_of(command: Any, context: Any, common: frozenset[Any]) -> str:
    """The help of a command, with the common options by name alone."""
    context.terminal_width = context.max_content_width = WIDTH
    named = [each for each in command.params if each.get_help_record(context) in common]
    shown = copy(command)
    shown.add_help_option = False
    shown.params = [each for each in command.params if each not in named]
    text = "\n".join(line.rstrip() for line in shown.get_help(context).splitlines()).strip()
    return f"{text}\n\nCommon options: {', '.join(min(each.opts, key=len) for each in named)}" if named else text


def page() -> str:
    """The whole page, Markdown. Commands of one group that differ in name and first sentence alone share one help."""
    from odradek.cli.main import command_tree

    every = list(commands(command_tree(), ("odradek",)))
    records = Counter(each.get_help_record(context) for _, command, context in every for each in command.params)
    common = frozenset(each for each, count in records.items() if each is not None and count >= MANY)
    lines = [fill(f"- `{names}`: {meaning}", 120, subsequent_indent="  ") for names, meaning in sorted(common)]
    parts = [INTRODUCTION, "\n".join(lines) + "\n"]
    alike = None
    for path, command, context in every:
        text = help_of(command, context, common)
        _, title, *rest = text.split("\n\n", 2)
        told = fill(f"{' '.join(title.split())} The rest is as for the command before.", 120)
        if (path[:-1], rest) != alike:
            told = f"```\n{text}\n```"
        parts.append(f"{'#' * min(len(path) + 1, 4)} {' '.join(path)}\n\n{told}\n")
        alike = (path[:-1], rest)
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
