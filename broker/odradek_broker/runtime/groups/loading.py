"""Reads one partition of `__consumer_offsets` into a shard, away from the loop and in slices (K-42).

Only committed records are read: a new leader waits until its high watermark has reached the end that its log had when
it began to lead, so no state of the shard can be undone (K-43).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from odradek_proto.compression import CodecUnavailable
from odradek_proto.decoding import decode_records
from odradek_proto.headers import CorruptBatch, read_header
from odradek_proto.transport.ports import Files

from odradek_broker.config.log_levels import SERVER
from odradek_broker.core.delayed import DelayedOperation
from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.errors import LogCorrupted, LogDirectoryFailed, StorageError

logger = logging.getLogger(SERVER)

SLICE_BYTES = 1_048_576
EMPTY_READS = 3  # in a row: then there is nothing


class CannotLoad(Exception):
    """The log under the partition cannot be read; the replica has said why."""


class _Moved(DelayedOperation, eq=False):
    """The high watermark moved, or the replica leads no more."""

    moved: asyncio.Event

    def complete(self, outcome: object) -> None:
        self.moved.set()


async def load(replica: Replica, files: Files, shard: GroupCoordinatorShard) -> None:
    """Replay everything that was in the log when this was called. Raises `CannotLoad`."""
    state = replica.state
    position, end = state.log_start_offset, state.log_end_offset
    while position < end:
        limit = min(state.high_watermark, end)
        if position >= limit:
            await _until_moved(replica)
            continue
        try:
            position = await files.offload(partial(_replay_slice, replica, shard, position, limit))
        except LogCorrupted as error:
            replica.trouble.corrupted(error)
            raise CannotLoad(str(error)) from error
        except LogDirectoryFailed as error:
            replica.storage_failed(error)
            raise CannotLoad(str(error)) from error
        except (StorageError, CorruptBatch, CodecUnavailable) as error:
            raise CannotLoad(str(error)) from error


async def _until_moved(replica: Replica) -> None:
    waiting = _Moved(moved=asyncio.Event())
    replica.purgatory.register(waiting, replica.consumer_fetches)
    try:
        await waiting.moved.wait()
    finally:
        replica.purgatory.cancel(waiting)


def _replay_slice(replica: Replica, shard: GroupCoordinatorShard, position: int, limit: int) -> int:
    """In a thread: nobody else has the shard yet. Returns the offset behind what was replayed.

    A read finds nothing where the cleaner has left nothing up to the limit, but also when segments were replaced under
    it.
    """
    for _ in range(EMPTY_READS):
        if buffers := replica.log.read(position, SLICE_BYTES, limit):
            return _replay(replica, shard, b"".join(buffers), position)
    return limit


def _replay(replica: Replica, shard: GroupCoordinatorShard, batches: bytes, position: int) -> int:
    at = 0
    while at < len(batches):
        header = read_header(batches, at)
        for record in () if header.is_control else decode_records(batches, header, at):
            if record.offset < position or record.key is None:
                continue
            try:
                shard.replay(record.key, record.value, record.timestamp)
            except ValueError as error:
                logger.error("%s: the record at %d is left out: %s", replica.topic_partition, record.offset, error)
        position = header.next_offset
        at += header.size
    return position
