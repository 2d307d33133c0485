"""What processes did to one simulated disk, one operation after the other, and what they had promised in between.

A recording is a list that can be saved and replayed (`crash_model.py` does that): from it every disk that a power loss
may have left at any moment can be built again. Files and directories have numbers, since a name may pass from one to
another; 0 is the root. Kills are not in it, for they change no disk.

Rule of this module: only what processes do is seen. Faults that change bytes behind their back (a flipped bit, a wiped
directory) are not, and a recording made under them is worth nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from odradek_proto.values import Value

from odradek_chaos.worlds.simulated.disk.inodes import Directory, Entry, Inode

ROOT = 0
ABSENT = -1


class RecordedInode(Value, frozen=True, tag=True):
    """A file or directory as it was when the recording began or the machine came back, durable as a whole."""

    number: int
    content: bytes | None  # None: a directory
    entries: dict[str, int]


class Begin(Value, frozen=True, tag=True):
    """The disk is this from here on, and all of it is durable: the beginning, and after every power loss."""

    nodes: list[RecordedInode]


class Write(Value, frozen=True, tag=True):
    """Bytes go to a place of a file, in the page cache."""

    file: int
    offset: int
    data: bytes


class FileTruncation(Value, frozen=True, tag=True):
    """A file gets another size, in the page cache."""

    file: int
    size: int


class Fsync(Value, frozen=True, tag=True):
    """A file's bytes and size are durable."""

    file: int


class EntryChange(Value, frozen=True):
    """One name of a directory stands for another file or directory now, or for none (`ABSENT`)."""

    name: str
    node: int
    is_directory: bool = False


class DirectoryChange(Value, frozen=True, tag=True):
    """Steps in one directory that happen as one: a create, a remove, a rename."""

    directory: int
    steps: list[EntryChange]


class FsyncDir(Value, frozen=True, tag=True):
    """The entries of a directory are durable."""

    directory: int


class LogPromise(Value, frozen=True):
    """What the log of one partition has promised: everything from `start` to `recovery_point` is on the disk.

    `life` is another number whenever the log was opened anew.
    """

    recovery_point: int
    start: int
    life: int


class DurabilityMark(Value, frozen=True, tag=True):
    """What was promised at this moment: by directory name of the partition. `gone` were deleted on purpose.

    A partition that is not named, since its broker is just starting, has promised what it had promised before.
    """

    logs: dict[str, LogPromise]
    gone: tuple[str, ...] = ()
    word: str = ""  # for people


Operation = Begin | Write | FileTruncation | Fsync | DirectoryChange | FsyncDir | DurabilityMark


class Recorder:
    """Hangs on a `SimDisk` and writes down what happens there."""

    def __init__(self, root: Directory) -> None:
        self.operations: list[Operation] = []
        self._numbers: dict[int, int] = {}
        self._known: list[Entry] = []  # keeps them alive: an id must not pass to another object
        self.begin(root)

    def begin(self, root: Directory) -> None:
        """The disk is as `root` says, all of it durable."""
        nodes: list[RecordedInode] = []
        self._gather(root, nodes)
        self.operations.append(Begin(nodes))

    def _gather(self, entry: Entry, nodes: list[RecordedInode]) -> None:
        number = self._number(entry)  # before those of its entries: the root is 0
        if isinstance(entry, Inode):
            nodes.append(RecordedInode(number, bytes(entry.data), {}))
            return
        entries = {name: self._number(child) for name, child in entry.entries.items()}
        nodes.append(RecordedInode(number, None, entries))
        for child in entry.entries.values():
            self._gather(child, nodes)

    def _number(self, entry: Entry) -> int:
        number = self._numbers.get(id(entry))
        if number is None:
            number = self._numbers[id(entry)] = len(self._known)
            self._known.append(entry)
        return number

    def write(self, file: Inode, offset: int, data: bytes) -> None:
        if data:
            self.operations.append(Write(self._number(file), offset, data))

    def truncate(self, file: Inode, size: int) -> None:
        self.operations.append(FileTruncation(self._number(file), size))

    def fsync(self, file: Inode) -> None:
        self.operations.append(Fsync(self._number(file)))

    def change(self, directory: Directory, steps: Iterable[tuple[str, Entry | None]]) -> None:
        made = [
            EntryChange(name, ABSENT if entry is None else self._number(entry), isinstance(entry, Directory))
            for name, entry in steps
        ]
        self.operations.append(DirectoryChange(self._number(directory), made))

    def fsync_dir(self, directory: Directory) -> None:
        self.operations.append(FsyncDir(self._number(directory)))

    def mark(self, mark: DurabilityMark) -> None:
        self.operations.append(mark)


def save(operations: list[Operation]) -> bytes:
    """A recording as bytes (msgpack)."""
    return msgspec.msgpack.encode(operations)


def load(content: bytes) -> list[Operation]:
    """The recording that `save` made bytes of. Raises `msgspec.DecodeError`."""
    return msgspec.msgpack.decode(content, type=list[Operation])
