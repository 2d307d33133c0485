"""Log directories where they lie: on this machine, or in an object store or HDFS through pyarrow's file systems, or
through fsspec's.

A place is a local path (`/copies/b1`, `file:///copies/b1`) or a URI (`s3://bucket/b1`). What a file system must be told
stands behind a question mark, `s3://bucket/b1?endpoint_override=http://localhost:9000&region=eu-west-1`, with pyarrow's
names; credentials come from the environment alone, for places are printed. Nothing here writes but `upload`.
"""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from odradek_audit.inputs.disk import FileSystem, LocalDisk, join

ARROW = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "hdfs": "hdfs", "viewfs": "viewfs"} | {
    name: name for name in ("abfs", "abfss")
}
"""Schemes that pyarrow itself knows, Hadoop's other names for them included; all else is asked of fsspec."""
WILD = "*?["
OPEN_FILES = 8
REFUSED = ("ACCESS_DENIED", "AccessDenied", "PERMISSION_DENIED")  # how stores say that somebody may not read

Options = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""By `scheme://authority`: what its file system is told."""


def is_uri(place: str) -> bool:
    """Whether a place is not on this machine."""
    return "://" in place and not place.startswith("file:")


def local_name(place: str) -> str:
    """The path of a place on this machine as it was given, empty where none was."""
    path = place.removeprefix("file:")
    return "/" + path.lstrip("/") if path.startswith("//") else path


def local_path(place: str) -> Path:
    """A place on this machine as an absolute path."""
    return Path(local_name(place)).resolve()


def located(places: Mapping[str, str | Path]) -> tuple[FileSystem, dict[str, str]]:
    """The disk that reads some places, and their paths on it, under the same names. Raises `ValueError`."""
    paths: dict[str, str] = {}
    options: dict[str, dict[str, str]] = {}
    for name, place in places.items():
        if isinstance(place, Path) or not is_uri(place):
            paths[name] = str(place) if isinstance(place, Path) else str(local_path(place))
            continue
        parts = urlsplit(place)
        if ":" in parts.netloc.rpartition("@")[0]:
            raise ValueError(f"{parts.scheme}://...@{parts.netloc.rpartition('@')[2]}: credentials belong into the "
                             "environment, where nobody prints them")  # fmt: skip
        root = f"{parts.scheme}://{parts.netloc}"
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        if given and options.get(root, given) != given:
            raise ValueError(f"{place}: {root} is given with different options elsewhere")
        options.setdefault(root, {}).update(given)
        paths[name] = root + parts.path.rstrip("/")
    if not options:
        return LocalDisk(), paths
    return StoreDisk(tuple((root, tuple(sorted(given.items()))) for root, given in sorted(options.items()))), paths


class StoreDisk:
    """Reads places of every kind. Goes to other processes without what it has listed and opened.

    What it was told of a directory's files stays true while it lives: an audit's copies do not change.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.known: dict[str, dict[str, Any]] = {}

    def __reduce__(self) -> tuple[type[StoreDisk], tuple[Options]]:
        return StoreDisk, (self.options,)

    def list(self, path: str) -> list[str]:
        if not is_uri(path):
            return LocalDisk().list(path)
        if path not in self.known:
            from pyarrow.fs import FileSelector

            with _as_os_errors(path):
                system, inside = self._system(path)
                entries = system.get_file_info(FileSelector(inside))
            self.known[path] = {entry.base_name: entry for entry in entries if entry.base_name}
        return sorted(self.known[path])

    def is_dir(self, path: str) -> bool:
        return LocalDisk().is_dir(path) if not is_uri(path) else bool(self._kind(path) == "Directory")

    def is_file(self, path: str) -> bool:
        return LocalDisk().is_file(path) if not is_uri(path) else bool(self._kind(path) == "File")

    def size(self, path: str) -> int:
        if not is_uri(path):
            return LocalDisk().size(path)
        info = self._info(path)
        if info.size is None:
            raise FileNotFoundError(f"{path}: there is no such file")
        return int(info.size)

    def read(self, path: str, position: int, length: int) -> bytes:
        if not is_uri(path):
            return LocalDisk().read(path, position, length)
        with _as_os_errors(path):
            opened, size = _opened(*self._root(path))
            return bytes(opened.read_at(min(length, size - position), position)) if position < size else b""

    def _kind(self, path: str) -> str:
        return str(self._info(path).type.name)

    def _info(self, path: str) -> Any:
        directory, _, name = path.rpartition("/")
        if directory in self.known and name in self.known[directory]:
            return self.known[directory][name]
        with _as_os_errors(path):
            system, inside = self._system(path)
            return system.get_file_info(inside)

    def _root(self, path: str) -> tuple[str, tuple[tuple[str, str], ...], str]:
        parts = urlsplit(path)
        root = f"{parts.scheme}://{parts.netloc}"
        return root, dict(self.options).get(root, ()), path.removeprefix(root)

    def _system(self, path: str) -> tuple[Any, str]:
        root, options, rest = self._root(path)
        system, top = _file_system(root, options)
        return system, _inside(top, rest)


def _inside(top: str, rest: str) -> str:
    return f"{top.rstrip('/')}{rest}" or "/"


@lru_cache(maxsize=16)
def _file_system(root: str, options: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """pyarrow's file system of a store, and its path of the store's root. Raises `OSError`."""
    scheme, _, authority = root.partition("://")
    try:
        from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem
    except ImportError:
        raise OSError(f"{root}: reading from there needs pyarrow (odradek[audit]; for Spark, odradek audit package "
                      "--with pyarrow)") from None  # fmt: skip
    if scheme in ARROW:
        query = f"?{urlencode(options)}" if options else ""
        system, top = FileSystem.from_uri(f"{ARROW[scheme]}://{authority}/{query}")
        return system, top
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        known = ", ".join(sorted(ARROW))
        raise OSError(f"{root}: {known} are read by pyarrow, all else needs fsspec (odradek[fsspec])") from None
    found, top = url_to_fs(f"{root}/", **dict(options))
    return PyFileSystem(FSSpecHandler(found)), top


@lru_cache(maxsize=OPEN_FILES)
def _opened(root: str, options: tuple[tuple[str, str], ...], rest: str) -> tuple[Any, int]:
    """An open file and its size: opening it again for every piece would cost a request each."""
    system, top = _file_system(root, options)
    opened = system.open_input_file(_inside(top, rest))
    return opened, opened.size()


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """What a file system raises as the `OSError` that the audit expects; one of permissions is told from others."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        text = str(error)
        kind = PermissionError if any(word in text for word in REFUSED) else OSError
        if isinstance(error, OSError) and kind is OSError:
            raise
        raise kind(f"{path}: {text or type(error).__name__}") from error


def expanded(disk: FileSystem, place: str) -> list[str]:
    """The directories that a place with wildcards (`*`, `?`, `[...]`, each within one name) means, sorted."""
    if not any(sign in place for sign in WILD):
        return [place]
    scheme, separator, rest = place.rpartition("://")
    names = rest.split("/")
    first = next(index for index, name in enumerate(names) if any(sign in name for sign in WILD))
    found = [scheme + separator + "/".join(names[:first])]
    for name in names[first:]:
        if any(sign in name for sign in WILD):
            found = [
                join(path, each) for path in found for each in disk.list(path or "/") if fnmatch.fnmatch(each, name)
            ]
        else:
            found = [join(path, name) for path in found]
        found = [path for path in found if disk.is_dir(path)]
    return found


def upload(files: Iterable[Path], target: str) -> None:
    """Copy results into a directory of a store, replacing what has their names. Raises `OSError`, `ValueError`."""
    disk, paths = located({"": target})
    assert isinstance(disk, StoreDisk), target
    with _as_os_errors(target):
        system, inside = disk._system(paths[""])
        system.create_dir(inside, recursive=True)
        for file in files:
            with file.open("rb") as source, system.open_output_stream(join(inside, file.name)) as sink:
                shutil.copyfileobj(source, sink)


def names_in(target: str) -> frozenset[str]:
    """What is in a directory of a store or of this machine; nothing where there is none. Raises `OSError`."""
    disk, paths = located({"": target})
    try:
        return frozenset(disk.list(paths[""]))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
