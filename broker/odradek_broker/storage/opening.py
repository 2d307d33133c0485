"""From the files of a partition's directory to the state of a replica (R-66, R-233 to R-237, R-246). Blocking."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_proto.formats import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    CorruptFile,
    decode_leader_epochs,
    decode_partition_metadata,
    encode_leader_epochs,
    encode_partition_metadata,
    segment_file_name,
)
from odradek_proto.records import CorruptBatch
from odradek_proto.topics import TopicPartition, topic_id_to_text
from odradek_proto.transport.chance import chance, reached
from odradek_proto.transport.ports import Files
from odradek_proto.values import Value, replace

from odradek_broker.core.partition.epochs import EpochCache, EpochEntry
from odradek_broker.core.partition.messages import ReplicaLog
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.storage.atomic import read_file, replace_file
from odradek_broker.storage.errors import InconsistentTopicId, LogCorrupted, log_rebuilt
from odradek_broker.storage.producer_loading import load_producers, read_back
from odradek_broker.storage.recovery import DirectoryContent, Recoverer, Recovery, load_clean, tidy
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.segments import Segments
from odradek_broker.storage.settings import LogSettings
from odradek_broker.storage.snapshots import ProducerSnapshots

NO_EPOCHS = encode_leader_epochs(())
NOTHING = DirectoryContent([], frozenset(), [])


class KnownLog(Value, frozen=True):
    """What metadata and checkpoints say of a log that is to be opened."""

    topic_id: bytes = b""
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    gaps: bool = False  # it was compacted


class OpenedLog(Value, frozen=True):
    """What a log is made of."""

    state: ReplicaLog
    segments: Segments
    snapshots: ProducerSnapshots
    recovery: Recovery
    recovery_point: int


def open_files(
    files: Files,
    directory: str,
    topic_partition: TopicPartition,
    *,
    settings: LogSettings,
    known: KnownLog,
    clean: bool,
    wall_ms: int,
) -> OpenedLog:
    """Load, and recover where needed. Raises `InconsistentTopicId`, `LogCorrupted`, `OSError`."""
    topic_id = known.topic_id
    log_start_offset = max(known.log_start_offset, 0)  # nobody wrote another one
    is_new = not files.is_dir(directory)
    content = NOTHING
    if is_new:
        files.makedirs(directory)
    else:
        topic_id = settle_topic_id(files, directory, topic_partition, topic_id)
        content = tidy(files, directory)
    if not log_start_offset and _is_blank(files, directory, content):
        content = NOTHING
    created = not content.bases
    interval = settings.index_interval_bytes
    contiguous = not (known.gaps or settings.accept_straddling)
    segments = Segments(
        files,
        directory,
        [
            Segment(
                files, directory, base, interval=interval, created_ms=wall_ms, create=created, contiguous=contiguous
            )
            for base in (content.bases or [log_start_offset])
        ],
        interval,
        contiguous=contiguous,
    )
    try:
        if is_new:
            _say_whose_it_is(files, directory, topic_id)
            files.fsync_dir(directory.rpartition("/")[0] or "/")
        on_disk = [] if is_new else _read_epochs(files, directory)
        known = replace(known, topic_id=topic_id, log_start_offset=log_start_offset)
        opening = _Opening(files, directory, settings, segments, content, on_disk, wall_ms)
        return opening.run(topic_partition, known, clean=clean)
    except CorruptBatch as error:
        segments.close()
        raise LogCorrupted(directory, error.position, known.recovery_point, error.reason) from None
    except BaseException:
        segments.close()
        raise


class _Opening:
    """The steps of opening one log, in their order."""

    def __init__(
        self,
        files: Files,
        directory: str,
        settings: LogSettings,
        segments: Segments,
        content: DirectoryContent,
        epochs_on_disk: list[EpochEntry] | None,
        wall_ms: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._content = content
        self._snapshots = ProducerSnapshots(files, directory, content.snapshots)
        self._producers = ProducerStates(settings.producer_id_expiration_ms, wall_ms)
        self._wall_ms = wall_ms
        self._epochs_on_disk = epochs_on_disk
        self._epochs = EpochCache(epochs_on_disk or ())

    def run(self, topic_partition: TopicPartition, known: KnownLog, *, clean: bool) -> OpenedLog:
        segments, epochs, recovery_point = self._segments, self._epochs, known.recovery_point
        log_start = max(known.log_start_offset, segments.first.base_offset)
        recovery = Recovery()
        believed = clean and not chance("clean-stop-disbelieved", 0.3) and load_clean(segments, self._content)
        if self._content.bases and not believed:
            reached("log-recovered")
            recovery = self._recover(recovery_point)
        elif not self._content.bases:
            epochs.clear()
        elif not epochs.entries:
            self._find_epochs(segments.active.next_offset)
        end = segments.active.next_offset
        if end < log_start:
            segments.restart(log_start, self._wall_ms)
            epochs.clear()
            end = log_start
        self._load_producers(log_start, end)
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(log_start)
        self._write_epochs()
        recovery_point = end if believed or not self._content.bases else min(recovery_point, end)
        state = ReplicaLog(
            topic_partition=topic_partition,
            topic_id=known.topic_id,
            log_start_offset=log_start,
            log_end_offset=end,
            high_watermark=min(max(known.high_watermark, log_start), end),
            epochs=epochs,
            producers=self._producers,
            flushed_offset=max(recovery_point, log_start),
            gaps=known.gaps,
        )
        return OpenedLog(state, segments, self._snapshots, recovery, max(recovery_point, log_start))

    def _recover(self, recovery_point: int) -> Recovery:
        segments, content = self._segments, self._content
        first = segments.find(recovery_point)
        for place, segment in enumerate(segments.all[:first]):
            segment.next_offset = segments.all[place + 1].base_offset
            # A segment that was flushed to its end before the next one began: its indexes were completed after that.
            # Or it was cut there, and a kill between the cut and its flush left a cut that a power loss undid later.
            may_be_torn = place + 1 == first and segments.all[first].base_offset == recovery_point
            if may_be_torn:
                segment.rebuild_indexes(segment.next_offset)
            elif segment.base_offset in content.without_index:
                segment.rebuild_indexes()
        start = segments.all[first].base_offset
        if not self._epochs.entries:
            self._find_epochs(start)
        load_producers(self._producers, self._snapshots, segments, start)
        recoverer = Recoverer(
            segments, self._snapshots, self._epochs, self._epochs_on_disk or (), self._producers, recovery_point
        )
        return recoverer.run(first)

    def _load_producers(self, log_start: int, end: int) -> None:
        """Producer state at the end of the log, with a snapshot of it; only useful snapshots stay (R-246)."""
        producers, snapshots = self._producers, self._snapshots
        if producers.end_offset != end:
            load_producers(producers, snapshots, self._segments, end)
        read_back(producers, self._segments)
        if end not in snapshots.offsets:
            snapshots.write(end, producers, log_start)
        useful = {segment.base_offset for segment in self._segments.all} | {end}
        snapshots.drop(lambda offset: offset not in useful)

    def _find_epochs(self, end: int) -> None:
        """Read the epochs from the batches below `end`: the file is missing, bad or empty."""
        for header in self._segments.headers(self._segments.first.base_offset, end):
            if header.base_offset >= end:
                break
            if header.leader_epoch >= 0 and header.leader_epoch != self._epochs.latest_epoch:
                self._epochs.assign(header.leader_epoch, header.base_offset)

    def _write_epochs(self) -> None:
        entries = self._epochs.entries
        if self._epochs_on_disk is None or tuple(self._epochs_on_disk) != entries:
            content = encode_leader_epochs(entries)
            replace_file(self._files, self._directory, LEADER_EPOCH_CHECKPOINT, content, durable=True)


def _read_epochs(files: Files, directory: str) -> list[EpochEntry] | None:
    """The entries of the file; None when it is missing or bad. A torn one lacks the end of its last line."""
    path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
    content = read_file(files, path)
    try:
        entries = decode_leader_epochs(content) if content and content.endswith(b"\n") else None
    except CorruptFile as error:
        log_rebuilt(path, error)
        return None
    if entries is None or any(epoch < 0 or offset < 0 for epoch, offset in entries):
        if content:
            log_rebuilt(path, "torn, or with numbers below 0")
        return None
    return [EpochEntry(*entry) for entry in entries]


def make_directories(files: Files, parent: str, topic_ids: Mapping[str, bytes]) -> None:
    """Make directories of new logs in `parent`, by their paths, each with an empty segment and whose it is; durably.

    Whoever opens a log there waits for no disk. Blocking, safe in a thread while nobody does. Raises `OSError`.
    """
    for directory, topic_id in topic_ids.items():
        files.makedirs(directory)
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            files.open(f"{directory}/{segment_file_name(0, suffix)}", create=True).close()
        _say_whose_it_is(files, directory, topic_id)
    files.fsync_dir(parent)


def _say_whose_it_is(files: Files, directory: str, topic_id: bytes) -> None:
    """The last step of a new directory: all names in it are durable then."""
    replace_file(files, directory, LEADER_EPOCH_CHECKPOINT, NO_EPOCHS, durable=False)
    if any(topic_id):
        write_topic_id(files, directory, topic_id)
    else:
        files.fsync_dir(directory)


def _is_blank(files: Files, directory: str, content: DirectoryContent) -> bool:
    """Whether nothing was ever written to this log: there is nothing to recover."""
    return (
        content.bases == [0]
        and not content.snapshots
        and not files.size(f"{directory}/{segment_file_name(0)}")
        and read_file(files, f"{directory}/{LEADER_EPOCH_CHECKPOINT}") == NO_EPOCHS
    )


def write_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    replace_file(files, directory, PARTITION_METADATA, encode_partition_metadata(topic_id), durable=True)


def settle_topic_id(files: Files, directory: str, topic_partition: TopicPartition, topic_id: bytes) -> bytes:
    """Write the topic id when the directory has none, else compare. Raises `InconsistentTopicId`."""
    try:
        content = read_file(files, f"{directory}/{PARTITION_METADATA}")
        known = decode_partition_metadata(content) if content else b""
    except CorruptFile as error:
        raise InconsistentTopicId(f"{directory}/{PARTITION_METADATA}: {error}") from None
    if known and topic_id and known != topic_id:
        raise InconsistentTopicId(
            f"{topic_partition}: {directory} belongs to topic id {topic_id_to_text(known)},"
            f" not {topic_id_to_text(topic_id)}"
        )
    if topic_id and not known:
        write_topic_id(files, directory, topic_id)
    return known or topic_id
