"""Files that a command writes at its end are tried at its start: nobody wants to wait for what is lost then."""

from __future__ import annotations

from pathlib import Path

from odradek_proto.command_line import USAGE, CommandFailed


def must_be_writable(option: str, file: Path | None) -> None:
    """Leaves the file as it is, or away. Raises `CommandFailed` when it cannot be written.

    A pipe or a device is not tried: whoever reads a pipe would take that for all of it.
    """
    if file is None:
        return
    try:
        was_there = file.exists()
        if was_there and not file.is_file() and not file.is_dir():
            return
        file.open("a").close()
        if not was_there:
            file.unlink()
    except OSError as error:
        raise CommandFailed(
            f"{option} {file}: {error.strerror or error}", hint="give a file that can be written", exit_code=USAGE
        ) from error
