"""Damage to the bytes and to the order of a log."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

from odradek_proto.formats import REPLICATION_OFFSET_CHECKPOINT
from odradek_proto.records import HEADER_SIZE

from tests.audit.corruption.places import (
    CRC_FIELD,
    EPOCH_FIELD,
    NothingToDamage,
    Place,
    Planted,
    checkpointed,
    drop_indexes,
    drop_transactions,
    inner_place,
    places_of,
    rewrite,
)

MAGIC_FIELD = 16


def flip_byte(directory: Path, rng: random.Random) -> Planted:
    """One bit of a record changes, as on a bad disk."""
    place = inner_place(directory, rng)

    def change(data: bytearray) -> None:
        data[place.end - 1 - rng.randrange(min(8, place.header.size - 61))] ^= 1 << rng.randrange(8)

    rewrite(place, change)
    return Planted("flip-byte", "crc-mismatch", place.header.base_offset, place.header.leader_epoch, place.segment.name)


def flip_crc(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's CRC changes; the records are right."""
    place = inner_place(directory, rng)

    def change(data: bytearray) -> None:
        data[place.position + CRC_FIELD.start + rng.randrange(4)] ^= 1 << rng.randrange(8)

    rewrite(place, change)
    return Planted("flip-crc", "crc-mismatch", place.header.base_offset, place.header.leader_epoch, place.segment.name)


def flip_magic(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's magic changes: it seems to have a format that nobody knows."""
    place = inner_place(directory, rng)
    before = [entry for entry in places_of(directory) if entry.header.last_offset < place.header.base_offset]

    def change(data: bytearray) -> None:
        data[place.position + MAGIC_FIELD] ^= 1 << rng.randrange(2, 8)

    rewrite(place, change)
    epoch = before[-1].header.leader_epoch
    return Planted("flip-magic", "batch-unreadable", place.header.base_offset, epoch, place.segment.name)


def lower_base_offset(directory: Path, rng: random.Random) -> Planted:
    """A batch says that it stands where the one before it does; the CRC does not cover the base offset."""
    place = inner_place(directory, rng)
    before = next(entry for entry in places_of(directory) if entry.header.next_offset == place.header.base_offset)

    def change(data: bytearray) -> None:
        data[place.position : place.position + 8] = before.header.base_offset.to_bytes(8, "big")

    rewrite(place, change)
    drop_indexes(place.segment)
    header = place.header
    return Planted(
        "lower-base-offset", "offset-not-increasing", header.base_offset, header.leader_epoch, place.segment.name
    )


def overwrite_header(directory: Path, rng: random.Random) -> Planted:
    """The length and what follows are overwritten with noise."""
    place = inner_place(directory, rng)

    def change(data: bytearray) -> None:
        data[place.position + 8 : place.position + 32] = b"\xff" * 24

    before = [entry for entry in places_of(directory) if entry.header.last_offset < place.header.base_offset]
    epoch = before[-1].header.leader_epoch
    rewrite(place, change)
    return Planted("overwrite-header", "batch-unreadable", place.header.base_offset, epoch, place.segment.name)


def remove_batch(directory: Path, rng: random.Random) -> Planted:
    """A batch is cut out of the middle."""
    place = inner_place(directory, rng)
    following = next(entry for entry in places_of(directory) if entry.header.base_offset > place.header.base_offset)

    def change(data: bytearray) -> None:
        del data[place.position : place.end]

    rewrite(place, change)
    drop_indexes(place.segment)
    epoch = following.header.leader_epoch
    return Planted("remove-batch", "offset-gap", place.header.base_offset, epoch, place.segment.name)


def move_batch(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's base offset changes; the CRC does not cover it."""
    place = inner_place(directory, rng)

    def change(data: bytearray) -> None:
        data[place.position + rng.randrange(1, 4)] ^= 0x10

    rewrite(place, change)
    drop_indexes(place.segment)
    header = place.header
    return Planted("move-batch", "offset-gap", header.base_offset, header.leader_epoch, place.segment.name)


def repeat_batch(directory: Path, rng: random.Random) -> Planted:
    """A batch stands in the log twice, one behind the other."""
    place = inner_place(directory, rng)

    def change(data: bytearray) -> None:
        data[place.end : place.end] = data[place.position : place.end]

    rewrite(place, change)
    drop_indexes(place.segment)
    header = place.header
    return Planted("repeat-batch", "offset-not-increasing", header.base_offset, header.leader_epoch, place.segment.name)


def displace_batch(directory: Path, rng: random.Random) -> Planted:
    """A batch stands behind others of its segment that come after it."""

    def fits(place: Place) -> bool:
        return len(_behind(directory, place)) > 2

    place = inner_place(directory, rng, fits, " and two behind it")
    target = _behind(directory, place)[2]

    def change(data: bytearray) -> None:
        data[place.position : target.end] = data[place.end : target.end] + data[place.position : place.end]

    rewrite(place, change)
    drop_indexes(place.segment)
    header = place.header
    check = "offset-not-increasing"
    return Planted("displace-batch", check, header.base_offset, header.leader_epoch, place.segment.name)


def _behind(directory: Path, place: Place) -> list[Place]:
    return [each for each in places_of(directory) if each.segment == place.segment and each.position > place.position]


def lower_epoch(directory: Path, rng: random.Random) -> Planted:
    """A batch says that an earlier leader wrote it; the epoch lies outside of the CRC."""
    places = places_of(directory)
    able = [place for before, place in pairwise(places) if before.header.leader_epoch == place.header.leader_epoch > 0]
    if not able:
        raise NothingToDamage(f"{directory.name} has no two neighbouring batches of an epoch above 0")
    place = rng.choice(able)
    epoch = place.header.leader_epoch - 1

    def change(data: bytearray) -> None:
        data[place.position + EPOCH_FIELD.start : place.position + EPOCH_FIELD.stop] = epoch.to_bytes(4, "big")

    rewrite(place, change)
    return Planted("lower-epoch", "epoch-not-monotonic", place.header.base_offset, epoch, place.segment.name)


def raise_epoch(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's leader epoch changes: it seems to be from an election that never was."""
    place = inner_place(directory, rng)
    epoch = place.header.leader_epoch ^ 1 << rng.randrange(16, 31)

    def change(data: bytearray) -> None:
        data[place.position + EPOCH_FIELD.start : place.position + EPOCH_FIELD.stop] = epoch.to_bytes(4, "big")

    rewrite(place, change)
    return Planted("raise-epoch", "epoch-not-monotonic", place.header.base_offset, epoch, place.segment.name)


def cut_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment that is not the last one ends in half a batch."""
    places = places_of(directory)
    names = sorted({place.segment for place in places})
    if len(names) < 2:
        raise NothingToDamage(f"{directory.name} has one segment only")
    segment = rng.choice(names[:-1])
    of_segment = [place for place in places if place.segment == segment]
    if len(of_segment) < 2:
        raise NothingToDamage(f"{segment.name} has one batch only")
    last = of_segment[-1]
    segment.write_bytes(segment.read_bytes()[: last.end - last.header.size // 2])
    drop_indexes(segment)
    epoch = of_segment[-2].header.leader_epoch
    return Planted("cut-segment", "torn-tail", last.header.base_offset, epoch, segment.name)


def cut_log(directory: Path) -> Planted:
    """The last batch is gone, although the replica has counted it for its high watermark."""
    places = places_of(directory)
    if len(places) < 2:
        raise NothingToDamage(f"{directory.name} has fewer than two batches")
    last = places[-1]
    if (checkpointed(directory, REPLICATION_OFFSET_CHECKPOINT) or 0) <= last.header.base_offset:
        raise NothingToDamage(f"{directory.name} has not counted its last batch for its high watermark")
    last.segment.write_bytes(last.segment.read_bytes()[: last.position])
    drop_indexes(last.segment)
    drop_transactions(directory, last.header.base_offset)
    return Planted(
        "cut-log",
        "checkpoint-order",
        last.header.base_offset,
        places[-2].header.leader_epoch,
        REPLICATION_OFFSET_CHECKPOINT,
    )


def flip_length(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's length changes: it seems to end inside itself, inside another batch, or behind the file."""
    place = inner_place(directory, rng)
    bit = rng.randrange(3, 12)
    size = place.header.size + (1 << bit) * (-1 if place.header.length >> bit & 1 else 1)

    def change(data: bytearray) -> None:
        data[place.position + 11 - bit // 8] ^= 1 << bit % 8

    before = [entry for entry in places_of(directory) if entry.header.last_offset < place.header.base_offset]
    whole = HEADER_SIZE <= size <= place.segment.stat().st_size - place.position
    rewrite(place, change)
    epoch = place.header.leader_epoch if whole else before[-1].header.leader_epoch
    check = "crc-mismatch" if whole else "batch-unreadable"
    return Planted("flip-length", check, place.header.base_offset, epoch, place.segment.name)


def zero_page(directory: Path, rng: random.Random) -> Planted:
    """A page of zeros, from the middle of a batch to the middle of the next."""
    place = inner_place(directory, rng)
    following = next(entry for entry in places_of(directory) if entry.header.base_offset > place.header.base_offset)
    start = place.position + (HEADER_SIZE + place.header.size) // 2
    stop = following.position + (HEADER_SIZE + following.header.size) // 2

    def change(data: bytearray) -> None:
        data[start:stop] = bytes(stop - start)

    rewrite(place, change)
    header = place.header
    return Planted("zero-page", "crc-mismatch", header.base_offset, header.leader_epoch, place.segment.name)


def swap_batches(directory: Path, rng: random.Random) -> Planted:
    """Two neighbours change places."""
    first = inner_place(directory, rng)
    second = next(entry for entry in places_of(directory) if entry.header.base_offset > first.header.base_offset)

    def change(data: bytearray) -> None:
        data[first.position : second.end] = second.data + first.data

    rewrite(first, change)
    drop_indexes(first.segment)
    header = first.header
    return Planted("swap-batches", "offset-not-increasing", header.base_offset, header.leader_epoch, first.segment.name)


def remove_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment in the middle is gone, with all that belongs to it."""
    names = sorted({place.segment for place in places_of(directory)})
    if len(names) < 3:
        raise NothingToDamage(f"{directory.name} has fewer than three segments")
    number = rng.randrange(1, len(names) - 1)
    following = next(place for place in places_of(directory) if place.segment == names[number + 1])
    for path in directory.glob(f"{names[number].stem}.*"):
        path.unlink()
    epoch = following.header.leader_epoch
    return Planted("remove-segment", "offset-gap", int(names[number].stem), epoch, following.segment.name)


def shorten_segment(directory: Path, rng: random.Random) -> Planted:
    """The last batch of a segment in the middle is cut off cleanly; the indexes still have what pointed there."""
    places = places_of(directory)
    ends = [
        (before, last, after)
        for before, last, after in zip(places, places[1:], places[2:], strict=False)
        if before.segment == last.segment != after.segment
    ]
    if not ends:
        raise NothingToDamage(f"{directory.name} has one segment only, or one batch in each")
    _, last, after = rng.choice(ends)
    last.segment.write_bytes(last.segment.read_bytes()[: last.position])
    epoch = after.header.leader_epoch
    return Planted("shorten-segment", "offset-gap", last.header.base_offset, epoch, after.segment.name)
