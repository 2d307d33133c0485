"""A log directory as the audit sees it: which partitions are there, their segments, and what the small files say.

Reads directories of odradek and of Kafka alike. Left out, because they are no part of a log: directories that are
not `topic-partition` (of `*-delete`, `*-future` and `*-stray` only the names are kept), files that end in `.deleted`,
`.swap`, `.cleaned`. A file that cannot be parsed becomes a `FileProblem`; only a directory that cannot be listed is an
`OSError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from odradek_proto.formats import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    CorruptFile,
    MetaProperties,
    decode_leader_epochs,
    decode_meta_properties,
    decode_offset_checkpoint,
    decode_partition_metadata,
    parse_segment_file_name,
)
from odradek_proto.topics import DELETED_PARTITION_SUFFIX, TopicPartition, parse_partition_directory, topic_id_to_text

from odradek_audit.inputs.disk import FileSystem, join
from odradek_audit.inputs.events import EVENTS_FILE, FAULTS_FILE, BrokerEvents, read_broker_events
from odradek_audit.inputs.facts import (
    CLEANED_EVERYWHERE,
    METADATA_TOPIC,
    EpochLine,
    FileProblem,
    PartitionInputs,
    ReplicaInputs,
    SegmentFile,
)
from odradek_audit.inputs.stores import expanded, is_uri, local_path, located

T = TypeVar("T")

QUORUM_STATE = "quorum-state"
COMPACTED_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
SET_ASIDE_SUFFIXES = (DELETED_PARTITION_SUFFIX, "-stray", "-future")
"""Of directories that hold records of a partition and are none of its replicas."""
LONGEST_NAME = 255  # of a file, on every file system that we know: names of directories set aside are cut to it
LARGEST_SMALL_FILE = 32 * 1024 * 1024
"""A checkpoint of a million partitions has about this size; a larger one is not read."""

_SET_ASIDE = re.compile(rf"(.+)\.[0-9a-f]{{32}}(?:{'|'.join(SET_ASIDE_SUFFIXES)})", re.ASCII)
_LOG_FILE = re.compile(r"([0-9]{20})\.log", re.ASCII)
_METADATA_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint", re.ASCII)
_OFFSET_NAME = re.compile(r"[0-9]{20}", re.ASCII)
_LARGEST_OFFSET = (1 << 62) - 1
LOST_AND_FOUND = "lost+found"  # what a file system keeps for itself at its top, often for root alone


@dataclass(frozen=True)
class BrokerDirectory:
    """One broker's log directory: what the files at its top say."""

    replica: str
    path: str
    meta: MetaProperties | None
    clean_shutdown: bool
    high_watermarks: Mapping[TopicPartition, int]
    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    cleaned: Mapping[TopicPartition, int]
    partitions: Mapping[TopicPartition, str]
    problems: tuple[FileProblem, ...]
    events: BrokerEvents | None = None
    """What the broker wrote down about itself; None without such a file."""
    set_aside: tuple[str, ...] = ()
    """Names of directories that were given up and are still there (`orders-0.<id>-delete`)."""

    linked: frozenset[TopicPartition] = frozenset()
    """Partitions in place of whose directory there is a symbolic link, which is not followed."""

    def has_aside(self, partition: TopicPartition, suffixes: tuple[str, ...] = SET_ASIDE_SUFFIXES) -> bool:
        """Whether the broker still has a directory of the partition that it gave up."""
        return any(name.endswith(suffixes) and _is_of(name, partition) for name in self.set_aside)


@dataclass(frozen=True)
class Layout:
    """All partitions of all given directories."""

    directories: Mapping[str, BrokerDirectory]
    partitions: tuple[PartitionInputs, ...]
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Replicas whose directory could not be read, with the reason."""
    unread: tuple[str, ...] = ()
    """Those of them that have a directory: nobody knows what is in it."""
    topics: Collection[str] | None = None
    """Those that were asked for; None means all."""

    def asked_for(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics

    def has_aside(self, partition: TopicPartition, suffixes: tuple[str, ...] = SET_ASIDE_SUFFIXES) -> bool:
        """Whether any broker still has a directory of the partition that it gave up."""
        return any(directory.has_aside(partition, suffixes) for directory in self.directories.values())

    def has_link(self, partition: TopicPartition) -> bool:
        """Whether any broker has a symbolic link in place of the partition's directory."""
        return any(partition in directory.linked for directory in self.directories.values())


@dataclass(frozen=True)
class DirectoryReader:
    """Reads files of one partition's replicas; can be sent to another process together with its disk."""

    disk: FileSystem
    directories: Mapping[str, str]

    def read(self, replica: str, file: str, position: int, length: int) -> bytes:
        path = join(self.directories[replica], file)
        return self.disk.read(path, position, min(length, max(self.disk.size(path) - position, 0)))


def reader_of(disk: FileSystem, partition: PartitionInputs) -> DirectoryReader:
    """The reader of a partition's replicas."""
    return DirectoryReader(disk, {name: inputs.directory for name, inputs in partition.replicas.items()})


def read_layout(disk: FileSystem, replicas: Mapping[str, str], topics: Iterable[str] | None = None) -> Layout:
    """Read the directories of some replicas. `topics` limits what is looked at; None means all."""
    asked = None if topics is None else dict.fromkeys(topics)
    directories: dict[str, BrokerDirectory] = {}
    unreadable: dict[str, str] = {}
    unread: list[str] = []
    for name in sorted(replicas):
        try:
            directories[name] = read_log_directory(disk, name, replicas[name])
        except OSError as error:
            unreadable[name] = f"{replicas[name]} cannot be read: {error.strerror or error}"
            if not isinstance(error, FileNotFoundError):
                unread.append(name)
    names = sorted({partition for directory in directories.values() for partition in directory.partitions})
    found: list[PartitionInputs] = []
    for partition in names:
        if asked is not None and partition.topic not in asked:
            continue
        inputs: dict[str, ReplicaInputs] = {}
        for name, directory in directories.items():
            if partition in directory.partitions:
                inputs[name] = _read_replica(disk, directory, partition)
        compacted = partition.topic in COMPACTED_TOPICS
        found.append(PartitionInputs(partition.topic, partition.partition, inputs, compacted, tuple(unread)))
    return Layout(directories, tuple(found), unreadable, tuple(unread), asked)


def read_log_directory(disk: FileSystem, replica: str, path: str) -> BrokerDirectory:
    """Read the top of a log directory. Raises `OSError` when it cannot be listed."""
    names = disk.list(path)
    problems: list[FileProblem] = []

    def small(file: str, decode: Callable[[bytes], T], otherwise: T) -> T:
        return _small_file(disk, path, file, decode, otherwise, problems) if file in names else otherwise

    empty: dict[TopicPartition, int] = {}
    partitions: dict[TopicPartition, str] = {}
    linked: set[TopicPartition] = set()
    for name in names:
        partition = parse_partition_directory(name)
        if partition is not None and disk.is_dir(join(path, name)):
            partitions[partition] = join(path, name)
        elif partition is not None and not disk.is_file(join(path, name)):
            linked.add(partition)
    aside = tuple(name for name in names if name.endswith(SET_ASIDE_SUFFIXES) and disk.is_dir(join(path, name)))
    return BrokerDirectory(
        replica=replica,
        path=path,
        meta=small(META_PROPERTIES, decode_meta_properties, None),
        clean_shutdown=CLEAN_SHUTDOWN in names,
        high_watermarks=small(REPLICATION_OFFSET_CHECKPOINT, decode_offset_checkpoint, empty),
        recovery_points=small(RECOVERY_POINT_CHECKPOINT, decode_offset_checkpoint, empty),
        log_starts=small(LOG_START_OFFSET_CHECKPOINT, decode_offset_checkpoint, empty),
        cleaned=small(CLEANER_OFFSET_CHECKPOINT, decode_offset_checkpoint, empty),
        partitions=partitions,
        problems=tuple(problems),
        events=read_broker_events(disk, path) if {EVENTS_FILE, FAULTS_FILE} & set(names) else None,
        set_aside=aside,
        linked=frozenset(linked),
    )


def _is_of(name: str, partition: TopicPartition) -> bool:
    """Whether a directory that was set aside was this partition's. odradek cuts a long name at its end, Kafka the
    topic in it."""
    match = _SET_ASIDE.fullmatch(name)
    if match is None or len(name) < LONGEST_NAME:
        return match is not None and match[1] == str(partition)
    topic, _, number = match[1].rpartition("-")
    by_kafka = number == str(partition.partition) and partition.topic.startswith(topic)
    return by_kafka or str(partition).startswith(match[1])


def _small_file(
    disk: FileSystem, directory: str, file: str, decode: Callable[[bytes], T], otherwise: T, problems: list[FileProblem]
) -> T:
    path = join(directory, file)
    try:
        if not disk.is_file(path):
            raise CorruptFile("it is no regular file")
        size = disk.size(path)
        if size > LARGEST_SMALL_FILE:
            raise CorruptFile(f"it has {size} bytes")
        return decode(disk.read(path, 0, size))
    except PermissionError as error:
        problems.append(FileProblem(file, error.strerror or str(error), refused=True))
        return otherwise
    except (CorruptFile, OSError) as error:
        problems.append(FileProblem(file, str(error)))
        return otherwise


def _read_replica(disk: FileSystem, directory: BrokerDirectory, partition: TopicPartition) -> ReplicaInputs:
    path = directory.partitions[partition]
    problems: list[FileProblem] = []
    segments: tuple[SegmentFile, ...] = ()
    snapshots: tuple[int, ...] = ()
    transaction_indexes: tuple[int, ...] = ()
    names: list[str] = []
    refused = ""
    try:
        names = disk.list(path)
        segments = _segments(disk, path, names, problems)
        snapshots = _offsets_of(disk, path, names, PRODUCER_SNAPSHOT_SUFFIX)
        transaction_indexes = _offsets_of(disk, path, names, TRANSACTION_INDEX_SUFFIX)
    except OSError as error:
        refused, names = error.strerror or str(error), []
        if not isinstance(error, PermissionError):
            problems.append(FileProblem(".", f"the directory cannot be read: {error}"))
    epochs: tuple[EpochLine, ...] | None = None
    if LEADER_EPOCH_CHECKPOINT in names:
        epochs = _small_file(disk, path, LEADER_EPOCH_CHECKPOINT, _decode_epochs, None, problems)
    topic_id = ""
    if PARTITION_METADATA in names:
        topic_id = _small_file(disk, path, PARTITION_METADATA, _decode_topic_id, "", problems)
    quorum_epoch: int | None = None
    if partition.topic == METADATA_TOPIC and QUORUM_STATE in names:
        quorum_epoch = _small_file(disk, path, QUORUM_STATE, _decode_quorum_state, None, problems)
    return ReplicaInputs(
        replica=directory.replica,
        directory=path,
        segments=segments,
        high_watermark=directory.high_watermarks.get(partition),
        recovery_point=directory.recovery_points.get(partition),
        log_start_checkpoint=directory.log_starts.get(partition),
        cleaned_to=_cleaned_to(directory, partition),
        epochs=epochs,
        topic_id=topic_id,
        cluster_id=directory.meta.cluster_id if directory.meta is not None else "",
        clean_shutdown=directory.clean_shutdown,
        problems=tuple(problems),
        snapshots=snapshots,
        transaction_indexes=transaction_indexes,
        metadata_snapshots=tuple(name for name in sorted(names) if _METADATA_SNAPSHOT.fullmatch(name)),
        refused=refused,
        quorum_epoch=quorum_epoch,
    )


def _cleaned_to(directory: BrokerDirectory, partition: TopicPartition) -> int:
    if any(problem.refused and problem.file == CLEANER_OFFSET_CHECKPOINT for problem in directory.problems):
        return CLEANED_EVERYWHERE
    return max(directory.cleaned.get(partition, 0), 0)


def _offsets_of(disk: FileSystem, path: str, names: list[str], suffix: str) -> tuple[int, ...]:
    """The offsets in the names of the regular files of one kind, rising."""
    found = [_OFFSET_NAME.fullmatch(name.removesuffix(suffix)) for name in names if name.endswith(suffix)]
    offsets = sorted(int(match[0]) for match in found if match is not None)
    return tuple(offset for offset in offsets if disk.is_file(join(path, f"{offset:020d}{suffix}")))


def _decode_epochs(data: bytes) -> tuple[EpochLine, ...] | None:
    return tuple(EpochLine(entry.epoch, entry.start_offset) for entry in decode_leader_epochs(data))


def _decode_quorum_state(data: bytes) -> int | None:
    """The leader epoch: a vote that cannot be read may be given twice. Raises `CorruptFile`."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"it is no JSON: {error}") from error
    if not isinstance(fields, dict) or type(fields.get("leaderEpoch")) is not int:
        raise CorruptFile("it names no leaderEpoch")
    return int(fields["leaderEpoch"])


def _decode_topic_id(data: bytes) -> str:
    return topic_id_to_text(decode_partition_metadata(data))


def _segments(disk: FileSystem, path: str, names: list[str], problems: list[FileProblem]) -> tuple[SegmentFile, ...]:
    present = frozenset(names)
    segments: list[SegmentFile] = []
    for name in names:
        match = _LOG_FILE.fullmatch(name)
        if match is None:
            continue
        base_offset = int(match[1])
        if base_offset > _LARGEST_OFFSET:
            problems.append(FileProblem(name, "no offset is as large as its name says"))
            continue
        try:
            if not disk.is_file(join(path, name)):
                raise CorruptFile("it is no regular file")
            size = disk.size(join(path, name))
        except PermissionError:
            raise  # the directory tells names and nothing more
        except (CorruptFile, OSError) as error:
            problems.append(FileProblem(name, str(error)))
            continue
        segments.append(
            SegmentFile(
                base_offset,
                size,
                match[1] + OFFSET_INDEX_SUFFIX in present and disk.is_file(join(path, match[1] + OFFSET_INDEX_SUFFIX)),
                match[1] + TIME_INDEX_SUFFIX in present and disk.is_file(join(path, match[1] + TIME_INDEX_SUFFIX)),
            )
        )
    return tuple(sorted(segments))


def find_log_directories(disk: FileSystem, data: str) -> dict[str, str]:
    """The brokers' log directories below a cluster's data directory, by node id (the directory's name where that is
    unknown).

    A log directory has `meta.properties` or a partition's directory; it lies one or two levels down. Raises `OSError`.
    """
    found: dict[str, str] = {}
    for name in disk.list(data):
        path = join(data, name)
        if name == LOST_AND_FOUND or not disk.is_dir(path):
            continue
        below = [join(path, entry) for entry in disk.list(path) if disk.is_dir(join(path, entry))]
        for candidate in [path, *below]:
            if _is_log_directory(disk, candidate):
                directory = read_log_directory(disk, name, candidate)
                replica = str(directory.meta.node_id) if directory.meta is not None else name
                found[replica if replica not in found else name] = candidate
                break
    return found


def find_brokers(disk: FileSystem, places: Sequence[str]) -> dict[str, str]:
    """The brokers' log directories that some places mean: below each of them; of a place with wildcards, each match
    is one, or has them below it. Raises `OSError`."""
    found: dict[str, str] = {}
    for place in places:
        matches = expanded(disk, place)
        for match in matches:
            if match != place and _is_log_directory(disk, match):
                meta = read_log_directory(disk, match, match).meta
                below = {str(meta.node_id) if meta is not None else match.rpartition("/")[2]: match}
            else:
                below = find_log_directories(disk, match)
            for name, path in below.items():
                found[name if found.get(name, path) == path else path] = path
    return found


def _is_log_directory(disk: FileSystem, path: str) -> bool:
    names = disk.list(path)
    return META_PROPERTIES in names or any(parse_partition_directory(name) is not None for name in names)


def _is_partitions_directory(disk: FileSystem, path: str) -> bool:
    """Whether a partition's files lie in it; not where it cannot be read, which is told by who reads it."""
    try:
        names = disk.list(path)
        of_partition = {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA}
        found = any(name in of_partition or parse_segment_file_name(name) is not None for name in names)
        return found and not _is_log_directory(disk, path)
    except OSError:
        return False


def replicas_of(entries: Sequence[str], data: Sequence[str]) -> dict[str, str]:
    """The brokers' log directories that a command was given: each by name, or places that hold them.

    Names stand before places that `inputs.stores.located` takes, local ones absolute. Raises `ValueError` that says
    what is wrong, `OSError`.
    """
    if bool(entries) == bool(data):
        raise ValueError("give either --replica NAME=DIR for each replica, or --data DIR for a whole cluster")
    if entries:
        found = parse_replicas(entries)
        disk, places = located(found)
        for name, path in places.items():
            if _is_partitions_directory(disk, path):
                raise ValueError(
                    f"{name}={path}: that is a partition's directory: name the broker's directory above it, or use"
                    " `odradek log diff`"
                )
        return {name: place if is_uri(place) else str(local_path(place)) for name, place in found.items()}
    if not all(data):
        raise ValueError("--data: the name is empty; is a variable not set?")
    disk, places = located({str(number): place for number, place in enumerate(data)})
    found = find_brokers(disk, list(places.values()))
    if not found:
        given = ", ".join(data)
        raise ValueError(f"--data {given}: no directory in it is a broker's log directory (none has meta.properties)")
    queries = {place.partition("?")[0].rstrip("/"): place.partition("?")[2] for place in data if is_uri(place)}
    return {name: path + _query(path, queries) for name, path in found.items()}


def _query(path: str, queries: Mapping[str, str]) -> str:
    """What a store was told of, for a directory that was found in it."""
    root = "/".join(path.split("/")[:3])
    return next((f"?{query}" for place, query in queries.items() if query and place.startswith(root)), "")


def parse_replicas(entries: Sequence[str]) -> dict[str, str]:
    """`name=directory` entries as a mapping. Raises `ValueError` that says what is wrong."""
    replicas: dict[str, str] = {}
    for entry in entries:
        name, equals, path = entry.strip().partition("=")
        if not equals or not name or not path:
            raise ValueError(f"{entry!r} is not name=directory, such as 1=/copies/broker-1")
        if name in replicas:
            raise ValueError(f"the replica {name} is named twice")
        replicas[name] = path
    return replicas
