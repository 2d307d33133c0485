"""A produce session: one stream on which a client writes to many partitions.

Each message holds many batches, each with its own correlation id; they are appended in the order in which they came.
Answers that become due within one loop tick leave in one message. The bytes of batches that have no answer yet are
bounded, and so are the answers that the client has not taken: at the bound the session stops reading, and gRPC's flow
control stops the client.
"""

from __future__ import annotations

from functools import partial

from odradek_proto.records import HEADER_SIZE
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance
from odradek_proto.transport.frames import FrameError, split_frame
from odradek_proto.transport.ports import Stream, StreamClosed
from odradek_proto.transport.wakeup import WakeupSignal
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.produce import ProduceAnswer, ProduceRequests
from odradek_broker.requests.quotas import NO_QUOTAS, Throttle
from odradek_broker.rpc.caller import of_client
from odradek_broker.runtime.duplex import run_duplex

MAX_HEADER_BYTES = 4 * 1024 * 1024  # of one ProduceFrame
HEADER_BYTES_PER_BATCH = 512  # the longest topic name and all numbers fit
MAX_EMPTY_ITEMS = 64  # items beyond what a message could hold batches for; they get their errors
MAX_DUE_ANSWERS = 256  # that the client has not taken; some 30 KB


def parse_produce(message: bytes) -> tuple[pb.ProduceHeader, memoryview]:
    """Split a ProduceFrame into its header and its batches. Raises `FrameError` when the two do not fit."""
    header_bytes, batches = split_frame(message)
    most = len(batches) // HEADER_SIZE + MAX_EMPTY_ITEMS
    if len(header_bytes) > min(MAX_HEADER_BYTES, most * HEADER_BYTES_PER_BATCH):
        raise FrameError(f"a ProduceHeader of {len(header_bytes)} bytes for {len(batches)} bytes of batches")
    try:
        header = pb.ProduceHeader.FromString(header_bytes)
    except Exception as error:  # protobuf raises DecodeError, a plain Exception
        raise FrameError(f"not a ProduceHeader: {error}") from error
    if len(header.items) > most:
        raise FrameError(f"{len(header.items)} items for {len(batches)} bytes of batches")
    claimed = 0
    for item in header.items:
        if item.size < 0:
            raise FrameError(f"a batch of {item.size} bytes")
        claimed += item.size
    if claimed != len(batches):
        raise FrameError(f"the items claim {claimed} bytes of batches, the message holds {len(batches)}")
    return header, batches


def fill_answer(answer: pb.ProduceAnswer, correlation_id: int, told: ProduceAnswer) -> None:
    """Write what a producer is told into its protobuf form."""
    answer.correlation_id = correlation_id
    answer.error_code = int(told.error)
    if told.message:
        answer.error_message = told.message
    answer.base_offset = told.base_offset
    answer.log_append_time_ms = told.log_append_time_ms
    answer.log_start_offset = told.log_start_offset
    answer.current_leader_id = told.leader_id
    answer.current_leader_epoch = told.leader_epoch


class ProduceSession:
    """The serving side of one produce stream. `run` lives as long as the stream."""

    def __init__(
        self,
        stream: Stream,
        requests: ProduceRequests,
        context: RequestContext,
        *,
        credit_bytes: int,
        throttle: Throttle = NO_QUOTAS,
    ) -> None:
        self._stream = stream
        self._requests = requests
        self._context = context
        self._credit_bytes = credit_bytes
        self._throttle = throttle
        self._unanswered_bytes = 0
        self._answers = pb.ProduceAnswers()
        self._due_answers = 0  # in `_answers`, and in the message that is on its way
        self._due = WakeupSignal()
        self._room = WakeupSignal()
        self._broken = False

    async def run(self) -> None:
        """Serve until the stream ends. A message that is none ends it; bad batches only get their error."""
        try:
            await run_duplex(self._stream, self._receive(), self._send_answers())
        finally:
            self._broken = True

    async def _receive(self) -> None:
        while not self._broken:
            message = await self._stream.recv()
            try:
                if self._throttle.is_on:
                    self._throttle.call(self._context, partial(self.on_message, message))
                else:
                    self.on_message(message)
            except FrameError:  # a malformed request closes the stream
                self._stream.close()
                return
            while self._is_full() and not self._broken:
                self._room.clear()
                await self._room.wait()
            if self._throttle.is_on:
                await self._hold_back(len(message))

    async def _hold_back(self, size: int) -> None:
        """A client that has exceeded a quota is told so, and not read for a while (KIP-219)."""
        delay_ms = max(self._throttle.produced(self._context, size), self._throttle.owed(self._context))
        if delay_ms:
            self._answers.throttle_time_ms = delay_ms
            self._due.set()
            await self._throttle.wait(delay_ms)

    def _is_full(self) -> bool:
        return self._unanswered_bytes > self._credit_bytes or self._due_answers >= MAX_DUE_ANSWERS

    def on_message(self, message: bytes) -> None:
        """Append every batch of one ProduceFrame. Raises `FrameError` when it is none."""
        header, batches = parse_produce(message)
        if header.client_id != self._context.client_id:
            self._context = of_client(self._context, header.client_id)
        position = 0
        for item in header.items:
            batch = batches[position : position + item.size]
            position += item.size
            self._produce(item, batch)

    def _produce(self, item: pb.ProduceItem, batch: memoryview) -> None:
        correlation_id, size, acks = item.correlation_id, item.size, item.acks
        if acks != 0:
            self._unanswered_bytes += size

        def answer(told: ProduceAnswer) -> None:
            if acks != 0:
                self._unanswered_bytes -= size
                self._room.set()
            if not self._broken:
                fill_answer(self._answers.answers.add(), correlation_id, told)
                self._due_answers += 1
                self._due.set()

        tp = TopicPartition(item.topic, item.partition)
        self._requests.append(self._context, tp, b"", batch, acks, item.timeout_ms, answer)

    async def _send_answers(self) -> None:
        self._answers.credit_bytes = self._credit_bytes
        self._due.set()
        while True:
            await self._due.wait()
            message, self._answers = self._answers, pb.ProduceAnswers()
            if len(message.answers) > 1 and chance("produce-answers-partial", 0.3):
                self._answers.answers.extend(message.answers[1:])
                del message.answers[1:]
                self._due.set()
            leaving = len(message.answers)
            try:
                await self._stream.send(message.SerializeToString())
            except StreamClosed:  # nobody takes answers any more: whoever waits for room must not wait for ever
                self._broken = True
                self._room.set()
                return
            self._due_answers -= leaving
            self._room.set()
