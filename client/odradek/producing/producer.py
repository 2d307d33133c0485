"""The producer: records in, acknowledgements out.

Rules of this module. `send` returns when the record is acknowledged as `acks` says. `enqueue` returns when there is
room for the record, and hands out a `Delivery` to be awaited or not; what failed and was never asked for is raised
when the producer is closed. Nothing is dropped in silence. What runs behind it is in `odradek.producing.engine`, what
is decided in `odradek.core.sender`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, Unpack

from odradek_proto.transport.ports import Clock, Network
from odradek_proto.words import noun
from typing_extensions import TypeVar

from odradek.cluster.client import Client
from odradek.core.batches import ProducerBatch
from odradek.core.partitioner import partition_for_key
from odradek.producing.delivery import Delivery, LoopYield
from odradek.producing.engine import ProduceEngine, Route
from odradek.shared.config import BootstrapServers, ProducerConfig, ProducerSettings, build, from_dotted
from odradek.shared.errors import ClientClosed, OdradekError, RecordTooLarge, RequestTimeout, no_such_partition
from odradek.shared.results import Headers, RecordMetadata
from odradek.shared.serialization import HeaderInput, as_headers, as_timestamp, serialize

K = TypeVar("K", default=bytes | str | None)
V = TypeVar("V", default=bytes | str | None)

RECORD_OVERHEAD = 10  # bytes of a small record in a batch beside its key and value
HEADER_OVERHEAD = 4  # the same of a header
NO_HEADERS: Headers = ()

Prepared = tuple[bytes | None, bytes | None, Headers, int | None, int]
"""A record to be sent: key, value, headers, timestamp if it has one of its own, size in a batch."""


class Producer(Client, Generic[K, V]):
    """Writes records. Use it with `async with`; one per application is enough, and it may be shared by tasks.

    Without serializers keys and values are bytes, or text that is sent as UTF-8, or None. Settings have Kafka's names
    in snake_case; `docs/client.md` lists them. Raises `ConfigError` for those that it does not know.
    """

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
        config = build(ProducerConfig, bootstrap_servers, settings)
        super().__init__(config, clock, network)
        self._config = config
        self._engine: ProduceEngine | None = None
        self._closing = False
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._batch_size = config.batch_size
        self._buffer_memory = config.buffer_memory
        self._max_request_size = config.max_request_size

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
        """The same from Kafka's dotted names: `{"bootstrap.servers": "localhost:50051", "linger.ms": 5}`."""
        bootstrap_servers, settings = from_dotted(ProducerConfig, config)
        return cls(
            bootstrap_servers,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            clock=clock,
            network=network,
            **settings,
        )

    # --- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the cluster. Raises `BootstrapError`."""
        cluster = await self._open(allow_auto_create_topics=self._config.allow_auto_create_topics)
        if self._engine is None:
            self._engine = ProduceEngine(self._config, cluster)

    async def close(self, timeout: float | None = None) -> None:
        """Flush and end. After `timeout` seconds what is still on its way is given up.

        Raises an `ExceptionGroup` of the failed deliveries that nobody awaited.
        """
        engine = self._engine
        if self._closing or engine is None:
            self._closed = True
            return
        self._closing = True
        engine.stop_taking()
        is_cancelled = True
        try:
            await engine.flush(timeout)
            is_cancelled = False
        except RequestTimeout:
            is_cancelled = False  # said below, once for each record that is left
        finally:
            await engine.end(ClientClosed("the producer was closed before an acknowledgement came"))
            await self._shut()
            failures = engine.failed.as_group()
            if is_cancelled and failures is not None:  # which nobody hears of by an exception
                message = f"close() of Producer {self._base_config.client_id!r} was cancelled: {failures}"
                asyncio.get_running_loop().call_exception_handler({"message": message, "client": self})
        if failures is not None:
            raise failures

    def _held(self) -> str:
        records = 0 if self._engine is None or self._closing else self._engine.sender.queues.unacknowledged()
        if not records:
            return ""
        which = noun(records, "record that was taken is", "records that were taken are")
        return f"{records} {which} not acknowledged yet, and lost when the loop ends; close() waits for them"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ExceptionGroup as failures:
            if error is None:
                raise
            error.add_note(f"besides, {failures}: {', '.join(map(str, failures.exceptions))}")

    # --- records in ------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: HeaderInput = NO_HEADERS,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Write a record and wait until it is acknowledged. `timestamp` is in milliseconds since 1970.

        Raises `DeliveryTimeout` after delivery.timeout.ms, a `BrokerError` that cannot be retried, `UnknownTopic`,
        `BufferFull`, `RecordTooLarge`, `SerializationError`, `ClientClosed`. Cancelling does not take the record back.
        """
        batch = self._append(topic, value, key, partition, headers, timestamp)
        if batch is None:
            batch = await self._append_when_possible(topic, value, key, partition, headers, timestamp)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        batch.waiters.append((len(batch.records) - 1, future))
        return await future

    async def enqueue(
        self,
        topic: str,
        value: V,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: HeaderInput = NO_HEADERS,
        timestamp: int | None = None,
    ) -> Delivery:
        """Take a record for sending; returns as soon as there is buffer space. Await the `Delivery` for its outcome.

        Raises what `send` raises before a record is on its way.
        """
        batch = self._append(topic, value, key, partition, headers, timestamp)
        if batch is None:
            batch = await self._append_when_possible(topic, value, key, partition, headers, timestamp)
        delivery = Delivery(batch, len(batch.records) - 1)
        if batch.closed:
            await LoopYield()  # a loop of enqueues must let the batches go
        return delivery

    async def enqueue_many(self, topic: str, values: Iterable[V], *, partition: int | None = None) -> list[Delivery]:
        """`enqueue` for many values without keys, at less cost each."""
        listed = values if isinstance(values, list) else list(values)
        deliveries: list[Delivery] = []
        while len(deliveries) < len(listed):
            at = len(deliveries)
            batch = self._append(topic, listed[at], None, partition, NO_HEADERS, None)
            if batch is None:
                batch = await self._append_when_possible(topic, listed[at], None, partition, NO_HEADERS, None)
            first = len(batch.records) - 1
            if not batch.closed:
                self._fill(topic, batch, listed, at + 1)
            deliveries += [Delivery(batch, index) for index in range(first, len(batch.records))]
            await LoopYield()
        return deliveries

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything now and return when all that was taken before is acknowledged or has failed.

        Raises `RequestTimeout` after `timeout` seconds; failures are told to those who await the deliveries.
        """
        if self._engine is not None:
            await self._engine.flush(timeout)

    @property
    def held_up_by(self) -> OdradekError | None:
        """The last error of a partition that has acknowledged nothing since; None while all goes well."""
        if self._engine is None:
            return None
        return next((queue.last_error for queue in self._engine.sender.queues if queue.last_error is not None), None)

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises `UnknownTopic`."""
        return [*(await self._ready_engine().route(topic)).partitions]

    def _append(
        self, topic: str, value: V, key: K | None, partition: int | None, headers: HeaderInput, timestamp: int | None
    ) -> ProducerBatch | None:
        """Put a record into its batch; the record is the batch's last. None when the caller has to wait first.

        Every record passes here: the routes of an engine that has ended, or has not begun, are empty.
        """
        engine = self._engine
        if engine is None or engine.buffer_waiters or (route := engine.routes.get(topic)) is None:
            return None
        if self._value_serializer is None and isinstance(value, bytes):
            value_bytes: bytes | None = value
        else:
            value_bytes = serialize(value, self._value_serializer, "value")
        size = RECORD_OVERHEAD if value_bytes is None else RECORD_OVERHEAD + len(value_bytes)
        key_bytes = None
        if key is not None:
            key_bytes = serialize(key, self._key_serializer, "key")
            size += len(key_bytes or b"")
        record_headers = NO_HEADERS
        if headers:
            record_headers = as_headers(headers)
            size = _size_of(key_bytes, value_bytes, record_headers)
        if timestamp is not None:
            timestamp = as_timestamp(timestamp)
        if size > self._max_request_size or engine.sender.buffered_bytes + size > self._buffer_memory:
            return None
        return self._put(engine, route, partition, timestamp, key_bytes, value_bytes, record_headers, size)

    def _fill(self, topic: str, batch: ProducerBatch, values: list[V], at: int) -> None:
        """Add to a batch what follows in a list, as much as fits and needs nothing but to be added."""
        engine = self._engine
        if self._value_serializer is not None or engine is None:
            return
        before = batch.size
        room = self._buffer_memory - engine.sender.buffered_bytes
        stamp = self._clock.wall_ms()
        batch.owner.add_values(values, at, stamp, RECORD_OVERHEAD, self._batch_size, room)
        engine.sender.buffered_bytes += batch.size - before
        if (route := engine.routes.get(topic)) is not None:
            route.sticky.spend(batch.size - before)

    def _put(
        self,
        engine: ProduceEngine,
        route: Route,
        partition: int | None,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
    ) -> ProducerBatch | None:
        """Put a record for which there is room into its batch. None when the topic has no such partition."""
        if partition is None:
            if key is None:
                partition = route.sticky.take(size, route.available)
            else:
                partition = partition_for_key(key, len(route.partitions))
        queue = route.queues.get(partition)
        if queue is None:
            return None
        record = (self._clock.wall_ms() if timestamp is None else timestamp, key, value, headers)
        engine.sender.buffered_bytes += size
        batch = queue.add(record, size, self._batch_size)
        return engine.open(queue, record, size) if batch is None else batch

    async def _append_when_possible(
        self, topic: str, value: V, key: K | None, partition: int | None, headers: HeaderInput, timestamp: int | None
    ) -> ProducerBatch:
        """Find out why a record cannot be taken at once; wait, or raise."""
        self._ready_engine()
        return await self._append_prepared_when_possible(
            topic, partition, self._prepare(value, key, headers, timestamp)
        )

    def _prepare(self, value: V, key: K | None, headers: HeaderInput, timestamp: int | None) -> Prepared:
        """A record in bytes; may be called in any thread. Raises `SerializationError`."""
        key_bytes = None if key is None else serialize(key, self._key_serializer, "key")
        if self._value_serializer is None and isinstance(value, bytes):
            value_bytes: bytes | None = value
        else:
            value_bytes = serialize(value, self._value_serializer, "value")
        record_headers = as_headers(headers) if headers else NO_HEADERS
        if timestamp is not None:
            timestamp = as_timestamp(timestamp)
        if key_bytes is None and not record_headers:  # most records, and a call less for each
            size = RECORD_OVERHEAD if value_bytes is None else RECORD_OVERHEAD + len(value_bytes)
        else:
            size = _size_of(key_bytes, value_bytes, record_headers)
        return key_bytes, value_bytes, record_headers, timestamp, size

    async def _append_prepared_when_possible(
        self, topic: str, partition: int | None, record: Prepared
    ) -> ProducerBatch:
        engine = self._ready_engine()
        key, value, headers, timestamp, size = record
        if size > min(self._max_request_size, self._buffer_memory):
            raise RecordTooLarge(
                f"a record of {size} bytes is larger than max.request.size ({self._max_request_size}) "
                f"or buffer.memory ({self._buffer_memory})",
                hint="send smaller records, or raise max_request_size here and max.message.bytes of the topic",
            )
        begun_ms = self._clock.now_ms()
        route = await engine.route(topic)
        if engine.buffer_waiters or not engine.has_room(size):
            await engine.wait_for_room(size, begun_ms)
        engine = self._ready_engine()
        batch = self._put(engine, route, partition, timestamp, key, value, headers, size)
        if batch is None:
            raise no_such_partition(topic, partition, len(route.partitions))
        return batch

    def _ready_engine(self) -> ProduceEngine:
        """The engine. Raises `ClientClosed`, or what ended the producer."""
        engine = self._engine
        if engine is None or self._closing:
            self._require_running()
            raise ClientClosed("the producer was closed")
        if engine.fatal is not None:
            raise engine.fatal
        return engine


def appending(producer: Producer[K, V]) -> Callable[..., ProducerBatch | None]:
    """How records get into batches without a coroutine for each: None for one that has to go through `enqueue`.

    For those who count the records of a batch together; nobody else asks what became of them.
    """
    return producer._append


def _size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """About what a record takes in a batch; batch.size and buffer.memory are counted in it."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    return size + sum([len(name) + len(content or b"") + HEADER_OVERHEAD for name, content in headers])
