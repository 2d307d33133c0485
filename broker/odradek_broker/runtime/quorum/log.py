"""The metadata log `__cluster_metadata-0`: the same log as for data, with the batches that the quorum writes and reads.

Rules of this module. One `append` of the core is one batch, so it is there as a whole or not at all. Reads near the end
come from memory; only a node that has just started, or has been away for long, reads from the disk. How it
is opened is in `quorum_opening.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek_proto.records import (
    BatchHeader,
    ControlType,
    decode_records,
    encode_batch,
    encode_control_batch,
    iter_batches,
    leader_change_value,
    read_header,
)
from odradek_proto.values import Value

from odradek_broker.core.partition.messages import ReplicaLog, WriteEpochs
from odradek_broker.core.quorum.messages import (
    AppendFetched,
    AppendLeaderChange,
    AppendRecords,
    SegmentSize,
    SnapshotId,
    TruncateLog,
)
from odradek_broker.runtime.quorum.flushed_end import FlushedEnd
from odradek_broker.storage.directory import METADATA_PARTITION
from odradek_broker.storage.log import Log
from odradek_broker.storage.recovery import Recovery

METADATA_TOPIC_ID = bytes(15) + b"\x01"  # Kafka's Uuid.METADATA_TOPIC_ID
READ_BYTES = 1 << 20  # at once, while committed records are handed out

LogEffect = AppendLeaderChange | AppendRecords | AppendFetched | TruncateLog | WriteEpochs


class CommittedBatch(Value, frozen=True):
    """The records of one batch; none for a control batch. `size` in bytes, `timestamp` in ms of wall time."""

    base_offset: int
    next_offset: int
    epoch: int
    records: Sequence[bytes]
    size: int
    timestamp: int


class QuorumLog:
    """Carries out what the core says of its log. Methods that say "blocking" are for `Files.offload`."""

    def __init__(self, log: Log, flushed_end: FlushedEnd) -> None:
        """`flushed_end` is told of flushes, and before each cut."""
        self._log = log
        self._flushed_end = flushed_end
        log.on_cut = lambda _, end: flushed_end.fall(end)

    @property
    def recovery(self) -> Recovery:
        """What was found when the log was opened."""
        return self._log.recovery

    @property
    def state(self) -> ReplicaLog:
        return self._log.state

    def carry_out(self, effect: LogEffect, leader_id: int, wall_ms: int) -> None:
        """Write, cut, or note epochs. Raises storage's errors."""
        match effect:
            case AppendLeaderChange():
                value = leader_change_value(leader_id, effect.voters, effect.granting)
                data = encode_control_batch(
                    ControlType.LEADER_CHANGE,
                    value,
                    timestamp=wall_ms,
                    base_offset=effect.base_offset,
                    leader_epoch=effect.epoch,
                )
                self._append([read_header(data)], data, wall_ms)
            case AppendRecords():
                records = [(wall_ms, None, record, ()) for record in effect.records]
                data = encode_batch(records, base_offset=effect.base_offset, leader_epoch=effect.epoch)
                self._append([read_header(data)], data, wall_ms)
            case AppendFetched():
                self._append(effect.headers, effect.batches, wall_ms)
            case TruncateLog():
                end = self._log.truncate(effect.offset)
                assert end == effect.offset, (end, effect.offset)
            case WriteEpochs():
                self._log.write_epochs(effect.entries)

    def _append(self, headers: Sequence[BatchHeader], data: bytes, wall_ms: int) -> None:
        assert headers[0].base_offset == self._log.end_offset, (headers[0].base_offset, self._log.end_offset)
        self._log.append(headers, [data], wall_ms)

    def read(self, offset: int, limit: int, max_bytes: int) -> bytes:
        """Whole batches from `offset` on, all below `limit`; at least one."""
        return b"".join(self._log.read(offset, max_bytes, limit))

    def committed(self, offset: int, high_watermark: int) -> Iterator[CommittedBatch]:
        """The batches from `offset` to the high watermark, which both lie between two batches."""
        while offset < high_watermark:
            data = self.read(offset, high_watermark, READ_BYTES)
            assert data, f"{METADATA_PARTITION}: nothing at {offset}, below the high watermark {high_watermark}"
            for position, header in iter_batches(data):
                records: list[bytes] = []
                if not header.is_control:
                    records = [record.value or b"" for record in decode_records(data, header, position)]
                offset = header.next_offset
                yield CommittedBatch(
                    header.base_offset, offset, header.leader_epoch, records, header.size, header.max_timestamp
                )

    def restart_at(self, snapshot: SnapshotId) -> None:
        """Drop everything: the log goes on where a snapshot ends. The epochs are written by the next effect."""
        self._log.restart_at(snapshot.end_offset)

    def start_at(self, offset: int, wall_ms: int) -> None:
        """The log starts at `offset` now; segments that lie wholly below go."""
        self._log.advance_log_start(offset)
        self._log.delete_before_log_start(wall_ms)
        self._log.purge(wall_ms)

    def closed_segments(self) -> list[SegmentSize]:
        """Those that are not appended to any more, oldest first."""
        segments = self._log.segments
        ends = [segment.base_offset for segment in segments[1:]]
        return [SegmentSize(end, segment.size) for segment, end in zip(segments, ends, strict=False)]

    def flush(self) -> None:
        """Make everything durable that has been written. Blocking."""
        self._log.flush()

    def flushed(self) -> int:
        """On the loop, where the log is cut: up to where it is on the disk. A flush cannot say, since the log may have
        been cut before the loop hears of its end. Raises `OSError`."""
        end = self._log.recovery_point
        self._flushed_end.rise(end)
        return end

    def close(self, *, complete: bool) -> None:
        """Blocking. With `complete` the rest is written first; it is no more than help, every opening recovers."""
        complete = complete and self._log.failed is None
        try:
            self._log.close(clean=complete)
        finally:
            complete = complete and self._log.failed is None
            self._flushed_end.close(self._log.end_offset if complete else None)
