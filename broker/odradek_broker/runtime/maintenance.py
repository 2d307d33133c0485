"""What a broker does by the clock: checkpoints, ISR checks, retention, the removal of deleted files.

Each duty has its own period, Kafka's setting. A duty that fails on one replica is that replica's failure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine

from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Clock, Files

from odradek_broker.runtime.hosted import HostedReplica
from odradek_broker.runtime.offloading import finish
from odradek_broker.runtime.replicas import ReplicaManager
from odradek_broker.settings import BrokerSettings
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.errors import StorageError

MIN_ISR_CHECK_MS = 50  # replica.lag.time.max.ms / 2 is not allowed to become a busy loop


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

    def duties(self) -> list[Callable[[], Coroutine[object, object, None]]]:
        settings = self._settings
        return [
            self._every(max(MIN_ISR_CHECK_MS, settings.replica_lag_time_max_ms // 2), self._check_isrs),
            self._every(settings.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks),
            self._every(settings.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points),
            self._every(settings.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_starts),
            self._every(settings.log_retention_check_interval_ms, self._retain),
            self._every(settings.log_segment_delete_delay_ms, self._purge),
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
        """R-31: all partitions of the directory in one file."""
        if chance("high-watermark-checkpoint-late", 0.3):
            return
        marks = {tp: hosted.state.high_watermark for tp, hosted in self._replicas.replicas.items()}
        await finish(self._files, lambda: self._directory.write_high_watermarks(marks))

    async def checkpoint_recovery_points(self) -> None:
        """R-238: never ahead of the fsync that it stands for."""
        if chance("recovery-point-checkpoint-late", 0.3):
            return
        # On the loop: in a thread it could overtake a truncation, and say more than is there.
        self._directory.write_recovery_points()

    async def checkpoint_log_starts(self) -> None:
        """R-3: only where the log starts above its first segment; the directory knows which."""
        starts = {tp: hosted.state.log_start_offset for tp, hosted in self._replicas.replicas.items()}
        await finish(self._files, lambda: self._directory.write_log_starts(starts))

    async def _retain(self) -> None:
        """R-163: the log start moves first, the files go afterwards; every replica by itself (R-164)."""
        wall_ms = self._clock.wall_ms()
        self._for_each_replica(lambda hosted: _retain_one(hosted, wall_ms))

    async def _purge(self) -> None:
        wall_ms = self._clock.wall_ms()
        self._for_each_replica(lambda hosted: hosted.log.purge(wall_ms))
        self._directory.purge(wall_ms)

    def _for_each_replica(self, duty: Callable[[HostedReplica], None]) -> None:
        """What fails on one replica does not keep it from the others (R-86)."""
        for hosted in list(self._replicas.replicas.values()):
            if hosted.offline is None:
                try:
                    duty(hosted)
                except StorageError as error:
                    self._replicas.storage_failed(hosted, error)


def _retain_one(hosted: HostedReplica, wall_ms: int) -> None:
    start = hosted.log.retention_start(wall_ms, hosted.state.high_watermark)
    if start is not None and start > hosted.state.log_start_offset:
        hosted.on_log_start_advanced(start)
    hosted.state.producers.expire(wall_ms)
    hosted.log.delete_before_log_start(wall_ms)
