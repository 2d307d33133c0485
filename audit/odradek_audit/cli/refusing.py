"""How a command of the audit says that it cannot go on, in the form of all of odradek's commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import typer
from odradek_proto.command_line import CommandFailed
from odradek_proto.output_places import check_output_directory, check_output_file

A = TypeVar("A")
R = TypeVar("R")
EXIT_USAGE, EXIT_FAILED = 2, 1
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell says it

_command: ContextVar[str] = ContextVar("command")
_in_json: ContextVar[bool] = ContextVar("in_json")


def begin(command: str, *, in_json: bool) -> None:
    """Say which command it is that may have to stop, and whether somebody asked for JSON."""
    _command.set(command)
    _in_json.set(in_json)


def stop(message: str, code: int = EXIT_USAGE, hint: str = "") -> NoReturn:
    """A sentence and what to try on standard error, or one JSON object; then the command is over with this code."""
    if code == EXIT_USAGE:
        hint = hint or f"`odradek audit {_command.get()} --help` shows what it takes"
    if _in_json.get():
        typer.echo(json.dumps({"error": {"message": message, "hint": hint, "exit_code": code}}), err=True)
    else:
        typer.echo(f"odradek: {message}", err=True)
        if hint:
            typer.echo(f"  try: {hint}", err=True)
    raise typer.Exit(code)


def write_behind_verdict(exit_code: int, writes: Mapping[str, Callable[[], object]]) -> NoReturn:
    """Write all that was asked for, by option and place, when the verdict was printed, and end with its exit code: no
    disk can take that back. One of 0 becomes 1 where something was not written."""
    failed = []
    for place, write in writes.items():
        try:
            write()
        except OSError as error:
            failed.append(f"{place} was not written: {error.strerror or error}")
    if failed:
        remedy = "name another place; what was printed is the result all the same"
        stop("; ".join(failed), exit_code or EXIT_FAILED, remedy)
    raise typer.Exit(exit_code)


def check_out(out: str | None, overwrite: bool, replicas: Mapping[str, Path], data: Path | None = None) -> None:
    """An audit writes nothing into its evidence, nor into another cluster's data, also not with --overwrite."""
    from odradek_audit.inputs.stores import is_uri, names_in
    from odradek_audit.report import RESULT_FILES

    if out is None:
        return
    if not is_uri(out):
        _check_out_here(out, replicas, data)
    try:
        present = [] if overwrite else sorted(names_in(out).intersection(RESULT_FILES))
    except (OSError, ValueError) as error:
        stop(f"--out {out}: {error}")
    if present:
        stop(f"{out} already holds {', '.join(present)}; give --overwrite to replace them")


def topics_named(topics: str | None) -> list[str] | None:
    """None for all. A variable that is not set names none, and an audit of none says nothing."""
    named = None if topics is None else [name.strip() for name in topics.split(",") if name.strip()]
    if named == []:
        stop("--topics: it names no topic", hint="--topics NAME,...; is a variable not set?")
    return named


def check_file(option: str, file: Path | None) -> None:
    """A file that is written at the end can be, and lies in no broker's log directory."""
    _refusing(check_output_file, option, file)


def output_directory(option: str, name: str) -> Path:
    """The same of what is written into a directory; returns its absolute path."""
    return _refusing(check_output_directory, option, name)


def _refusing(check: Callable[[str, A], R], option: str, place: A) -> R:
    try:
        return check(option, place)
    except CommandFailed as error:
        stop(str(error), error.exit_code, error.hint)


def _check_out_here(out: str, replicas: Mapping[str, Path], data: Path | None) -> None:
    from odradek_audit.inputs.stores import local_name

    place = Path(os.path.realpath(local_name(out)))
    for evidence in replicas.values():
        if place.is_relative_to(evidence):
            stop(f"--out {out} lies in what is audited ({evidence}); choose a directory outside of it")
    if data is not None and place == data.resolve():
        stop(f"--out {out} is what is audited; choose a directory of its own")
    output_directory("--out", local_name(out))
