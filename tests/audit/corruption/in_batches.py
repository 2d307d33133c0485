"""Damage that no CRC shows: batches that are whole, and not what they should be."""

from __future__ import annotations

import random
from pathlib import Path

from odradek_proto.formats import REPLICATION_OFFSET_CHECKPOINT, TRANSACTION_INDEX_SUFFIX
from odradek_proto.headers import CONTROL
from odradek_proto.records import (
    HEADER_SIZE,
    Codec,
    ControlType,
    CorruptBatch,
    control_type,
    coordinator_epoch,
    decode_records,
    encode_control_batch,
    end_transaction_value,
    read_header,
)

from tests.audit.corruption import near
from tests.audit.corruption.kinds import kind
from tests.audit.corruption.places import (
    MAX_TIMESTAMP_FIELD,
    PRODUCER_EPOCH_FIELD,
    PRODUCER_ID_FIELD,
    SEQUENCE_FIELD,
    NothingToDamage,
    Place,
    Planted,
    change_value,
    drop_indexes,
    inner_place,
    log_end_of,
    neighbours,
    places_of,
    recompress,
    rewrite_batch,
    set_checkpoint,
    set_field,
    stale_tail,
    stopped_cleanly,
)

LOW_ATTRIBUTES_FIELD = slice(22, 23)
COUNT_FIELD = slice(57, 61)
JUMP = 100
DAY_MS = 86_400_000


@kind(near.deleted_directory)
def change_record(directory: Path, rng: random.Random) -> Planted:
    """The last byte of a batch's last value changes and the CRC is made right: only another replica can tell."""
    place = inner_place(directory, rng)
    change_value(place)
    return Planted("log-matching", place.header.last_offset, place.header.leader_epoch, place.segment.name)


@kind(near.cleaned_records)
def change_record_count(directory: Path, rng: random.Random) -> Planted:
    """A header says one record less than it has offsets, and its CRC is right."""
    place = inner_place(directory, rng, lambda place: place.header.record_count > 1, " of several records")
    set_field(place, COUNT_FIELD, place.header.record_count - 1)
    return place.planted("record-count-mismatch")


@kind(near.cleaned_records)
def grow_record_count(directory: Path, rng: random.Random) -> Planted:
    """A header says one record more than it has offsets, and its CRC is right."""
    place = inner_place(directory, rng)
    before, _ = neighbours(directory, place)
    set_field(place, COUNT_FIELD, place.header.record_count + 1)
    return place.planted("batch-unreadable", epoch=before.header.leader_epoch)


@kind(near.log_append_time)
def change_timestamp(directory: Path, rng: random.Random) -> Planted:
    """A batch's largest timestamp is a millisecond less than it was, and its CRC is right; its records are equal."""
    place = inner_place(directory, rng)
    set_field(place, MAX_TIMESTAMP_FIELD, place.header.max_timestamp - 1)
    drop_indexes(place.segment)
    return place.planted("log-matching")


@kind(near.log_append_time)
def raise_timestamp(directory: Path, rng: random.Random) -> Planted:
    """A batch's largest timestamp is a day later than it was, and its CRC is right; its indexes are as before."""
    place = inner_place(directory, rng)
    set_field(place, MAX_TIMESTAMP_FIELD, place.header.max_timestamp + DAY_MS)
    return place.planted("log-matching")


@kind(near.bumped_producer, needs_producers=True)
def break_sequence(directory: Path, rng: random.Random) -> Planted:
    """A producer's batch has a later sequence than should follow, and its CRC is right."""
    first: dict[int, int] = {}
    for entry in places_of(directory):
        first.setdefault(entry.header.producer_id, entry.header.base_offset)

    def fits(place: Place) -> bool:
        header = place.header
        return header.base_sequence >= 0 and first[header.producer_id] < header.base_offset

    place = inner_place(directory, rng, fits, " of a producer that came before")
    set_field(place, SEQUENCE_FIELD, place.header.base_sequence + JUMP)
    return place.planted("sequence-gap")


@kind(near.bumped_producer, needs_producers=True)
def raise_producer_epoch(directory: Path, rng: random.Random) -> Planted:
    """A batch has a newer epoch of its producer than the ones behind it, and its CRC is right."""
    place = _of_producer(directory, rng)
    set_field(place, PRODUCER_EPOCH_FIELD, place.header.producer_epoch + 1)
    return place.planted("log-matching")


@kind(near.bumped_producer, needs_producers=True)
def change_producer(directory: Path, rng: random.Random) -> Planted:
    """A batch has another producer's id, and its CRC is right."""
    place = _of_producer(directory, rng)
    set_field(place, PRODUCER_ID_FIELD, place.header.producer_id + JUMP)
    return place.planted("log-matching")


@kind(near.expired_producer, needs_producers=True)
def make_control(directory: Path, rng: random.Random) -> Planted:
    """A batch of records says that it is a marker, and its CRC is right."""
    place = _of_producer(directory, rng)
    set_field(place, LOW_ATTRIBUTES_FIELD, place.data[LOW_ATTRIBUTES_FIELD.start] | CONTROL)
    return place.planted("log-matching")


def _of_producer(directory: Path, rng: random.Random) -> Place:
    def fits(place: Place) -> bool:
        return place.header.base_sequence >= 0 and not place.header.is_transactional

    return inner_place(directory, rng, fits, " of an idempotent producer")


@kind(near.recompressed)
def recompress_batch(directory: Path, rng: random.Random) -> Planted:
    """The records of a batch stand in another codec, so that all that is behind them lies elsewhere in the file; its
    indexes are as before."""
    place = inner_place(directory, rng, lambda place: not place.header.is_control, " of records")
    recompress(place)
    return place.planted("log-matching")


@kind(near.no_index, needs_producers=True)
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
    return place.planted("log-matching")


@kind(near.no_transaction_index, needs_producers=True)
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
    return place.planted("transaction-mismatch", file=file)


def _ends(place: Place) -> int:
    return control_type(decode_records(place.data, place.header)[0])


@kind(near.waiting_truncation)
def miss_truncation(directory: Path, _: random.Random) -> Planted:
    """The log goes on in an old epoch where the newest one begins, and the replica counts that as replicated."""
    start, epoch = stale_tail(directory)
    end, _newest = log_end_of(directory)
    set_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT, end)
    return Planted("log-matching", start, epoch, places_of(directory)[-1].segment.name)
