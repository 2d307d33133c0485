"""Near misses: what looks much like a kind of damage and is none, since a healthy broker may leave it behind.

Each is a function of a partition's directory. Most change one replica; where `everywhere` is set, all replicas must get
the same change (the same function with the same seed), as if their leader had written it so.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c
from odradek_proto.formats import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_INDEX_ENTRY_SIZE,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TIME_INDEX_ENTRY_SIZE,
    TIME_INDEX_SUFFIX,
    decode_leader_epochs,
    decode_producer_snapshot,
    decode_transaction_index,
    encode_leader_epochs,
    encode_producer_snapshot,
    encode_transaction_index,
    segment_file_name,
)
from odradek_proto.records import decode_records, encode_batch

from tests.audit.corruption.in_batches import MAX_TIMESTAMP_FIELD, PRODUCER_FIELDS, recompress, stale_tail
from tests.audit.corruption.places import (
    CRC_FIELD,
    CRC_START,
    EPOCH_FIELD,
    NothingToDamage,
    checkpointed,
    drop_indexes,
    drop_snapshots,
    drop_transactions,
    first_of,
    log_end_of,
    places_of,
    rewrite_batch,
    set_checkpoint,
    stopped_cleanly,
)

CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
NEWER = 5
DELTA_FIELD = slice(23, 27)
NOISE = bytes(range(256)) * 2


@dataclass(frozen=True)
class NearMiss:
    """What to do, and whether to all replicas."""

    change: Callable[[Path], None]
    everywhere: bool = False


def _must_be_killed(directory: Path) -> None:
    if stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.parent} was closed cleanly, so nothing in it may be half done")


def _append(directory: Path, tail: bytes) -> None:
    last = max(directory.glob("*.log"))
    last.write_bytes(last.read_bytes() + tail)


def flip_in_torn_tail(directory: Path) -> None:
    """A half-written last batch, with a flipped byte in it."""
    _must_be_killed(directory)
    batch = places_of(directory)[-1].data
    _append(directory, batch[:40] + bytes([batch[40] ^ 0xFF]) + batch[41 : len(batch) - 5])


def torn_length(directory: Path) -> None:
    """The first bytes of a batch: a crash in the middle of its header."""
    _must_be_killed(directory)
    _append(directory, places_of(directory)[-1].data[:11])


def zeros_at_end(directory: Path) -> None:
    """A file that grew before its bytes were written."""
    _must_be_killed(directory)
    _append(directory, bytes(5000))


def torn_tail(directory: Path) -> None:
    """A last batch without its end."""
    _must_be_killed(directory)
    _append(directory, places_of(directory)[-1].data[:-1])


def files_on_their_way_out(directory: Path) -> None:
    """Noise in files that a broker is about to delete, or has not finished."""
    for suffix in (".log.deleted", ".log.swap", ".log.cleaned", ".index.deleted", ".snapshot.deleted"):
        (directory / f"{7:020d}{suffix}").write_bytes(NOISE)


def deleted_directory(directory: Path) -> None:
    """A topic of before, renamed and not yet gone."""
    old = directory.with_name(f"{directory.name}.0123456789abcdef0123456789abcdef-delete")
    old.mkdir()
    (old / f"{0:020d}.log").write_bytes(NOISE)


def cleaned_batch(directory: Path) -> None:
    """Kafka's cleaner has removed a batch below its checkpoint."""
    places = places_of(directory)
    if len(places) < 2:
        raise NothingToDamage(f"{directory.name} has fewer than two batches")
    first, second = places[:2]
    data = first.segment.read_bytes()
    first.segment.write_bytes(data[: second.position] + data[second.end :])
    drop_indexes(first.segment)
    set_checkpoint(directory, CLEANER_CHECKPOINT, second.header.next_offset)


def cleaned_records(directory: Path) -> None:
    """Kafka's cleaner has removed a record out of a batch below its checkpoint."""
    place = first_of(
        (place for place in places_of(directory) if place.header.record_count > 1 and not place.header.is_control),
        f"{directory.name} has no batch of two records",
    )

    header, records = place.header, decode_records(place.data, place.header)
    kept = bytearray(
        encode_batch(
            [(record.timestamp, record.key, record.value, record.headers) for record in records[:-1]],
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            codec=header.codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    )
    kept[DELTA_FIELD] = place.data[DELTA_FIELD]
    kept[CRC_FIELD] = crc32c(bytes(kept[CRC_START:])).to_bytes(4, "big")
    whole = place.segment.read_bytes()
    place.segment.write_bytes(whole[: place.position] + kept + whole[place.end :])
    drop_indexes(place.segment)
    set_checkpoint(directory, CLEANER_CHECKPOINT, place.header.next_offset)


def merged_segments(directory: Path) -> None:
    """Other segment boundaries: two segments in one file, as after a recovery with other settings."""
    segments = sorted(directory.glob("*.log"))
    if len(segments) < 2:
        raise NothingToDamage(f"{directory.name} has one segment only")
    first, second = segments[:2]
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()
    for segment in (first, second):
        drop_indexes(segment)


def rolled_segment(directory: Path) -> None:
    """A new active segment that has no batch yet."""
    end, _ = log_end_of(directory)
    (directory / segment_file_name(end)).write_bytes(b"")


def compressed_copy(directory: Path) -> None:
    """Somebody's compressed copy of a segment beside it."""
    segment = min(directory.glob("*.log"))
    segment.with_name(f"{segment.name}.gz").write_bytes(gzip.compress(segment.read_bytes()))


def cleaned_start(directory: Path) -> None:
    """Kafka's cleaner has removed the first batch of a segment below its checkpoint: it keeps its name."""
    for before, place, after in zip(
        places_of(directory), places_of(directory)[1:], places_of(directory)[2:], strict=False
    ):
        if before.segment != place.segment == after.segment:
            place.segment.write_bytes(place.segment.read_bytes()[place.end :])
            drop_indexes(place.segment)
            set_checkpoint(directory, CLEANER_CHECKPOINT, after.header.base_offset)
            return
    raise NothingToDamage(f"{directory.name} has no second segment with two batches")


def log_append_time(directory: Path) -> None:
    """A broker has stamped a batch with its own time (message.timestamp.type), as its leader."""
    place = places_of(directory)[1]

    def change(batch: bytearray) -> None:
        batch[22] |= 0x08
        batch[MAX_TIMESTAMP_FIELD] = (place.header.max_timestamp + 1).to_bytes(8, "big")

    rewrite_batch(place, change)
    for segment in directory.glob("*.log"):
        drop_indexes(segment)


def recompressed(directory: Path) -> None:
    """A topic whose codec was changed (compression.type): the leader wrote the batch so, and all replicas have it."""
    places = [place for place in places_of(directory) if not place.header.is_control]
    if not places:
        raise NothingToDamage(f"{directory.name} has no batch of records")
    drop_indexes(places[-1].segment)
    recompress(places[-1])


def no_index(directory: Path) -> None:
    """A log without indexes, which a broker builds anew."""
    for segment in directory.glob("*.log"):
        drop_indexes(segment)


def _filled(directory: Path, suffix: str) -> Path:
    """The first index with an entry in it. Raises `NothingToDamage`."""
    return first_of(
        (path for path in sorted(directory.glob(f"*{suffix}")) if path.read_bytes().rstrip(b"\0")),
        f"{directory.name} has no {suffix} file with an entry",
    )


def earlier_position(directory: Path) -> None:
    """An index entry that points to an earlier batch: slower, and still right, as followers of an older Kafka write."""
    path = _filled(directory, OFFSET_INDEX_SUFFIX)
    data = bytearray(path.read_bytes())
    data[4:8] = bytes(4)
    path.write_bytes(data)


def fewer_time_entries(directory: Path) -> None:
    """A time index without its first entry: a look-up begins earlier."""
    path = _filled(directory, TIME_INDEX_SUFFIX)
    path.write_bytes(path.read_bytes()[TIME_INDEX_ENTRY_SIZE:])


def fewer_index_entries(directory: Path) -> None:
    """An offset index without its first entry: a look-up begins earlier."""
    path = _filled(directory, OFFSET_INDEX_SUFFIX)
    path.write_bytes(path.read_bytes()[OFFSET_INDEX_ENTRY_SIZE:])


def no_checkpoints(directory: Path) -> None:
    """A broker that was killed before it wrote checkpoints for the first time."""
    for name in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        (directory.parent / name).unlink(missing_ok=True)


def behind_checkpoints(directory: Path) -> None:
    """High watermark and recovery point are older than the log."""
    middle = places_of(directory)[len(places_of(directory)) // 2].header.base_offset
    set_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT, middle)
    set_checkpoint(directory, RECOVERY_POINT_CHECKPOINT, middle)


def equal_checkpoints(directory: Path) -> None:
    """High watermark and recovery point are the log end offset: as far as they may go."""
    end, _ = log_end_of(directory)
    set_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT, end)
    set_checkpoint(directory, RECOVERY_POINT_CHECKPOINT, end)


def deleted_records(directory: Path) -> None:
    """DeleteRecords has moved the log start into a segment; the files are as they were."""
    places = places_of(directory)
    if len(places) < 2:
        raise NothingToDamage(f"{directory.name} has fewer than two batches")
    start = places[1].header.base_offset
    set_checkpoint(directory, LOG_START_OFFSET_CHECKPOINT, start)
    set_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT, max(start, checkpointed_mark(directory)))


def lagging(directory: Path) -> None:
    """A follower that has not fetched the last batch yet."""
    last = places_of(directory)[-1]
    start = last.header.base_offset
    if start == min(int(path.stem) for path in directory.glob("*.log") if path == last.segment):
        raise NothingToDamage(f"{directory.name} has one batch only in its last segment")
    last.segment.write_bytes(last.segment.read_bytes()[: last.position])
    drop_indexes(last.segment)
    drop_snapshots(directory, start)
    drop_transactions(directory, start)
    set_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT, start)
    set_checkpoint(directory, RECOVERY_POINT_CHECKPOINT, start)


def stale_index(directory: Path) -> None:
    """The last batch is gone in a crash, the index entries that point to it are not."""
    _must_be_killed(directory)
    last = places_of(directory)[-1]
    start = last.header.base_offset
    last.segment.write_bytes(last.segment.read_bytes()[: last.position])
    set_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT, min(start, checkpointed_mark(directory)))


def checkpointed_mark(directory: Path) -> int:
    """The high watermark of a partition's directory; 0 without one."""
    return checkpointed(directory, REPLICATION_OFFSET_CHECKPOINT) or 0


def ahead(directory: Path) -> None:
    """A batch behind the others' end, which nobody has replicated yet."""
    places = places_of(directory)
    end, epoch = log_end_of(directory)
    batch = bytearray(next(place for place in reversed(places) if not place.header.is_control).data)
    batch[:8], batch[EPOCH_FIELD] = end.to_bytes(8, "big"), epoch.to_bytes(4, "big", signed=True)
    batch[PRODUCER_FIELDS] = b"\xff" * 14
    batch[CRC_FIELD] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")
    _append(directory, bytes(batch))


def waiting_truncation(directory: Path) -> None:
    """A tail of an old epoch that the replica has not counted as replicated: its next fetch cuts it off."""
    stale_tail(directory)


def retention(directory: Path) -> None:
    """The first segment is gone; the epoch file is not cut yet."""
    segments = sorted(directory.glob("*.log"))
    if len(segments) < 2:
        raise NothingToDamage(f"{directory.name} has one segment only")
    for path in directory.glob(f"{segments[0].stem}.*"):
        path.unlink()
    set_checkpoint(directory, LOG_START_OFFSET_CHECKPOINT, int(segments[1].stem))


def finished_retention(directory: Path) -> None:
    """The first segment is gone, and what the epoch file said of it."""
    retention(directory)
    start = int(min(directory.glob("*.log")).stem)
    path = directory / LEADER_EPOCH_CHECKPOINT
    entries = decode_leader_epochs(path.read_bytes())
    kept = [entry for entry in entries if entry.start_offset >= start]
    before = [entry for entry in entries if entry.start_offset < start]
    if before and (not kept or kept[0].start_offset > start):
        kept.insert(0, before[-1]._replace(start_offset=start))
    path.write_bytes(encode_leader_epochs(kept))


def epoch_without_records(directory: Path) -> None:
    """A leader that was elected and wrote nothing."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    end, epoch = log_end_of(directory)
    path.write_bytes(encode_leader_epochs([*decode_leader_epochs(path.read_bytes()), (epoch + NEWER, end)]))


def unfinished_epoch_file(directory: Path) -> None:
    """A crash while the leader epoch file was written: the new one has not its name yet."""
    (directory / f"{LEADER_EPOCH_CHECKPOINT}.tmp").write_bytes(b"0\n7\n0 0\n")


def skipped_epochs(directory: Path) -> None:
    """Elections without records: the last batch's epoch is several above the one before it."""
    last = places_of(directory)[-1]
    epoch = last.header.leader_epoch + NEWER

    def change(batch: bytearray) -> None:
        batch[EPOCH_FIELD] = epoch.to_bytes(4, "big")

    rewrite_batch(last, change)
    path = directory / LEADER_EPOCH_CHECKPOINT
    entries = [e for e in decode_leader_epochs(path.read_bytes()) if e.start_offset < last.header.base_offset]
    path.write_bytes(encode_leader_epochs([*entries, (epoch, last.header.base_offset)]))


def bumped_producer(directory: Path) -> None:
    """A producer with a new epoch, whose sequence numbers begin anew."""
    place = first_of(
        (place for place in reversed(places_of(directory)) if place.header.base_sequence > 0),
        f"{directory.name} has no batch of an idempotent producer but its first",
    )

    def change(batch: bytearray) -> None:
        batch[PRODUCER_FIELDS.start + 8 : PRODUCER_FIELDS.stop] = (place.header.producer_epoch + 1).to_bytes(
            2, "big"
        ) + bytes(4)

    rewrite_batch(place, change)
    drop_snapshots(directory, place.header.base_offset)


def other_snapshot_order(directory: Path) -> None:
    """Kafka writes the producers in the order of a hash table: any order is right."""
    for path in directory.glob("*.snapshot"):
        entries = decode_producer_snapshot(path.read_bytes())
        path.write_bytes(encode_producer_snapshot(reversed(entries)))


def expired_producer(directory: Path) -> None:
    """Snapshots without the producer that has not been heard of for longest."""
    for path in directory.glob("*.snapshot"):
        entries = sorted(
            decode_producer_snapshot(path.read_bytes()), key=lambda each: (each.timestamp, each.last_offset)
        )
        path.write_bytes(encode_producer_snapshot(entries[1:]))


def torn_snapshot(directory: Path) -> None:
    """The newest snapshot after a crash: it was not written to its end."""
    _must_be_killed(directory)
    path = max(directory.glob("*.snapshot"), default=None)
    if path is None:
        raise NothingToDamage(f"{directory.name} has no producer snapshot")
    path.write_bytes(path.read_bytes()[:-3])


def no_transaction_index(directory: Path) -> None:
    """No transaction index on any replica, as odradek's storage leaves it."""
    for path in directory.glob("*.txnindex"):
        path.unlink()


def earlier_stable_offset(directory: Path) -> None:
    """Another transaction was open when an aborted one ended, so the last stable offset lay before its end."""
    for path in sorted(directory.glob("*.txnindex")):
        entries = decode_transaction_index(path.read_bytes())
        path.write_bytes(
            encode_transaction_index(entry._replace(last_stable_offset=entry.first_offset) for entry in entries)
        )


def cut_transaction_index(directory: Path) -> None:
    """After a crash the active segment's transaction index may lack its end; a start builds it anew."""
    _must_be_killed(directory)
    for path in directory.glob("*.txnindex"):
        path.write_bytes(b"")


def no_topic_id(directory: Path) -> None:
    """A directory from before topic ids."""
    (directory / PARTITION_METADATA).unlink()


def other_property_order(directory: Path) -> None:
    """The lines of `meta.properties` in another order, with a comment."""
    path = directory.parent / META_PROPERTIES
    path.write_text("# moved\n" + "\n".join(reversed(path.read_text().splitlines())) + "\n")


def no_directory_id(directory: Path) -> None:
    """A `meta.properties` from before directory ids."""
    path = directory.parent / META_PROPERTIES
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines() if "directory.id" not in line))


def reassigned_away(directory: Path) -> None:
    """The replica was given up cleanly: its directory waits to be removed, and the checkpoint still names it."""
    directory.rename(directory.with_name(f"{directory.name}.0123456789abcdef0123456789abcdef-delete"))


NEAR_MISSES: dict[str, NearMiss] = {
    "flip-byte": NearMiss(flip_in_torn_tail),
    "flip-length": NearMiss(torn_length),
    "flip-crc": NearMiss(torn_tail),
    "flip-magic": NearMiss(torn_length),
    "lower-base-offset": NearMiss(cleaned_batch),
    "empty-segment": NearMiss(rolled_segment),
    "empty-file-ahead": NearMiss(rolled_segment),
    "empty-file-inside": NearMiss(rolled_segment),
    "zero-segment": NearMiss(zeros_at_end),
    "scramble-segment": NearMiss(files_on_their_way_out),
    "compress-segment": NearMiss(compressed_copy),
    "swap-segments": NearMiss(merged_segments),
    "copy-segment": NearMiss(deleted_directory),
    "overlap-segments": NearMiss(merged_segments),
    "rename-segment": NearMiss(cleaned_start),
    "rename-segment-down": NearMiss(cleaned_start),
    "remove-first-segment": NearMiss(finished_retention),
    "tear-after-stop": NearMiss(torn_tail),
    "zeros-after-stop": NearMiss(zeros_at_end),
    "grow-record-count": NearMiss(cleaned_records),
    "change-timestamp": NearMiss(log_append_time, everywhere=True),
    "shift-index-entry": NearMiss(earlier_position),
    "turn-index-entries": NearMiss(fewer_index_entries),
    "turn-time-entries": NearMiss(fewer_time_entries),
    "cut-snapshot": NearMiss(torn_snapshot),
    "exchange-snapshot": NearMiss(other_snapshot_order),
    "garble-aborted": NearMiss(cut_transaction_index),
    "remove-aborted": NearMiss(no_transaction_index, everywhere=True),
    "raise-epoch-line": NearMiss(epoch_without_records),
    "turn-epochs": NearMiss(finished_retention),
    "garble-topic-id": NearMiss(no_topic_id),
    "garble-identity": NearMiss(other_property_order),
    "garble-high-watermarks": NearMiss(no_checkpoints),
    "garble-recovery-points": NearMiss(no_checkpoints),
    "overwrite-header": NearMiss(files_on_their_way_out),
    "zero-page": NearMiss(zeros_at_end),
    "remove-batch": NearMiss(cleaned_batch),
    "move-batch": NearMiss(merged_segments),
    "repeat-batch": NearMiss(ahead),
    "swap-batches": NearMiss(other_snapshot_order),
    "lower-epoch": NearMiss(skipped_epochs, everywhere=True),
    "raise-epoch": NearMiss(skipped_epochs, everywhere=True),
    "displace-batch": NearMiss(merged_segments),
    "cut-segment": NearMiss(torn_tail),
    "shorten-segment": NearMiss(stale_index),
    "remove-segment": NearMiss(retention),
    "cut-log": NearMiss(lagging),
    "change-record": NearMiss(deleted_directory),
    "change-record-count": NearMiss(cleaned_records),
    "break-sequence": NearMiss(bumped_producer, everywhere=True),
    "raise-producer-epoch": NearMiss(bumped_producer, everywhere=True),
    "change-producer": NearMiss(bumped_producer, everywhere=True),
    "make-control": NearMiss(expired_producer),
    "raise-timestamp": NearMiss(log_append_time, everywhere=True),
    "recompress-batch": NearMiss(recompressed, everywhere=True),
    "garble-payload": NearMiss(no_index),
    "turn-marker": NearMiss(no_transaction_index, everywhere=True),
    "miss-truncation": NearMiss(waiting_truncation),
    "raise-recovery-point": NearMiss(behind_checkpoints),
    "raise-high-watermark": NearMiss(equal_checkpoints),
    "raise-log-start": NearMiss(deleted_records),
    "raise-cleaner-offset": NearMiss(cleaned_batch),
    "remove-directory": NearMiss(reassigned_away),
    "shift-epoch": NearMiss(epoch_without_records),
    "forget-epoch": NearMiss(finished_retention),
    "garble-epoch-file": NearMiss(unfinished_epoch_file),
    "misplace-index-entry": NearMiss(earlier_position),
    "age-time-entry": NearMiss(fewer_time_entries),
    "flip-snapshot": NearMiss(torn_snapshot),
    "change-snapshot": NearMiss(expired_producer),
    "forget-aborted": NearMiss(cut_transaction_index),
    "raise-stable-offset": NearMiss(earlier_stable_offset),
    "change-topic-id": NearMiss(no_topic_id),
    "recreate-topic": NearMiss(no_topic_id),
    "change-cluster-id": NearMiss(other_property_order),
    "copy-identity": NearMiss(no_directory_id),
}
