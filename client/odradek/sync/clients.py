"""The administrator's client and the consumer without asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import isawaitable
from typing import Any, Generic, Literal, Self, Unpack

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.background import BackgroundLoop, background_loop
from odradek_proto.transport.ports import Clock, Network

from odradek.administration.admin import Admin as AsyncAdmin
from odradek.consuming.consumer import Consumer as AsyncConsumer
from odradek.consuming.group import Callback
from odradek.shared.config import AdminSettings, BootstrapServers, ConsumerSettings
from odradek.shared.errors import OdradekError
from odradek.shared.results import ConsumerRecord, K, V
from odradek.sync.admin_methods import AdminMethods
from odradek.sync.bridge import Facade, blocking, calling, iterating
from odradek.sync.unclosed import apart, hold, release


class Admin(AdminMethods):
    """`odradek.Admin` for code without asyncio."""

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        *,
        clock: Clock | None = None,
        network: Network | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        super().__init__(AsyncAdmin(bootstrap_servers, clock=clock, network=network, **settings))

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, clock: Clock | None = None, network: Network | None = None
    ) -> Self:
        """The same from Kafka's dotted names."""
        return cls._around(AsyncAdmin.from_config(config, clock=clock, network=network))


class _Consumer(AsyncConsumer[K, V]):
    """The consumer on the background loop. A member leaves its group when the process ends, too."""

    unclosed = "it stays in its group until the process ends"

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.loop: BackgroundLoop = background_loop()

    async def start(self) -> None:
        await super().start()
        if self._group is not None:
            hold(self)

    async def _end(self, *, cleanly: bool) -> None:
        try:
            await super()._end(cleanly=cleanly)
        finally:
            release(self)

    async def end_with_process(self) -> None:
        await self._end(cleanly=False)  # the record that was being worked on may not be done with

    def leave_to_parent(self) -> None:
        """Whoever asks for records has to ask the loop in any case."""


class Consumer(Facade, Generic[K, V]):
    """`odradek.Consumer` for code without asyncio. An iteration moves positions by lists that are taken at once."""

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
        made: _Consumer[K, V] = _Consumer(
            bootstrap_servers,
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            clock=clock,
            network=network,
            **settings,
        )
        super().__init__(made)

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
        made = _Consumer.from_config(
            config,
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            clock=clock,
            network=network,
        )
        return cls._around(made)

    close = blocking(AsyncConsumer[K, V].close)
    assign = calling(AsyncConsumer[K, V].assign)
    unsubscribe = calling(AsyncConsumer[K, V].unsubscribe)
    subscription = calling(AsyncConsumer[K, V].subscription)
    assignment = calling(AsyncConsumer[K, V].assignment)
    seek = calling(AsyncConsumer[K, V].seek, starts=True)
    seek_to_beginning = calling(AsyncConsumer[K, V].seek_to_beginning, starts=True)
    seek_to_committed = calling(AsyncConsumer[K, V].seek_to_committed, starts=True)
    seek_to_end = calling(AsyncConsumer[K, V].seek_to_end, starts=True)
    pause = calling(AsyncConsumer[K, V].pause, starts=True)
    resume = calling(AsyncConsumer[K, V].resume, starts=True)
    paused = calling(AsyncConsumer[K, V].paused, starts=True)
    poll = blocking(AsyncConsumer[K, V].poll)
    batches = iterating(AsyncConsumer[K, V].batches)
    commit = blocking(AsyncConsumer[K, V].commit)
    committed = blocking(AsyncConsumer[K, V].committed)
    position = blocking(AsyncConsumer[K, V].position)
    lag = blocking(AsyncConsumer[K, V].lag)
    partitions_for = blocking(AsyncConsumer[K, V].partitions_for)
    beginning_offsets = blocking(AsyncConsumer[K, V].beginning_offsets)
    end_offsets = blocking(AsyncConsumer[K, V].end_offsets)
    offsets_for_times = blocking(AsyncConsumer[K, V].offsets_for_times)
    offsets_or_errors = blocking(AsyncConsumer[K, V].offsets_or_errors)
    watermarks = blocking(AsyncConsumer[K, V].watermarks)

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """As `odradek.Consumer.subscribe`. The callbacks run in another thread, while nothing is handed out.

        They may call this consumer, but not ask it for records. None is called by a process that ends without `close`.
        """

        def in_thread(callback: Callback | None) -> Callback | None:
            return None if callback is None else lambda partitions: apart(_run, callback, partitions)

        told = {
            "on_assigned": in_thread(on_assigned),
            "on_revoked": in_thread(on_revoked),
            "on_lost": in_thread(on_lost),
        }
        self._loop.call(lambda: self._client.subscribe(topics, pattern=pattern, **told))

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """All records from the position on, without end."""
        return self.records()

    def records(self, *, until: Literal["end"] | None = None) -> Iterator[ConsumerRecord[K, V]]:
        """Records one by one; with `until="end"` up to where the partitions end now."""
        for batch in self.batches(until=until):
            yield from batch

    @property
    def held_up_by(self) -> dict[TopicPartition, OdradekError]:
        """The partitions of which no record can come at the moment, and why."""
        held_up: dict[TopicPartition, OdradekError] = self._loop.call(lambda: self._client.held_up_by)
        return held_up


def _run(callback: Callback, partitions: list[TopicPartition]) -> None:
    outcome = callback(partitions)
    if isawaitable(outcome):
        raise TypeError("a callback of odradek.sync is an ordinary function")
