"""The same three clients without asyncio: `from odradek.sync import Producer, Consumer, Admin`.

Rules of this module. One background thread with one event loop serves all clients of the process: two loops in one
process would make gRPC's poller log errors. Methods have the names and arguments of the asynchronous ones; a test
compares them. They may be called from any thread, but not from the background loop itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Clock, Network

import odradek.admin
import odradek.consumer
import odradek.delivery
import odradek.producer
from odradek.admin import ElectionType, ResourceType
from odradek.config import AdminSettings, BootstrapServers, ConsumerSettings, ProducerSettings
from odradek.descriptions import (
    ClusterDescription,
    ConfigEntry,
    CreatedTopic,
    NewTopic,
    QuorumDescription,
    ReplicasDescription,
    TopicDescription,
)
from odradek.errors import BrokerError, OdradekError, RequestTimeout
from odradek.producer import NO_HEADERS
from odradek.producer import K as KeyIn
from odradek.producer import V as ValueIn
from odradek.results import ConsumerRecord, K, OffsetAndTimestamp, RecordMetadata, V, Watermarks
from odradek.serialization import HeaderInput

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a daemon thread. Coroutines are run there and their results returned here."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="odradek", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. A `KeyboardInterrupt` here cancels it there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("odradek.sync cannot be used from its own background loop; use odradek's async clients")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """The result of a function that runs on the loop."""

        async def work() -> T:
            return function()

        return self.run(work())

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator; it is closed when the iteration ends here."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                self.run(close())


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


_background: BackgroundLoop | None = None
_background_lock = threading.Lock()


def background_loop() -> BackgroundLoop:
    """The loop of this process, started when it is first asked for."""
    global _background
    with _background_lock:
        if _background is None:
            _background = BackgroundLoop()
        return _background


class Delivery:
    """The future of one record. Asking counts as having been told, as in `odradek.Delivery`."""

    __slots__ = ("_delivery", "_loop")

    def __init__(self, delivery: odradek.delivery.Delivery, loop: BackgroundLoop) -> None:
        self._delivery = delivery
        self._loop = loop

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self._delivery.done()

    def exception(self, timeout: float | None = None) -> OdradekError | None:
        """Wait, and return the error, None for an acknowledged record. Raises `RequestTimeout`."""
        try:
            self.result(timeout)
        except OdradekError as error:
            if not self.done():
                raise
            return error
        return None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait, and return where the record is. Raises its error, or `RequestTimeout` after `timeout` seconds."""

        async def wait() -> RecordMetadata:
            try:
                async with asyncio.timeout(timeout) as limit:
                    return await self._delivery
            except TimeoutError:
                if limit.expired():
                    raise RequestTimeout(f"not acknowledged within {timeout} s") from None
                raise

        return self._loop.run(wait())


class _Facade:
    """A client that lives on the background loop."""

    _loop: BackgroundLoop
    _client: Any

    def start(self) -> None:
        """Find the cluster. Raises `BootstrapError`."""
        self._loop.run(self._client.start())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._client.__aexit__(kind, error, trace))


class Producer(_Facade, Generic[KeyIn, ValueIn]):
    """`odradek.Producer` for code without asyncio."""

    _client: odradek.producer.Producer[KeyIn, ValueIn]

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        *,
        key_serializer: Callable[[KeyIn], bytes | None] | None = None,
        value_serializer: Callable[[ValueIn], bytes | None] | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self._loop = background_loop()
        self._client = odradek.producer.Producer(
            bootstrap_servers,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            clock=clock,
            network=network,
            **settings,
        )

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *,
        key_serializer: Callable[[KeyIn], bytes | None] | None = None,
        value_serializer: Callable[[ValueIn], bytes | None] | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
    ) -> Self:
        """The same from Kafka's dotted names."""
        made = cls.__new__(cls)
        made._loop = background_loop()
        made._client = odradek.producer.Producer.from_config(
            config,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            clock=clock,
            network=network,
        )
        return made

    def close(self, timeout: float | None = None) -> None:
        """Flush and end. Raises an `ExceptionGroup` of the failed deliveries that nobody asked about."""
        self._loop.run(self._client.close(timeout))

    def send(
        self,
        topic: str,
        value: ValueIn,
        *,
        key: KeyIn | None = None,
        partition: int | None = None,
        headers: HeaderInput = NO_HEADERS,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Write a record and wait until it is acknowledged. Raises as `odradek.Producer.send` does."""
        return self._loop.run(
            self._client.send(topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp)
        )

    def enqueue(
        self,
        topic: str,
        value: ValueIn,
        *,
        key: KeyIn | None = None,
        partition: int | None = None,
        headers: HeaderInput = NO_HEADERS,
        timestamp: int | None = None,
    ) -> Delivery:
        """Take a record for sending; waits only for room."""
        delivery = self._loop.run(
            self._client.enqueue(topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp)
        )
        return Delivery(delivery, self._loop)

    def enqueue_many(self, topic: str, values: Iterable[ValueIn], *, partition: int | None = None) -> list[Delivery]:
        """`enqueue` for many values without keys, in one step to the background loop and back."""
        made = self._loop.run(self._client.enqueue_many(topic, list(values), partition=partition))
        return [Delivery(delivery, self._loop) for delivery in made]

    def flush(self, timeout: float | None = None) -> None:
        """Return when all that was taken before is acknowledged or has failed. Raises `RequestTimeout`."""
        self._loop.run(self._client.flush(timeout))

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises `UnknownTopic`."""
        return self._loop.run(self._client.partitions_for(topic))


class Consumer(_Facade, Generic[K, V]):
    """`odradek.Consumer` for code without asyncio."""

    _client: odradek.consumer.Consumer[K, V]

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        *topics: str,
        key_deserializer: Callable[[bytes | None], K] | None = None,
        value_deserializer: Callable[[bytes | None], V] | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self._loop = background_loop()
        self._client = odradek.consumer.Consumer(
            bootstrap_servers,
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            clock=clock,
            network=network,
            **settings,
        )

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        *topics: str,
        key_deserializer: Callable[[bytes | None], K] | None = None,
        value_deserializer: Callable[[bytes | None], V] | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
    ) -> Self:
        """The same from Kafka's dotted names."""
        made = cls.__new__(cls)
        made._loop = background_loop()
        made._client = odradek.consumer.Consumer.from_config(
            config,
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            clock=clock,
            network=network,
        )
        return made

    def close(self) -> None:
        """End. Records that were fetched and not handed out are forgotten."""
        self._loop.run(self._client.close())

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Read all partitions of these topics."""
        self._loop.call(lambda: self._client.subscribe(topics))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        self._loop.call(lambda: self._client.assign(partitions))

    def unsubscribe(self) -> None:
        """Read nothing."""
        self._loop.call(self._client.unsubscribe)

    def subscription(self) -> list[str]:
        """The topics given to `subscribe`."""
        return self._loop.call(self._client.subscription)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return self._loop.call(self._client.assignment)

    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None:
        """Go on at an offset."""
        self._loop.call(lambda: self._client.seek(partition, offset, leader_epoch=leader_epoch))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start offset."""
        self._loop.call(lambda: self._client.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the high watermark."""
        self._loop.call(lambda: self._client.seek_to_end(*partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out and fetch nothing of these partitions until `resume`."""
        self._loop.call(lambda: self._client.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`."""
        self._loop.call(lambda: self._client.resume(*partitions))

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return self._loop.call(self._client.paused)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that will be handed out."""
        return self._loop.run(self._client.position(partition))

    def poll(self, timeout: float = 0.0, *, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Up to max.poll.records records. Raises as `odradek.Consumer.poll` does."""
        return self._loop.run(self._client.poll(timeout, max_records=max_records))

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """All records from the position on, without end. Positions move by batches that are taken at once."""
        return self.records()

    def records(self, *, until: Literal["end"] | None = None) -> Iterator[ConsumerRecord[K, V]]:
        """Records one by one; with `until="end"` up to where the partitions end now."""
        for batch in self.batches(until=until):
            yield from batch

    def batches(
        self, *, max_records: int | None = None, max_wait: float | None = None, until: Literal["end"] | None = None
    ) -> Iterator[list[ConsumerRecord[K, V]]]:
        """Lists of records, as `odradek.Consumer.batches` gives them."""
        return self._loop.iterate(self._client.batches(max_records=max_records, max_wait=max_wait, until=until))

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises `UnknownTopic`."""
        return self._loop.run(self._client.partitions_for(topic))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Log start offsets."""
        return self._loop.run(self._client.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks."""
        return self._loop.run(self._client.end_offsets(partitions))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time."""
        return self._loop.run(self._client.offsets_for_times(timestamps))

    def lag(self, partition: TopicPartition) -> int:
        """How many offsets lie between the position and the high watermark."""
        return self._loop.run(self._client.lag(partition))

    def watermarks(self, partition: TopicPartition) -> Watermarks:
        """Log start offset, high watermark and log end offset."""
        return self._loop.run(self._client.watermarks(partition))


class Admin(_Facade):
    """`odradek.Admin` for code without asyncio."""

    _client: odradek.admin.Admin

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        *,
        clock: Clock | None = None,
        network: Network | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        self._loop = background_loop()
        self._client = odradek.admin.Admin(bootstrap_servers, clock=clock, network=network, **settings)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, clock: Clock | None = None, network: Network | None = None
    ) -> Self:
        """The same from Kafka's dotted names."""
        made = cls.__new__(cls)
        made._loop = background_loop()
        made._client = odradek.admin.Admin.from_config(config, clock=clock, network=network)
        return made

    def close(self) -> None:
        """End."""
        self._loop.run(self._client.close())

    def create_topics(
        self, topics: Iterable[NewTopic], *, timeout: float | None = None, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics."""
        return self._loop.run(self._client.create_topics(topics, timeout=timeout, validate_only=validate_only))

    def delete_topics(self, topics: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics."""
        self._loop.run(self._client.delete_topics(topics, timeout=timeout))

    def create_partitions(self, topic: str, count: int, *, timeout: float | None = None) -> None:
        """Let a topic have `count` partitions in all."""
        self._loop.run(self._client.create_partitions(topic, count, timeout=timeout))

    def list_topics(self) -> list[str]:
        """The names of all topics."""
        return self._loop.run(self._client.list_topics())

    def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        """Partitions, leaders, ISRs."""
        return self._loop.run(self._client.describe_topics(topics))

    def describe_configs(self, resource_type: ResourceType, resource_name: str) -> list[ConfigEntry]:
        """The settings of a topic or of a broker."""
        return self._loop.run(self._client.describe_configs(resource_type, resource_name))

    def alter_configs(
        self,
        resource_type: ResourceType,
        resource_name: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some settings and take others back to their defaults."""
        self._loop.run(
            self._client.alter_configs(resource_type, resource_name, set=set, unset=unset, validate_only=validate_only)
        )

    def elect_leaders(
        self, election_type: ElectionType = "preferred", partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elect leaders."""
        return self._loop.run(self._client.elect_leaders(election_type, partitions))

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Raise log start offsets."""
        return self._loop.run(self._client.delete_records(offsets))

    def describe_cluster(self) -> ClusterDescription:
        """Brokers with their endpoints, and who is the active controller."""
        return self._loop.run(self._client.describe_cluster())

    def describe_quorum(self) -> QuorumDescription:
        """The metadata quorum."""
        return self._loop.run(self._client.describe_quorum())

    def describe_replicas(self, topics: Iterable[str] = ()) -> ReplicasDescription:
        """What every broker says of the replicas that it hosts."""
        return self._loop.run(self._client.describe_replicas(topics))
