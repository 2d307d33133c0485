"""Batches whose records are looked into before they are appended: of compacted topics, where each record needs a key
(K-85), and of topics with a `compression.type` of their own, where the leader compresses what came in another codec.

Rules of this module. Batches of one replica are appended in the order in which they came. Small ones that are not
compressed are seen to at once; from the first other one on they wait in line for a thread, since a stranger's
megabyte may hold millions of records. The line has an end: what comes with acks=0 is waited for by nobody, and would
make it grow without limit. What a leader compresses is a batch as the producer might have sent it: rules of
size count for both, offsets and times of the append are stamped afterwards, and followers copy its bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from odradek_proto.errors import ErrorCode
from odradek_proto.headers import ATTRIBUTES, CODEC_MASK, CONTROL
from odradek_proto.records import (
    CodecUnavailable,
    CorruptBatch,
    check_batch,
    compressed_anew,
    records_without_key,
)
from odradek_proto.transport.ports import Files

from odradek_broker.runtime.replicas.purgatory import AnswerCallback, ProduceAnswer
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.settings import LogSettings

READ_AT_ONCE_BYTES = 64 << 10  # some hundred microseconds
COMPRESSED_AT_ONCE_BYTES = 16 << 10  # the same, with gzip
LONGEST_LINE_BYTES = 64 << 20  # of all replicas together
MOST_NAMED = 10_000  # records of a batch, the most that one of librdkafka's has by default
Append = Callable[[memoryview], None]


class UnpackedProduces:
    """Looks into batches before they are appended."""

    def __init__(self, *, files: Files, spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]]) -> None:
        self._files = files
        self._spawn = spawn
        self._waiting: dict[Replica, deque[tuple[memoryview, Append, AnswerCallback]]] = {}
        self._waiting_bytes = 0

    def produce(self, replica: Replica, batch: memoryview, append: Append, answer: AnswerCallback) -> None:
        """`append` the batch, now or later, or `answer` what is wrong with its records."""
        waiting = self._waiting.get(replica)
        if waiting is None and replica.leader is None:
            append(batch)
        elif waiting is None and _is_quick(batch, replica.log.settings):
            self._finish(replica, prepared(batch, replica.log.settings), append, answer)
        elif self._waiting_bytes + len(batch) > LONGEST_LINE_BYTES:
            why = f"{self._waiting_bytes} bytes of batches wait to be looked into"
            self._finish(replica, ProduceAnswer(ErrorCode.REQUEST_TIMED_OUT, why), append, answer)
        else:
            self._waiting_bytes += len(batch)
            if waiting is None:
                self._waiting[replica] = waiting = deque()
                self._spawn(self._in_line(replica))
            waiting.append((batch, append, answer))

    async def _in_line(self, replica: Replica) -> None:
        waiting = self._waiting[replica]
        try:
            while waiting:
                batch, append, answer = waiting[0]
                found = await self._files.offload(partial(prepared, batch, replica.log.settings))
                waiting.popleft()
                self._waiting_bytes -= len(batch)
                self._finish(replica, batch if replica.leader is None else found, append, answer)
        finally:  # cancelled: the node stops, and nobody waits for an answer
            del self._waiting[replica]
            self._waiting_bytes -= sum([len(batch) for batch, *_ in waiting])

    @staticmethod
    def _finish(replica: Replica, found: memoryview | ProduceAnswer, append: Append, answer: AnswerCallback) -> None:
        if isinstance(found, ProduceAnswer):
            replica.traffic.failed_produces += 1
            answer(found)
        else:
            append(found)


def _is_quick(batch: memoryview, settings: LogSettings) -> bool:
    limit = READ_AT_ONCE_BYTES if settings.compression is None else COMPRESSED_AT_ONCE_BYTES
    return len(batch) <= limit and not (len(batch) > ATTRIBUTES and batch[ATTRIBUTES] & CODEC_MASK)


def prepared(batch: memoryview, settings: LogSettings) -> memoryview | ProduceAnswer:
    """The batch to append, or why its records may not be in the topic. One that is unsound the append refuses."""
    try:
        header = check_batch(batch)
    except CorruptBatch:
        return batch
    if header.size != len(batch) or header.size > settings.max_message_bytes or header.attributes & CONTROL:
        return batch
    try:
        if settings.compaction is not None and (invalid := records_without_key(batch, header, most=MOST_NAMED)):
            return _refusal_of(invalid)
        wanted = settings.compression
        if wanted is None or wanted.codec is header.codec:
            return batch
        return memoryview(compressed_anew(batch, header, wanted.codec, wanted.level))
    except CorruptBatch as error:
        return ProduceAnswer(ErrorCode.INVALID_RECORD, f"the batch cannot be read: {error.reason}")
    except CodecUnavailable as error:
        return ProduceAnswer(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error))


def _refusal_of(without_key: Sequence[int]) -> ProduceAnswer:
    """The others are named, too, to tell them from those that only were in the same batch (KIP-467)."""
    why = "has no key, and the topic is compacted"
    return ProduceAnswer(
        ErrorCode.INVALID_RECORD,
        f"record {without_key[0]} {why}",
        invalid_records=without_key,
        record_message=f"the record {why}",
    )
