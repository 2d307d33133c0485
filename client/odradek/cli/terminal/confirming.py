"""What cannot be undone is said twice: on a terminal by typing a name again, elsewhere by --yes."""

from __future__ import annotations

import sys

from odradek_proto.command_line import USAGE, CommandFailed


def confirm(doing: str, does: str, wanted: str, hint: str = "add --yes") -> None:
    """Have `wanted` typed. Raises `CommandFailed` where nobody can be asked (2), or for another answer (1)."""
    if not sys.stdin.isatty():
        raise CommandFailed(f"{doing} cannot be undone", hint=hint, exit_code=USAGE)
    print(f"This {does}. Type {wanted!r} to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != wanted:
        raise CommandFailed("nothing was done: the answer was another one")
