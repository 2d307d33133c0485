"""How a command of the audit says that it cannot go on, in the form of all of odradek's commands."""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import Final, NoReturn

import typer

EXIT_USAGE, EXIT_FAILED = 2, 1
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell says it

in_json: ContextVar[bool] = ContextVar("in_json", default=False)  # set by each command: somebody asked for JSON


def stop(message: str, code: int = EXIT_USAGE, hint: str = "", command: str = "run") -> NoReturn:
    """A sentence and what to try on standard error, or one JSON object; then the command is over with this code."""
    if code == EXIT_USAGE:
        hint = hint or f"`odradek audit {command} --help` shows what it takes"
    if in_json.get():
        typer.echo(json.dumps({"error": {"message": message, "hint": hint, "exit_code": code}}), err=True)
    else:
        typer.echo(f"odradek: {message}", err=True)
        if hint:
            typer.echo(f"  try: {hint}", err=True)
    raise typer.Exit(code)
