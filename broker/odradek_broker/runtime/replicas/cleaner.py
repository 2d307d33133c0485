"""The cleaner of compacted logs (K-86): the dirtiest one next, in slices in a thread; the loop installs the results.

Rules of this module. One log at a time, and one segment of it. Before the first record is removed, the checkpoint
records how far. A log that is truncated, deleted or taken offline meanwhile is left unchanged: the new segments are
dropped. A log that cannot be cleaned is not retried before the next start; a full disk is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance, reached
from odradek_proto.transport.ports import Clock, Files

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.cleaning import Cleanable, SegmentFacts, assess, dirtiest
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.offloading import finish
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.cleaning.round import CleanedSegment, CleaningRound, closed_segments, facts_of
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.errors import NO_ROOM, LogCorrupted, StorageError
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import NEVER


class LogCleaner:
    """One for each log directory. `run` is its task."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        files: Files,
        replicas: ReplicaManager,
        directory: LogDirectory,
        events: EventLog,
        counters: Counters,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._files = files
        self._replicas = replicas
        self._directory = directory
        self._events = events
        self._counters = counters
        self._first_dirty: dict[Log, int] = {}
        self._hopeless: dict[Log, None] = {}  # cannot be read to the end

    async def run(self) -> None:
        """Look for work every log.cleaner.backoff.ms, and go on while there is some; ends by cancellation."""
        while True:
            await self._clock.sleep(self._settings.log_cleaner_backoff_ms)
            while await self.clean_one():
                continue

    async def clean_one(self) -> bool:
        """Clean the dirtiest log, if one is dirty enough; returns whether it was cleaned to the end."""
        replicas = {
            tp: replica
            for tp, replica in self._replicas.replicas.items()
            if replica.log.settings.compaction is not None
            and len(replica.log.segments) > 1
            and self._may_clean(replica)
            and replica.log not in self._hopeless
        }
        logs = {replica.log for replica in self._replicas.replicas.values()}
        for known in (self._first_dirty, self._hopeless):
            for log in [each for each in known if each not in logs]:
                del known[log]
        found: dict[TopicPartition, Cleanable] = {}
        for tp, replica in replicas.items():
            try:
                found[tp] = await self._assess(replica)
            except (OSError, StorageError) as error:
                self._not_cleaned(replica, error)
        self._counters.cleaner.dirty_ratio = max((each.dirty_ratio for each in found.values()), default=0.0)
        chosen = dirtiest(found)
        if chosen is None or not self._may_clean(replicas[chosen]):
            return False
        return await self._clean(replicas[chosen], found[chosen])

    def _may_clean(self, replica: Replica) -> bool:
        """Whether this broker still has this replica, and its disk serves it."""
        log = replica.log
        known = self._replicas.replicas.get(replica.topic_partition)
        return known is replica and replica.offline is None and log.failed is None and not log.closed

    async def _assess(self, replica: Replica) -> Cleanable:
        log, state = replica.log, replica.state
        compaction = log.settings.compaction
        assert compaction is not None, replica.topic_partition
        stable = min(state.high_watermark, log.recovery_point)
        unstable = state.producers.first_unstable_offset(state.high_watermark)
        if unstable is not None:
            stable = min(stable, unstable)
        # The checkpoint is written before a round changes anything, and says where offsets may be missing, not what is
        # clean: a round that was cut off leaves keys behind. So the first round after a start begins anew. A cut of the
        # log lowers the checkpoint.
        first_dirty = min(self._first_dirty.setdefault(log, 0), self._directory.cleaned.get(replica.topic_partition, 0))
        segments = closed_segments(log)
        if compaction.min_compaction_lag_ms or compaction.max_compaction_lag_ms < NEVER:
            facts = await finish(self._files, lambda: [facts_of(*each) for each in segments])
        else:
            facts = [SegmentFacts(each.base_offset, end, each.size) for each, end in segments]
        return assess(facts, first_dirty, stable, compaction, self._clock.wall_ms())

    async def _clean(self, replica: Replica, found: Cleanable) -> bool:
        log = replica.log
        if log.settings.compaction is None:
            return False
        work = CleaningRound(
            self._files,
            log,
            first_dirty_offset=found.first_dirty_offset,
            end_offset=found.end_offset,
            wall_ms=self._clock.wall_ms(),
            map_bytes=1_000 if chance("cleaner-map-small", 0.2) else self._settings.log_cleaner_dedupe_buffer_size,
        )
        try:
            done = await self._carry_out(replica, work)
        except (OSError, StorageError) as error:
            self._not_cleaned(replica, error)
            return False
        finally:
            if not log.closed:
                work.drop_unfinished()
        if done:
            self._first_dirty[log] = work.end_offset
            self._note(replica, found, work)
        return done

    async def _carry_out(self, replica: Replica, work: CleaningRound) -> bool:
        steps: Iterator[CleanedSegment | None] = work.steps()
        read = 0
        while True:
            step = await finish(self._files, partial(_next, steps))
            if not self._may_clean(replica) or replica.log.generation != work.generation:
                reached("cleaner-gives-up")
                if isinstance(step, CleanedSegment):
                    work.drop(step.new)
                return False
            if step is _END:
                return True
            if isinstance(step, CleanedSegment) and not await self._put_in(replica, work, step):
                return False
            rate = self._settings.log_cleaner_io_max_bytes_per_second
            pause_ms = (work.stats.bytes_read - read) * 1_000 / rate
            if pause_ms >= 1:
                read = work.stats.bytes_read
                await self._clock.sleep(pause_ms)

    async def _put_in(self, replica: Replica, work: CleaningRound, written: CleanedSegment) -> bool:
        """Put a new segment into the log; False when the log changed, and the segment is none of it."""
        log = replica.log
        self._directory.write_cleaned(log, max(work.end_offset, self._directory.cleaned.get(log.topic_partition, 0)))
        replacement = log.replace(written.old, written.new)
        with log.failing("replacing segments"):
            if not replacement.begin():
                work.drop(written.new)
                return False
        await finish(self._files, log.flush_directory)
        for step in (replacement.exchange, replacement.finish):
            if replacement.ended or log.closed:  # somebody cut the log, or closed it
                return replacement.ended and not replacement.undone
            with log.failing("replacing segments"):
                step()
            await finish(self._files, log.flush_directory)
        return True

    def _note(self, replica: Replica, found: Cleanable, work: CleaningRound) -> None:
        stats, counters = work.stats, self._counters.cleaner
        counters.rounds += 1
        counters.bytes_read += stats.bytes_read
        counters.bytes_freed += stats.bytes_before - stats.bytes_after
        counters.records_dropped += stats.records_dropped
        facts = {
            "partition": str(replica.topic_partition),
            "from": found.first_dirty_offset,
            "to": work.end_offset,
            "bytes_before": stats.bytes_before,
            "bytes_after": stats.bytes_after,
            "records": stats.records_dropped,
        }
        self._events.write("log_cleaned", "R-166", facts)

    def _not_cleaned(self, replica: Replica, error: OSError | StorageError) -> None:
        if replica.log.closed:
            return  # deleted meanwhile
        facts = {"partition": str(replica.topic_partition), "reason": str(error)}
        self._events.write("log_not_cleaned", "R-166", facts)
        if isinstance(error, LogCorrupted):
            self._hopeless[replica.log] = None
        elif isinstance(error, StorageError):
            self._replicas.storage_failed(replica, error)
        elif error.errno not in NO_ROOM:
            try:
                with replica.log.failing("cleaning"):
                    raise error
            except StorageError as failed:
                self._replicas.storage_failed(replica, failed)


_END = object()


def _next(steps: Iterator[CleanedSegment | None]) -> object:
    return next(steps, _END)
