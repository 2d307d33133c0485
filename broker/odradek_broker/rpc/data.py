"""Produce and Fetch, by stream and by single call.

- The streams are sessions (produce_session.py, fetch_session.py).
- The single calls are for simple clients: one call costs as much as a stream message with hundreds of batches.
"""

from __future__ import annotations

import asyncio

from google.protobuf.message import DecodeError
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import FrameError, pack_frame
from odradek_proto.transport.ports import Buffer, CallRejected, Stream
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.fetch import FetchRequest, FetchRequests
from odradek_broker.requests.produce import ProduceAnswer, ProduceRequests
from odradek_broker.requests.quotas import NO_QUOTAS, Throttle
from odradek_broker.rpc.backpressure import SMALL_ANSWER_BYTES, ResponseBudget
from odradek_broker.rpc.caller import of_client
from odradek_broker.rpc.fetch_session import FetchSession, SessionLimits, describe, partition_of
from odradek_broker.rpc.produce_session import ProduceSession, fill_answer, parse_produce


class DataService:
    """The hot paths of the Broker and Replication services."""

    def __init__(
        self,
        produce: ProduceRequests,
        fetch: FetchRequests,
        settings: BrokerSettings,
        throttle: Throttle,
    ) -> None:
        self._produce = produce
        self._fetch = fetch
        self._throttle = throttle
        self._stream_credit_bytes = credit_bytes = settings.odradek_stream_credit_bytes
        self._limits = SessionLimits(settings.fetch_max_bytes, credit_bytes, settings.replica_fetch_wait_max_ms)
        self._unsent = ResponseBudget(self._limits.unsent_bytes)
        fetch.counters.request("FetchFollower")  # there from the beginning: a rate needs a zero to start from

    async def produce_stream(self, stream: Stream, context: RequestContext) -> None:
        credit_bytes = self._stream_credit_bytes
        await ProduceSession(stream, self._produce, context, credit_bytes=credit_bytes, throttle=self._throttle).run()

    async def fetch_stream(self, stream: Stream, context: RequestContext) -> None:
        await self._serve_fetches(stream, context, follower=False)

    async def replica_fetch_stream(self, stream: Stream, context: RequestContext) -> None:
        await self._serve_fetches(stream, context, follower=True)

    async def _serve_fetches(self, stream: Stream, context: RequestContext, *, follower: bool) -> None:
        first = await stream.recv()  # a stream that says nothing gets no session: thousands of them stay small
        unsent = None if follower else self._unsent  # a follower has room of its own, whoever else does not read
        throttle = NO_QUOTAS if follower else self._throttle
        session = FetchSession(
            stream, self._fetch, context, limits=self._limits, follower=follower, unsent=unsent, throttle=throttle
        )
        await session.run(first)

    async def produce(self, request: bytes, context: RequestContext) -> bytes:
        """One call, answered when every item is."""
        try:
            header, batches = parse_produce(request)
        except FrameError as error:
            raise CallRejected(f"malformed ProduceFrame: {error}", status="INVALID_ARGUMENT") from error
        context = of_client(context, header.client_id)
        response = pb.ProduceAnswers(throttle_time_ms=self._throttle.produced(context, len(request)))
        waiting: list[asyncio.Future[None]] = []
        position = 0
        for item in header.items:
            batch = batches[position : position + item.size]
            position += item.size
            answered = self._produce_one(item, batch, context, response)
            if item.acks != 0:
                waiting.append(answered)
        if waiting:
            await asyncio.gather(*waiting)
        await self._throttle.hold(response.throttle_time_ms)
        return response.SerializeToString()

    def _produce_one(
        self, item: pb.ProduceItem, batch: memoryview, context: RequestContext, response: pb.ProduceAnswers
    ) -> asyncio.Future[None]:
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer(told: ProduceAnswer) -> None:
            if not answered.done():  # the caller may have given up
                fill_answer(response.answers.add(), item.correlation_id, told)
                answered.set_result(None)

        tp = TopicPartition(item.topic, item.partition)
        self._produce.append(context, tp, b"", batch, item.acks, item.timeout_ms, answer)
        return answered

    async def fetch(self, request: bytes, context: RequestContext) -> bytes:
        """One call, answered as Kafka's Fetch is; an answer is small, since nobody sees whether it is taken."""
        try:
            header = pb.FetchFrame.FromString(request).header
        except DecodeError as error:
            raise CallRejected(f"malformed FetchFrame: {error}", status="INVALID_ARGUMENT") from error
        asked = [partition_of(TopicPartition(each.topic, each.partition), each) for each in header.partitions]
        wanted = FetchRequest(
            asked,
            header.max_wait_ms or self._limits.default_wait_ms,
            max(1, header.min_bytes),
            min(header.max_bytes or SMALL_ANSWER_BYTES, SMALL_ANSWER_BYTES),
            header.read_committed,
        )
        answer = pb.FetchAnswerHeader()
        buffers: list[Buffer] = []
        for named, fetched in zip(asked, await self._fetch.fetch(context, wanted), strict=True):
            describe(answer.partitions.add(), named, fetched, sum(map(len, fetched.buffers)))
            buffers.extend(fetched.buffers)
        context = of_client(context, header.client_id)
        answer.throttle_time_ms = self._throttle.fetched(context, sum(map(len, buffers)))
        await self._throttle.hold(answer.throttle_time_ms)
        return pack_frame(answer.SerializeToString(), buffers)
