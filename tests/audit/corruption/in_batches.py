"""Damage that no CRC shows: batches that are whole, and not what they should be."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c
from odradek_proto.formats import (
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TRANSACTION_INDEX_SUFFIX,
    decode_leader_epochs,
    encode_leader_epochs,
)
from odradek_proto.headers import CONTROL
from odradek_proto.records import (
    HEADER_SIZE,
    Codec,
    ControlType,
    CorruptBatch,
    control_type,
    coordinator_epoch,
    decode_records,
    encode_batch,
    encode_control_batch,
    end_transaction_value,
    read_header,
)

from tests.audit.corruption.places import (
    CRC_FIELD,
    CRC_START,
    EPOCH_FIELD,
    NothingToDamage,
    Place,
    Planted,
    checkpointed,
    drop_indexes,
    drop_snapshots,
    inner_place,
    log_end_of,
    places_of,
    rewrite_batch,
    set_checkpoint,
    stopped_cleanly,
)

LOW_ATTRIBUTES = 22
PRODUCER_EPOCH_FIELD = slice(51, 53)
PRODUCER_FIELDS = slice(43, 57)  # producer id, producer epoch, base sequence
MAX_TIMESTAMP_FIELD = slice(35, 43)
SEQUENCE_FIELD = slice(53, 57)
COUNT_FIELD = slice(57, 61)
JUMP = 100


def change_record(directory: Path, rng: random.Random, check: str = "log-matching") -> Planted:
    """The last byte of a batch's last value changes and the CRC is made right: only another replica can tell."""
    place = inner_place(directory, rng)

    def change(batch: bytearray) -> None:
        batch[-2] ^= 0x01  # behind the value stands the number of headers, one byte

    rewrite_batch(place, change)
    header = place.header
    return Planted("change-record", check, header.last_offset, header.leader_epoch, place.segment.name)


def change_record_count(directory: Path, rng: random.Random) -> Planted:
    """A header says one record less than it has offsets, and its CRC is right."""
    place = inner_place(directory, rng, lambda place: place.header.record_count > 1, " of several records")

    def change(batch: bytearray) -> None:
        batch[COUNT_FIELD] = (place.header.record_count - 1).to_bytes(4, "big")

    rewrite_batch(place, change)
    header = place.header
    return Planted(
        "change-record-count", "record-count-mismatch", header.base_offset, header.leader_epoch, place.segment.name
    )


def grow_record_count(directory: Path, rng: random.Random) -> Planted:
    """A header says one record more than it has offsets, and its CRC is right."""
    place = inner_place(directory, rng)
    before = next(entry for entry in places_of(directory) if entry.header.next_offset == place.header.base_offset)

    def change(batch: bytearray) -> None:
        batch[COUNT_FIELD] = (place.header.record_count + 1).to_bytes(4, "big")

    rewrite_batch(place, change)
    epoch = before.header.leader_epoch
    return Planted("grow-record-count", "batch-unreadable", place.header.base_offset, epoch, place.segment.name)


def change_timestamp(directory: Path, rng: random.Random) -> Planted:
    """A batch's largest timestamp is a millisecond less than it was, and its CRC is right; its records are equal."""
    place = inner_place(directory, rng)

    def change(batch: bytearray) -> None:
        batch[MAX_TIMESTAMP_FIELD] = (place.header.max_timestamp - 1).to_bytes(8, "big")

    rewrite_batch(place, change)
    drop_indexes(place.segment)
    header = place.header
    return Planted("change-timestamp", "log-matching", header.base_offset, header.leader_epoch, place.segment.name)


def break_sequence(directory: Path, rng: random.Random) -> Planted:
    """A producer's batch has a later sequence than should follow, and its CRC is right."""
    first: dict[int, int] = {}
    for entry in places_of(directory):
        first.setdefault(entry.header.producer_id, entry.header.base_offset)

    def fits(place: Place) -> bool:
        header = place.header
        return header.base_sequence >= 0 and first[header.producer_id] < header.base_offset

    place = inner_place(directory, rng, fits, " of a producer that came before")

    def change(batch: bytearray) -> None:
        batch[SEQUENCE_FIELD] = (place.header.base_sequence + JUMP).to_bytes(4, "big")

    rewrite_batch(place, change)
    header = place.header
    return Planted("break-sequence", "sequence-gap", header.base_offset, header.leader_epoch, place.segment.name)


def raise_producer_epoch(directory: Path, rng: random.Random) -> Planted:
    """A batch has a newer epoch of its producer than the ones behind it, and its CRC is right."""
    place = _of_producer(directory, rng)

    def change(batch: bytearray) -> None:
        batch[PRODUCER_EPOCH_FIELD] = (place.header.producer_epoch + 1).to_bytes(2, "big")

    return _changed(place, "raise-producer-epoch", change)


def change_producer(directory: Path, rng: random.Random) -> Planted:
    """A batch has another producer's id, and its CRC is right."""
    place = _of_producer(directory, rng)

    def change(batch: bytearray) -> None:
        batch[PRODUCER_FIELDS.start : PRODUCER_EPOCH_FIELD.start] = (place.header.producer_id + JUMP).to_bytes(8, "big")

    return _changed(place, "change-producer", change)


def make_control(directory: Path, rng: random.Random) -> Planted:
    """A batch of records says that it is a marker, and its CRC is right."""
    place = _of_producer(directory, rng)

    def change(batch: bytearray) -> None:
        batch[LOW_ATTRIBUTES] |= CONTROL

    return _changed(place, "make-control", change)


def raise_timestamp(directory: Path, rng: random.Random) -> Planted:
    """A batch's largest timestamp is a day later than it was, and its CRC is right; its indexes are as before."""
    place = inner_place(directory, rng)

    def change(batch: bytearray) -> None:
        batch[MAX_TIMESTAMP_FIELD] = (place.header.max_timestamp + 86_400_000).to_bytes(8, "big")

    return _changed(place, "raise-timestamp", change)


def _of_producer(directory: Path, rng: random.Random) -> Place:
    def fits(place: Place) -> bool:
        return place.header.base_sequence >= 0 and not place.header.is_transactional

    return inner_place(directory, rng, fits, " of an idempotent producer")


def _changed(place: Place, kind: str, change: Callable[[bytearray], None]) -> Planted:
    rewrite_batch(place, change)
    header = place.header
    return Planted(kind, "log-matching", header.base_offset, header.leader_epoch, place.segment.name)


def recompress_batch(directory: Path, rng: random.Random) -> Planted:
    """The records of a batch stand in another codec, so that all that is behind them lies elsewhere in the file; its
    indexes are as before."""

    def fits(place: Place) -> bool:
        return not place.header.is_control

    place = inner_place(directory, rng, fits, " of records")
    recompress(place)
    header = place.header
    return Planted("recompress-batch", "log-matching", header.base_offset, header.leader_epoch, place.segment.name)


def recompress(place: Place) -> None:
    """The same records, with gzip, or without a codec where they have one."""
    header, data = place.header, place.segment.read_bytes()
    batch = encode_batch(
        [(each.timestamp, each.key, each.value, each.headers) for each in decode_records(place.data, header)],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        codec=Codec.GZIP if header.codec is Codec.NONE else Codec.NONE,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    place.segment.write_bytes(data[: place.position] + batch + data[place.end :])


def garble_payload(directory: Path, rng: random.Random) -> Planted:
    """Bytes inside of a compressed batch change so that it cannot be decompressed, and its CRC is made right."""
    place = inner_place(directory, rng, lambda place: place.header.codec is not Codec.NONE, " that is compressed")

    def change(batch: bytearray) -> None:
        for start in range(HEADER_SIZE, len(batch)):
            batch[start : start + 4] = bytes(byte ^ 0xFF for byte in batch[start : start + 4])
            try:
                decode_records(bytes(batch), read_header(bytes(batch)))
            except CorruptBatch:
                return
        raise NothingToDamage(f"the batch at {place.header.base_offset} decompresses whatever is in it")

    rewrite_batch(place, change)
    header = place.header
    return Planted("garble-payload", "log-matching", header.base_offset, header.leader_epoch, place.segment.name)


def turn_marker(directory: Path, rng: random.Random) -> Planted:
    """An aborted transaction's marker says commit."""
    aborts = [place for place in places_of(directory) if place.header.is_control and _ends(place) == ControlType.ABORT]
    if not aborts or not list(directory.glob("*.txnindex")) or not stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.name} has no aborted transaction with an index that is complete")
    place = rng.choice(aborts)
    (record,) = decode_records(place.data, place.header)

    def change(batch: bytearray) -> None:
        batch[:] = encode_control_batch(
            ControlType.COMMIT,
            end_transaction_value(coordinator_epoch(record)),
            timestamp=record.timestamp,
            base_offset=place.header.base_offset,
            leader_epoch=place.header.leader_epoch,
            producer_id=place.header.producer_id,
            producer_epoch=place.header.producer_epoch,
        )

    rewrite_batch(place, change)
    file = place.segment.with_suffix(TRANSACTION_INDEX_SUFFIX).name
    return Planted("turn-marker", "transaction-mismatch", place.header.base_offset, place.header.leader_epoch, file)


def _ends(place: Place) -> int:
    return control_type(decode_records(place.data, place.header)[0])


def miss_truncation(directory: Path) -> Planted:
    """The log goes on in an old epoch where the newest one begins, and the replica counts that as replicated."""
    start, epoch = stale_tail(directory)
    end, _ = log_end_of(directory)
    set_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT, end)
    file = places_of(directory)[-1].segment.name
    return Planted("miss-truncation", "log-matching", start, epoch, file)


def stale_tail(directory: Path) -> tuple[int, int]:
    """Put a batch of the epoch before in the place of the newest epoch's; returns its offset and epoch.

    The checkpoints count nothing of it.
    """
    places = places_of(directory)
    newest = max(place.header.leader_epoch for place in places)
    older = [place for place in places if place.header.leader_epoch < newest]
    sources = [place for place in older if not place.header.is_control]
    if not sources:
        raise NothingToDamage(f"{directory.name} has one leader epoch only")
    source, last = sources[-1], older[-1]
    start, epoch = last.header.next_offset, last.header.leader_epoch
    batch = bytearray(source.data)
    batch[:8], batch[EPOCH_FIELD] = start.to_bytes(8, "big"), epoch.to_bytes(4, "big", signed=True)
    batch[PRODUCER_FIELDS] = b"\xff" * 14
    batch[CRC_FIELD] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    for segment in {place.segment for place in places if place.segment > last.segment}:
        for path in directory.glob(f"{segment.stem}.*"):
            path.unlink()
    last.segment.write_bytes(last.segment.read_bytes()[: last.end] + bytes(batch))
    drop_indexes(last.segment)
    drop_snapshots(directory, start)
    path = directory / LEADER_EPOCH_CHECKPOINT
    path.write_bytes(encode_leader_epochs([e for e in decode_leader_epochs(path.read_bytes()) if e.epoch < newest]))
    for name in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        set_checkpoint(directory, name, min(start, checkpointed(directory, name) or 0))
    return start, epoch
