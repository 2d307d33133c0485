"""Batches for compacted topics: each record needs a key (K-85), so that these alone are looked into when they come.

Rules of this module. Batches of one replica are appended in the order in which they came. Small ones that are not
compressed are looked into at once; from the first other one on they wait in line for a thread, since a stranger's
megabyte may hold millions of records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial

from odradek_proto.errors import ErrorCode
from odradek_proto.headers import CODEC_MASK
from odradek_proto.records import CodecUnavailable, CorruptBatch, read_header, record_without_key
from odradek_proto.transport.ports import Files

from odradek_broker.runtime.replicas.purgatory import AnswerCallback, ProduceAnswer
from odradek_broker.runtime.replicas.replica import Replica

AT_ONCE_BYTES = 64 << 10  # some hundred microseconds
Append = Callable[[], None]


class KeyedProduces:
    """Looks into batches before they are appended."""

    def __init__(self, *, files: Files, spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]]) -> None:
        self._files = files
        self._spawn = spawn
        self._waiting: dict[Replica, deque[tuple[memoryview, Append, AnswerCallback]]] = {}

    def produce(self, replica: Replica, batch: memoryview, append: Append, answer: AnswerCallback) -> None:
        """`append` the batch, now or later, or `answer` what is wrong with its records."""
        waiting = self._waiting.get(replica)
        if waiting is not None:
            waiting.append((batch, append, answer))
        elif replica.leader is None or _is_quick(batch):
            self._finish(replica, fault_of(batch), append, answer)
        else:
            self._waiting[replica] = deque([(batch, append, answer)])
            self._spawn(self._in_line(replica))

    async def _in_line(self, replica: Replica) -> None:
        waiting = self._waiting[replica]
        try:
            while waiting:
                batch, append, answer = waiting[0]
                fault = await self._files.offload(partial(fault_of, batch))
                waiting.popleft()
                self._finish(replica, fault, append, answer)
        finally:  # cancelled: the node stops, and nobody waits for an answer
            del self._waiting[replica]

    @staticmethod
    def _finish(replica: Replica, fault: ProduceAnswer | None, append: Append, answer: AnswerCallback) -> None:
        if fault is None or replica.leader is None:
            append()
        else:
            replica.traffic.failed_produces += 1
            answer(fault)


def _is_quick(batch: memoryview) -> bool:
    return len(batch) <= AT_ONCE_BYTES and not (len(batch) > 22 and batch[22] & CODEC_MASK)


def fault_of(batch: memoryview) -> ProduceAnswer | None:
    """Why the records of a batch may not be in a compacted topic; None when they may, and when it is no whole batch."""
    try:
        header = read_header(batch)
    except CorruptBatch:
        return None  # the append says so
    try:
        place = record_without_key(batch, header)
    except CorruptBatch as error:
        return ProduceAnswer(ErrorCode.INVALID_RECORD, f"the batch cannot be read: {error.reason}")
    except CodecUnavailable as error:
        return ProduceAnswer(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error))
    if place is None:
        return None
    return ProduceAnswer(ErrorCode.INVALID_RECORD, f"record {place} has no key, and the topic is compacted")
