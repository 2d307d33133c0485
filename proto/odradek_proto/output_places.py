"""Where a command may write what its user names: in no broker's log directory, and not where it would fail at the end.

All commands that write ask here, before their work: results over a segment are lost records, and nobody wants to wait
for what is lost then. Beside brokers' directories, in that of a cluster, there may be files and directories of one's
own.
"""

from __future__ import annotations

import os
from pathlib import Path

from odradek_proto.command_line import STATE_FILE, USAGE, CommandFailed, check_directory


def brokers_file(place: Path) -> Path | None:
    """What says that a directory is a cluster's, or is or lies in a broker's log directory; None when nothing does."""
    from odradek_proto.formats import META_PROPERTIES  # a command's help does without

    above = [each / META_PROPERTIES for each in (place, *place.parents)]
    below = [place / STATE_FILE]
    if place.is_dir() and os.access(place, os.R_OK | os.X_OK):
        below += sorted(each.parent for each in place.glob(f"*/{META_PROPERTIES}"))
    return next((each for each in above + below if os.path.exists(each)), None)


def check_output_file(option: str, file: Path | None) -> None:
    """Leaves the file as it is, or away. Raises `CommandFailed` (2) where none may be, or none can be written.

    A pipe or a device is not tried: whoever reads a pipe would take that for all of it.
    """
    if file is None:
        return
    place = Path(os.path.realpath(file))  # of a link to itself, too
    if (found := brokers_file(place)) is not None or (found := brokers_file(place.parent)) == place:
        raise _of_brokers(option, file, found)
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


def check_output_directory(option: str, directory: Path | str) -> Path:
    """The absolute path; makes nothing. Raises `CommandFailed` (2) where no directory of one's own may be, or nothing
    can be written."""
    import tempfile

    named = check_directory(option, directory)
    place = Path(os.path.realpath(named))
    if (found := brokers_file(place)) is not None:
        raise _of_brokers(option, directory, found)
    there = next(each for each in (place, *place.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise CommandFailed(
            f"{option} {directory}: {f'{there}: ' if there != place else ''}{error.strerror or error}",
            hint="name a directory that you may write to",
            exit_code=USAGE,
        ) from error
    return named


def _of_brokers(option: str, place: Path | str, found: Path | None) -> CommandFailed:
    return CommandFailed(
        f"{option} {place} is no place to write to: brokers keep their data there ({found})",
        hint="name another place, outside of brokers' directories",
        exit_code=USAGE,
    )
