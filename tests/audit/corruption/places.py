"""Where damage can be planted: the batches of a partition's directory, and small changes to files around them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crc32c import crc32c
from odradek_proto.compression import Codec
from odradek_proto.formats import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_INDEX_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    LeaderEpochEntry,
    decode_leader_epochs,
    decode_offset_checkpoint,
    decode_transaction_index,
    encode_leader_epochs,
    encode_offset_checkpoint,
    encode_transaction_index,
)
from odradek_proto.records import BatchHeader, decode_records, encode_batch, iter_batches
from odradek_proto.topics import TopicPartition, parse_partition_directory

T = TypeVar("T")
CRC_FIELD = slice(17, 21)
CRC_START = 21
EPOCH_FIELD = slice(12, 16)
DELTA_FIELD = slice(23, 27)
MAX_TIMESTAMP_FIELD = slice(35, 43)
PRODUCER_ID_FIELD = slice(43, 51)
PRODUCER_EPOCH_FIELD = slice(51, 53)
SEQUENCE_FIELD = slice(53, 57)
PRODUCER_FIELDS = slice(43, 57)  # producer id, producer epoch, base sequence


class NothingToDamage(ValueError):
    """The partition has no place where this kind of damage could be planted."""


@dataclass(frozen=True)
class Planted:
    """What must be found. `offset` and `epoch` are those that the finding names; -1: it names none."""

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

    def planted(self, check: str, *, epoch: int | None = None, file: str = "") -> Planted:
        """A finding at this batch, in its epoch and file unless another is named."""
        epoch = self.header.leader_epoch if epoch is None else epoch
        return Planted(check, self.header.base_offset, epoch, file or self.segment.name)


def places_of(directory: Path) -> list[Place]:
    return [
        Place(path, position, header)
        for path in sorted(directory.glob("*.log"))
        for position, header in iter_batches(path.read_bytes())
    ]


def needed(found: Iterable[T], otherwise: str, least: int = 1) -> list[T]:
    """What was found. Raises `NothingToDamage` when there is less than is needed."""
    listed = list(found)
    if len(listed) < least:
        raise NothingToDamage(otherwise)
    return listed


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
    return rng.choice(needed(inner, f"{directory.name} has no segment with three batches{what}"))


def two_places(directory: Path) -> list[Place]:
    """The batches of a log that has at least two. Raises `NothingToDamage`."""
    return needed(places_of(directory), f"{directory.name} has fewer than two batches", 2)


def neighbours(directory: Path, place: Place) -> tuple[Place, Place]:
    """The batches before and behind an inner one."""
    places = places_of(directory)
    number = places.index(place)
    return places[number - 1], places[number + 1]


def splice(segment: Path, start: int, stop: int, new: bytes = b"") -> None:
    """Put other bytes in the place of some."""
    data = segment.read_bytes()
    segment.write_bytes(data[:start] + new + data[stop:])


def flip_bit(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def cut_last(place: Place) -> None:
    """Remove the last batch of a segment."""
    place.segment.write_bytes(place.segment.read_bytes()[: place.position])


def remove_segment_files(segment: Path) -> None:
    """Remove a segment and all that belongs to it."""
    for path in segment.parent.glob(f"{segment.stem}.*"):
        path.unlink()


def drop_indexes(segment: Path) -> None:
    """A broker builds missing indexes anew (R-236); what is planted is to be found in the log alone."""
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        segment.with_suffix(suffix).unlink(missing_ok=True)


def with_crc(batch: bytearray) -> bytes:
    """A batch with the CRC that its bytes have."""
    batch[CRC_FIELD] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    return bytes(batch)


def rewrite_batch(place: Place, change: Callable[[bytearray], None]) -> None:
    """Change a batch in its place and make its CRC right again."""
    batch = bytearray(place.data)
    change(batch)
    splice(place.segment, place.position, place.end, with_crc(batch))


def set_field(place: Place, field: slice, value: int) -> None:
    """Write a number into a batch's header and make its CRC right again."""

    def change(batch: bytearray) -> None:
        batch[field] = value.to_bytes(field.stop - field.start, "big")

    rewrite_batch(place, change)


def change_value(place: Place) -> None:
    """Change the last byte of a batch's last value, and make its CRC right again."""

    def change(batch: bytearray) -> None:
        batch[-2] ^= 0x01  # behind the value stands the number of headers, one byte

    rewrite_batch(place, change)


def moved_batch(place: Place, offset: int, epoch: int) -> bytes:
    """The same records at another offset and of another epoch, of no producer."""
    batch = bytearray(place.data)
    batch[:8], batch[EPOCH_FIELD] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big", signed=True)
    batch[PRODUCER_FIELDS] = b"\xff" * 14
    return with_crc(batch)


def log_end_of(directory: Path) -> tuple[int, int]:
    """Log end offset and newest leader epoch. Raises `NothingToDamage` for an empty log."""
    last = needed(places_of(directory), f"{directory.name} has no batch")[-1].header
    return last.next_offset, last.leader_epoch


def stopped_cleanly(directory: Path) -> bool:
    """Whether the broker says that it stopped cleanly."""
    return (directory.parent / CLEAN_SHUTDOWN).exists()


def must_be_stopped(directory: Path) -> None:
    """Raises `NothingToDamage` where a kill would explain what is to be planted."""
    if not stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.parent} was not closed cleanly, so its files may be torn or stale")


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


def reencoded(place: Place, *, codec: Codec | None = None, records: int | None = None) -> bytes:
    """A batch with its first records alone, or in another codec."""
    header = place.header
    kept = decode_records(place.data, header)[:records]
    return encode_batch(
        [(each.timestamp, each.key, each.value, each.headers) for each in kept],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        codec=header.codec if codec is None else codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )


def recompress(place: Place) -> None:
    """The same records, with gzip, or without a codec where they have one."""
    codec = Codec.GZIP if place.header.codec is Codec.NONE else Codec.NONE
    splice(place.segment, place.position, place.end, reencoded(place, codec=codec))


def stale_tail(directory: Path) -> tuple[int, int]:
    """Put a batch of the epoch before in the place of the newest epoch's; returns its offset and epoch.

    The checkpoints count nothing of it.
    """
    places = places_of(directory)
    newest = max(place.header.leader_epoch for place in places)
    older = [place for place in places if place.header.leader_epoch < newest]
    sources = (place for place in older if not place.header.is_control)
    source, last = needed(sources, f"{directory.name} has one leader epoch only")[-1], older[-1]
    start, epoch = last.header.next_offset, last.header.leader_epoch
    for segment in {place.segment for place in places if place.segment > last.segment}:
        remove_segment_files(segment)
    splice(last.segment, last.end, last.segment.stat().st_size, moved_batch(source, start, epoch))
    drop_indexes(last.segment)
    drop_snapshots(directory, start)
    set_epochs(directory, [entry for entry in epochs_of(directory) if entry.epoch < newest])
    for name in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        set_checkpoint(directory, name, min(start, checkpointed(directory, name) or 0))
    return start, epoch


def epochs_of(directory: Path) -> list[LeaderEpochEntry]:
    return decode_leader_epochs((directory / LEADER_EPOCH_CHECKPOINT).read_bytes())


def set_epochs(directory: Path, entries: Sequence[tuple[int, int]]) -> None:
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epochs(entries))
