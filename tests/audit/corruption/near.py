"""Near misses: what looks much like a kind of damage and is none, since a healthy broker may leave it behind.

Each is a function of a partition's directory. Most change one replica; those of `EVERYWHERE` are made to all replicas,
as if their leader had written it so.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from odradek_proto.formats import (
    CLEANER_OFFSET_CHECKPOINT,
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
    decode_producer_snapshot,
    decode_transaction_index,
    encode_producer_snapshot,
    encode_transaction_index,
    segment_file_name,
)

from tests.audit.corruption.places import (
    DELTA_FIELD,
    EPOCH_FIELD,
    MAX_TIMESTAMP_FIELD,
    PRODUCER_EPOCH_FIELD,
    SEQUENCE_FIELD,
    NothingToDamage,
    checkpointed,
    cut_last,
    drop_indexes,
    drop_snapshots,
    drop_transactions,
    epochs_of,
    log_end_of,
    moved_batch,
    needed,
    places_of,
    recompress,
    reencoded,
    remove_segment_files,
    rewrite_batch,
    set_checkpoint,
    set_epochs,
    set_field,
    splice,
    stale_tail,
    stopped_cleanly,
    two_places,
    with_crc,
)

NEWER = 5
NOISE = bytes(range(256)) * 2


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
    first, second, *_ = two_places(directory)
    splice(first.segment, second.position, second.end)
    drop_indexes(first.segment)
    set_checkpoint(directory, CLEANER_OFFSET_CHECKPOINT, second.header.next_offset)


def cleaned_records(directory: Path) -> None:
    """Kafka's cleaner has removed a record out of a batch below its checkpoint."""
    several = (each for each in places_of(directory) if each.header.record_count > 1 and not each.header.is_control)
    place = needed(several, f"{directory.name} has no batch of two records")[0]
    kept = bytearray(reencoded(place, records=-1))
    kept[DELTA_FIELD] = place.data[DELTA_FIELD]
    splice(place.segment, place.position, place.end, with_crc(kept))
    drop_indexes(place.segment)
    set_checkpoint(directory, CLEANER_OFFSET_CHECKPOINT, place.header.next_offset)


def _two_segments(directory: Path) -> list[Path]:
    return needed(sorted(directory.glob("*.log")), f"{directory.name} has one segment only", 2)


def merged_segments(directory: Path) -> None:
    """Other segment boundaries: two segments in one file, as after a recovery with other settings."""
    first, second, *_ = _two_segments(directory)
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
    places = places_of(directory)
    for before, place, after in zip(places, places[1:], places[2:], strict=False):
        if before.segment != place.segment == after.segment:
            splice(place.segment, 0, place.end)
            drop_indexes(place.segment)
            set_checkpoint(directory, CLEANER_OFFSET_CHECKPOINT, after.header.base_offset)
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
    places = (place for place in places_of(directory) if not place.header.is_control)
    last = needed(places, f"{directory.name} has no batch of records")[-1]
    drop_indexes(last.segment)
    recompress(last)


def no_index(directory: Path) -> None:
    """A log without indexes, which a broker builds anew."""
    for segment in directory.glob("*.log"):
        drop_indexes(segment)


def _filled(directory: Path, suffix: str) -> Path:
    """The first index with an entry in it. Raises `NothingToDamage`."""
    filled = (path for path in sorted(directory.glob(f"*{suffix}")) if path.read_bytes().rstrip(b"\0"))
    return needed(filled, f"{directory.name} has no {suffix} file with an entry")[0]


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


def _count_to(directory: Path, offset: int) -> None:
    for name in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        set_checkpoint(directory, name, offset)


def no_checkpoints(directory: Path) -> None:
    """A broker that was killed before it wrote checkpoints for the first time."""
    for name in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        (directory.parent / name).unlink(missing_ok=True)


def behind_checkpoints(directory: Path) -> None:
    """High watermark and recovery point are older than the log."""
    places = places_of(directory)
    _count_to(directory, places[len(places) // 2].header.base_offset)


def equal_checkpoints(directory: Path) -> None:
    """High watermark and recovery point are the log end offset: as far as they may go."""
    end, _ = log_end_of(directory)
    _count_to(directory, end)


def deleted_records(directory: Path) -> None:
    """DeleteRecords has moved the log start into a segment; the files are as they were."""
    start = two_places(directory)[1].header.base_offset
    set_checkpoint(directory, LOG_START_OFFSET_CHECKPOINT, start)
    set_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT, max(start, checkpointed_mark(directory)))


def lagging(directory: Path) -> None:
    """A follower that has not fetched the last batch yet."""
    last = places_of(directory)[-1]
    start = last.header.base_offset
    if start == min(int(path.stem) for path in directory.glob("*.log") if path == last.segment):
        raise NothingToDamage(f"{directory.name} has one batch only in its last segment")
    cut_last(last)
    drop_indexes(last.segment)
    drop_snapshots(directory, start)
    drop_transactions(directory, start)
    _count_to(directory, start)


def stale_index(directory: Path) -> None:
    """The last batch is gone in a crash, the index entries that point to it are not."""
    _must_be_killed(directory)
    last = places_of(directory)[-1]
    start = last.header.base_offset
    cut_last(last)
    set_checkpoint(directory, REPLICATION_OFFSET_CHECKPOINT, min(start, checkpointed_mark(directory)))


def checkpointed_mark(directory: Path) -> int:
    """The high watermark of a partition's directory; 0 without one."""
    return checkpointed(directory, REPLICATION_OFFSET_CHECKPOINT) or 0


def ahead(directory: Path) -> None:
    """A batch behind the others' end, which nobody has replicated yet."""
    places = places_of(directory)
    end, epoch = log_end_of(directory)
    source = next(place for place in reversed(places) if not place.header.is_control)
    _append(directory, moved_batch(source, end, epoch))


def waiting_truncation(directory: Path) -> None:
    """A tail of an old epoch that the replica has not counted as replicated: its next fetch cuts it off."""
    stale_tail(directory)


def retention(directory: Path) -> None:
    """The first segment is gone; the epoch file is not cut yet."""
    first, second, *_ = _two_segments(directory)
    remove_segment_files(first)
    set_checkpoint(directory, LOG_START_OFFSET_CHECKPOINT, int(second.stem))


def finished_retention(directory: Path) -> None:
    """The first segment is gone, and what the epoch file said of it."""
    retention(directory)
    start = int(min(directory.glob("*.log")).stem)
    entries = epochs_of(directory)
    kept = [entry for entry in entries if entry.start_offset >= start]
    before = [entry for entry in entries if entry.start_offset < start]
    if before and (not kept or kept[0].start_offset > start):
        kept.insert(0, before[-1]._replace(start_offset=start))
    set_epochs(directory, kept)


def epoch_without_records(directory: Path) -> None:
    """A leader that was elected and wrote nothing."""
    end, epoch = log_end_of(directory)
    set_epochs(directory, [*epochs_of(directory), (epoch + NEWER, end)])


def unfinished_epoch_file(directory: Path) -> None:
    """A crash while the leader epoch file was written: the new one has not its name yet."""
    (directory / f"{LEADER_EPOCH_CHECKPOINT}.tmp").write_bytes(b"0\n7\n0 0\n")


def skipped_epochs(directory: Path) -> None:
    """Elections without records: the last batch's epoch is several above the one before it."""
    last = places_of(directory)[-1]
    epoch = last.header.leader_epoch + NEWER
    set_field(last, EPOCH_FIELD, epoch)
    before = [entry for entry in epochs_of(directory) if entry.start_offset < last.header.base_offset]
    set_epochs(directory, [*before, (epoch, last.header.base_offset)])


def bumped_producer(directory: Path) -> None:
    """A producer with a new epoch, whose sequence numbers begin anew."""
    later = (each for each in places_of(directory) if each.header.base_sequence > 0)
    place = needed(later, f"{directory.name} has no batch of an idempotent producer but its first")[-1]

    def change(batch: bytearray) -> None:
        batch[PRODUCER_EPOCH_FIELD] = (place.header.producer_epoch + 1).to_bytes(2, "big")
        batch[SEQUENCE_FIELD] = bytes(4)

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
    path = max(needed(directory.glob("*.snapshot"), f"{directory.name} has no producer snapshot"))
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


EVERYWHERE = (log_append_time, recompressed, skipped_epochs, bumped_producer, no_transaction_index)
