"""A recorded disk at one moment: the page cache, what is durable, and every disk that a power loss may leave.

What is legal. A file has the bytes of its last fsync; of each write since then every sector of 512 bytes got to the
disk or did not, alone. A sector is old or new as a whole: when a write to it is lost, so is every later one, until a
truncation frees it. A size may be there without the data: then there are zeros, or in sectors that are new to the file
anything at all. A truncation may be lost, too. Of a directory each change since its last fsync happened or did not, in
any combination; a rename happens as one. Nothing relates one file to another, or a file to its directory, but fsync.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

from odradek_chaos.worlds.simulated.disk.inodes import SECTOR
from odradek_chaos.worlds.simulated.disk.recording import (
    ABSENT,
    ROOT,
    Begin,
    DirectoryChange,
    DurabilityMark,
    FileTruncation,
    Fsync,
    FsyncDir,
    Operation,
    Write,
)

PRESENT, LOST, EMPTY, SHORT, ZEROS, GARBAGE = "+-0szg"  # fates of a write; a torn one is one of the last three
TORN = (SHORT, ZEROS, GARBAGE)
FILE_LIMIT, DIRECTORY_LIMIT = 40, 32  # combinations of fates that are tried one and all
RECENT = 12  # operations whose fate varies, when there are many
Fates = tuple[str, ...]


class FileModel:
    """One file: `current` is the page cache, `durable` what the last fsync made sure of, `pending` what came since."""

    __slots__ = ("_contents", "current", "durable", "pending")

    def __init__(self, content: bytes = b"") -> None:
        self.current = bytearray(content)
        self.durable = content
        self.pending: list[Write | FileTruncation] = []
        self._contents: list[tuple[str, bytes]] | None = None

    def apply(self, operation: Write | FileTruncation) -> None:
        self.pending.append(operation)
        self._contents = None
        put(self.current, operation)

    def fsync(self) -> None:
        if self.pending:
            self.durable = bytes(self.current)
            self.pending.clear()
            self._contents = None

    def contents(self, rng: random.Random) -> list[tuple[str, bytes]]:
        """What a power loss may leave, each with the fates that led there: first nothing of it, last all of it."""
        if self._contents is None:
            self._contents = list(self._vary(rng))
        return self._contents

    def _vary(self, rng: random.Random) -> Iterator[tuple[str, bytes]]:
        if not self.pending:
            yield "", self.durable
            return
        newest = bytes(self.current)
        seen = {newest}
        if self.durable != newest:
            seen.add(self.durable)
            yield LOST * len(self.pending), self.durable
        settled, varying = self.durable, self.pending
        if len(varying) > 2 * RECENT:
            early = bytearray(settled)
            for operation in varying[:-RECENT]:
                put(early, operation)
            settled, varying = bytes(early), varying[-RECENT:]
        for fates in fates_of(varying, rng):
            content = leave(settled, varying, fates, rng)
            if content not in seen:
                seen.add(content)
                yield "".join(fates), content
        if len(varying) < len(self.pending):  # one of the early ones is missing
            missing, fate = rng.randrange(len(self.pending)), rng.choice((LOST, EMPTY))
            fates = tuple(PRESENT if place != missing else fate for place in range(len(self.pending)))
            content = leave(self.durable, self.pending, fates, rng)
            if content not in seen:
                yield "early", content
        yield PRESENT, newest


def put(content: bytearray, operation: Write | FileTruncation) -> None:
    """Carry out an operation as a whole."""
    if isinstance(operation, FileTruncation):
        del content[operation.size :]
        content.extend(bytes(operation.size - len(content)))
        return
    offset, data = operation.offset, operation.data
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def choices_of(operation: Write | FileTruncation) -> str:
    """The fates that an operation may have; of a write within one sector nothing is left when it is torn."""
    if isinstance(operation, FileTruncation):
        return PRESENT + LOST
    torn = operation.offset // SECTOR != (operation.offset + len(operation.data) - 1) // SECTOR
    return PRESENT + LOST + EMPTY + ("".join(TORN) if torn else GARBAGE)


def fates_of(operations: Sequence[Write | FileTruncation], rng: random.Random) -> Iterator[Fates]:
    """All combinations while they are few, else the extremes, each one missing alone, and a sample."""
    choices = [choices_of(operation) for operation in operations]
    combinations = 1
    for each in choices:
        combinations *= len(each)
    if combinations <= FILE_LIMIT:
        yield from product(*choices)
        return
    count = len(operations)
    for place in range(count):
        for fate in (LOST, rng.choice(choices[place][1:])):
            yield tuple(PRESENT if other != place else fate for other in range(count))
    for fate in choices[-1]:
        yield (*(PRESENT,) * (count - 1), fate)
    for _ in range(RECENT):
        gone = rng.random()
        kept = rng.randint(0, count)  # everything later is as good as gone
        yield tuple(
            rng.choice(each[1:]) if rng.random() < (gone if place < kept else 0.9) else PRESENT
            for place, each in enumerate(choices)
        )


def leave(durable: bytes, operations: Sequence[Write | FileTruncation], fates: Fates, rng: random.Random) -> bytes:
    """The content when each operation had this fate."""
    content = bytearray(durable)
    stuck: set[int] = set()  # sectors that a lost write keeps from getting anything newer
    new_from = -(-len(durable) // SECTOR)
    for operation, fate in zip(operations, fates, strict=True):
        if isinstance(operation, FileTruncation):
            if fate == PRESENT:
                put(content, operation)
                stuck = {sector for sector in stuck if sector * SECTOR < operation.size}
                new_from = min(new_from, -(-operation.size // SECTOR))
            continue
        offset, data = operation.offset, operation.data
        end = offset + len(data)
        first, last = offset // SECTOR, (end - 1) // SECTOR
        if fate == PRESENT and not stuck:
            put(content, operation)
            continue
        kept = last + 1 if fate == PRESENT else first
        if fate in TORN and first < last:
            kept = rng.randint(first + 1, last)
        shown = end if fate not in (LOST, SHORT) else min(end, kept * SECTOR)
        if fate != LOST and shown > len(content):
            content.extend(bytes(shown - len(content)))
        for sector in range(first, last + 1):
            start, stop = max(offset, sector * SECTOR), min(end, sector * SECTOR + SECTOR)
            if sector >= kept:
                stuck.add(sector)
                if fate == GARBAGE and sector >= new_from:
                    content[start:stop] = rng.randbytes(stop - start)
            elif sector not in stuck:
                content[start:stop] = data[start - offset : stop - offset]
    return bytes(content)


class DirectoryModel:
    """One directory: the entries now, those of the last fsync, and the changes since."""

    __slots__ = ("_listings", "current", "durable", "pending")

    def __init__(self, entries: dict[str, int] | None = None) -> None:
        self.current = dict(entries or {})
        self.durable = dict(self.current)
        self.pending: list[DirectoryChange] = []
        self._listings: list[tuple[str, dict[str, int]]] | None = None

    def apply(self, change: DirectoryChange) -> None:
        self.pending.append(change)
        self._listings = None
        rearrange(self.current, change)

    def fsync(self) -> None:
        if self.pending:
            self.durable = dict(self.current)
            self.pending.clear()
            self._listings = None

    def nodes(self) -> set[int]:
        """Everything that may be found in it."""
        changed = {step.node for change in self.pending for step in change.steps if step.node != ABSENT}
        return changed.union(self.current.values(), self.durable.values())

    def listings(self, rng: random.Random) -> list[tuple[str, dict[str, int]]]:
        """What a power loss may leave: first nothing that is not durable, last everything."""
        if self._listings is None:
            found: dict[tuple[tuple[str, int], ...], str] = {}
            newest = tuple(sorted(self.current.items()))
            for fates in self._vary(len(self.pending), rng):
                entries = dict(self.durable)
                for change, happened in zip(self.pending, fates, strict=True):
                    if happened:
                        rearrange(entries, change)
                listing = tuple(sorted(entries.items()))
                if listing != newest:
                    found.setdefault(listing, "".join(PRESENT if each else LOST for each in fates))
            found[newest] = PRESENT
            self._listings = [(label, dict(listing)) for listing, label in found.items()]
        return self._listings

    @staticmethod
    def _vary(count: int, rng: random.Random) -> Iterator[Sequence[bool]]:
        if 2**count <= DIRECTORY_LIMIT:
            yield from product((False, True), repeat=count)
            return
        yield (False,) * count
        for place in range(max(0, count - RECENT), count):
            yield [other != place for other in range(count)]
            yield [other == place for other in range(count)]
            yield [other < place for other in range(count)]
        for _ in range(RECENT):
            share = rng.random()
            yield [rng.random() < share for _ in range(count)]


def rearrange(entries: dict[str, int], change: DirectoryChange) -> None:
    for step in change.steps:
        if step.node == ABSENT:
            entries.pop(step.name, None)
        else:
            entries[step.name] = step.node


class DiskModel:
    """A whole disk, taken through a recording."""

    def __init__(self) -> None:
        self.files: dict[int, FileModel] = {}
        self.directories: dict[int, DirectoryModel] = {ROOT: DirectoryModel()}

    def apply(self, operation: Operation) -> None:
        match operation:
            case Write() | FileTruncation():
                self.files[operation.file].apply(operation)
            case Fsync():
                self.files[operation.file].fsync()
            case DirectoryChange():
                for step in operation.steps:
                    if step.is_directory:
                        self.directories.setdefault(step.node, DirectoryModel())
                    elif step.node != ABSENT:
                        self.files.setdefault(step.node, FileModel())
                self.directories[operation.directory].apply(operation)
            case FsyncDir():
                self.directories[operation.directory].fsync()
            case Begin():
                self.files = {
                    node.number: FileModel(node.content) for node in operation.nodes if node.content is not None
                }
                self.directories = {
                    node.number: DirectoryModel(node.entries) for node in operation.nodes if node.content is None
                }
            case DurabilityMark():
                pass

    def reachable(self) -> tuple[list[int], list[int]]:
        """Numbers of the directories and of the files that a power loss may leave somewhere, and forget the others."""
        directories, files, waiting = [], [], [ROOT]
        known = {ROOT}
        while waiting:
            number = waiting.pop()
            directory = self.directories.get(number)
            if directory is None:
                files.append(number)
                continue
            directories.append(number)
            found = sorted(directory.nodes() - known)
            known.update(found)
            waiting.extend(found)
        return directories, files

    def find(self, path: str) -> int:
        """The number of what has this path now, `ABSENT` for nothing."""
        number = ROOT
        for name in path.split("/"):
            if name:
                directory = self.directories.get(number)
                if directory is None or name not in directory.current:
                    return ABSENT
                number = directory.current[name]
        return number
