"""Reads of what is no longer in memory: in threads, and for one fetch session only a few at a time.

A follower that comes back to a thousand partitions asks for all of them at once; what is read for it must not all lie
in memory at the same time. So some partitions are read or wait with what was read, and the others stand in line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance, reached
from odradek_proto.transport.ports import Buffer, Files

from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.errors import LogCorrupted, LogDirectoryFailed, StorageError

MAX_READS = 8  # partitions that are read for, or whose bytes wait to be told


async def read_away_from_loop(
    files: Files, replica: Replica, offset: int, max_bytes: int, limit: int, *, at_least_one: bool = True
) -> list[Buffer] | None:
    """Whole batches as `Log.read` finds them; None when the log is not to be read any more: the replica says why.

    Raises `LogCorrupted`. A disk that refuses takes the replica offline.
    """
    try:
        return await files.offload(lambda: replica.log.read(offset, max_bytes, limit, at_least_one=at_least_one))
    except LogCorrupted:
        raise
    except LogDirectoryFailed as error:
        replica.storage_failed(error)
    except StorageError:  # the log was closed under the read: the next look says why
        pass
    return None


@dataclass(slots=True)
class ColdRead:
    """One partition's read. `found` is None while a thread reads, and for ever when what it found may not be told."""

    role: object  # of the replica when the read began: what another role would say is another matter
    found: list[Buffer] | LogCorrupted | None = None
    done: bool = False


class ColdReads:
    """`ready` is called when a partition's read is done, or when its turn has come to be read for."""

    def __init__(self, files: Files, ready: Callable[[TopicPartition], None]) -> None:
        self._files = files
        self._ready = ready
        self._reads: dict[TopicPartition, ColdRead] = {}
        self._line: dict[TopicPartition, None] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def get(self, tp: TopicPartition) -> ColdRead | None:
        return self._reads.get(tp)

    def begin(self, replica: Replica, offset: int, max_bytes: int, limit: int) -> None:
        """Read this partition in a thread, now or when it is its turn."""
        tp = replica.topic_partition
        if len(self._reads) >= MAX_READS:
            self._line[tp] = None
            return
        reached("cold-read")
        self._line.pop(tp, None)
        read = self._reads[tp] = ColdRead(replica.role)
        task = asyncio.ensure_future(self._read(read, replica, offset, max_bytes, limit))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._call_next()

    async def _read(self, read: ColdRead, replica: Replica, offset: int, max_bytes: int, limit: int) -> None:
        try:
            if chance("cold-read-late", 0.1):
                await self._files.offload(lambda: None)
            read.found = await read_away_from_loop(self._files, replica, offset, max_bytes, limit)
        except LogCorrupted as error:
            read.found = error
        read.done = True
        if self._reads.get(replica.topic_partition) is read:
            self._ready(replica.topic_partition)

    def end(self, tp: TopicPartition) -> None:
        """This partition is answered or forgotten; the next in line may be read for."""
        if self._reads.pop(tp, None) is not None or tp in self._line:
            self._line.pop(tp, None)
            self._call_next()

    def _call_next(self) -> None:
        """Whoever is called keeps its place until it begins: it may turn out that nothing is to be read for it."""
        if self._line and len(self._reads) < MAX_READS:
            self._ready(next(iter(self._line)))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
