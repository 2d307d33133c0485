"""A log directory: whose it is, what it holds, and the checkpoints of all its partitions (R-2, R-3, R-142, R-233).

Rules of this module. One process at a time, by a lock. The clean shutdown file is read and removed before any log is
opened, so that a crash from then on counts as unclean, and written last of all. A checkpoint is flushed before it takes
its name, and never says more than what was flushed before it.

`__cluster_metadata-0` lies here like any other partition and is opened like one, but is not listed among the data
partitions, and its offsets stand in the same checkpoints.
"""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from odradek_proto.formats import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptFile,
    MetaProperties,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_meta_properties,
)
from odradek_proto.topics import (
    DELETED_PARTITION_SUFFIX,
    TopicPartition,
    parse_partition_directory,
    partition_directory,
    topic_id_to_text,
)
from odradek_proto.transport.lock_holders import LOCK
from odradek_proto.transport.ports import File, Files

from odradek_broker.storage.atomic import TEMPORARY_SUFFIX, read_file, remove_files, replace_file
from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.checkpoint_file import CheckpointFile, Draft
from odradek_broker.storage.errors import (
    NO_ROOM,
    DiskFull,
    LogDirectoryFailed,
    LogDirectoryLocked,
    LogDirectoryUnusable,
    WrongLogDirectory,
    log_ignored,
    logger,
)
from odradek_broker.storage.log import Log
from odradek_broker.storage.opening import KnownLog, make_directories
from odradek_broker.storage.settings import LogSettings

PROMISED_CHECKPOINT = "promised-offset-checkpoint"  # Kafka has none
METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)
STRAY_SUFFIX = "-stray"
FIRST_STRAY_MS = 1_600_000_000_000  # 2020: names of earlier versions began with digits by chance, not with a time
_STRAY = re.compile(rf"\.([0-9a-f]{{12}})[0-9a-f]{{20}}{STRAY_SUFFIX}$")
NO_BROKER_EPOCH = -1
NO_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST)
LONGEST_NAME = 255  # of a file, on every file system that we know


def _make_durable(files: Files, path: str) -> None:
    """Make a directory and those above it, each entered for good in the one that holds it."""
    parent = path.rpartition("/")[0]
    if parent and not files.is_dir(parent):
        _make_durable(files, parent)
    files.makedirs(path)
    files.fsync_dir(parent or "/")


class LogDirectory:
    """One directory of logs, held by this process from `open` to `close`."""

    def __init__(
        self, files: Files, path: str, lock: File, properties: MetaProperties, cache: RecentBatches, rng: random.Random
    ) -> None:
        self.path = path
        self.properties = properties
        self.clean = False  # whether the broker that held it before closed all its logs
        self.previous_broker_epoch = NO_BROKER_EPOCH  # of the last clean shutdown
        self.cleaned: dict[TopicPartition, int] = {}  # below, offsets may be missing; whoever is here has gaps
        self.high_watermarks: dict[TopicPartition, int] = {}  # these three as they were at the start
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.promised: dict[TopicPartition, int] = {}  # where logs ended once that end below it now
        self._gone: dict[TopicPartition, int] = {}  # high watermarks of logs that were removed after a clean stop
        self._failed: LogDirectoryFailed | None = None
        self._files = files
        self._lock = lock
        self._cache = cache
        self._rng = rng
        self._high_watermarks_file = CheckpointFile(files, path, REPLICATION_OFFSET_CHECKPOINT, self._acting)
        self._recovery_points_file = CheckpointFile(files, path, RECOVERY_POINT_CHECKPOINT, self._acting)
        self._log_starts_file = CheckpointFile(files, path, LOG_START_OFFSET_CHECKPOINT, self._acting)
        self._promised_file = CheckpointFile(files, path, PROMISED_CHECKPOINT, self._acting)
        self._doomed: list[tuple[str, int]] = []  # (path, wall time of its removal)
        self.stray_retention_ms = -1  # for how long strays are kept; -1: for ever
        self.on_deleted: Callable[[], None] = lambda: None  # a partition waits for its removal: look at `next_due_ms`
        self._cleaner_file = CheckpointFile(files, path, CLEANER_OFFSET_CHECKPOINT, self._acting)
        self._names_changed = False  # partitions were renamed since the directory was flushed
        self._gaps_everywhere = False  # nobody knows any more which logs were compacted
        self._loading: dict[TopicPartition, None] = {}  # begun to open, and not open

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        *,
        node_id: int,
        cluster_id: str | None,
        wall_ms: int,
        rng: random.Random,
        cache: RecentBatches | None = None,
    ) -> LogDirectory:
        """Lock a directory, made if absent, and read what stands in it. Blocking.

        `cluster_id` None takes the directory's own, or makes one for a new directory. Raises `LogDirectoryLocked`,
        `WrongLogDirectory`, `LogDirectoryUnusable`, `OSError`.
        """
        try:
            is_new = not files.is_dir(path)
            if is_new:
                _make_durable(files, path)
            lock = files.lock(f"{path}/{LOCK}")
        except BlockingIOError:
            raise LogDirectoryLocked(
                f"{path}: another process uses this log directory (it holds {LOCK}): stop it, or correct log.dirs"
            ) from None
        except OSError as error:
            if error.errno not in NO_PLACE:
                raise
            raise LogDirectoryUnusable(
                f"log.dirs={path} cannot be made or written ({error}): name a directory on a disk that the broker's "
                f"user may write, or let that user write here"
            ) from error
        try:
            files.fsync_dir(path)  # what a killed process renamed and did not flush is read now: it must not go back
            properties = settle_properties(files, path, node_id, cluster_id, rng)
            directory = cls(files, path, lock, properties, cache or RecentBatches(), rng)
            if not is_new:
                directory._read(wall_ms)
        except BaseException:
            lock.close()
            raise
        return directory

    def _read(self, wall_ms: int) -> None:
        content = read_file(self._files, f"{self.path}/{CLEAN_SHUTDOWN}")
        if content is not None:
            self.clean = True
            try:
                self.previous_broker_epoch = decode_clean_shutdown(content)
            except CorruptFile as error:
                self.clean = False  # we never wrote this: recover, which is always right
                log_ignored(f"{self.path}/{CLEAN_SHUTDOWN}", error)
            self._files.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
            self._files.fsync_dir(self.path)
        self.high_watermarks = self._read_checkpoint(self._high_watermarks_file)
        self.recovery_points = self._read_checkpoint(self._recovery_points_file)
        self.log_starts = self._read_checkpoint(self._log_starts_file)
        try:
            self.cleaned = self._cleaner_file.read()
        except CorruptFile as error:  # who took a gap for damage would cut there
            self._gaps_everywhere = True
            log_ignored(f"{self.path}/{CLEANER_OFFSET_CHECKPOINT}", error)
        self.promised = self._read_checkpoint(self._promised_file)
        self._leave_out_what_is_gone()
        for name in self._files.list(self.path):
            path = f"{self.path}/{name}"
            if name.endswith(DELETED_PARTITION_SUFFIX) and self._files.is_dir(path):
                self._doomed.append((path, wall_ms))
            elif name.endswith(TEMPORARY_SUFFIX) and not self._files.is_dir(path):
                self._files.remove(path)

    def _leave_out_what_is_gone(self) -> None:
        """Drop what the checkpoints say of partitions without a directory, so that nobody takes it up again.

        After a clean stop it means that somebody has removed committed records. No clean stop is told of then, so that
        the controller asks others first (R-150). After a kill a partition may just have been deleted.
        """
        for partition in sorted({*self.high_watermarks, *self.recovery_points, *self.log_starts, *self.promised}):
            if self._files.is_dir(f"{self.path}/{partition_directory(partition)}"):
                continue
            high_watermark = self.high_watermarks.pop(partition, 0)
            if self.clean and high_watermark > 0:
                self._gone[partition] = high_watermark
                self.previous_broker_epoch = NO_BROKER_EPOCH
            for offsets in (self.recovery_points, self.log_starts, self.promised):
                offsets.pop(partition, None)

    def _read_checkpoint(self, checkpoint: CheckpointFile) -> dict[TopicPartition, int]:
        """A checkpoint's offsets. A bad one is as good as none: recovery then reads more, and a replica asks more."""
        try:
            return checkpoint.read()
        except CorruptFile as error:
            self.clean = False
            log_ignored(f"{self.path}/{checkpoint.name}", error)
            return {}

    @property
    def failed(self) -> LogDirectoryFailed | None:
        """The first failure of the directory or of one of its logs: with it the whole directory is offline."""
        if self._failed is None:
            self._failed = next((log.failed for log in self.logs.values() if log.failed is not None), None)
        return self._failed

    # --- Partitions ------------------------------------------------------------------------------------------------

    def partitions(self) -> dict[TopicPartition, bytes]:
        """The data partitions that have a directory here, sorted, with their topic ids (empty when none is written)."""
        found: dict[TopicPartition, bytes] = {}
        for name in self._files.list(self.path):
            partition = parse_partition_directory(name)
            if partition is None or partition == METADATA_PARTITION or not self._files.is_dir(f"{self.path}/{name}"):
                continue
            try:
                content = read_file(self._files, f"{self.path}/{name}/{PARTITION_METADATA}")
                found[partition] = decode_partition_metadata(content) if content else b""
            except CorruptFile:
                found[partition] = b""
        return dict(sorted(found.items()))

    def open_log(self, topic_partition: TopicPartition, topic_id: bytes, settings: LogSettings, *, wall_ms: int) -> Log:
        """Open or create a partition's log with what the checkpoints say about it. Blocking.

        Raises `InconsistentTopicId`, `LogCorrupted`, `OSError`. Until a log that was begun to open has opened, `close`
        leaves no clean shutdown file (R-233), and the checkpoints keep what they say of it.
        """
        assert topic_partition not in self.logs, topic_partition
        path = f"{self.path}/{partition_directory(topic_partition)}"
        if not self._files.is_dir(path):
            self._forget_checkpoints(topic_partition)
        self._loading[topic_partition] = None
        high_watermark = self.high_watermarks.get(topic_partition, 0)
        recovery_point = self.recovery_points.get(topic_partition, 0)
        promised = max(
            high_watermark, recovery_point, self._gone.get(topic_partition, 0), self.promised.get(topic_partition, 0)
        )
        log = Log.open(
            self._files,
            path,
            topic_partition,
            settings=settings,
            known=KnownLog(
                topic_id,
                recovery_point,
                self.log_starts.get(topic_partition, 0),
                high_watermark,
                self._gaps_everywhere or topic_partition in self.cleaned,
            ),
            clean=self.clean,
            wall_ms=wall_ms,
            cache=self._cache,
        )
        log.segment_jitter_ms = self._rng.randrange(settings.segment_jitter_ms) if settings.segment_jitter_ms > 0 else 0
        log.on_recovery_point_lowered = self._lower_recovery_point
        log.on_cut = self._lower_log_start_and_high_watermark
        if log.recovery.cut_bytes:  # nobody knows how much was there
            promised = max(promised, log.end_offset + 1)
        if promised > log.end_offset and topic_partition != METADATA_PARTITION:  # checkpoints will say less from now on
            self.promised[topic_partition] = promised
            with suppress(DiskFull):  # a start after the next one may not know it then
                self._promised_file.write(self.promised)
        self.logs[topic_partition] = log
        for said in (self.high_watermarks, self.recovery_points, self.log_starts, self._gone, self._loading):
            said.pop(topic_partition, None)
        return log

    def prepare(self, topic_ids: Mapping[TopicPartition, bytes]) -> Callable[[], None]:
        """What makes the directories that new logs have not got yet, so that `open_log` waits for no disk.

        It is blocking, safe in a thread while nobody opens these logs, and raises `DiskFull`, `LogDirectoryFailed`.
        """
        new = {f"{self.path}/{partition_directory(tp)}": (tp, topic_id) for tp, topic_id in topic_ids.items()}
        new = {path: named for path, named in new.items() if not self._files.is_dir(path)}
        for topic_partition, _ in new.values():
            self._forget_checkpoints(topic_partition)
        ids = {path: topic_id for path, (_, topic_id) in new.items()}
        return lambda: self._acting("making logs", lambda: make_directories(self._files, self.path, ids))

    def promise_kept(self, topic_partition: TopicPartition) -> None:
        """The log has again what it had once, or nobody has it any more. Raises `LogDirectoryFailed`."""
        self.promised.pop(topic_partition, None)
        with suppress(DiskFull):  # then it is said once more
            self._promised_file.forget(topic_partition)

    def delete_log(self, log: Log, wall_ms: int) -> None:
        """Give up a partition: renamed to `topic-partition.<id>-delete`, removed after `file.delete.delay.ms`.

        For good after `flush_names`: until then it may come back under its name, with its topic's id. Raises
        `LogDirectoryFailed`.
        """
        self._set_aside(log, DELETED_PARTITION_SUFFIX, wall_ms)

    def set_aside_stray(self, log: Log, wall_ms: int) -> None:
        """Keep a partition that the metadata does not know, as `topic-partition.<id>-stray`, for people to see.

        The first twelve digits of its id are the time: a start after this one knows since when it is there.
        """
        self._set_aside(log, STRAY_SUFFIX, wall_ms)

    def find_strays(self, wall_ms: int) -> None:
        """Those of earlier starts are removed in their time, too. One with a name without a time counts from now."""
        for name in self._files.list(self.path):
            path = f"{self.path}/{name}"
            since = _STRAY.search(name)
            if since and self._files.is_dir(path):
                since_ms = int(since[1], 16)
                self._doom_stray(path, since_ms if FIRST_STRAY_MS <= since_ms <= wall_ms else wall_ms)

    def _set_aside(self, log: Log, suffix: str, wall_ms: int) -> None:
        log.close(clean=False)
        self._forget(log.topic_partition)
        name = f"{log.topic_partition}"
        ending = f".{wall_ms & (1 << 48) - 1:012x}{self._rng.getrandbits(80):020x}{suffix}"
        target = f"{self.path}/{name[: LONGEST_NAME - len(ending)]}{ending}"
        self._acting("deleting a partition", lambda: self._files.rename(log.directory, target))
        self._names_changed = True
        if suffix == DELETED_PARTITION_SUFFIX:
            self._doomed.append((target, wall_ms + log.settings.file_delete_delay_ms))
            self.on_deleted()
        else:
            self._doom_stray(target, wall_ms)

    def _doom_stray(self, path: str, since_ms: int) -> None:
        if self.stray_retention_ms >= 0:
            self._doomed.append((path, since_ms + self.stray_retention_ms))
            self.on_deleted()

    def flush_names(self) -> None:
        """Make it durable which partitions were deleted or set aside. Blocking. Raises `LogDirectoryFailed`."""
        if self._names_changed:
            self._names_changed = False
            self._acting("flushing the directory", lambda: self._files.fsync_dir(self.path))

    def _forget(self, topic_partition: TopicPartition) -> None:
        self.logs.pop(topic_partition, None)
        self.cleaned.pop(topic_partition, None)
        for offsets in (self.high_watermarks, self.recovery_points, self.log_starts, self.promised):
            offsets.pop(topic_partition, None)

    def _forget_checkpoints(self, topic_partition: TopicPartition) -> None:
        """Before a log begins anew: what the checkpoints say is about one of the same name that was deleted.

        Otherwise the next start would believe it: drop the new log, since it ends below the log start (R-235), or not
        look at what it takes for flushed. Unlike Kafka, which writes them when it deletes: most names do not come back.
        """
        for offsets in (self.high_watermarks, self.recovery_points, self.log_starts, self.promised):
            offsets.pop(topic_partition, None)
        self.cleaned.pop(topic_partition, None)
        for checkpoint in (
            self._high_watermarks_file,
            self._recovery_points_file,
            self._log_starts_file,
            self._promised_file,
            self._cleaner_file,
        ):
            checkpoint.forget(topic_partition)

    @property
    def next_due_ms(self) -> int | None:
        """The wall time at which the next deleted partition is `due`; None when none waits."""
        return min((due_ms for _, due_ms in self._doomed), default=None)

    def due(self, wall_ms: int) -> list[str]:
        """The directories of deleted partitions whose time has come, to be removed by `remove_some`."""
        due = [path for path, due_ms in self._doomed if due_ms <= wall_ms]
        self._doomed = [each for each in self._doomed if each[1] > wall_ms]
        return due

    def remove_some(self, path: str, at_most: int) -> bool:
        """Remove `at_most` files of a deleted partition; returns whether there are more. With the last its directory.

        Blocking, safe in a thread. Raises `LogDirectoryFailed`. The next start goes on with what is left.
        """
        names: list[str] = []

        def remove() -> None:
            names.extend(self._files.list(path))
            if len(names) > at_most:
                remove_files(self._files, [f"{path}/{name}" for name in names[:at_most]])
            else:
                self._files.remove_tree(path)

        self._acting("removing a partition", remove)
        return len(names) > at_most

    # --- Checkpoints -----------------------------------------------------------------------------------------------

    # What a truncation or a new log of an old name changes is on the event loop; a checkpoint from before it must not
    # come after it. So these are written there, too, or by drafts, which give way.

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Replace `replication-offset-checkpoint`; what `offsets` does not name comes from the logs.

        Partitions whose logs are not open yet keep their entry.
        """
        self._high_watermarks_file.write({**self._present_high_watermarks(), **(offsets or {})})

    def draft_high_watermarks(self) -> Draft:
        """The same by steps in threads."""
        return self._high_watermarks_file.draft(self._present_high_watermarks())

    def _present_high_watermarks(self) -> dict[TopicPartition, int]:
        known = {partition: log.state.high_watermark for partition, log in list(self.logs.items())}
        return {**self.high_watermarks, **known}

    def write_recovery_points(self) -> None:
        """Replace `recovery-point-offset-checkpoint`."""
        known = {partition: log.recovery_point for partition, log in self.logs.items()}
        self._recovery_points_file.write({**self.recovery_points, **known})

    def write_log_starts(self) -> None:
        """Replace `log-start-offset-checkpoint`.

        A log that starts where its first segment begins needs no entry (R-3).
        """
        self._log_starts_file.write(self._present_log_starts())

    def draft_log_starts(self) -> Draft:
        """The same by steps in threads."""
        return self._log_starts_file.draft(self._present_log_starts())

    def _present_log_starts(self) -> dict[TopicPartition, int]:
        known = {
            partition: log.log_start_offset
            for partition, log in list(self.logs.items())
            if log.log_start_offset > log.first_segment_base
        }
        return {**self.log_starts, **known}

    def _lower_recovery_point(self, log: Log, offset: int) -> None:
        """Before a log is cut below what the checkpoint says: the next start must not believe it (R-230)."""
        self._recovery_points_file.lower(log.topic_partition, offset)

    def write_cleaned(self, log: Log, offset: int) -> None:
        """Say that below `offset` offsets of a log may be missing, before they are. It never says less but by a cut."""
        if offset > self.cleaned.get(log.topic_partition, -1):
            self.cleaned[log.topic_partition] = offset
            self._cleaner_file.write(self.cleaned)
        log.allow_gaps()

    def _lower_log_start_and_high_watermark(self, log: Log, offset: int) -> None:
        """Before a log is cut to end at `offset`, from where on others than before may come.

        Otherwise the next start would drop them all when they end below the log start (R-235), or take them for
        committed (R-31), or for cleaned.
        """
        if self.cleaned.get(log.topic_partition, -1) > offset:
            self.cleaned[log.topic_partition] = offset
            self._cleaner_file.write(self.cleaned)
        self._log_starts_file.lower(log.topic_partition, offset)
        self._high_watermarks_file.lower(log.topic_partition, offset)

    def _acting(self, act: str, function: Callable[[], None]) -> None:
        if self._failed is not None:
            raise self._failed
        try:
            function()
        except OSError as error:
            if error.errno in NO_ROOM:  # what stood there stands there still
                raise DiskFull(f"{self.path}: no room for {act}: {error}") from error
            self._failed = LogDirectoryFailed(f"{self.path}: {act} failed: {error}")
            raise self._failed from error

    # --- End -------------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Close everything in the order of R-142; the lock goes last. Blocking.

        High watermarks, logs (flushed), recovery points, log starts, and at the very end the clean shutdown file: only
        with `clean`, when every log that was begun to open did open, and nothing failed. Without `clean` the files are
        closed as they are.
        """
        try:
            if clean and self.failed is None:
                self.write_high_watermarks()
            complete = self._close_logs(clean)
            if clean and self.failed is None:
                self.write_recovery_points()
                self.write_log_starts()
                for checkpoint in (self._high_watermarks_file, self._log_starts_file):
                    checkpoint.discard_draft()
                if complete and not self._loading:
                    content = encode_clean_shutdown(broker_epoch)
                    self._acting(
                        "writing the clean shutdown file",
                        lambda: replace_file(self._files, self.path, CLEAN_SHUTDOWN, content, durable=True),
                    )
        except DiskFull as error:
            logger.error("%s; the next start has to recover the logs", error)
        finally:
            self._lock.close()

    def _close_logs(self, clean: bool) -> bool:
        """Close all logs, whatever happens to one of them; returns whether all of them closed cleanly."""
        complete = True
        for log in self.logs.values():
            try:
                log.close(clean=clean and log.failed is None)
                complete = complete and log.failed is None
            except LogDirectoryFailed:
                complete = False
        return complete


# --- `meta.properties` -----------------------------------------------------------------------------------------------
# To which node and cluster a log directory belongs, and its own id.


REMEDY = (
    "restore the file from a backup, or remove it if this is the directory of this node and others have replicas of"
    " all that is in it: the node then comes back as one with another disk, and leads nothing before it has caught up"
)


def settle_properties(
    files: Files, path: str, node_id: int, cluster_id: str | None, rng: random.Random
) -> MetaProperties:
    """Compare `meta.properties` with who we are, or write it into a new directory. Raises `WrongLogDirectory`."""
    content = read_file(files, f"{path}/{META_PROPERTIES}")
    if content is None:
        made = MetaProperties(node_id, cluster_id or _new_id(rng), _new_id(rng))
        replace_file(files, path, META_PROPERTIES, encode_meta_properties(made), durable=True)
        return made
    try:
        properties = decode_meta_properties(content)
    except CorruptFile as error:
        raise WrongLogDirectory(f"{path}/{META_PROPERTIES} cannot be read ({error}): {REMEDY}") from None
    if properties.node_id != node_id:
        raise WrongLogDirectory(
            f"{path} belongs to node {properties.node_id}, not to node {node_id}: correct node.id or log.dirs"
        )
    if cluster_id is not None and properties.cluster_id != cluster_id:
        raise WrongLogDirectory(
            f"{path} belongs to cluster {properties.cluster_id}, not to cluster {cluster_id}: correct cluster.id or "
            f"log.dirs"
        )
    if properties.directory_id is None:
        properties = MetaProperties(node_id, properties.cluster_id, _new_id(rng))
        replace_file(files, path, META_PROPERTIES, encode_meta_properties(properties), durable=True)
    return properties


def _new_id(rng: random.Random) -> str:
    """A random id of 16 bytes as text: of version 4, and with a letter in front, as Kafka makes them."""
    while True:
        raw = bytearray(rng.getrandbits(128).to_bytes(16, "big"))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        text = topic_id_to_text(bytes(raw))
        if not text.startswith("-"):
            return text
