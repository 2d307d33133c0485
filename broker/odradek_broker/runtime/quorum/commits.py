"""The consumer of the metadata log's commits.

Rule of this module: the listener gets every committed batch once and in order, or a snapshot that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek_broker.core.quorum.messages import SnapshotId
from odradek_broker.runtime.quorum.log import QuorumLog
from odradek_broker.runtime.quorum.settings import QuorumListener


class QuorumCommits:
    """How far the listener is: everything below `applied.end_offset` has been handed to it."""

    def __init__(self, listener: QuorumListener) -> None:
        self.applied = SnapshotId(0, 0)  # a snapshot of the listener's state now would have this name
        self.timestamp = 0  # of the last record below, wall time in ms
        self._listener = listener
        self._announced_epoch: int | None = None  # of the leadership that the listener knows of

    def start_at(self, snapshot: SnapshotId, state: object, timestamp: int) -> None:
        """The state is that of a snapshot now."""
        self._listener.on_snapshot(snapshot.end_offset, snapshot.epoch, state)
        self.applied, self.timestamp = snapshot, timestamp

    def deliver(self, log: QuorumLog, high_watermark: int) -> int:
        """Hand over what is committed. Returns the bytes of the batches."""
        size = 0
        for batch in log.committed(self.applied.end_offset, high_watermark):
            size += batch.size
            self.applied, self.timestamp = SnapshotId(batch.next_offset, batch.epoch), batch.timestamp
            if batch.records:
                self._listener.on_commit(batch.base_offset, batch.epoch, batch.records)
            else:
                self._listener.on_control(batch.next_offset, batch.epoch)
        return size

    def freeze(self) -> Callable[[], Iterator[bytes]]:
        """The listener's state as it is now, to be read later."""
        return self._listener.freeze()

    def began(self, epoch: int) -> None:
        self._announced_epoch = epoch
        self._listener.on_leader(epoch)

    def ended(self) -> None:
        """The leadership is over."""
        announced, self._announced_epoch = self._announced_epoch, None
        if announced is not None:
            self._listener.on_resigned(announced)
