"""Damage to the files beside a log: checkpoints, leader epochs, indexes, snapshots, identities."""

from __future__ import annotations

import random
import shutil
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
    MetaProperties,
    decode_meta_properties,
    decode_producer_snapshot,
    decode_transaction_index,
    encode_meta_properties,
    encode_partition_metadata,
    encode_producer_snapshot,
    encode_transaction_index,
    segment_file_name,
)
from odradek_proto.records import encode_batch
from odradek_proto.values import replace

from tests.audit.corruption import near
from tests.audit.corruption.kinds import kind
from tests.audit.corruption.places import (
    NothingToDamage,
    Planted,
    checkpointed,
    epochs_of,
    flip_bit,
    log_end_of,
    must_be_stopped,
    needed,
    places_of,
    set_checkpoint,
    set_epochs,
    stopped_cleanly,
)

TOO_FAR = 1000
OTHER_CLUSTER = "YW5vdGhlci1jbHVzdGVyLQ"
DAY_MS = 86_400_000


@kind(near.behind_checkpoints)
def raise_recovery_point(directory: Path, _: random.Random) -> Planted:
    """The recovery point runs ahead of the log (R-238)."""
    return _raise(directory, RECOVERY_POINT_CHECKPOINT)


@kind(near.equal_checkpoints)
def raise_high_watermark(directory: Path, _: random.Random) -> Planted:
    """The high watermark's checkpoint runs ahead of the log."""
    return _raise(directory, REPLICATION_OFFSET_CHECKPOINT)


@kind(near.deleted_records)
def raise_log_start(directory: Path, _: random.Random) -> Planted:
    """The log start's checkpoint lies behind the log's end."""
    return _raise(directory, LOG_START_OFFSET_CHECKPOINT)


@kind(near.cleaned_batch, needs_clean_stop=True)
def raise_cleaner_offset(directory: Path, _: random.Random) -> Planted:
    """The cleaner's checkpoint runs ahead of the log, so that it would excuse every gap."""
    return _raise(directory, CLEANER_OFFSET_CHECKPOINT)


def _raise(directory: Path, name: str) -> Planted:
    end, epoch = log_end_of(directory)
    set_checkpoint(directory, name, end + TOO_FAR)
    return Planted("checkpoint-order", end, epoch, name)


@kind(near.reassigned_away, needs_clean_stop=True)
def remove_directory(directory: Path, _: random.Random) -> Planted:
    """The partition's directory is gone, although the broker stopped cleanly and has counted its records."""
    must_be_stopped(directory)
    start = checkpointed(directory, LOG_START_OFFSET_CHECKPOINT) or 0
    if (checkpointed(directory, REPLICATION_OFFSET_CHECKPOINT) or 0) <= start:
        raise NothingToDamage(f"{directory.name} has not counted a record for its high watermark")
    shutil.rmtree(directory)
    return Planted("checkpoint-order", start, -1, REPLICATION_OFFSET_CHECKPOINT)


@kind(near.epoch_without_records)
def shift_epoch(directory: Path, _: random.Random) -> Planted:
    """The leader epoch file says that the newest epoch began one record later."""
    if len(epochs_of(directory)) == 1 and not stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.name} has one epoch, and DeleteRecords moves it before the log start")
    return _change_newest_epoch(directory, epoch_by=0, start_by=1)


@kind(near.epoch_without_records)
def raise_epoch_line(directory: Path, _: random.Random) -> Planted:
    """The newest line of the leader epoch file names an epoch that the log does not have."""
    return _change_newest_epoch(directory, epoch_by=1, start_by=0)


def _change_newest_epoch(directory: Path, *, epoch_by: int, start_by: int) -> Planted:
    *before, (epoch, start) = needed(epochs_of(directory), f"{LEADER_EPOCH_CHECKPOINT} has no entry")
    set_epochs(directory, [*before, (epoch + epoch_by, start + start_by)])
    return Planted("epoch-cache-mismatch", start, epoch, LEADER_EPOCH_CHECKPOINT)


@kind(near.finished_retention)
def forget_epoch(directory: Path, _: random.Random) -> Planted:
    """The leader epoch file has lost its newest line, although the log has records of that epoch."""
    entries = epochs_of(directory)
    if not entries or entries[-1].epoch != log_end_of(directory)[1]:
        raise NothingToDamage(f"{LEADER_EPOCH_CHECKPOINT} does not end with the log's newest epoch")
    *before, last = entries
    set_epochs(directory, before)
    return Planted("epoch-cache-mismatch", last.start_offset, last.epoch, LEADER_EPOCH_CHECKPOINT)


@kind(near.finished_retention)
def turn_epochs(directory: Path, _: random.Random) -> Planted:
    """The newest two lines of the leader epoch file are in the wrong order."""
    *before, one, two = needed(epochs_of(directory), f"{LEADER_EPOCH_CHECKPOINT} has one entry only", 2)
    set_epochs(directory, [*before, two, one])
    return Planted("epoch-cache-mismatch", one.start_offset, one.epoch, LEADER_EPOCH_CHECKPOINT)


@kind(near.unfinished_epoch_file)
def garble_epoch_file(directory: Path, _: random.Random) -> Planted:
    """The leader epoch file claims more entries than it has."""
    return _garble(directory / LEADER_EPOCH_CHECKPOINT, b"0\n7\n0 0\n")


@kind(near.no_topic_id)
def garble_topic_id(directory: Path, _: random.Random) -> Planted:
    """`partition.metadata` is none."""
    return _garble(directory / PARTITION_METADATA, b"version: 0\ntopic_id: ?\n")


@kind(near.other_property_order)
def garble_identity(directory: Path, _: random.Random) -> Planted:
    """`meta.properties` names a broker that cannot be."""
    path = directory.parent / META_PROPERTIES
    return _garble(path, path.read_bytes().replace(b"node.id=", b"node.id=x"))


@kind(near.no_checkpoints)
def garble_high_watermarks(directory: Path, _: random.Random) -> Planted:
    """The checkpoint of high watermarks was cut off within a line."""
    path = directory.parent / REPLICATION_OFFSET_CHECKPOINT
    return _garble(path, path.read_bytes().rstrip().rpartition(b" ")[0])


@kind(near.no_checkpoints)
def garble_recovery_points(directory: Path, _: random.Random) -> Planted:
    """The checkpoint of recovery points was cut off within a line."""
    path = directory.parent / RECOVERY_POINT_CHECKPOINT
    return _garble(path, path.read_bytes().rstrip().rpartition(b" ")[0])


def _garble(path: Path, data: bytes) -> Planted:
    path.write_bytes(data)
    return Planted("file-corrupt", -1, -1, path.name)


@kind(near.fewer_index_entries)
def turn_index_entries(directory: Path, _: random.Random) -> Planted:
    """Two neighbouring entries of an offset index have changed places."""
    return _turn_entries(directory, OFFSET_INDEX_SUFFIX, OFFSET_INDEX_ENTRY_SIZE, slice(0, 4))


@kind(near.fewer_time_entries)
def turn_time_entries(directory: Path, _: random.Random) -> Planted:
    """Two neighbouring entries of a time index have changed places."""
    return _turn_entries(directory, TIME_INDEX_SUFFIX, TIME_INDEX_ENTRY_SIZE, slice(8, 12))


def _turn_entries(directory: Path, suffix: str, size: int, relative: slice) -> Planted:
    for path in sorted(directory.glob(f"*{suffix}")):
        data = path.read_bytes()
        one, two = data[:size], data[size : 2 * size]
        if len(two) == size and two.strip(b"\0"):
            path.write_bytes(two + one + data[2 * size :])
            return _at_offset(path, "index-unsound", int(path.stem) + int.from_bytes(one[relative], "big"))
    raise NothingToDamage(f"{directory.name} has no {suffix} file with two entries")


@kind(near.earlier_position)
def shift_index_entry(directory: Path, rng: random.Random) -> Planted:
    """An entry of an offset index names an offset that is no batch's last."""
    path, start = _index_entry(directory, OFFSET_INDEX_SUFFIX, OFFSET_INDEX_ENTRY_SIZE, rng)
    last_offset = int(path.stem) + int.from_bytes(path.read_bytes()[start : start + 4], "big")
    headers = [place.header for place in places_of(directory)]
    if all(header.last_offset != last_offset or header.record_count < 2 for header in headers):
        raise NothingToDamage(f"the batch of the entry in {path.name} has one record only")
    _add(path, slice(start, start + 4), -1)
    return _at_offset(path, "index-unsound", last_offset - 1)


@kind(near.earlier_position)
def misplace_index_entry(directory: Path, rng: random.Random) -> Planted:
    """An entry of an offset index points into the middle of a batch."""
    path, start = _index_entry(directory, OFFSET_INDEX_SUFFIX, OFFSET_INDEX_ENTRY_SIZE, rng)
    _add(path, slice(start + 4, start + 8), 1)
    return _at_offset(
        path, "index-unsound", int(path.stem) + int.from_bytes(path.read_bytes()[start : start + 4], "big")
    )


@kind(near.fewer_time_entries)
def age_time_entry(directory: Path, rng: random.Random) -> Planted:
    """An entry of a time index says that everything so far is a day older than it is."""
    path, start = _index_entry(directory, TIME_INDEX_SUFFIX, TIME_INDEX_ENTRY_SIZE, rng)
    _add(path, slice(start, start + 8), -DAY_MS)
    relative = int.from_bytes(path.read_bytes()[start + 8 : start + 12], "big")
    return _at_offset(path, "index-unsound", int(path.stem) + relative)


def _index_entry(directory: Path, suffix: str, size: int, rng: random.Random) -> tuple[Path, int]:
    """The file and the position of any entry."""
    places = [
        (path, number * size)
        for path in sorted(directory.glob(f"*{suffix}"))
        for number in range(len(path.read_bytes().rstrip(b"\0")) // size)
    ]
    return rng.choice(needed(places, f"{directory.name} has no entry in any {suffix} file"))


def _add(path: Path, field: slice, number: int) -> None:
    data = bytearray(path.read_bytes())
    data[field] = (int.from_bytes(data[field], "big") + number).to_bytes(field.stop - field.start, "big")
    path.write_bytes(data)


@kind(near.no_topic_id)
def change_topic_id(directory: Path, rng: random.Random) -> Planted:
    """The partition's directory belongs to a topic of the same name that was created at another time."""
    (directory / PARTITION_METADATA).write_bytes(encode_partition_metadata(bytes([0x42]) + rng.randbytes(15)))
    return _other_identity(PARTITION_METADATA)


@kind(near.no_topic_id)
def recreate_topic(directory: Path, _: random.Random) -> Planted:
    """The partition's directory is of a topic of the same name that was made anew, with a few records of its own."""
    if places_of(directory)[0].header.base_offset:
        raise NothingToDamage(f"{directory.name} begins behind offset 0")
    for path in directory.iterdir():
        path.unlink()
    batches = [encode_batch([(0, None, b"new", ())], base_offset=offset, leader_epoch=0) for offset in range(3)]
    (directory / segment_file_name(0)).write_bytes(b"".join(batches))
    set_epochs(directory, [(0, 0)])
    (directory / PARTITION_METADATA).write_bytes(encode_partition_metadata(bytes(range(16, 32))))
    for name in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        set_checkpoint(directory, name, len(batches))
    return _other_identity(PARTITION_METADATA)


@kind(near.other_property_order)
def change_cluster_id(directory: Path, _: random.Random) -> Planted:
    """The log directory belongs to another cluster."""
    own = decode_meta_properties((directory.parent / META_PROPERTIES).read_bytes())
    return _set_meta(directory, replace(own, cluster_id=OTHER_CLUSTER))


@kind(near.no_directory_id)
def copy_identity(directory: Path, rng: random.Random) -> Planted:
    """The log directory has the `meta.properties` of another broker, whose directory lies beside it."""
    own = directory.parent
    others = [path for path in sorted(own.parent.glob(f"*/{META_PROPERTIES}")) if path.parent != own]
    other = rng.choice(needed(others, f"beside {own} there is no other broker's directory"))
    return _set_meta(directory, decode_meta_properties(other.read_bytes()))


def _set_meta(directory: Path, meta: MetaProperties) -> Planted:
    (directory.parent / META_PROPERTIES).write_bytes(encode_meta_properties(meta))
    return _other_identity(META_PROPERTIES)


def _other_identity(name: str) -> Planted:
    return Planted("identity-mismatch", -1, -1, name)


@kind(near.torn_snapshot, needs_producers=True)
def flip_snapshot(directory: Path, rng: random.Random) -> Planted:
    """A bit of a producer snapshot changes."""
    path = _snapshot(directory, rng)
    flip_bit(path, rng.randrange(2, path.stat().st_size), rng.randrange(8))
    return Planted("file-corrupt", -1, -1, path.name)


@kind(near.torn_snapshot, needs_producers=True)
def cut_snapshot(directory: Path, rng: random.Random) -> Planted:
    """A producer snapshot has lost its end."""
    path = _snapshot(directory, rng)
    return _garble(path, path.read_bytes()[:-3])


@kind(near.expired_producer, needs_producers=True)
def change_snapshot(directory: Path, rng: random.Random) -> Planted:
    """A producer snapshot says that a producer has sent one record more than it has, and its CRC is right."""
    path = _snapshot(directory, rng)
    entries = decode_producer_snapshot(path.read_bytes())
    number = rng.choice([place for place, entry in enumerate(entries) if entry.last_sequence >= 0])
    entry = entries[number]
    entries[number] = entry._replace(last_sequence=entry.last_sequence + 1)
    path.write_bytes(encode_producer_snapshot(entries))
    return _at_offset(path, "producer-snapshot-mismatch", entry.last_offset)


@kind(near.other_snapshot_order, needs_producers=True)
def exchange_snapshot(directory: Path, _: random.Random) -> Planted:
    """A producer snapshot holds what a later one holds: what its producers had not yet sent."""
    end, _epoch = log_end_of(directory)
    paths = [path for path in sorted(directory.glob("*.snapshot")) if int(path.stem) <= end]
    paths = needed(paths, f"{directory.name} has fewer than two producer snapshots", 2)
    own, later = (
        {each.producer_id: each for each in decode_producer_snapshot(path.read_bytes())} for path in paths[:2]
    )
    wrong = [own.get(each.producer_id, each) for each in later.values() if own.get(each.producer_id) != each]
    wrong = needed(wrong, f"the first two producer snapshots of {directory.name} say the same")
    shutil.copyfile(paths[1], paths[0])
    offset = min(each.last_offset for each in wrong)
    if offset < int(paths[0].stem):
        return _at_offset(paths[0], "producer-snapshot-mismatch", offset)
    return Planted("producer-snapshot-mismatch", offset, -1, paths[0].name)


def _snapshot(directory: Path, rng: random.Random) -> Path:
    """A snapshot with a producer in it; after an unclean stop not the newest, which a start would throw away."""
    end, _ = log_end_of(directory)
    paths = [path for path in sorted(directory.glob("*.snapshot")) if int(path.stem) <= end]
    paths = paths if stopped_cleanly(directory) else paths[:-1]
    known = [path for path in paths if decode_producer_snapshot(path.read_bytes())]
    return rng.choice(needed(known, f"{directory.name} has no producer snapshot that a start would believe"))


@kind(near.earlier_stable_offset, needs_producers=True)
def raise_stable_offset(directory: Path, rng: random.Random) -> Planted:
    """An aborted transaction's entry says that the last stable offset was behind its end: readers of earlier records do
    not come to it, and are given what was aborted."""
    path = rng.choice(_complete_indexes(directory))
    *before, entry = decode_transaction_index(path.read_bytes())
    raised = entry._replace(last_stable_offset=entry.last_offset + TOO_FAR)
    path.write_bytes(encode_transaction_index([*before, raised]))
    return _at_offset(path, "transaction-mismatch", entry.last_offset)


@kind(near.cut_transaction_index, needs_producers=True)
def forget_aborted(directory: Path, rng: random.Random) -> Planted:
    """The transaction index has lost its last aborted transaction."""
    path = rng.choice(_complete_indexes(directory))
    *before, entry = decode_transaction_index(path.read_bytes())
    path.write_bytes(encode_transaction_index(before))
    return _at_offset(path, "transaction-mismatch", entry.last_offset)


@kind(near.no_transaction_index, needs_producers=True)
def remove_aborted(directory: Path, _: random.Random) -> Planted:
    """A transaction index is gone on one broker, which stopped cleanly: who reads there is given aborted records."""
    path = _complete_indexes(directory)[0]
    entry = decode_transaction_index(path.read_bytes())[0]
    path.unlink()
    return _at_offset(path, "transaction-mismatch", entry.last_offset)


@kind(near.cut_transaction_index, needs_producers=True)
def garble_aborted(directory: Path, rng: random.Random) -> Planted:
    """A transaction index ends within an entry, although its broker stopped cleanly."""
    path = rng.choice(_complete_indexes(directory))
    return _garble(path, path.read_bytes()[:-5])


def _complete_indexes(directory: Path) -> list[Path]:
    """Transaction indexes with an entry, of a broker that stopped cleanly. Raises `NothingToDamage`."""
    paths = [path for path in sorted(directory.glob("*.txnindex")) if path.stat().st_size]
    if not paths or not stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.name} has no aborted transaction in an index that is complete")
    return paths


def _at_offset(path: Path, check: str, offset: int) -> Planted:
    """A finding of a file beside the log at an offset of it, in the epoch of the batch there."""
    headers = [place.header for place in places_of(path.parent)]
    epoch = next(each.leader_epoch for each in headers if each.base_offset <= offset <= each.last_offset)
    return Planted(check, offset, epoch, path.name)
