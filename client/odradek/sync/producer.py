"""The producer without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Self, Unpack

from odradek_proto.transport.ports import Clock, Network

import odradek.producing.delivery
import odradek.producing.producer
from odradek.producing.producer import NO_HEADERS
from odradek.producing.producer import K as KeyIn
from odradek.producing.producer import V as ValueIn
from odradek.shared.config import BootstrapServers, ProducerSettings
from odradek.shared.errors import OdradekError, RequestTimeout
from odradek.shared.results import RecordMetadata
from odradek.shared.serialization import HeaderInput
from odradek.sync.background import BackgroundLoop, Facade, background_loop


class Delivery:
    """The future of one record. Asking counts as having been told, as in `odradek.Delivery`."""

    __slots__ = ("_delivery", "_loop")

    def __init__(self, delivery: odradek.producing.delivery.Delivery, loop: BackgroundLoop) -> None:
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


class Producer(Facade, Generic[KeyIn, ValueIn]):
    """`odradek.Producer` for code without asyncio."""

    _client: odradek.producing.producer.Producer[KeyIn, ValueIn]

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
        self._client = odradek.producing.producer.Producer(
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
        made._client = odradek.producing.producer.Producer.from_config(
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
