"""Small files that are replaced whole, and files that go.

Replacing: the new content goes to a temporary file, which then takes the name (R-2). A reader, after a crash too, sees
the old content or the new one. Whether the new one survives a power loss is another matter: only with `durable` it
does, and then only because of the flush of the directory.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_proto.transport.ports import Files

TEMPORARY_SUFFIX = ".tmp"


def replace_file(
    files: Files, directory: str, name: str, content: bytes, *, durable: bool, suffix: str = TEMPORARY_SUFFIX
) -> None:
    """Replace `directory/name` by `content`. Raises `OSError`; the old content then still stands.

    Two who may replace the same file at the same time need a `suffix` each.
    Without `durable` nothing is flushed: after a power loss the name may have the old content, or a part of the new.
    Only the leader epochs are written so, which can be told apart from a part of them and found again in the log.
    """
    path = f"{directory}/{name}"
    temporary = path + suffix
    file = files.open(temporary, create=True)
    try:
        if file.size():  # somebody was killed before it had its name
            file.truncate(0)
        file.pwritev([content], 0)
        if durable:
            file.fsync()
    finally:
        file.close()
    files.rename(temporary, path)
    if durable:
        files.fsync_dir(directory)


def read_file(files: Files, path: str) -> bytes | None:
    """The whole content of a file; None when it is absent."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.pread(0, file.size())
    finally:
        file.close()


def remove_files(files: Files, paths: Iterable[str]) -> None:
    """Remove those that are there. Raises `OSError`."""
    for path in paths:
        if files.exists(path):
            files.remove(path)
