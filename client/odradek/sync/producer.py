"""The producer without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Self, Unpack

from odradek_proto.transport.background import BackgroundLoop
from odradek_proto.transport.ports import Clock, Network

from odradek.producing.delivery import Delivery as AsyncDelivery
from odradek.producing.producer import NO_HEADERS, K, V
from odradek.producing.producer import Producer as AsyncProducer
from odradek.shared.config import BootstrapServers, ProducerSettings
from odradek.shared.errors import OdradekError, RequestTimeout
from odradek.shared.results import RecordMetadata
from odradek.shared.serialization import HeaderInput
from odradek.sync.bridge import Facade, blocking


class Delivery:
    """The future of one record. Asking counts as having been told, as in `odradek.Delivery`."""

    __slots__ = ("_delivery", "_loop")

    def __init__(self, delivery: AsyncDelivery, loop: BackgroundLoop) -> None:
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


class Producer(Facade, Generic[K, V]):
    """`odradek.Producer` for code without asyncio."""

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
        made = AsyncProducer(
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
        made = AsyncProducer.from_config(
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
        """Take a record for sending; waits only for room."""
        taken = self._client.enqueue(topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp)
        return Delivery(self._loop.run(taken), self._loop)

    def enqueue_many(self, topic: str, values: Iterable[V], *, partition: int | None = None) -> list[Delivery]:
        """`enqueue` for many values without keys, in one step to the background loop and back."""
        made = self._loop.run(self._client.enqueue_many(topic, list(values), partition=partition))
        return [Delivery(delivery, self._loop) for delivery in made]
