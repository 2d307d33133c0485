"""Damage to whole segments: files that are empty, overwritten, in each other's place, or that go on where they end."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

from odradek_proto.formats import LEADER_EPOCH_CHECKPOINT, segment_file_name

from tests.audit.corruption import near
from tests.audit.corruption.kinds import kind
from tests.audit.corruption.places import (
    Place,
    Planted,
    drop_indexes,
    inner_place,
    log_end_of,
    must_be_stopped,
    needed,
    places_of,
    remove_segment_files,
)

LENGTH_FIELD = 8


class _Segments:
    """The batches of each file of a log that has at least three."""

    def __init__(self, directory: Path) -> None:
        self.places: dict[Path, list[Place]] = {}
        for place in places_of(directory):
            self.places.setdefault(place.segment, []).append(place)
        self.paths = needed(sorted(self.places), f"{directory.name} has fewer than three segments", 3)

    def inner(self, rng: random.Random) -> int:
        """One that is neither the first nor the last."""
        return rng.randrange(1, len(self.paths) - 1)

    def first(self, number: int) -> Place:
        return self.places[self.paths[number]][0]


@kind(near.rolled_segment)
def empty_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment in the middle has no bytes any more."""
    planted, path = _missing(directory, rng)
    path.write_bytes(b"")
    drop_indexes(path)
    return planted


@kind(near.retention)
def remove_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment in the middle is gone, with all that belongs to it."""
    planted, path = _missing(directory, rng)
    remove_segment_files(path)
    return planted


def _missing(directory: Path, rng: random.Random) -> tuple[Planted, Path]:
    """What is found without the records of a segment in the middle, and its file."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    path, following = segments.paths[number], segments.first(number + 1)
    return Planted("offset-gap", int(path.stem), following.header.leader_epoch, following.segment.name), path


@kind(near.rolled_segment)
def empty_file_ahead(directory: Path, _: random.Random) -> Planted:
    """Behind the log stands an empty file whose name is an offset that the log has not reached."""
    end, epoch = log_end_of(directory)
    path = directory / segment_file_name(end + 1000)
    path.write_bytes(b"")
    return Planted("offset-gap", end, epoch, path.name)


@kind(near.rolled_segment)
def empty_file_inside(directory: Path, rng: random.Random) -> Planted:
    """An empty file is called by an offset inside of the one before it, which hides what that holds from there on."""
    place = inner_place(directory, rng)
    path = directory / segment_file_name(place.header.base_offset)
    path.write_bytes(b"")
    epoch = [each for each in places_of(directory) if each.segment == place.segment][-1].header.leader_epoch
    return place.planted("offset-not-increasing", epoch=epoch, file=path.name)


@kind(near.zeros_at_end)
def zero_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment in the middle is all zeros, as a file system leaves what it had not written."""
    return _overwrite(directory, rng, lambda size: bytes(size))


@kind(near.files_on_their_way_out)
def scramble_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment in the middle is noise, as a wrong key of an encrypted disk gives it."""
    return _overwrite(directory, rng, lambda size: rng.randbytes(size))


@kind(near.compressed_copy)
def compress_segment(directory: Path, rng: random.Random) -> Planted:
    """Somebody has compressed a segment in its place."""
    return _overwrite(directory, rng, lambda size: gzip.compress(bytes(size), mtime=0))


def _overwrite(directory: Path, rng: random.Random, content: Callable[[int], bytes]) -> Planted:
    """The first bytes then claim a length that the file does not have, or one that none can have."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    path = segments.paths[number]
    data = content(path.stat().st_size)
    path.write_bytes(data)
    drop_indexes(path)
    check = "batch-unreadable" if data[LENGTH_FIELD] & 0x80 else "torn-tail"
    epoch_before = segments.places[segments.paths[number - 1]][-1].header.leader_epoch
    return Planted(check, int(path.stem), epoch_before, path.name)


@kind(near.merged_segments)
def swap_segments(directory: Path, rng: random.Random) -> Planted:
    """Two neighbouring files of one log have each other's bytes."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    one, two = segments.paths[number - 1 : number + 1] if number > 1 else segments.paths[number : number + 2]
    epoch = segments.places[two][0].header.leader_epoch
    a, b = one.read_bytes(), two.read_bytes()
    one.write_bytes(b)
    two.write_bytes(a)
    for path in (one, two):
        drop_indexes(path)
    return Planted("offset-not-increasing", int(one.stem), epoch, one.name)


@kind(near.deleted_directory)
def copy_segment(directory: Path, rng: random.Random) -> Planted:
    """A file has the bytes of the one before it."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    before, path = segments.paths[number - 1 : number + 1]
    path.write_bytes(before.read_bytes())
    drop_indexes(path)
    return segments.first(number - 1).planted("offset-not-increasing", file=path.name)


@kind(near.merged_segments)
def overlap_segments(directory: Path, rng: random.Random) -> Planted:
    """A file goes on with the first batches of the next one, which has them, too."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    path, following = segments.paths[number : number + 2]
    again = segments.places[following][:2]
    path.write_bytes(path.read_bytes() + b"".join(place.data for place in again))
    return again[0].planted("offset-not-increasing")


@kind(near.cleaned_start)
def rename_segment(directory: Path, rng: random.Random) -> Planted:
    """A file is called by an offset that lies within it."""
    return _rename(directory, rng, 1)


@kind(near.cleaned_start)
def rename_segment_down(directory: Path, rng: random.Random) -> Planted:
    """A file is called by the last offset of the file before it."""
    return _rename(directory, rng, -1)


def _rename(directory: Path, rng: random.Random, by: int) -> Planted:
    segments = _Segments(directory)
    first = segments.first(segments.inner(rng))
    drop_indexes(first.segment)
    renamed = first.segment.rename(directory / segment_file_name(first.header.base_offset + by))
    return first.planted("offset-not-increasing", file=renamed.name)


@kind(near.finished_retention, needs_clean_stop=True)
def remove_first_segment(directory: Path, _: random.Random) -> Planted:
    """The first file is gone, and neither retention nor DeleteRecords took it: the leader epoch file was not cut."""
    must_be_stopped(directory)
    first = _Segments(directory).first(0)
    remove_segment_files(first.segment)
    return first.planted("offset-gap", file=LEADER_EPOCH_CHECKPOINT)


@kind(near.torn_tail, needs_clean_stop=True)
def tear_after_stop(directory: Path, _: random.Random) -> Planted:
    """The log ends in half a batch, although its broker stopped cleanly."""
    return _append(directory, places_of(directory)[-1].data[:-1])


@kind(near.zeros_at_end, needs_clean_stop=True)
def zeros_after_stop(directory: Path, _: random.Random) -> Planted:
    """The log ends in zeros, although its broker stopped cleanly."""
    return _append(directory, bytes(5000))


def _append(directory: Path, tail: bytes) -> Planted:
    must_be_stopped(directory)
    last = places_of(directory)[-1]
    last.segment.write_bytes(last.segment.read_bytes() + tail)
    return Planted("torn-tail", last.header.next_offset, last.header.leader_epoch, last.segment.name)
