"""From one moment of a recording to the disks that a power loss may leave there.

Each file and each directory is varied alone (`crash_model.py`). While the combinations are few all of them are made;
else the extremes, each thing alone at its worst, and a sample by chance.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from odradek_chaos.worlds.simulated.crash.model import DiskModel
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.inodes import Directory, Inode
from odradek_chaos.worlds.simulated.disk.recording import ROOT

Tree = tuple[tuple[str, object], ...]  # (name, content or tree), sorted by name


class CrashState:
    """One disk after a power loss: which variant of each file and directory it consists of."""

    __slots__ = ("_listings", "contents", "fates")

    def __init__(
        self, listings: dict[int, dict[str, int]], contents: dict[int, bytes], fates: Mapping[int, str]
    ) -> None:
        self._listings = listings
        self.contents = contents
        self.fates = fates  # by number, of what is not as it was in the page cache

    def tree(self, number: int = ROOT) -> Tree:
        """Everything in it as nested tuples, which can be compared and hashed."""
        listings, contents = self._listings, self.contents
        return tuple(
            (name, self.tree(node) if node in listings else contents[node]) for name, node in listings[number].items()
        )

    def entries(self, directory: int) -> dict[str, int] | None:
        """The numbers of what is in a directory."""
        return self._listings.get(directory)

    def paths(self) -> Iterator[tuple[str, int]]:
        """Every file and directory with its number, `/` among them."""
        waiting = [("", ROOT)]
        while waiting:
            path, number = waiting.pop()
            yield path or "/", number
            waiting.extend((f"{path}/{name}", node) for name, node in self._listings.get(number, {}).items())

    def disk(self) -> SimDisk:
        """A disk of its own with this on it, all of it durable."""
        disk = SimDisk(random.Random(0))
        disk.root = self._directory(ROOT)
        return disk

    def _directory(self, number: int) -> Directory:
        made = Directory()
        for name, node in self._listings[number].items():
            made.entries[name] = self._directory(node) if node in self._listings else _file(self.contents[node])
        made.durable = dict(made.entries)
        return made

    def describe(self) -> str:
        """What is not as it was in the page cache, for people."""
        named = {number: path for path, number in self.paths()}
        return ", ".join(f"{named[number]}: {fates}" for number, fates in sorted(self.fates.items()) if number in named)


def _file(content: bytes) -> Inode:
    inode = Inode()
    inode.data = bytearray(content)
    inode.durable_size = len(content)
    return inode


def crash_states(model: DiskModel, rng: random.Random, limit: int) -> Iterator[CrashState]:
    """The states at this moment: all of them when they are at most `limit`, else about so many. Some may be equal."""
    directories, files = model.reachable()
    listings = {number: model.directories[number].listings(rng) for number in directories}
    contents = {number: model.files[number].contents(rng) for number in files}
    sizes = {number: len(variants) for number, variants in listings.items()}
    sizes |= {number: len(variants) for number, variants in contents.items()}
    open_ones = [number for number, size in sizes.items() if size > 1]
    newest = {number: size - 1 for number, size in sizes.items()}
    for choice in _choices(open_ones, sizes, set(directories), rng, limit):
        chosen = newest | choice
        yield CrashState(
            {number: variants[chosen[number]][1] for number, variants in listings.items()},
            {number: variants[chosen[number]][1] for number, variants in contents.items()},
            {
                number: (listings if number in listings else contents)[number][place][0]
                for number, place in choice.items()
                if place != newest[number]
            },
        )


def _choices(
    numbers: list[int], sizes: dict[int, int], directories: set[int], rng: random.Random, limit: int
) -> Iterator[dict[int, int]]:
    """Which variant each takes: 0 is nothing that was not flushed, the last one everything."""
    if prod(sizes[number] for number in numbers) <= limit:
        for combination in product(*(range(sizes[number]) for number in numbers)):
            yield dict(zip(numbers, combination, strict=True))
        return
    last = {number: sizes[number] - 1 for number in numbers}
    yield {}
    yield dict.fromkeys(numbers, 0)
    yield {number: last[number] if number in directories else 0 for number in numbers}
    yield {number: 0 if number in directories else last[number] for number in numbers}
    made = 4
    for number in numbers:
        yield {number: 0}
        yield {other: 0 for other in numbers if other != number}
        yield {number: rng.randrange(sizes[number])}
        made += 3
    while made < limit:
        made += 1
        old, odd = rng.random() * 0.6, rng.random() * 0.6
        choice: dict[int, int] = {}
        for number in numbers:
            dice = rng.random()
            if dice < odd:
                choice[number] = rng.randrange(sizes[number])
            elif dice < odd + old:
                choice[number] = 0
        yield choice
