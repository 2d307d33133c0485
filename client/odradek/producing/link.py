"""The stream from a producer to one broker.

Rules of this module. Everything that is ready goes into one message, and while a message is on its way more piles up
for the next one. The bytes of batches without an answer never exceed the credit that the broker gave in its first
message. When the stream ends, all that was owed on it goes back to the sender; what comes later is not heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from google.protobuf.message import DecodeError
from odradek_proto.transport.chance import chance
from odradek_proto.transport.frames import pack_frame
from odradek_proto.transport.ports import DeadlineExceeded, NetworkError, PeerUnavailable, Stream, StreamClosed
from odradek_proto.transport.wakeup import WakeupSignal
from odradek_proto.v1 import broker_pb2 as pb

from odradek.cluster.cluster import ClusterClient
from odradek.cluster.tasks import Failed, start_task
from odradek.core.batches import ProducerBatch
from odradek.core.sender import Effect, Sender
from odradek.shared.errors import BrokerUnreachable, OdradekError

PRODUCE_STREAM = "/odradek.v1.Broker/ProduceStream"
OPEN_TIMEOUT_MS = 2_000  # the first time


class ProduceLink:
    """Carries batches to one broker, for as long as the producer lives. The stream is opened when there is work."""

    def __init__(
        self,
        broker_id: int,
        sender: Sender,
        cluster: ClusterClient,
        *,
        acks: int,
        carry_out: Callable[[Iterable[Effect]], None],
        failed: Failed,
    ) -> None:
        self.broker_id = broker_id
        self._sender = sender
        self._cluster = cluster
        self._acks = acks
        self._timeout_ms = cluster.config.request_timeout_ms
        self._carry_out = carry_out
        self._failed = failed
        self._wakeup = WakeupSignal()
        self._stream: Stream | None = None
        self._ended: NetworkError | None = None
        self._credit = 0
        self._unanswered = 0
        self._owed: dict[int, tuple[ProducerBatch, int]] = {}
        self._failures = 0

    def wake(self) -> None:
        """There may be something to send."""
        self._wakeup.set()

    def drop(self) -> None:
        """End the stream, if there is one; a new one is opened when there is work."""
        if self._stream is not None:
            self._stream.close()

    async def run(self) -> None:
        while True:
            while not self._sender.queues.has_work(self.broker_id):
                self._wakeup.clear()
                await self._wakeup.wait()
            try:
                await self._live()
            except asyncio.CancelledError:
                self._give_back(StreamClosed("the task that wrote to it was cancelled"))
                raise  # nobody asks for new metadata then; another link, if there is one, does what is left
            except NetworkError as error:
                self._carry_out(self._give_back(error))
                if isinstance(error, StreamClosed) and not self._failures:
                    continue  # it had been open: try again at once, the broker may be there
                await self._cluster.clock.sleep(self._cluster.search_pause(self._failures))

    def _give_back(self, error: NetworkError) -> list[Effect]:
        """Nothing will be answered on this stream."""
        self._owed.clear()
        self._unanswered = 0
        now_ms = self._cluster.clock.now_ms()
        return self._sender.on_stream_broken(self.broker_id, now_ms, self._reason(error))

    async def _live(self) -> None:
        """One stream, from its opening to its end, which is always a `NetworkError`."""
        patience_ms = self._cluster.patience_ms(self._failures, OPEN_TIMEOUT_MS)
        self._failures += 1
        address = self._cluster.view.address_of(self.broker_id)
        if address is None:
            raise PeerUnavailable(f"broker {self.broker_id} is not part of the cluster at the moment")
        stream = await self._cluster.network.open(address, PRODUCE_STREAM, patience_ms)
        self._stream, self._ended = stream, None
        reader: asyncio.Task[None] | None = None
        try:
            await self._receive_credit(stream, patience_ms)
            self._failures = 0
            reader = start_task(self._read(stream), self._failed)
            await self._write(stream)
        finally:
            self._stream = None
            stream.close()
            if reader is not None:
                reader.cancel()

    async def _receive_credit(self, stream: Stream, patience_ms: int) -> None:
        try:
            async with asyncio.timeout(patience_ms / 1000):
                self._credit = 0
                while not self._credit:
                    self._take(await stream.recv())
        except TimeoutError:
            raise DeadlineExceeded(f"{stream.peer}: no credit within {patience_ms} ms") from None

    async def _write(self, stream: Stream) -> None:
        sender, clock = self._sender, self._cluster.clock
        while self._ended is None:
            room = self._credit - self._unanswered
            if chance("produce-request-small", 0.1):
                room = min(room, 1)
            self._wakeup.clear()
            batches, effects = sender.drain(self.broker_id, clock.now_ms(), room, self._credit)
            if effects:
                self._carry_out(effects)
            if batches:
                await stream.send(self._frame(batches))
                if not self._acks:
                    self._carry_out(sender.on_sent(batches))
                if sender.queues.has_work(self.broker_id):
                    continue  # what did not fit into this message, or came meanwhile
            await self._wakeup.wait()
        raise self._ended

    def _frame(self, batches: list[ProducerBatch]) -> bytes:
        header = pb.ProduceHeader(client_id=self._cluster.config.client_id)
        parts: list[bytes] = []
        add = header.items.add
        for batch in batches:
            size = len(batch.encoded)
            topic, partition = batch.owner.name
            add(
                correlation_id=batch.correlation_id,
                acks=self._acks,
                timeout_ms=self._timeout_ms,
                topic=topic,
                partition=partition,
                size=size,
            )
            parts.append(batch.encoded)
            if self._acks:
                self._owed[batch.correlation_id] = (batch, size)
                self._unanswered += size
        return pack_frame(header.SerializeToString(), parts)

    async def _read(self, stream: Stream) -> None:
        try:
            while True:
                message = await stream.recv()
                if chance("acknowledgement-lost", 0.01):
                    raise StreamClosed(f"{stream.peer}: lost by chance")
                self._take(message)
        except NetworkError as end:
            self._ended = end
            stream.close()  # a message may wait for room that the broker would never give
            self._wakeup.set()

    def _take(self, message: bytes) -> None:
        """One message of answers; all waiting places that became free are used by the next drain."""
        try:
            answers = pb.ProduceAnswers.FromString(message)
        except DecodeError as error:
            raise NetworkError(f"its answer cannot be read: {error}") from None
        if answers.credit_bytes:
            self._credit = answers.credit_bytes
        now_ms = self._cluster.clock.now_ms()
        effects: list[Effect] = []
        try:
            for answer in answers.answers:
                owed = self._owed.pop(answer.correlation_id, None)
                if owed is None:
                    if answer.error_code:  # acks=0 is only answered when it failed
                        self._cluster.request_refresh(f"broker {self.broker_id}: a record with acks=0 was refused")
                    continue
                batch, size = owed
                self._unanswered -= size
                if batch.owner.wire.get(batch.correlation_id) is batch:
                    effects += self._answered(batch, answer, now_ms)
        finally:  # what was decided before an error holds
            if effects:
                self._carry_out(effects)
        if self._sender.queues.has_work(self.broker_id):
            self._wakeup.set()

    def _answered(self, batch: ProducerBatch, answer: pb.ProduceAnswer, now_ms: int) -> list[Effect]:
        try:
            return self._sender.on_answer(batch, answer, now_ms, self._cluster.view)
        except Exception:
            batch.owner.wire[batch.correlation_id] = batch  # where those are found who must be told
            raise

    def _reason(self, error: NetworkError) -> OdradekError:
        address = self._cluster.view.address_of(self.broker_id)
        if isinstance(error, PeerUnavailable) and error.refused:
            return BrokerUnreachable(
                f"broker {self.broker_id} at {address}: connection refused",
                undelivered=True,
                hint="the bootstrap address answered, the advertised one did not: check advertised.listeners"
                if address not in self._cluster.config.bootstrap_servers
                else "",
            )
        return BrokerUnreachable(f"broker {self.broker_id} at {address}: {error}", undelivered=error.undelivered)
