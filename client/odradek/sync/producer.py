"""The producer without asyncio.

Rules of this module. A record is serialized in the thread that enqueues it, and handed to the background loop with
whatever else waits there: the loop is woken once for many records, since a way there and back for each would cost more
than all the rest. Records keep the order in which they were handed over, and what is asked of the producer later
happens after them. A process that ends without `close` waits for what it has handed over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, Unpack

from odradek_proto.transport.background import BackgroundLoop, background_loop
from odradek_proto.transport.ports import Clock, Network

from odradek.core.batches import ProducerBatch
from odradek.producing.delivery import Delivery as AsyncDelivery
from odradek.producing.delivery import LoopYield
from odradek.producing.producer import NO_HEADERS, RECORD_OVERHEAD, K, Prepared, V
from odradek.producing.producer import Producer as AsyncProducer
from odradek.shared.config import BootstrapServers, ProducerSettings
from odradek.shared.errors import ClientClosed, OdradekError, RequestTimeout
from odradek.shared.kafka import missing
from odradek.shared.results import RecordMetadata
from odradek.shared.serialization import HeaderInput
from odradek.sync.bridge import Facade, blocking
from odradek.sync.unclosed import hold, release

EXIT_FLUSH_S = 30.0  # how long a process that ends waits for records of producers that nobody closed
DRAINED_AT_ONCE = 2_000  # records, before others on the loop have their turn
HANDED_FIELDS = 8  # of a record that is handed over: topic, partition, what `Prepared` has, delivery


class Delivery:
    """The future of one record. Asking counts as having been told, as in `odradek.Delivery`."""

    __slots__ = ("_batch", "_claimed", "_error", "_index", "_producer")

    def __init__(self, producer: _Producer[Any, Any]) -> None:
        self._producer = producer
        self._batch: ProducerBatch | None = None  # none while the record is on its way to the loop
        self._index: int  # in it, from then on
        self._error: OdradekError | None = None
        self._claimed = False

    if not TYPE_CHECKING:  # type checkers shall complain about unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            raise missing("Delivery", name)

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self._error is not None if self._batch is None else self._batch.done

    def exception(self, timeout: float | None = None) -> OdradekError | None:
        """Wait, and return the error, None for an acknowledged record. Raises `RequestTimeout`."""
        try:
            self.result(timeout)
        except OdradekError as error:
            if error is not (self._error if self._batch is None else self._batch.error):
                raise
            return error
        return None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait, and return where the record is. Raises its error, or `RequestTimeout` after `timeout` seconds."""
        batch = self._batch
        if batch is not None and batch.done:  # looked at once: the loop may finish it meanwhile
            if batch.error is None:
                return batch.metadata(self._index)
            if self._claimed:  # in a callback, for one, where nobody can wait
                raise batch.error
        elif batch is None and self._error is not None and self._claimed:
            raise self._error

        async def wait() -> RecordMetadata:
            try:
                async with asyncio.timeout(timeout) as limit:
                    await self._producer.take_in()
                    return await self._claim()
            except TimeoutError:
                if limit.expired():
                    raise RequestTimeout(f"not acknowledged within {timeout} s") from None
                raise

        return self._producer.loop.run(wait())

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Have `callback(self)` called on the background loop's thread, once the record is acknowledged or has failed.

        It counts as having been told. There `result` and `exception` do not wait any more; nothing else that waits may
        be called. What it raises goes to the loop's exception handler, which logs it.
        """

        async def tell() -> None:
            await self._producer.take_in()
            if self._batch is None:
                self._claimed = True
                callback(self)
            else:
                self._claim_batch(self._batch).add_done_callback(lambda _: callback(self))

        self._producer.loop.soon(tell)

    def put(self, batch: ProducerBatch) -> None:
        """The record is the last one of a batch, from now on."""
        self._index = len(batch.records) - 1
        batch.unclaimed += 1
        self._batch = batch

    def fail(self, error: OdradekError) -> None:
        """The record never came into a batch."""
        self._error = error

    @property
    def unclaimed_error(self) -> OdradekError | None:
        return None if self._claimed else self._error

    async def _claim(self) -> RecordMetadata:
        if self._error is not None:
            self._claimed = True
            raise self._error
        assert self._batch is not None, "it was taken in"
        return await self._claim_batch(self._batch)

    def _claim_batch(self, batch: ProducerBatch) -> AsyncDelivery:
        was_claimed, self._claimed = self._claimed, True
        delivery = AsyncDelivery(batch, self._index)
        if not was_claimed:
            batch.unclaimed -= 1
        return delivery


class _Producer(AsyncProducer[K, V]):
    """The producer on the background loop, with what other threads have handed over and it has not taken in yet."""

    unclosed = "its records are sent all the same, and the process waits for them at its end"

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.loop: BackgroundLoop = background_loop()
        self._handed_over: list[Any] = []  # HANDED_FIELDS for each record; a tuple for each would cost more than these
        self._handed_bytes = 0
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()
        self._refused: list[Delivery] = []

    # --- in any thread ---------------------------------------------------------------------------------------------

    def enqueue_from_any_thread(
        self, topic: str, value: V, key: K | None, partition: int | None, headers: HeaderInput, timestamp: int | None
    ) -> Delivery:
        """Hand a record over; when there may be no room for it, or no such partition, wait on the loop to learn it."""
        is_plain = key is None and timestamp is None and not headers and self._value_serializer is None
        if is_plain and isinstance(value, bytes):  # most records, and no call for them
            size = RECORD_OVERHEAD + len(value)
            record: Prepared = (None, value, NO_HEADERS, None, size)
        else:
            record = self._prepare(value, key, headers, timestamp)
            size = record[4]
        engine = self._engine
        if (
            engine is not None
            and not engine.buffer_waiters
            and (route := engine.routes.get(topic)) is not None
            and (partition is None or partition in route.queues)
            and size <= self._max_request_size
        ):
            delivery = Delivery(self)
            with self._lock:
                handed_bytes = self._handed_bytes + size
                if engine.sender.buffered_bytes + handed_bytes <= self._buffer_memory:
                    self._handed_bytes = handed_bytes
                    if not (handed_over := self._handed_over):
                        self.loop.soon(self.take_in)
                    handed_over += (topic, partition, *record, delivery)
                    return delivery
        return self.loop.run(self._put_behind(topic, partition, record))

    def leave_to_parent(self) -> None:
        """It takes nothing more: whoever enqueues from now on has to ask the loop."""
        if self._engine is not None:
            self._engine.stop_taking()

    def _held(self) -> str:
        return "" if self.loop.is_gone else super()._held()

    # --- on the loop -----------------------------------------------------------------------------------------------

    async def take_in(self) -> None:
        """Put what was handed over into batches; when this returns, all that was there before is in one, or refused."""
        async with self._turn:
            with self._lock:
                handed_over, self._handed_over = self._handed_over, []
            records = zip(*[iter(handed_over)] * HANDED_FIELDS, strict=True)
            for _ in range(0, len(handed_over), DRAINED_AT_ONCE * HANDED_FIELDS):
                now_ms, taken_bytes = self._clock.wall_ms(), 0
                for topic, partition, key, value, headers, timestamp, size, delivery in islice(
                    records, DRAINED_AT_ONCE
                ):
                    taken_bytes += size
                    try:
                        batch, engine = None, self._engine
                        if engine is not None and not engine.buffer_waiters and (route := engine.routes.get(topic)):
                            stamp = now_ms if timestamp is None else timestamp
                            batch = self._put(engine, route, partition, stamp, key, value, headers, size)
                        if batch is None:
                            record = key, value, headers, timestamp, size
                            batch = await self._append_prepared_when_possible(topic, partition, record)
                        delivery.put(batch)
                    except OdradekError as error:
                        delivery.fail(error)
                        self._refused.append(delivery)
                with self._lock:
                    self._handed_bytes -= taken_bytes
                await LoopYield()

    async def send(self, *arguments: Any, **record: Any) -> RecordMetadata:
        await self.take_in()
        return await super().send(*arguments, **record)

    async def _put_behind(self, topic: str, partition: int | None, record: Prepared) -> Delivery:
        """Take a record, behind those that were handed over; waits for room, and for a topic that is not known yet."""
        await self.take_in()
        batch = await self._append_prepared_when_possible(topic, partition, record)
        delivery = Delivery(self)
        delivery.put(batch)
        return delivery

    async def flush(self, timeout: float | None = None) -> None:
        await self.take_in()
        await super().flush(timeout)

    async def start(self) -> None:
        await super().start()
        hold(self)

    async def end_with_process(self) -> None:
        await self.close(EXIT_FLUSH_S)

    async def close(self, timeout: float | None = None) -> None:
        left: list[OdradekError] = []
        try:
            async with asyncio.timeout(timeout):
                await self.take_in()
        except TimeoutError:
            left.append(ClientClosed("the producer was closed while records waited for room"))
        left += [error for refused in self._refused if (error := refused.unclaimed_error) is not None]
        try:
            await super().close(timeout)
        except ExceptionGroup as failures:
            raise failures.derive([*failures.exceptions, *left]) if left else failures from None
        finally:
            release(self)
        if left:
            raise ExceptionGroup("records were not delivered", left)


class Producer(Facade, Generic[K, V]):
    """`odradek.Producer` for code without asyncio."""

    _client: _Producer[K, V]

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        *,
        key_serializer: Callable[[K], bytes | None] | None = None,
        value_serializer: Callable[[V], bytes | None] | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        made: _Producer[K, V] = _Producer(
            bootstrap_servers,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            clock=clock,
            network=network,
            **settings,
        )
        super().__init__(made)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        key_serializer: Callable[[K], bytes | None] | None = None,
        value_serializer: Callable[[V], bytes | None] | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
    ) -> Self:
        """The same from Kafka's dotted names."""
        made = _Producer.from_config(
            config, key_serializer=key_serializer, value_serializer=value_serializer, clock=clock, network=network
        )
        return cls._around(made)

    close = blocking(AsyncProducer[K, V].close)
    send = blocking(AsyncProducer[K, V].send)
    flush = blocking(AsyncProducer[K, V].flush)
    partitions_for = blocking(AsyncProducer[K, V].partitions_for)

    @property
    def held_up_by(self) -> OdradekError | None:
        """The last error of a partition that has acknowledged nothing since; None while all goes well."""
        held_up: OdradekError | None = self._loop.call(lambda: self._client.held_up_by)
        return held_up

    def enqueue(
        self,
        topic: str,
        value: V,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: HeaderInput = NO_HEADERS,
        timestamp: int | None = None,
    ) -> Delivery:
        """Take a record for sending; returns as soon as there is buffer space. Raises as the asynchronous one does."""
        if not self._is_started:
            self.start()
        return self._client.enqueue_from_any_thread(topic, value, key, partition, headers, timestamp)

    def enqueue_many(self, topic: str, values: Iterable[V], *, partition: int | None = None) -> list[Delivery]:
        """`enqueue` for many values without keys."""
        self.start()
        enqueue = self._client.enqueue_from_any_thread
        return [enqueue(topic, value, None, partition, NO_HEADERS, None) for value in values]
