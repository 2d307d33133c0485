"""What lies in directories, for `odradek log`.

Rule of this module: a directory that may not be read is never an empty one. Whoever takes it for one says that a
replica's records are gone, and tells to remove it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec

from odradek_proto.command_line import CommandFailed

P = ParamSpec("P")

LOST_AND_FOUND: Final = "lost+found"
"""What a file system keeps for itself at its top, often for root alone. It is no name of a topic."""


def entries(directory: Path) -> list[Path]:
    """What is in a directory, sorted. Raises `OSError`."""
    return sorted(directory / name for name in os.listdir(directory))


def segments(directory: Path) -> list[Path]:
    """What has a segment's suffix in a directory, sorted. Raises `OSError`."""
    return [each for each in entries(directory) if each.name.endswith(".log")]


def below(directory: Path) -> list[Path]:
    """All that lies below a directory, sorted; symbolic links are not followed. Raises `OSError`."""
    found: list[Path] = []
    for parent, directories, files in os.walk(directory, onerror=_unless_gone):
        if LOST_AND_FOUND in directories:
            directories.remove(LOST_AND_FOUND)
        found.extend(Path(parent, name) for name in (*directories, *files))
    return sorted(found)


def _unless_gone(error: OSError) -> None:
    """A running broker removes directories of deleted topics meanwhile."""
    if not isinstance(error, FileNotFoundError):
        raise error


def naming_what_may_not_be_read(command: Callable[P, None]) -> Callable[P, None]:
    """A command that ends with code 1 where it may not read something: nothing is said of what nobody has seen."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PermissionError as error:
            raise CommandFailed(
                f"{error.filename} cannot be read: {error.strerror}",
                hint="run this as the user of the broker, or read a copy of which all is yours",
            ) from error

    return run
