"""What the commands of all packages share: exit codes, how one fails, the formats of its output, the clusters that
this user has started on this machine."""

from __future__ import annotations

import binascii
import errno
import os
from enum import StrEnum
from io import RawIOBase
from pathlib import Path
from stat import S_ISFIFO
from typing import Final

FINE: Final = 0
FAILED: Final = 1  # or inconclusive
USAGE: Final = 2
FINDINGS: Final = 3
UNREACHABLE: Final = 4
TIMED_OUT: Final = 5
INTERRUPTED: Final = 130

LARGEST_SMALL_FILE = 64 << 20

COMMAND_CONFIG: Final = "ODRADEK_COMMAND_CONFIG"
CURRENT: Final = "current"  # in `home`: a directory a line, that of the default cluster first
STATE_FILE: Final = "cluster.json"  # in a cluster's directory: the addresses of its brokers
CLIENT_SETTINGS: Final = "client.properties"  # beside it, of a cluster that `cluster up --secure` has made
HOW_TO_NAME: Final = "`odradek cluster up` starts a cluster; -b HOST:PORT or ODRADEK_BOOTSTRAP names one"


class CommandFailed(Exception):
    """A command cannot do what it was asked to. `hint` says what to try."""

    def __init__(self, message: str, *, hint: str = "", exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code


class OutputFormat(StrEnum):
    """How data is printed on standard output."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def home() -> Path:
    """Where odradek keeps what it knows of this user's clusters."""
    return Path(os.environ.get("ODRADEK_HOME") or Path.home() / ".odradek")


def check_directory(option: str, path: str | Path) -> Path:
    """A directory that was named, there or not, as an absolute path. Raises `CommandFailed` (2) for what is none and
    cannot become one, and for no name, which would be the directory that one is in."""
    if not path:
        hint = f"{option} DIR; is a variable not set?"
        raise CommandFailed(f"{option}: the name is empty", hint=hint, exit_code=USAGE)
    place = Path(path).absolute()
    there = next(filter(os.path.lexists, (place, *place.parents)))
    if not os.path.isdir(there):
        raise CommandFailed(f"{option} {path}: {there} is no directory", hint="name a directory", exit_code=USAGE)
    return place


def read_small(path: Path) -> bytes:
    """A file that a person has written. Raises `OSError`, also for a device without end and for a pipe without writer.

    Of a pipe that somebody writes into, as of `<(command)`, all is waited for.
    """
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if S_ISFIFO(os.fstat(file.fileno()).st_mode):
            first = file.read(1)  # None: there is a writer, who has written nothing yet
            if first == b"":
                raise OSError(errno.EPIPE, "it is a pipe, and nobody writes into it", str(path))
        else:
            first = b""
        os.set_blocking(file.fileno(), True)
        data = (first or b"") + read_up_to(file, LARGEST_SMALL_FILE)
    if len(data) > LARGEST_SMALL_FILE:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST_SMALL_FILE >> 20} MiB", str(path))
    return data


def read_up_to(file: RawIOBase, limit: int) -> bytes:
    """All that there is, or somewhat more than `limit` bytes."""
    parts, size = [], 0
    while size <= limit and (part := file.read(1 << 20)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def cluster_directories() -> list[Path]:
    """The directory of the default cluster first, if there is one, then of those that were it before."""
    return [Path(os.fsdecode(line)) for line in _lines() if line]


def current_directory() -> Path | None:
    """The directory of the default cluster: the one that was started last, unless it has gone down since."""
    first = next(iter(_lines()), b"")
    return Path(os.fsdecode(first)) if first else None


def _lines() -> list[bytes]:
    """Of the file that remembers clusters; the first is empty when none is the default."""
    try:
        return [line.strip() for line in (home() / CURRENT).read_bytes().splitlines() if b"\0" not in line]
    except OSError:
        return []


def text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    """Bytes as a field of JSON: text, or base64 under another name."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": binascii.b2a_base64(value, newline=False).decode()}
