"""What has to hold of a disk after a power loss: it opens, and what it holds then is right.

Everything is opened as a broker opens it, and looked at; then the process is killed, and everything is opened once
more, which must change nothing. A power loss alone is no reason to refuse a start.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from odradek_broker.core.partition.epochs import EpochCache
from odradek_broker.core.partition.producers import ProducerEntry, ProducerStates
from odradek_broker.core.quorum.messages import SnapshotId
from odradek_broker.runtime.quorum.opening import OpenedQuorumLog, open_quorum_log
from odradek_broker.runtime.quorum.state_file import read_quorum_state
from odradek_broker.storage.directory import METADATA_PARTITION, LogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.settings import LogSettings
from odradek_proto.formats import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from odradek_proto.records import BatchHeader, check_batch
from odradek_proto.transport.lock_holders import LOCK
from odradek_proto.transport.ports import Files

from odradek_chaos.worlds.simulated.crash.durability import (
    Batches,
    DurabilityModel,
    Newest,
    OwedLogs,
    Written,
    end_of,
    newest_of,
)
from odradek_chaos.worlds.simulated.crash.states import CrashState
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

METADATA = str(METADATA_PARTITION)
WALL_MS = 1_700_000_000_000
LOOP = SimLoop()  # nothing runs on it: files want one
INDEXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
Batch = tuple[int, BatchHeader, bytes]  # position, header, all its bytes
Found = Iterator[str]


@dataclass(frozen=True, slots=True)
class Bench:
    """Whose directory it is, and how its logs are opened."""

    root: str = "/data"
    node_id: int = 1
    settings: LogSettings = field(default_factory=LogSettings)


@dataclass(slots=True)
class OpenedDirectory:
    """A log directory with all its logs open."""

    directory: LogDirectory
    logs: dict[str, Log]  # the metadata log is not among them
    quorum: OpenedQuorumLog | None


def open_everything(files: Files, bench: Bench) -> OpenedDirectory:
    """Open a directory as a broker does when it starts. Raises what that raises."""
    directory = LogDirectory.open(
        files, bench.root, node_id=bench.node_id, cluster_id=None, wall_ms=WALL_MS, rng=random.Random(1)
    )
    quorum = None
    if files.is_dir(f"{bench.root}/{METADATA}"):
        quorum = open_quorum_log(files, bench.root, _load, WALL_MS, bench.settings)
        read_quorum_state(files, f"{bench.root}/{METADATA}")
    logs = {
        str(partition): directory.open_log(partition, topic_id, bench.settings, wall_ms=WALL_MS)
        for partition, topic_id in directory.partitions().items()
    }
    return OpenedDirectory(directory, logs, quorum)


def _load(snapshot: SnapshotId, records: Iterator[bytes]) -> object:
    return list(records)


def judge(state: CrashState, promises: DurabilityModel, owed: OwedLogs, now: int, bench: Bench) -> list[str]:
    """What is wrong with a state at operation `now`; nothing, if all is well."""
    found = list(_whole_files(state, promises, owed, now))
    disk = state.disk()
    files = SimFiles(disk, LOOP, random.Random(0))
    try:
        opened = open_everything(files, bench)
        found += _check_all(disk, opened, written_by_name(state, promises), owed)
        return found or list(_again(disk, files, opened, bench))
    except Exception as error:  # whatever it is: the broker does not come up, or cannot read what it has
        return [*found, f"does not open: {error!r}"]


def written_by_name(state: CrashState, promises: DurabilityModel) -> dict[str, Written]:
    """Every batch that was ever written into a directory, by its present name."""
    return {path.rpartition("/")[2]: promises.written.get(number, {}) for path, number in state.paths()}


def _check_all(disk: SimDisk, opened: OpenedDirectory, written: dict[str, Written], owed: OwedLogs) -> Found:
    logs, covered = _all_logs(opened), 0
    if opened.quorum is not None:
        covered = opened.quorum.kept[-1].id.end_offset if opened.quorum.kept else 0
        for each in _check_quorum(opened.quorum):
            yield f"{METADATA}: {each}"
    for name, log in logs.items():
        segments = [_batches_of(disk, segment) for segment in log.segments]
        for each in check_log(log, segments, written.get(name, {}), owed.starts.get(name, 0)):
            yield f"{name}: {each}"
        if name != METADATA:  # which has snapshots for what goes, and in its keys the types of control records
            for each in _superseded_by_nothing(segments, owed.newest.get(name, {})):
                yield f"{name}: {each}"
        below = covered if name == METADATA else opened.directory.cleaned.get(log.topic_partition, 0)
        for each in _lost(log, segments, owed.logs.get(name, {}), below):
            yield f"{name}: {each}"
        if log.recovery.below_recovery_point:
            yield f"{name}: damage below the recovery point: {log.recovery.reason}"
    for name, batches in owed.logs.items():
        if batches and name not in logs:
            yield f"{name}: is gone with {len(batches)} batches that were promised"


def _whole_files(state: CrashState, promises: DurabilityModel, owed: OwedLogs, now: int) -> Found:
    for (directory, name), versions in promises.versions.items():
        entries = state.entries(directory)
        if entries is None:
            continue  # the directory itself is gone, or not there yet
        node = entries.get(name)
        wrong = versions.judge(None if node is None else state.contents[node], owed.index, now)
        if wrong:
            yield f"{name} {wrong}"


def _batches_of(disk: SimDisk, segment: Segment) -> list[Batch]:
    """All of a segment's batches. Raises `CorruptBatch`."""
    content, position = disk.read(segment.path), 0
    found: list[Batch] = []
    while position < len(content):
        header = check_batch(content, position, compacted=True)
        found.append((position, header, content[position : position + header.size]))
        position += header.size
    return found


def check_log(log: Log, segments: list[list[Batch]], written: Written, start: int = 0) -> Found:
    """Batches are whole, in order, and were written there, each behind the same one as now.

    Epochs, producers, indexes and offsets say what they say.
    Epochs may be missing below `start`, where the log was to begin: the checkpoint that says so comes later.
    """
    state, producers, epochs = log.state, ProducerStates(), EpochCache()
    offset, epoch, seen, before = log.first_segment_base, -1, 0, b""
    for segment, batches in zip(log.segments, segments, strict=True):
        if segment.base_offset != offset:
            yield f"a segment begins at {segment.base_offset}, the one before it ends at {offset}"
        for _, header, batch in batches:
            if batch not in written:
                yield f"the batch at {header.base_offset} was never written"
            elif before and not state.gaps and before not in written[batch]:
                yield f"the batch at {header.base_offset} was not written behind the one before it"
            before = batch
            gap = header.base_offset > offset and not state.gaps
            if gap or header.base_offset < offset or header.leader_epoch < epoch:
                yield f"offset {header.base_offset} of epoch {header.leader_epoch} follows {offset} of epoch {epoch}"
            offset, epoch, seen = header.next_offset, header.leader_epoch, seen + 1
            if epoch >= 0:
                epochs.assign(epoch, header.base_offset)
            if offset > log.log_start_offset:
                producers.update(header)
        yield from _check_indexes(segment, batches)
    if not log.end_offset == offset == state.log_end_offset:
        yield f"the log ends at {offset}, storage says {log.end_offset}, the state {state.log_end_offset}"
    if not log.log_start_offset <= log.recovery_point <= log.end_offset:
        yield f"recovery point {log.recovery_point} outside of {log.log_start_offset}..{log.end_offset}"
    if not state.high_watermark <= log.end_offset:
        yield f"high watermark {state.high_watermark} above the log end offset {log.end_offset}"
    mine, begin = state.epochs.entries, max(log.log_start_offset, start)
    if mine and mine[0].offset <= begin:
        epochs.truncate_from_start(mine[0].offset)
    if state.gaps:  # the first batch of an epoch may be gone
        wrong = [
            header.base_offset
            for batches in segments
            for _, header, _ in batches
            if header.base_offset >= begin and state.epochs.epoch_for_offset(header.base_offset) != header.leader_epoch
        ]
        if wrong:
            yield f"epochs are {mine}, which the batches at {wrong} are not of"
    elif seen and mine != epochs.entries:
        yield f"epochs are {mine}, the batches say {epochs.entries}"
    for known in producers.entries():
        theirs = state.producers.get(known.producer_id)
        if theirs is None or _standing(theirs) != _standing(known):
            yield f"producer {known.producer_id} is {theirs}, the batches say {known}"


def _standing(entry: ProducerEntry) -> tuple[object, ...]:
    """What a producer goes on from. A cleaner may take the record that had the largest time out of its last batch."""
    last = [batch._replace(timestamp=-1) for batch in entry.batches[-1:]]
    return entry.producer_id, entry.producer_epoch, last


def _check_indexes(segment: Segment, batches: list[Batch]) -> Found:
    segment.know_indexes()
    ends = {position: header.last_offset for position, header, _ in batches}
    for relative, position in segment.index.entries:
        if ends.get(position) != segment.base_offset + relative:
            yield f"{segment.path}: the index says offset {segment.base_offset + relative} at byte {position}"
    times = {header.last_offset: header.max_timestamp for _, header, _ in batches}
    for timestamp, relative in segment.time_index.entries:
        if times.get(segment.base_offset + relative) != timestamp:
            yield f"{segment.path}: the time index says {timestamp} at offset {segment.base_offset + relative}"


def _lost(log: Log, segments: list[list[Batch]], owed: Batches, covered: int) -> Found:
    """Batches that were promised and are not there; those that end at or below `covered` are in a snapshot, or were
    cleaned."""
    if not owed:
        return
    there = {header.base_offset: batch for batches in segments for _, header, batch in batches}
    for base, batch in owed.items():
        if end_of(base, batch) <= covered:
            continue
        if there.get(base) != batch:
            yield f"the batch at {base} was promised; the log is {log.log_start_offset}..{log.end_offset}"
            return
        if base < log.log_start_offset:
            yield f"the batch at {base} was promised, and the log starts at {log.log_start_offset}"
            return


def _superseded_by_nothing(segments: list[list[Batch]], owed: Newest) -> Found:
    """Keys whose promised newest record is gone, and no newer one is there (compact-last-value, K-91)."""
    found = newest_of(batch for batches in segments for _, _, batch in batches) if owed else {}
    for key, record in owed.items():
        there = found.get(key)
        if there is None and record.value is None:
            continue  # a tombstone whose time is over
        if there is None or there.offset < record.offset or (there.offset == record.offset and there != record):
            yield f"the newest record of the key {key!r} was promised, {record}; there is {there}"


def _check_quorum(opened: OpenedQuorumLog) -> Found:
    start = _inner(opened).log_start_offset
    for snapshot, reason in opened.damaged:
        yield f"snapshot {snapshot.end_offset}-{snapshot.epoch} is damaged: {reason}"
    if opened.lost:
        yield "the log ends below a damaged snapshot, or below what was flushed"
    if not opened.kept and start > 0:
        yield f"the log starts at {start} without a snapshot"


def _again(disk: SimDisk, files: SimFiles, first: OpenedDirectory, bench: Bench) -> Found:
    """A kill right after the start, and another start: everything is as it was."""
    before = {name: _view(log) for name, log in _all_logs(first).items()}
    recovered = not first.directory.clean
    caches = [
        segment.path.removesuffix(LOG_SUFFIX) for log in _all_logs(first).values() for segment in log.segments[-1:]
    ]
    content = _content(disk) if recovered else {}
    files.detach()
    second = open_everything(SimFiles(disk, LOOP, random.Random(0)), bench)
    after = {name: _view(log) for name, log in _all_logs(second).items()}
    for name, view in before.items():
        if after.get(name) != view:
            yield f"{name}: a second recovery gives {after.get(name)}, the first one gave {view}"
    newest = _content(disk) if recovered else {}
    for path in sorted(content.keys() | newest.keys()):
        was, now = content.get(path), newest.get(path)
        is_cache = path.endswith(INDEXES) and path.partition(".")[0] in caches  # of the active segment: made anew
        if was != now and not is_cache:
            yield f"{path} is changed by a second recovery: {was!r:.200} becomes {now!r:.200}"


def _all_logs(opened: OpenedDirectory) -> dict[str, Log]:
    return opened.logs if opened.quorum is None else {**opened.logs, METADATA: _inner(opened.quorum)}


def _inner(opened: OpenedQuorumLog) -> Log:
    """The log below the quorum's, which shows more of itself."""
    return opened.log._log


def _view(log: Log) -> tuple[object, ...]:
    state = log.state
    producers = [_standing(each) for each in state.producers.entries()]
    segments = [segment.base_offset for segment in log.segments]
    epochs = state.epochs.entries if log.end_offset > log.log_start_offset else ()
    return (log.log_start_offset, log.end_offset, epochs, producers, segments)


def _content(disk: SimDisk) -> dict[str, bytes]:
    return {path: bytes(inode.data) for path, inode in disk.walk() if not path.endswith(LOCK)}
