"""Damage to the bytes and to the order of a log."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

from odradek_proto.formats import REPLICATION_OFFSET_CHECKPOINT
from odradek_proto.records import HEADER_SIZE

from tests.audit.corruption import near
from tests.audit.corruption.kinds import kind
from tests.audit.corruption.places import (
    CRC_FIELD,
    EPOCH_FIELD,
    NothingToDamage,
    Place,
    Planted,
    checkpointed,
    cut_last,
    drop_indexes,
    drop_transactions,
    flip_bit,
    inner_place,
    needed,
    neighbours,
    places_of,
    splice,
    two_places,
)

MAGIC_FIELD = 16


@kind(near.flip_in_torn_tail)
def flip_byte(directory: Path, rng: random.Random) -> Planted:
    """One bit of a record changes, as on a bad disk."""
    place = inner_place(directory, rng)
    flip_bit(place.segment, place.end - 1 - rng.randrange(min(8, place.header.size - 61)), rng.randrange(8))
    return place.planted("crc-mismatch")


@kind(near.torn_length)
def flip_length(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's length changes: it seems to end inside itself, inside another batch, or behind the file."""
    place = inner_place(directory, rng)
    bit = rng.randrange(3, 12)
    size = place.header.size + (1 << bit) * (-1 if place.header.length >> bit & 1 else 1)
    whole = HEADER_SIZE <= size <= place.segment.stat().st_size - place.position
    before, _ = neighbours(directory, place)
    flip_bit(place.segment, place.position + 11 - bit // 8, bit % 8)
    return place.planted("crc-mismatch") if whole else _unreadable(place, before)


@kind(near.torn_tail)
def flip_crc(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's CRC changes; the records are right."""
    place = inner_place(directory, rng)
    flip_bit(place.segment, place.position + CRC_FIELD.start + rng.randrange(4), rng.randrange(8))
    return place.planted("crc-mismatch")


@kind(near.torn_length)
def flip_magic(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's magic changes: it seems to have a format that nobody knows."""
    place = inner_place(directory, rng)
    before, _ = neighbours(directory, place)
    flip_bit(place.segment, place.position + MAGIC_FIELD, rng.randrange(2, 8))
    return _unreadable(place, before)


@kind(near.files_on_their_way_out)
def overwrite_header(directory: Path, rng: random.Random) -> Planted:
    """The length and what follows are overwritten with noise."""
    place = inner_place(directory, rng)
    before, _ = neighbours(directory, place)
    splice(place.segment, place.position + 8, place.position + 32, b"\xff" * 24)
    return _unreadable(place, before)


def _unreadable(place: Place, before: Place) -> Planted:
    return place.planted("batch-unreadable", epoch=before.header.leader_epoch)


@kind(near.cleaned_batch)
def lower_base_offset(directory: Path, rng: random.Random) -> Planted:
    """A batch says that it stands where the one before it does; the CRC does not cover the base offset."""
    place = inner_place(directory, rng)
    before, _ = neighbours(directory, place)
    _change_order(place, place.position, place.position + 8, before.header.base_offset.to_bytes(8, "big"))
    return place.planted("offset-not-increasing")


def _change_order(place: Place, start: int, stop: int, new: bytes = b"") -> None:
    splice(place.segment, start, stop, new)
    drop_indexes(place.segment)


@kind(near.zeros_at_end)
def zero_page(directory: Path, rng: random.Random) -> Planted:
    """A page of zeros, from the middle of a batch to the middle of the next."""
    place = inner_place(directory, rng)
    _, following = neighbours(directory, place)
    start, stop = (each.position + (HEADER_SIZE + each.header.size) // 2 for each in (place, following))
    splice(place.segment, start, stop, bytes(stop - start))
    return place.planted("crc-mismatch")


@kind(near.cleaned_batch)
def remove_batch(directory: Path, rng: random.Random) -> Planted:
    """A batch is cut out of the middle."""
    place = inner_place(directory, rng)
    _, following = neighbours(directory, place)
    _change_order(place, place.position, place.end)
    return place.planted("offset-gap", epoch=following.header.leader_epoch)


@kind(near.merged_segments)
def move_batch(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's base offset changes; the CRC does not cover it."""
    place = inner_place(directory, rng)
    flip_bit(place.segment, place.position + rng.randrange(1, 4), 4)
    drop_indexes(place.segment)
    return place.planted("offset-gap")


@kind(near.ahead)
def repeat_batch(directory: Path, rng: random.Random) -> Planted:
    """A batch stands in the log twice, one behind the other."""
    place = inner_place(directory, rng)
    _change_order(place, place.end, place.end, place.data)
    return place.planted("offset-not-increasing")


@kind(near.other_snapshot_order)
def swap_batches(directory: Path, rng: random.Random) -> Planted:
    """Two neighbours change places."""
    first = inner_place(directory, rng)
    _, second = neighbours(directory, first)
    _change_order(first, first.position, second.end, second.data + first.data)
    return first.planted("offset-not-increasing")


@kind(near.merged_segments)
def displace_batch(directory: Path, rng: random.Random) -> Planted:
    """A batch stands behind others of its segment that come after it."""

    def behind(place: Place) -> list[Place]:
        after = (each for each in places_of(directory) if each.position > place.position)
        return [each for each in after if each.segment == place.segment]

    place = inner_place(directory, rng, lambda place: len(behind(place)) > 2, " and two behind it")
    moved = b"".join(each.data for each in (*behind(place)[:3], place))
    _change_order(place, place.position, place.position + len(moved), moved)
    return place.planted("offset-not-increasing")


@kind(near.skipped_epochs)
def lower_epoch(directory: Path, rng: random.Random) -> Planted:
    """A batch says that an earlier leader wrote it; the epoch lies outside of the CRC."""
    places = places_of(directory)
    able = [place for before, place in pairwise(places) if before.header.leader_epoch == place.header.leader_epoch > 0]
    place = rng.choice(needed(able, f"{directory.name} has no two neighbouring batches of an epoch above 0"))
    return _set_epoch(place, place.header.leader_epoch - 1)


@kind(near.skipped_epochs)
def raise_epoch(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's leader epoch changes: it seems to be from an election that never was."""
    place = inner_place(directory, rng)
    return _set_epoch(place, place.header.leader_epoch ^ 1 << rng.randrange(16, 31))


def _set_epoch(place: Place, epoch: int) -> Planted:
    start, stop = place.position + EPOCH_FIELD.start, place.position + EPOCH_FIELD.stop
    splice(place.segment, start, stop, epoch.to_bytes(4, "big"))
    return place.planted("epoch-not-monotonic", epoch=epoch)


@kind(near.torn_tail)
def cut_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment that is not the last one ends in half a batch."""
    places = places_of(directory)
    names = needed(sorted({place.segment for place in places}), f"{directory.name} has one segment only", 2)
    segment = rng.choice(names[:-1])
    *_, before, last = (place for place in places if place.segment <= segment)
    if before.segment != segment:
        raise NothingToDamage(f"{segment.name} has one batch only")
    _change_order(last, last.end - last.header.size // 2, last.end)
    return last.planted("torn-tail", epoch=before.header.leader_epoch)


@kind(near.lagging)
def cut_log(directory: Path, _: random.Random) -> Planted:
    """The last batch is gone, although the replica has counted it for its high watermark."""
    *_others, before, last = two_places(directory)
    if (checkpointed(directory, REPLICATION_OFFSET_CHECKPOINT) or 0) <= last.header.base_offset:
        raise NothingToDamage(f"{directory.name} has not counted its last batch for its high watermark")
    cut_last(last)
    drop_indexes(last.segment)
    drop_transactions(directory, last.header.base_offset)
    return last.planted("checkpoint-order", epoch=before.header.leader_epoch, file=REPLICATION_OFFSET_CHECKPOINT)


@kind(near.stale_index)
def shorten_segment(directory: Path, rng: random.Random) -> Planted:
    """The last batch of a segment in the middle is cut off cleanly; the indexes still have what pointed there."""
    places = places_of(directory)
    ends = [
        (last, after)
        for before, last, after in zip(places, places[1:], places[2:], strict=False)
        if before.segment == last.segment != after.segment
    ]
    last, after = rng.choice(needed(ends, f"{directory.name} has one segment only, or one batch in each"))
    cut_last(last)
    return last.planted("offset-gap", epoch=after.header.leader_epoch, file=after.segment.name)
