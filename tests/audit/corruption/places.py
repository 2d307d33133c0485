"""Where damage can be planted: the batches of a partition's directory, and small changes to files around them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crc32c import crc32c
from odradek_proto.formats import (
    CLEAN_SHUTDOWN,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    decode_offset_checkpoint,
    decode_transaction_index,
    encode_offset_checkpoint,
    encode_transaction_index,
)
from odradek_proto.records import BatchHeader, iter_batches
from odradek_proto.topics import TopicPartition, parse_partition_directory

T = TypeVar("T")
CRC_FIELD = slice(17, 21)
CRC_START = 21
EPOCH_FIELD = slice(12, 16)


class NothingToDamage(ValueError):
    """The partition has no place where this kind of damage could be planted."""


@dataclass(frozen=True)
class Planted:
    """What was done and what must be found. `offset` and `epoch` are those that the finding names; -1: it names
    none."""

    kind: str
    check: str
    offset: int
    epoch: int
    file: str


@dataclass(frozen=True)
class Place:
    """A batch in a segment's file."""

    segment: Path
    position: int
    header: BatchHeader

    @property
    def data(self) -> bytes:
        return self.segment.read_bytes()[self.position : self.end]

    @property
    def end(self) -> int:
        return self.position + self.header.size


def places_of(directory: Path) -> list[Place]:
    return [
        Place(path, position, header)
        for path in sorted(directory.glob("*.log"))
        for position, header in iter_batches(path.read_bytes())
    ]


def first_of(found: Iterable[T], otherwise: str) -> T:
    """The first of what was found. Raises `NothingToDamage` when nothing was."""
    for each in found:
        return each
    raise NothingToDamage(otherwise)


def inner_place(
    directory: Path, rng: random.Random, fits: Callable[[Place], bool] = lambda place: True, what: str = ""
) -> Place:
    """A batch that is neither the first nor the last of its segment, and fits. Raises `NothingToDamage`."""
    places = places_of(directory)
    inner = [
        place
        for before, place, after in zip(places, places[1:], places[2:], strict=False)
        if before.segment == place.segment == after.segment and fits(place)
    ]
    if not inner:
        raise NothingToDamage(f"{directory.name} has no segment with three batches{what}")
    return rng.choice(inner)


def rewrite(place: Place, change: Callable[[bytearray], None]) -> None:
    data = bytearray(place.segment.read_bytes())
    change(data)
    place.segment.write_bytes(data)


def drop_indexes(segment: Path) -> None:
    """A broker builds missing indexes anew (R-236); what is planted is to be found in the log alone."""
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        segment.with_suffix(suffix).unlink(missing_ok=True)


def rewrite_batch(place: Place, change: Callable[[bytearray], None]) -> None:
    """Change a batch in its place and make its CRC right again."""

    def change_file(data: bytearray) -> None:
        batch = data[place.position : place.end]
        change(batch)
        batch[CRC_FIELD] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
        data[place.position : place.end] = batch

    rewrite(place, change_file)


def log_end_of(directory: Path) -> tuple[int, int]:
    """Log end offset and newest leader epoch. Raises `NothingToDamage` for an empty log."""
    places = places_of(directory)
    if not places:
        raise NothingToDamage(f"{directory.name} has no batch")
    return places[-1].header.next_offset, places[-1].header.leader_epoch


def stopped_cleanly(directory: Path) -> bool:
    """Whether the broker says that it stopped cleanly."""
    return (directory.parent / CLEAN_SHUTDOWN).exists()


def checkpointed(directory: Path, name: str) -> int | None:
    """What a checkpoint beside a partition's directory says of it."""
    path = directory.parent / name
    return decode_offset_checkpoint(path.read_bytes()).get(_partition(directory)) if path.exists() else None


def set_checkpoint(directory: Path, name: str, offset: int) -> None:
    """Change what a checkpoint beside a partition's directory says of it."""
    path = directory.parent / name
    offsets = decode_offset_checkpoint(path.read_bytes()) if path.exists() else {}
    offsets[_partition(directory)] = offset
    path.write_bytes(encode_offset_checkpoint(offsets))


def _partition(directory: Path) -> TopicPartition:
    partition = parse_partition_directory(directory.name)
    assert partition is not None, directory
    return partition


def drop_transactions(directory: Path, end: int) -> None:
    """Remove what the transaction indexes say of the log from an offset on, as a truncation does (KIP-98)."""
    for path in directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}"):
        entries = decode_transaction_index(path.read_bytes())
        path.write_bytes(encode_transaction_index(entry for entry in entries if entry.last_offset < end))


def drop_snapshots(directory: Path, above: int) -> None:
    """Remove the producer snapshots above an offset, as a truncation does."""
    for path in directory.glob("*.snapshot"):
        if int(path.stem) > above:
            path.unlink()
