"""A broker's periodic work: checkpoints, ISR checks, retention, the removal of deleted files.

Each task has its own period, Kafka's setting; deleted files are removed after their own `file.delete.delay.ms`. A task
that fails on one replica is that replica's failure. Retention and removal run in small steps, with the disk's waits in
a thread: a log may have thousands of segments, and heartbeats do not wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TypeVar

from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Clock, Files

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.runtime.offloading import finish
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.progress import ProgressLog
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.checkpoint_file import Draft
from odradek_broker.storage.directory import STRAY_SUFFIX, LogDirectory
from odradek_broker.storage.errors import DiskFull, StorageError
from odradek_broker.storage.log import Log

logger = logging.getLogger("odradek.storage")
MIN_ISR_CHECK_MS = 50  # replica.lag.time.max.ms / 2 is not allowed to become a busy loop
PURGES_APART_MS = 100  # at least, however short file.delete.delay.ms is: each one looks at every log
SEGMENTS_AT_ONCE = 4  # of one replica, before it is another one's turn: each may have to be read from the disk
FILES_AT_ONCE = 192  # removed by one call into a thread: a stop waits for its end
Done = TypeVar("Done")


class Maintenance:
    """The periodic duties of one broker. `duties` are coroutines that run until they are cancelled."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        files: Files,
        replicas: ReplicaManager,
        directory: LogDirectory,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._files = files
        self._replicas = replicas
        self._directory = directory
        self._progress = ProgressLog(replicas.events)
        self._deleted = asyncio.Event()  # something waits for its removal that did not wait before
        directory.on_deleted = self._deleted.set
        directory.stray_retention_ms = settings.odradek_stray_retention_ms
        directory.find_strays(clock.wall_ms())

    def duties(self) -> list[Callable[[], Coroutine[object, object, None]]]:
        settings = self._settings
        return [
            self._every(max(MIN_ISR_CHECK_MS, settings.replica_lag_time_max_ms // 2), self._check_isrs),
            self._every(settings.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks),
            self._every(settings.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points),
            self._every(settings.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_starts),
            self._every(settings.log_retention_check_interval_ms, self._retain),
            self._purge_when_due,
        ]

    def _every(
        self, period_ms: int, duty: Callable[[], Awaitable[None]]
    ) -> Callable[[], Coroutine[object, object, None]]:
        async def run() -> None:
            while True:
                await self._clock.sleep(period_ms)
                await duty()

        return run

    async def _check_isrs(self) -> None:
        if not chance("isr-check-late", 0.2):
            self._replicas.check_isrs()

    async def checkpoint_high_watermarks(self) -> None:
        """R-31: all partitions of the directory in one file. What is known then goes into the evidence, too."""
        self._progress.write(self._replicas.replicas.values())
        if chance("high-watermark-checkpoint-late", 0.3):
            return
        if await self._replace(self._directory.draft_high_watermarks()):
            self._replicas.room_again()

    async def checkpoint_recovery_points(self) -> None:
        """R-238: never ahead of the fsync that it stands for."""
        if chance("recovery-point-checkpoint-late", 0.3):
            return
        # On the loop: in a thread it could overtake a truncation, and say more than is there.
        try:
            self._directory.write_recovery_points()
        except DiskFull as error:
            self._no_room(error)

    async def checkpoint_log_starts(self) -> None:
        """R-3: only where the log starts above its first segment; the directory knows which."""
        await self._replace(self._directory.draft_log_starts())

    async def _replace(self, draft: Draft) -> bool:
        """Replace a checkpoint; only the rename is on the loop. What is corrected there meanwhile is newer.

        On a full disk the one before stays: it says less, and never what is not so. Returns whether there was room.
        """
        try:
            await finish(self._files, draft.write)
        except DiskFull as error:
            self._no_room(error)
            return False
        if draft.publish():
            await finish(self._files, draft.flush)
            draft.settle()
        return True

    def _no_room(self, error: DiskFull) -> None:
        logger.warning("%s; it is written again when there is room", error)

    async def _retain(self) -> None:
        """R-163: the log start moves first, the files go afterwards; every replica by itself (R-164)."""
        waiting = list(self._replicas.replicas.values())
        while waiting:
            waiting = [each for each in waiting if await self._doing(each, self._retain_some(each))]

    async def _retain_some(self, replica: Replica) -> bool:
        """Move the log start and give up a few segments; returns whether there may be more.

        Oldest first, and each is gone for good before the next one goes: a crash leaves a log without a hole.
        """
        log, wall_ms = replica.log, self._clock.wall_ms()
        start = log.retention_start(wall_ms, replica.state.high_watermark, SEGMENTS_AT_ONCE)
        if start is not None and start > replica.state.log_start_offset:
            replica.on_log_start_advanced(start)
        replica.state.producers.expire(wall_ms)
        for _ in range(SEGMENTS_AT_ONCE):
            if not self._is_sound(replica) or not log.delete_before_log_start(wall_ms, at_most=1):
                return False
            self._deleted.set()
            await finish(self._files, log.flush_directory)
        return True

    async def _purge_when_due(self) -> None:
        """Purge at the earliest due time, and after `log.segment.delete.delay.ms` in any case.

        The latter for files that are only to be closed, and since due times are of the wall clock, which may jump.
        """
        purged_ms = self._clock.now_ms()
        while True:
            self._deleted.clear()
            waited_ms = self._clock.now_ms() - purged_ms
            left_ms = max(PURGES_APART_MS - waited_ms, self._due_in_ms(waited_ms))
            if left_ms > 0:
                timer = self._clock.call_later(left_ms, self._deleted.set)
                try:
                    await self._deleted.wait()
                finally:
                    timer.cancel()
                continue
            await self._purge()
            purged_ms = self._clock.now_ms()

    def _due_in_ms(self, waited_ms: float) -> float:
        """How long until the next purge, when the last one was so long ago."""
        logs = [replica.log for replica in self._replicas.replicas.values() if self._is_sound(replica)]
        due_ms = [self._directory.next_due_ms, *(each.next_due_ms for each in logs)]
        wall_ms = self._clock.wall_ms()
        at_the_latest = self._settings.log_segment_delete_delay_ms - waited_ms
        return min([at_the_latest, *(each - wall_ms for each in due_ms if each is not None)])

    async def _purge(self) -> None:
        wall_ms = self._clock.wall_ms()
        for replica in list(self._replicas.replicas.values()):
            await self._doing(replica, self._remove_due(replica.log, wall_ms))
        for path in self._directory.due(wall_ms):
            if path.endswith(STRAY_SUFFIX):
                logger.info("%s: removed, the metadata has not known it for odradek.stray.retention.ms", path)
            while await finish(self._files, partial(self._directory.remove_some, path, FILES_AT_ONCE)):
                continue

    async def _remove_due(self, log: Log, wall_ms: int) -> None:
        due = log.due(wall_ms)
        for place in range(0, len(due), FILES_AT_ONCE):
            await finish(self._files, partial(log.remove, due[place : place + FILES_AT_ONCE]))

    async def _doing(self, replica: Replica, duty: Coroutine[object, object, Done]) -> Done | None:
        """What fails on one replica does not keep it from the others (R-86). Returns what the duty did, if it could."""
        if not self._is_sound(replica):
            duty.close()
            return None
        try:
            return await duty
        except StorageError as error:
            self._replicas.storage_failed(replica, error)
            return None

    def _is_sound(self, replica: Replica) -> bool:
        """Whether this broker still has this replica, and its disk serves it."""
        return replica.offline is None and self._replicas.replicas.get(replica.topic_partition) is replica
