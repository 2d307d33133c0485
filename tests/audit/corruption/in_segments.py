"""Damage to whole segments: files that are empty, overwritten, in each other's place, or that go on where they end."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

from odradek_proto.formats import LEADER_EPOCH_CHECKPOINT, segment_file_name

from tests.audit.corruption.places import (
    NothingToDamage,
    Place,
    Planted,
    drop_indexes,
    inner_place,
    log_end_of,
    places_of,
    stopped_cleanly,
)

LENGTH_FIELD = 8


class _Segments:
    """The batches of each file of a log that has at least three."""

    def __init__(self, directory: Path) -> None:
        self.places: dict[Path, list[Place]] = {}
        for place in places_of(directory):
            self.places.setdefault(place.segment, []).append(place)
        self.paths = sorted(self.places)
        if len(self.paths) < 3:
            raise NothingToDamage(f"{directory.name} has fewer than three segments")

    def inner(self, rng: random.Random) -> int:
        """One that is neither the first nor the last."""
        return rng.randrange(1, len(self.paths) - 1)

    def first(self, number: int) -> Place:
        return self.places[self.paths[number]][0]

    def epoch_before(self, number: int) -> int:
        return self.places[self.paths[number - 1]][-1].header.leader_epoch


def empty_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment in the middle has no bytes any more."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    path, following = segments.paths[number], segments.first(number + 1)
    path.write_bytes(b"")
    drop_indexes(path)
    epoch = following.header.leader_epoch
    return Planted("empty-segment", "offset-gap", int(path.stem), epoch, following.segment.name)


def empty_file_ahead(directory: Path) -> Planted:
    """Behind the log stands an empty file whose name is an offset that the log has not reached."""
    end, epoch = log_end_of(directory)
    path = directory / segment_file_name(end + 1000)
    path.write_bytes(b"")
    return Planted("empty-file-ahead", "offset-gap", end, epoch, path.name)


def empty_file_inside(directory: Path, rng: random.Random) -> Planted:
    """An empty file is called by an offset inside of the one before it, which hides what that holds from there on."""
    place = inner_place(directory, rng)
    path = directory / segment_file_name(place.header.base_offset)
    path.write_bytes(b"")
    epoch = [each for each in places_of(directory) if each.segment == place.segment][-1].header.leader_epoch
    return Planted("empty-file-inside", "offset-not-increasing", place.header.base_offset, epoch, path.name)


def zero_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment in the middle is all zeros, as a file system leaves what it had not written."""
    return _overwrite("zero-segment", directory, rng, lambda size: bytes(size))


def scramble_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment in the middle is noise, as a wrong key of an encrypted disk gives it."""
    return _overwrite("scramble-segment", directory, rng, lambda size: rng.randbytes(size))


def compress_segment(directory: Path, rng: random.Random) -> Planted:
    """Somebody has compressed a segment in its place."""
    return _overwrite("compress-segment", directory, rng, lambda size: gzip.compress(bytes(size), mtime=0))


def _overwrite(kind: str, directory: Path, rng: random.Random, content: Callable[[int], bytes]) -> Planted:
    """The first bytes then claim a length that the file does not have, or one that none can have."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    path = segments.paths[number]
    data = content(path.stat().st_size)
    path.write_bytes(data)
    drop_indexes(path)
    check = "batch-unreadable" if data[LENGTH_FIELD] & 0x80 else "torn-tail"
    return Planted(kind, check, int(path.stem), segments.epoch_before(number), path.name)


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
    return Planted("swap-segments", "offset-not-increasing", int(one.stem), epoch, one.name)


def copy_segment(directory: Path, rng: random.Random) -> Planted:
    """A file has the bytes of the one before it."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    before, path = segments.paths[number - 1 : number + 1]
    path.write_bytes(before.read_bytes())
    drop_indexes(path)
    header = segments.first(number - 1).header
    return Planted("copy-segment", "offset-not-increasing", header.base_offset, header.leader_epoch, path.name)


def overlap_segments(directory: Path, rng: random.Random) -> Planted:
    """A file goes on with the first batches of the next one, which has them, too."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    path, following = segments.paths[number : number + 2]
    again = segments.places[following][:2]
    path.write_bytes(path.read_bytes() + b"".join(place.data for place in again))
    header = again[0].header
    return Planted("overlap-segments", "offset-not-increasing", header.base_offset, header.leader_epoch, following.name)


def rename_segment(directory: Path, rng: random.Random) -> Planted:
    """A file is called by an offset that lies within it."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    path, header = segments.paths[number], segments.first(number).header
    drop_indexes(path)
    renamed = path.rename(path.with_name(segment_file_name(header.base_offset + 1)))
    return Planted("rename-segment", "offset-not-increasing", header.base_offset, header.leader_epoch, renamed.name)


def rename_segment_down(directory: Path, rng: random.Random) -> Planted:
    """A file is called by the last offset of the file before it."""
    segments = _Segments(directory)
    number = segments.inner(rng)
    path, header = segments.paths[number], segments.first(number).header
    drop_indexes(path)
    renamed = path.rename(path.with_name(segment_file_name(header.base_offset - 1)))
    return Planted(
        "rename-segment-down", "offset-not-increasing", header.base_offset, header.leader_epoch, renamed.name
    )


def remove_first_segment(directory: Path) -> Planted:
    """The first file is gone, and neither retention nor DeleteRecords took it: the leader epoch file was not cut."""
    segments = _Segments(directory)
    if not stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.parent} was not closed cleanly, so its leader epoch file may be stale")
    first = segments.first(0).header
    for path in directory.glob(f"{segments.paths[0].stem}.*"):
        path.unlink()
    return Planted("remove-first-segment", "offset-gap", first.base_offset, first.leader_epoch, LEADER_EPOCH_CHECKPOINT)


def tear_after_stop(directory: Path) -> Planted:
    """The log ends in half a batch, although its broker stopped cleanly."""
    return _append("tear-after-stop", directory, places_of(directory)[-1].data[:-1])


def zeros_after_stop(directory: Path) -> Planted:
    """The log ends in zeros, although its broker stopped cleanly."""
    return _append("zeros-after-stop", directory, bytes(5000))


def _append(kind: str, directory: Path, tail: bytes) -> Planted:
    if not stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.parent} was not closed cleanly, so its log may be torn")
    last = places_of(directory)[-1]
    last.segment.write_bytes(last.segment.read_bytes() + tail)
    header = last.header
    return Planted(kind, "torn-tail", header.next_offset, header.leader_epoch, last.segment.name)
