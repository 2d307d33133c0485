"""The consumer without asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Literal, Self, Unpack

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Clock, Network

import odradek.consuming.consumer
from odradek.shared.config import BootstrapServers, ConsumerSettings
from odradek.shared.errors import OdradekError
from odradek.shared.results import ConsumerRecord, K, OffsetAndTimestamp, V, Watermarks
from odradek.sync.background import Facade, background_loop


class Consumer(Facade, Generic[K, V]):
    """`odradek.Consumer` for code without asyncio."""

    _client: odradek.consuming.consumer.Consumer[K, V]

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
        self._client = odradek.consuming.consumer.Consumer(
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
        made._client = odradek.consuming.consumer.Consumer.from_config(
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

    def offsets_or_errors(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | OdradekError]:
        """Each leader asked once: an answer for every partition, or why there is none now."""
        return self._loop.run(self._client.offsets_or_errors(timestamps))

    @property
    def held_up_by(self) -> dict[TopicPartition, OdradekError]:
        """The partitions of which no record can come at the moment, and why."""
        return self._loop.call(lambda: self._client.held_up_by)

    def lag(self, partition: TopicPartition) -> int:
        """How many offsets lie between the position and the high watermark."""
        return self._loop.run(self._client.lag(partition))

    def watermarks(self, partition: TopicPartition) -> Watermarks:
        """Log start offset, high watermark and log end offset."""
        return self._loop.run(self._client.watermarks(partition))
