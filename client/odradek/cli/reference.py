"""The help of every command as one page: the source of docs/commands.md.

`python -m odradek.cli.reference > docs/commands.md` writes it; a test finds a page that is not what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

WIDTH: Final = 100
INTRODUCTION: Final = """\
# The command `odradek`

This page is generated: `python -m odradek.cli.reference > docs/commands.md`.

Data goes to standard output, messages to standard error. `--json` prints one JSON object or array, `--output jsonl`
one object a line. With `--json`, streaming commands print one object per line: `consume`, `cluster status --watch` and
the lessons of `demo`. With it an error is one JSON object on standard error, too:
`{"error": {"message": ..., "hint": ..., "exit_code": ...}}`.

Exit codes: 0 fine, 1 failed or inconclusive, 2 wrong usage, 3 findings, 4 cluster unreachable, 5 timed out, 130
interrupted. A path or `--data DIR` that is named and is not there is wrong usage (2); where no cluster is named and
none was started, or the one that was started last is gone, there is none to reach (4).

Without `-b` and `ODRADEK_BOOTSTRAP` a command talks to the cluster that `odradek cluster up` started last on this
machine (`~/.odradek/current`; `ODRADEK_HOME` names another place). `ODRADEK_DEBUG=1` shows where an error came from,
`NO_COLOR=1` turns colours off. `odradek --install-completion` teaches your shell the commands.
"""


def commands(command: Any, path: tuple[str, ...], parent: Any = None) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """A command and all below it: (path, command, its context)."""
    context = command.make_context(path[-1], [], parent=parent, resilient_parsing=True)
    yield path, command, context
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name), context)


def page() -> str:
    """The whole page, Markdown."""
    from odradek.cli.main import command_tree

    parts = [INTRODUCTION]
    for path, command, context in commands(command_tree(), ("odradek",)):
        context.terminal_width = context.max_content_width = WIDTH
        lines = [line.rstrip() for line in command.get_help(context).splitlines()]
        heading = "#" * min(len(path) + 1, 4)
        parts.append(f"{heading} {' '.join(path)}\n\n```\n" + "\n".join(lines).strip() + "\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
