"""`odradek audit package`: the audit as an archive for executors that have Python and pyspark and nothing else.

In it are the audit, the part of odradek_proto that it imports, and as they are installed here the packages that both
need: crc32c and msgspec, the codecs' libraries where they are, and whatever else is asked for with its dependencies.
These hold C code, so the archive is for this Python and kind of machine, and says so to `audit_job.py`.
"""

from __future__ import annotations

import gzip
import io
import json
import platform
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import odradek_proto

import odradek_audit
from odradek_audit.spark import audit_job

NEEDED = ("crc32c", "msgspec")
CODECS = ("lz4", "zstandard", "cramjam")
ON_EVERY_EXECUTOR = frozenset({"pyspark", "py4j"})
LEFT_OUT = frozenset({"__pycache__", "tests", "include", "odradek_audit/cli", "odradek_proto/v1"})
"""Folders that no executor needs: of tests, of headers for compilers, of odradek's command and gRPC messages."""
_NAME = re.compile(r"[\w.-]+", re.ASCII)


class NotInstalled(ValueError):
    """A package that the archive should have is not installed here. `hint` says what to try."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def write_package(folder: Path, also: Sequence[str] = ()) -> list[str]:
    """Write the archive and `audit_job.py` into a folder; returns names and versions of what is inside.

    The same packages give the same bytes. Raises `NotInstalled`, `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = _distributions([*NEEDED, *(name for name in CODECS if _is_installed(name)), *also])
    files: dict[str, Path] = {}
    for package in (odradek_audit, odradek_proto):
        top = Path(str(package.__file__)).parent
        files |= {f"{top.name}/{path.relative_to(top)}": path for path in top.rglob("*") if path.is_file()}
    for distribution in found:
        files |= dict(_files_of(distribution))
    inside = [f"{each.metadata['Name']} {each.version}" for each in found]
    manifest = {
        "python": ".".join(map(str, sys.version_info[:2])),
        "machine": f"{sys.platform}-{platform.machine()}",
        "packages": inside,
    }
    with (
        (folder / audit_job.ARCHIVE).open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        _add(archive, audit_job.MANIFEST, json.dumps(manifest, indent=1).encode())
        for name, path in sorted(files.items()):
            if not LEFT_OUT.intersection([*Path(name).parts[:-1], "/".join(Path(name).parts[:2])]):
                _add(archive, name, path.read_bytes())
    source = Path(str(audit_job.__file__))
    (folder / source.name).write_bytes(source.read_bytes())
    return inside


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    archive.addfile(entry, io.BytesIO(data))


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _distributions(names: Sequence[str]) -> list[metadata.Distribution]:
    """These and what they need, each once. Raises `NotInstalled`."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [(name, "") for name in names]
    while waiting:
        wanted, marker = waiting.pop()
        match = _NAME.match(wanted)
        if match is None:
            raise NotInstalled(f"{wanted!r} is no name of a package", hint="as pip has it, for example pyarrow")
        name = match[0].lower().replace("_", "-")
        if name in found or name in ON_EVERY_EXECUTOR or "extra" in marker:
            continue
        if not _is_installed(name):
            if marker:  # for another Python or system
                continue
            raise NotInstalled(f"{name} is not installed here", hint=f"pip install {name}")
        found[name] = metadata.distribution(name)
        waiting += [(line.partition(";")[0], line.partition(";")[2]) for line in found[name].requires or ()]
    return [found[name] for name in sorted(found)]


def _files_of(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    for entry in distribution.files or ():
        path = Path(str(distribution.locate_file(entry)))
        if ".." not in entry.parts and path.is_file():  # scripts of a distribution lie above its packages
            yield str(entry), path
