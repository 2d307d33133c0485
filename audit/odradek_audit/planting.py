"""Plants damage in copies of log directories: so that everybody can see the audit find it.

Never point it at the only copy. Each kind of damage is a function of a partition's directory that changes one thing
and says what the audit must then report: the check, the offset, the epoch. Kinds that need a changed batch to look
whole make its CRC right again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crc32c import crc32c
from odradek_proto.formats import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_INDEX_ENTRY_SIZE,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_ENTRY_SIZE,
    TIME_INDEX_SUFFIX,
    decode_leader_epochs,
    decode_offset_checkpoint,
    encode_leader_epochs,
    encode_offset_checkpoint,
    encode_partition_metadata,
)
from odradek_proto.records import BatchHeader, iter_batches
from odradek_proto.topics import TopicPartition, partition_directory

CRC_FIELD = slice(17, 21)
CRC_START = 21
EPOCH_FIELD = slice(12, 16)
TOO_FAR = 1000


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
class _Place:
    """A batch in a segment's file."""

    segment: Path
    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        return self.position + self.header.size


def _places(directory: Path) -> list[_Place]:
    return [
        _Place(path, position, header)
        for path in sorted(directory.glob("*.log"))
        for position, header in iter_batches(path.read_bytes())
    ]


def _inner(directory: Path, rng: random.Random) -> _Place:
    """A batch that is neither the first nor the last of its segment."""
    places = _places(directory)
    inner = [
        place
        for before, place, after in zip(places, places[1:], places[2:], strict=False)
        if before.segment == place.segment == after.segment
    ]
    if not inner:
        raise NothingToDamage(f"{directory.name} has no segment with three batches")
    return rng.choice(inner)


def _rewrite(place: _Place, change: Callable[[bytearray], None]) -> None:
    data = bytearray(place.segment.read_bytes())
    change(data)
    place.segment.write_bytes(data)


def _drop_indexes(segment: Path) -> None:
    """A broker builds missing indexes anew (R-236); what is planted is to be found in the log alone."""
    for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        segment.with_suffix(suffix).unlink(missing_ok=True)


def flip_byte(directory: Path, rng: random.Random) -> Planted:
    """One bit of a record changes, as on a bad disk."""
    place = _inner(directory, rng)

    def change(data: bytearray) -> None:
        data[place.end - 1 - rng.randrange(min(8, place.header.size - 61))] ^= 1 << rng.randrange(8)

    _rewrite(place, change)
    return Planted("flip-byte", "crc-mismatch", place.header.base_offset, place.header.leader_epoch, place.segment.name)


def overwrite_header(directory: Path, rng: random.Random) -> Planted:
    """The length and what follows are overwritten with noise."""
    place = _inner(directory, rng)

    def change(data: bytearray) -> None:
        data[place.position + 8 : place.position + 32] = b"\xff" * 24

    before = [entry for entry in _places(directory) if entry.header.last_offset < place.header.base_offset]
    epoch = before[-1].header.leader_epoch
    _rewrite(place, change)
    return Planted("overwrite-header", "batch-unreadable", place.header.base_offset, epoch, place.segment.name)


def remove_batch(directory: Path, rng: random.Random) -> Planted:
    """A batch is cut out of the middle."""
    place = _inner(directory, rng)
    following = next(entry for entry in _places(directory) if entry.header.base_offset > place.header.base_offset)

    def change(data: bytearray) -> None:
        del data[place.position : place.end]

    _rewrite(place, change)
    _drop_indexes(place.segment)
    epoch = following.header.leader_epoch
    return Planted("remove-batch", "offset-gap", place.header.base_offset, epoch, place.segment.name)


def move_batch(directory: Path, rng: random.Random) -> Planted:
    """One bit of a batch's base offset changes; the CRC does not cover it."""
    place = _inner(directory, rng)

    def change(data: bytearray) -> None:
        data[place.position + rng.randrange(1, 4)] ^= 0x10

    _rewrite(place, change)
    _drop_indexes(place.segment)
    header = place.header
    return Planted("move-batch", "offset-gap", header.base_offset, header.leader_epoch, place.segment.name)


def repeat_batch(directory: Path, rng: random.Random) -> Planted:
    """A batch stands in the log twice, one behind the other."""
    place = _inner(directory, rng)

    def change(data: bytearray) -> None:
        data[place.end : place.end] = data[place.position : place.end]

    _rewrite(place, change)
    _drop_indexes(place.segment)
    header = place.header
    return Planted("repeat-batch", "offset-not-increasing", header.base_offset, header.leader_epoch, place.segment.name)


def lower_epoch(directory: Path, rng: random.Random) -> Planted:
    """A batch says that an earlier leader wrote it; the epoch lies outside of the CRC."""
    places = _places(directory)
    able = [place for before, place in pairwise(places) if before.header.leader_epoch == place.header.leader_epoch > 0]
    if not able:
        raise NothingToDamage(f"{directory.name} has no two neighbouring batches of an epoch above 0")
    place = rng.choice(able)
    epoch = place.header.leader_epoch - 1

    def change(data: bytearray) -> None:
        data[place.position + EPOCH_FIELD.start : place.position + EPOCH_FIELD.stop] = epoch.to_bytes(4, "big")

    _rewrite(place, change)
    return Planted("lower-epoch", "epoch-not-monotonic", place.header.base_offset, epoch, place.segment.name)


def change_record(directory: Path, rng: random.Random, check: str = "log-matching") -> Planted:
    """The last byte of a batch's last value changes and the CRC is made right: only another replica can tell."""
    place = _inner(directory, rng)

    def change(data: bytearray) -> None:
        data[place.end - 2] ^= 0x01  # behind the value stands the number of headers, one byte
        crc = crc32c(bytes(data[place.position + CRC_START : place.end]))
        data[place.position + CRC_FIELD.start : place.position + CRC_FIELD.stop] = crc.to_bytes(4, "big")

    _rewrite(place, change)
    header = place.header
    return Planted("change-record", check, header.last_offset, header.leader_epoch, place.segment.name)


def cut_segment(directory: Path, rng: random.Random) -> Planted:
    """A segment that is not the last one ends in half a batch."""
    places = _places(directory)
    names = sorted({place.segment for place in places})
    if len(names) < 2:
        raise NothingToDamage(f"{directory.name} has one segment only")
    segment = rng.choice(names[:-1])
    of_segment = [place for place in places if place.segment == segment]
    if len(of_segment) < 2:
        raise NothingToDamage(f"{segment.name} has one batch only")
    last = of_segment[-1]
    segment.write_bytes(segment.read_bytes()[: last.end - last.header.size // 2])
    _drop_indexes(segment)
    epoch = of_segment[-2].header.leader_epoch
    return Planted("cut-segment", "torn-tail", last.header.base_offset, epoch, segment.name)


def cut_log(directory: Path, rng: random.Random) -> Planted:
    """The last batch is gone, although the replica has counted it for its high watermark."""
    places = _places(directory)
    if len(places) < 2:
        raise NothingToDamage(f"{directory.name} has fewer than two batches")
    last = places[-1]
    last.segment.write_bytes(last.segment.read_bytes()[: last.position])
    _drop_indexes(last.segment)
    return Planted(
        "cut-log",
        "checkpoint-order",
        last.header.base_offset,
        places[-2].header.leader_epoch,
        "replication-offset-checkpoint",
    )


def raise_recovery_point(directory: Path, rng: random.Random) -> Planted:
    """The recovery point runs ahead of the log (R-238)."""
    places = _places(directory)
    topic, _, number = directory.name.rpartition("-")
    path = directory.parent / RECOVERY_POINT_CHECKPOINT
    points = decode_offset_checkpoint(path.read_bytes()) if path.exists() else {}
    last = places[-1].header
    points[TopicPartition(topic, int(number))] = last.last_offset + 1 + TOO_FAR
    path.write_bytes(encode_offset_checkpoint(points))
    return Planted("raise-recovery-point", "checkpoint-order", last.last_offset + 1, last.leader_epoch, path.name)


def shift_epoch(directory: Path, rng: random.Random) -> Planted:
    """The leader epoch file says that the newest epoch began one record later."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    entries = decode_leader_epochs(path.read_bytes())
    if not entries:
        raise NothingToDamage(f"{path} has no entry")
    epoch, start = entries[-1]
    path.write_bytes(encode_leader_epochs([*entries[:-1], (epoch, start + 1)]))
    return Planted("shift-epoch", "epoch-cache-mismatch", start, epoch, path.name)


def misplace_index_entry(directory: Path, rng: random.Random) -> Planted:
    """An entry of an offset index points into the middle of a batch."""
    path, number = _index_entry(directory, OFFSET_INDEX_SUFFIX, OFFSET_INDEX_ENTRY_SIZE, rng)
    data = bytearray(path.read_bytes())
    start = number * OFFSET_INDEX_ENTRY_SIZE
    offset = int(path.stem) + int.from_bytes(data[start : start + 4], "big")
    position = int.from_bytes(data[start + 4 : start + 8], "big") + 1
    data[start + 4 : start + 8] = position.to_bytes(4, "big")
    path.write_bytes(data)
    return Planted("misplace-index-entry", "index-unsound", offset, _epoch_of(directory, offset), path.name)


def age_time_entry(directory: Path, rng: random.Random) -> Planted:
    """An entry of a time index says that everything so far is a day older than it is."""
    path, number = _index_entry(directory, TIME_INDEX_SUFFIX, TIME_INDEX_ENTRY_SIZE, rng)
    data = bytearray(path.read_bytes())
    start = number * TIME_INDEX_ENTRY_SIZE
    timestamp = int.from_bytes(data[start : start + 8], "big") - 86_400_000
    data[start : start + 8] = timestamp.to_bytes(8, "big")
    offset = int(path.stem) + int.from_bytes(data[start + 8 : start + 12], "big")
    path.write_bytes(data)
    return Planted("age-time-entry", "index-unsound", offset, _epoch_of(directory, offset), path.name)


def garble_epoch_file(directory: Path, rng: random.Random) -> Planted:
    """The leader epoch file claims more entries than it has."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    path.write_bytes(b"0\n7\n0 0\n")
    return Planted("garble-epoch-file", "file-corrupt", -1, -1, path.name)


def change_topic_id(directory: Path, rng: random.Random) -> Planted:
    """The partition's directory belongs to a topic of the same name that was created at another time."""
    path = directory / PARTITION_METADATA
    path.write_bytes(encode_partition_metadata(bytes([0x42]) + rng.randbytes(15)))
    return Planted("change-topic-id", "identity-mismatch", -1, -1, path.name)


def _index_entry(directory: Path, suffix: str, size: int, rng: random.Random) -> tuple[Path, int]:
    places = [
        (path, number)
        for path in sorted(directory.glob(f"*{suffix}"))
        for number in range(len(path.read_bytes().rstrip(b"\0")) // size)
    ]
    if not places:
        raise NothingToDamage(f"{directory.name} has no entry in any {suffix} file")
    return rng.choice(places)


def _epoch_of(directory: Path, offset: int) -> int:
    headers = [place.header for place in _places(directory)]
    return next(entry.leader_epoch for entry in headers if entry.base_offset <= offset <= entry.last_offset)


KINDS: dict[str, Callable[[Path, random.Random], Planted]] = {
    "flip-byte": flip_byte,
    "overwrite-header": overwrite_header,
    "remove-batch": remove_batch,
    "move-batch": move_batch,
    "repeat-batch": repeat_batch,
    "lower-epoch": lower_epoch,
    "change-record": change_record,
    "cut-segment": cut_segment,
    "cut-log": cut_log,
    "raise-recovery-point": raise_recovery_point,
    "shift-epoch": shift_epoch,
    "misplace-index-entry": misplace_index_entry,
    "age-time-entry": age_time_entry,
    "garble-epoch-file": garble_epoch_file,
    "change-topic-id": change_topic_id,
}


def plant(kind: str, log_directory: Path, partition: TopicPartition, rng: random.Random) -> Planted:
    """Damage one partition in a copy of a log directory.

    Raises `NothingToDamage` when the partition is too small for this kind, `KeyError` for an unknown kind, `OSError`.
    """
    directory = log_directory / partition_directory(partition)
    return KINDS[kind](directory, rng)
