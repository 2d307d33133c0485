"""Produce and Fetch, by stream and by single call.

- The streams are sessions (runtime/produce_session.py, runtime/fetch_session.py).
- The single calls are for simple clients: one call costs as much as a stream message with hundreds of batches.
- acks must be 0, 1 or -1 (INVALID_REQUIRED_ACKS); one batch for each item; items fail one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import FrameError
from odradek_proto.transport.ports import CallContext, CallRejected, Clock, Files, Stream, StreamClosed
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.replicas.delayed_produces import ProduceAnswer
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.streams.backpressure import ResponseBudget
from odradek_broker.runtime.streams.fetch_session import FetchSession, SessionLimits
from odradek_broker.runtime.streams.produce_session import (
    DEFAULT_TIMEOUT_MS,
    ProduceSession,
    fill_answer,
    parse_produce,
)

PRODUCE_MARGIN_MS = 5_000  # a caller's deadline is given this much beyond the request's own timeout


class DataService:
    """The hot paths of the Broker and Replication services."""

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        clock: Clock,
        files: Files,
        limits: SessionLimits,
        stream_credit_bytes: int,
        counters: Counters,
    ) -> None:
        self._counters = counters
        for name in ("Produce", "FetchConsumer", "FetchFollower"):
            counters.request(name)  # there from the beginning: a rate needs a zero to start from
        self._files = files
        self._replicas = replicas
        self._clock = clock
        self._limits = limits
        self._stream_credit_bytes = stream_credit_bytes
        self._unsent = ResponseBudget(limits.unsent_bytes)

    async def produce_stream(self, stream: Stream, context: CallContext) -> None:
        session = ProduceSession(
            stream,
            lookup=self._replicas.lookup,
            credit_bytes=self._stream_credit_bytes,
            counters=self._counters,
        )
        await session.run()

    async def fetch_stream(self, stream: Stream, context: CallContext) -> None:
        await self._serve_fetches(stream, follower=False)

    async def replica_fetch_stream(self, stream: Stream, context: CallContext) -> None:
        await self._serve_fetches(stream, follower=True)

    async def _serve_fetches(self, stream: Stream, *, follower: bool) -> None:
        first = await stream.recv()  # a stream that says nothing gets no session: thousands of them stay small
        await self._session(stream, follower=follower).run(first)

    def _session(self, stream: Stream, *, follower: bool) -> FetchSession:
        return FetchSession(
            stream,
            clock=self._clock,
            files=self._files,
            lookup=self._replicas.lookup,
            limits=self._limits,
            follower=follower,
            unsent=None if follower else self._unsent,  # a follower has room of its own, whoever else does not read
            counters=self._counters,
        )

    async def produce(self, request: bytes, context: CallContext) -> bytes:
        """One call, answered when every item is."""
        try:
            header, batches = parse_produce(request)
        except FrameError as error:
            raise CallRejected(f"malformed ProduceFrame: {error}", status="INVALID_ARGUMENT") from error
        response = pb.ProduceAnswers()
        waiting: list[asyncio.Future[None]] = []
        position = 0
        for item in header.items:
            batch = batches[position : position + item.size]
            position += item.size
            self._produce_one(item, batch, response, waiting)
        if waiting:
            await asyncio.gather(*waiting)
        return response.SerializeToString()

    def _produce_one(
        self,
        item: pb.ProduceItem,
        batch: memoryview,
        response: pb.ProduceAnswers,
        waiting: list[asyncio.Future[None]],
    ) -> None:
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        replica = self._replicas.lookup(TopicPartition(item.topic, item.partition))
        counters = self._counters
        traffic = counters.gone if isinstance(replica, ErrorCode) else replica.traffic
        traffic.produces += 1
        arrived = 0.0 if counters.timer is None else counters.timer()

        def answer(told: ProduceAnswer) -> None:
            traffic.failed_produces += told.error is not ErrorCode.NONE
            if counters.timer is not None:
                counters.request("Produce").observe(counters.timer() - arrived)
            if not answered.done():  # the caller may have given up
                fill_answer(response.answers.add(), item.correlation_id, told)
                answered.set_result(None)

        if isinstance(replica, ErrorCode):
            answer(ProduceAnswer(replica, f"{item.topic}-{item.partition}: {replica.message}"))
            return
        replica.produce(batch, item.acks, item.timeout_ms or DEFAULT_TIMEOUT_MS, answer)
        if item.acks != 0:
            waiting.append(answered)

    async def fetch(self, request: bytes, context: CallContext) -> bytes:
        """One call: a session of one message, answered with whatever is ready first, or empty after max_wait_ms."""
        stream = _OneAnswer(context.peer)
        session = self._session(stream, follower=False)
        running = asyncio.ensure_future(session.run())
        try:
            stream.ask(request)
            wait_ms = _wait_ms(request, self._limits.default_wait_ms)
            timer = self._clock.call_later(wait_ms, lambda: stream.give_up(session.last_answer))
            try:
                return await stream.answer
            finally:
                timer.cancel()
        finally:
            stream.close()
            await asyncio.gather(running, return_exceptions=True)


def _wait_ms(request: bytes, default: int) -> int:
    try:
        header = pb.FetchFrame.FromString(request).header
    except Exception as error:  # protobuf raises DecodeError, a plain Exception
        raise CallRejected(f"malformed FetchFrame: {error}", status="INVALID_ARGUMENT") from error
    return min(header.max_wait_ms or default, 300_000)  # five minutes bound what a caller may ask us to hold


class _OneAnswer:
    """The stream of a single call: one message in, one message out."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    @property
    def peer(self) -> str:
        return self._peer

    def ask(self, request: bytes) -> None:
        self._requests.put_nowait(request)

    def give_up(self, last_answer: Callable[[], bytes]) -> None:
        if not self.answer.done():
            self.answer.set_result(last_answer())  # as a rule b"", an empty FetchAnswerFrame

    async def send(self, message: bytes) -> None:
        if self.answer.done():
            raise StreamClosed("a single call has one answer", clean=True)
        self.answer.set_result(message)

    async def recv(self) -> bytes:
        message = await self._requests.get()
        if message is None:
            raise StreamClosed("a single call has one request", clean=True)
        return message

    def close(self) -> None:
        self._requests.put_nowait(None)
