"""Damage to the files beside a log: checkpoints, leader epochs, indexes, snapshots, identities."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
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
    decode_leader_epochs,
    decode_meta_properties,
    decode_producer_snapshot,
    decode_transaction_index,
    encode_leader_epochs,
    encode_meta_properties,
    encode_partition_metadata,
    encode_producer_snapshot,
    encode_transaction_index,
    segment_file_name,
)
from odradek_proto.records import encode_batch
from odradek_proto.values import replace

from tests.audit.corruption.places import (
    NothingToDamage,
    Planted,
    checkpointed,
    log_end_of,
    places_of,
    set_checkpoint,
    stopped_cleanly,
)

TOO_FAR = 1000
OTHER_CLUSTER = "YW5vdGhlci1jbHVzdGVyLQ"


def raise_recovery_point(directory: Path) -> Planted:
    """The recovery point runs ahead of the log (R-238)."""
    return _raise(directory, "raise-recovery-point", RECOVERY_POINT_CHECKPOINT)


def raise_high_watermark(directory: Path) -> Planted:
    """The high watermark's checkpoint runs ahead of the log."""
    return _raise(directory, "raise-high-watermark", REPLICATION_OFFSET_CHECKPOINT)


def raise_log_start(directory: Path) -> Planted:
    """The log start's checkpoint lies behind the log's end."""
    return _raise(directory, "raise-log-start", LOG_START_OFFSET_CHECKPOINT)


def remove_directory(directory: Path) -> Planted:
    """The partition's directory is gone, although the broker stopped cleanly and has counted its records."""
    if not stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.parent} was not closed cleanly, so its checkpoint may be stale")
    start = checkpointed(directory, LOG_START_OFFSET_CHECKPOINT) or 0
    if (checkpointed(directory, REPLICATION_OFFSET_CHECKPOINT) or 0) <= start:
        raise NothingToDamage(f"{directory.name} has not counted a record for its high watermark")
    shutil.rmtree(directory)
    return Planted("remove-directory", "checkpoint-order", start, -1, REPLICATION_OFFSET_CHECKPOINT)


def _raise(directory: Path, kind: str, name: str) -> Planted:
    end, epoch = log_end_of(directory)
    set_checkpoint(directory, name, end + TOO_FAR)
    return Planted(kind, "checkpoint-order", end, epoch, name)


def shift_epoch(directory: Path) -> Planted:
    """The leader epoch file says that the newest epoch began one record later."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    entries = decode_leader_epochs(path.read_bytes())
    if not entries:
        raise NothingToDamage(f"{path} has no entry")
    if len(entries) == 1 and not stopped_cleanly(directory):
        raise NothingToDamage(f"{path} has one entry, and DeleteRecords moves it before it moves the log start")
    epoch, start = entries[-1]
    path.write_bytes(encode_leader_epochs([*entries[:-1], (epoch, start + 1)]))
    return Planted("shift-epoch", "epoch-cache-mismatch", start, epoch, path.name)


def forget_epoch(directory: Path) -> Planted:
    """The leader epoch file has lost its newest line, although the log has records of that epoch."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    entries = decode_leader_epochs(path.read_bytes())
    _, newest = log_end_of(directory)
    if not entries or entries[-1].epoch != newest:
        raise NothingToDamage(f"{path} does not end with the log's newest epoch")
    path.write_bytes(encode_leader_epochs(entries[:-1]))
    return Planted("forget-epoch", "epoch-cache-mismatch", entries[-1].start_offset, newest, path.name)


def raise_epoch_line(directory: Path) -> Planted:
    """The newest line of the leader epoch file names an epoch that the log does not have."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    entries = decode_leader_epochs(path.read_bytes())
    if not entries:
        raise NothingToDamage(f"{path} has no entry")
    epoch, start = entries[-1]
    path.write_bytes(encode_leader_epochs([*entries[:-1], (epoch + 1, start)]))
    return Planted("raise-epoch-line", "epoch-cache-mismatch", start, epoch, path.name)


def turn_epochs(directory: Path) -> Planted:
    """The newest two lines of the leader epoch file are in the wrong order."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    entries = decode_leader_epochs(path.read_bytes())
    if len(entries) < 2:
        raise NothingToDamage(f"{path} has one entry only")
    path.write_bytes(encode_leader_epochs([*entries[:-2], entries[-1], entries[-2]]))
    epoch, start = entries[-2]
    return Planted("turn-epochs", "epoch-cache-mismatch", start, epoch, path.name)


def garble_topic_id(directory: Path) -> Planted:
    """`partition.metadata` is none."""
    path = directory / PARTITION_METADATA
    path.write_bytes(b"version: 0\ntopic_id: ?\n")
    return Planted("garble-topic-id", "file-corrupt", -1, -1, path.name)


def garble_identity(directory: Path) -> Planted:
    """`meta.properties` names a broker that cannot be."""
    path = directory.parent / META_PROPERTIES
    path.write_bytes(path.read_bytes().replace(b"node.id=", b"node.id=x"))
    return Planted("garble-identity", "file-corrupt", -1, -1, path.name)


def garble_high_watermarks(directory: Path) -> Planted:
    """The checkpoint of high watermarks was cut off within a line."""
    return _cut_checkpoint(directory, "garble-high-watermarks", REPLICATION_OFFSET_CHECKPOINT)


def garble_recovery_points(directory: Path) -> Planted:
    """The checkpoint of recovery points was cut off within a line."""
    return _cut_checkpoint(directory, "garble-recovery-points", RECOVERY_POINT_CHECKPOINT)


def _cut_checkpoint(directory: Path, kind: str, name: str) -> Planted:
    path = directory.parent / name
    path.write_bytes(path.read_bytes().rstrip().rpartition(b" ")[0])
    return Planted(kind, "file-corrupt", -1, -1, name)


def turn_index_entries(directory: Path) -> Planted:
    """Two neighbouring entries of an offset index have changed places."""
    return _turn_entries(directory, "turn-index-entries", OFFSET_INDEX_SUFFIX, OFFSET_INDEX_ENTRY_SIZE, slice(0, 4))


def turn_time_entries(directory: Path) -> Planted:
    """Two neighbouring entries of a time index have changed places."""
    return _turn_entries(directory, "turn-time-entries", TIME_INDEX_SUFFIX, TIME_INDEX_ENTRY_SIZE, slice(8, 12))


def _turn_entries(directory: Path, kind: str, suffix: str, size: int, relative: slice) -> Planted:
    for path in sorted(directory.glob(f"*{suffix}")):
        data = path.read_bytes()
        one, two = data[:size], data[size : 2 * size]
        if len(two) == size and two.strip(b"\0"):
            path.write_bytes(two + one + data[2 * size :])
            offset = int(path.stem) + int.from_bytes(one[relative], "big")
            return Planted(kind, "index-unsound", offset, _epoch_of(directory, offset), path.name)
    raise NothingToDamage(f"{directory.name} has no {suffix} file with two entries")


def shift_index_entry(directory: Path, rng: random.Random) -> Planted:
    """An entry of an offset index names an offset that is no batch's last."""
    path, number = _index_entry(directory, OFFSET_INDEX_SUFFIX, OFFSET_INDEX_ENTRY_SIZE, rng)
    data = bytearray(path.read_bytes())
    start = number * OFFSET_INDEX_ENTRY_SIZE
    relative = int.from_bytes(data[start : start + 4], "big")
    headers = [place.header for place in places_of(directory)]
    if all(header.last_offset != int(path.stem) + relative or header.record_count < 2 for header in headers):
        raise NothingToDamage(f"the batch of the entry in {path.name} has one record only")
    data[start : start + 4] = (relative - 1).to_bytes(4, "big")
    path.write_bytes(data)
    offset = int(path.stem) + relative - 1
    return Planted("shift-index-entry", "index-unsound", offset, _epoch_of(directory, offset), path.name)


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


def garble_epoch_file(directory: Path) -> Planted:
    """The leader epoch file claims more entries than it has."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    path.write_bytes(b"0\n7\n0 0\n")
    return Planted("garble-epoch-file", "file-corrupt", -1, -1, path.name)


def change_topic_id(directory: Path, rng: random.Random) -> Planted:
    """The partition's directory belongs to a topic of the same name that was created at another time."""
    path = directory / PARTITION_METADATA
    path.write_bytes(encode_partition_metadata(bytes([0x42]) + rng.randbytes(15)))
    return Planted("change-topic-id", "identity-mismatch", -1, -1, path.name)


def recreate_topic(directory: Path) -> Planted:
    """The partition's directory is of a topic of the same name that was made anew, with a few records of its own."""
    if places_of(directory)[0].header.base_offset:
        raise NothingToDamage(f"{directory.name} begins behind offset 0")
    for path in directory.iterdir():
        path.unlink()
    batches = [encode_batch([(0, None, b"new", ())], base_offset=offset, leader_epoch=0) for offset in range(3)]
    (directory / segment_file_name(0)).write_bytes(b"".join(batches))
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epochs([(0, 0)]))
    (directory / PARTITION_METADATA).write_bytes(encode_partition_metadata(bytes(range(16, 32))))
    for name in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        set_checkpoint(directory, name, len(batches))
    return Planted("recreate-topic", "identity-mismatch", -1, -1, PARTITION_METADATA)


def raise_cleaner_offset(directory: Path) -> Planted:
    """The cleaner's checkpoint runs ahead of the log, so that it would excuse every gap."""
    return _raise(directory, "raise-cleaner-offset", CLEANER_OFFSET_CHECKPOINT)


def change_cluster_id(directory: Path) -> Planted:
    """The log directory belongs to another cluster."""
    return _change_meta(directory, "change-cluster-id", lambda meta: replace(meta, cluster_id=OTHER_CLUSTER))


def copy_identity(directory: Path, rng: random.Random) -> Planted:
    """The log directory has the `meta.properties` of another broker, whose directory lies beside it."""
    own = directory.parent
    others = [path.parent for path in sorted(own.parent.glob(f"*/{META_PROPERTIES}")) if path.parent != own]
    if not others:
        raise NothingToDamage(f"beside {own} there is no other broker's directory")
    other = decode_meta_properties((rng.choice(others) / META_PROPERTIES).read_bytes())
    return _change_meta(directory, "copy-identity", lambda meta: other)


def _change_meta(directory: Path, kind: str, change: Callable[[MetaProperties], MetaProperties]) -> Planted:
    path = directory.parent / META_PROPERTIES
    path.write_bytes(encode_meta_properties(change(decode_meta_properties(path.read_bytes()))))
    return Planted(kind, "identity-mismatch", -1, -1, path.name)


def flip_snapshot(directory: Path, rng: random.Random) -> Planted:
    """A bit of a producer snapshot changes."""
    path = _snapshot(directory, rng)
    data = bytearray(path.read_bytes())
    data[rng.randrange(2, len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return Planted("flip-snapshot", "file-corrupt", -1, -1, path.name)


def cut_snapshot(directory: Path, rng: random.Random) -> Planted:
    """A producer snapshot has lost its end."""
    path = _snapshot(directory, rng)
    path.write_bytes(path.read_bytes()[:-3])
    return Planted("cut-snapshot", "file-corrupt", -1, -1, path.name)


def change_snapshot(directory: Path, rng: random.Random) -> Planted:
    """A producer snapshot says that a producer has sent one record more than it has, and its CRC is right."""
    path = _snapshot(directory, rng)
    entries = decode_producer_snapshot(path.read_bytes())
    number = rng.choice([place for place, entry in enumerate(entries) if entry.last_sequence >= 0])
    entry = entries[number]
    entries[number] = entry._replace(last_sequence=entry.last_sequence + 1)
    path.write_bytes(encode_producer_snapshot(entries))
    epoch = _epoch_of(directory, entry.last_offset)
    return Planted("change-snapshot", "producer-snapshot-mismatch", entry.last_offset, epoch, path.name)


def exchange_snapshot(directory: Path, rng: random.Random) -> Planted:
    """A producer snapshot holds what a later one holds: what its producers had not yet sent."""
    end, _ = log_end_of(directory)
    paths = [path for path in sorted(directory.glob("*.snapshot")) if int(path.stem) <= end]
    if len(paths) < 2:
        raise NothingToDamage(f"{directory.name} has fewer than two producer snapshots")
    own, later = (
        {each.producer_id: each for each in decode_producer_snapshot(path.read_bytes())} for path in paths[:2]
    )
    wrong = [own.get(each.producer_id, each) for each in later.values() if own.get(each.producer_id) != each]
    if not wrong:
        raise NothingToDamage(f"the first two producer snapshots of {directory.name} say the same")
    shutil.copyfile(paths[1], paths[0])
    offset = min(each.last_offset for each in wrong)
    epoch = _epoch_of(directory, offset) if offset < int(paths[0].stem) else -1
    return Planted("exchange-snapshot", "producer-snapshot-mismatch", offset, epoch, paths[0].name)


def raise_stable_offset(directory: Path, rng: random.Random) -> Planted:
    """An aborted transaction's entry says that the last stable offset was behind its end: readers of earlier records do
    not come to it, and are given what was aborted."""
    path = _complete_index(directory, rng)
    *before, entry = decode_transaction_index(path.read_bytes())
    raised = entry._replace(last_stable_offset=entry.last_offset + TOO_FAR)
    path.write_bytes(encode_transaction_index([*before, raised]))
    offset = entry.last_offset
    return Planted("raise-stable-offset", "transaction-mismatch", offset, _epoch_of(directory, offset), path.name)


def _complete_index(directory: Path, rng: random.Random) -> Path:
    """A transaction index with an entry, of a broker that stopped cleanly. Raises `NothingToDamage`."""
    paths = [path for path in sorted(directory.glob("*.txnindex")) if path.stat().st_size]
    if not paths or not stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.name} has no aborted transaction in an index that is complete")
    return rng.choice(paths)


def _snapshot(directory: Path, rng: random.Random) -> Path:
    """A snapshot with a producer in it; after an unclean stop not the newest, which a start would throw away."""
    end, _ = log_end_of(directory)
    paths = [path for path in sorted(directory.glob("*.snapshot")) if int(path.stem) <= end]
    paths = paths if stopped_cleanly(directory) else paths[:-1]
    known = [path for path in paths if decode_producer_snapshot(path.read_bytes())]
    if not known:
        raise NothingToDamage(f"{directory.name} has no producer snapshot that a start would believe")
    return rng.choice(known)


def forget_aborted(directory: Path, rng: random.Random) -> Planted:
    """The transaction index has lost its last aborted transaction."""
    path = _complete_index(directory, rng)
    entries = decode_transaction_index(path.read_bytes())
    path.write_bytes(encode_transaction_index(entries[:-1]))
    offset = entries[-1].last_offset
    return Planted("forget-aborted", "transaction-mismatch", offset, _epoch_of(directory, offset), path.name)


def remove_aborted(directory: Path) -> Planted:
    """A transaction index is gone on one broker, which stopped cleanly: who reads there is given aborted records."""
    paths = [path for path in sorted(directory.glob("*.txnindex")) if path.stat().st_size]
    if not paths or not stopped_cleanly(directory):
        raise NothingToDamage(f"{directory.name} has no aborted transaction in an index that is complete")
    offset = decode_transaction_index(paths[0].read_bytes())[0].last_offset
    paths[0].unlink()
    return Planted("remove-aborted", "transaction-mismatch", offset, _epoch_of(directory, offset), paths[0].name)


def garble_aborted(directory: Path, rng: random.Random) -> Planted:
    """A transaction index ends within an entry, although its broker stopped cleanly."""
    path = _complete_index(directory, rng)
    path.write_bytes(path.read_bytes()[:-5])
    return Planted("garble-aborted", "file-corrupt", -1, -1, path.name)


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
    headers = [place.header for place in places_of(directory)]
    return next(entry.leader_epoch for entry in headers if entry.base_offset <= offset <= entry.last_offset)
