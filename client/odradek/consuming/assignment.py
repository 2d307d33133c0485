"""What a consumer reads, and from where on: subscription, assignment, seeking, pausing.

Rules of this module. Only the engine knows positions; it is there between start and close. A subscription becomes an
assignment when records are asked for, and again when its topics have grown.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Clock, Network

from odradek.consuming.engine import FetchEngine
from odradek.consuming.offsets import UNKNOWN_TOPIC_TIMEOUT_MS, ConsumerOffsets
from odradek.core.fetch_state import EARLIEST, LATEST, FetchState
from odradek.shared.config import ConsumerConfig
from odradek.shared.errors import ClientClosed, ConfigError, NotAssigned, OdradekError


class ConsumerAssignment(ConsumerOffsets):
    """Methods of `Consumer`."""

    def __init__(
        self, config: ConsumerConfig, clock: Clock | None, network: Network | None, topics: Iterable[str]
    ) -> None:
        super().__init__(config, clock, network)
        self._engine: FetchEngine | None = None
        self._topics: list[str] = list(topics)
        self._assigned: list[TopicPartition] = []
        self._resolved: dict[str, list[int]] | None = None  # what was assigned for the subscription

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Read all partitions of these topics, also those that are added later. Replaces what was read before."""
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._resolved = None
        if not self._topics:
            self.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those that were read before keep their positions."""
        self._topics, self._resolved = [], None
        self._set_assignment([TopicPartition(*partition) for partition in partitions])

    def unsubscribe(self) -> None:
        """Read nothing."""
        self.assign(())

    def subscription(self) -> list[str]:
        """The topics given to `subscribe`."""
        return [*self._topics]

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read; of a subscription, once the first records were asked for."""
        return [*self._assigned]

    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None:
        """Go on at an offset. With the leader epoch of the record before it, a truncation in between is noticed.

        Raises `NotAssigned`.
        """
        if offset < 0:
            raise ConfigError(f"seek: offset {offset} is negative", hint="seek_to_beginning() and seek_to_end() exist")
        self._state(partition).seek(offset, leader_epoch)
        self._touched()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start offset; without arguments, in all assigned partitions. Raises `NotAssigned`."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the high watermark; without arguments, in all assigned partitions. Raises `NotAssigned`."""
        self._seek_to(partitions, LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out and fetch nothing of these partitions until `resume`. Raises `NotAssigned`."""
        for partition in partitions:
            self._state(partition).paused = True
        self._touched()

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`. Raises `NotAssigned`."""
        for partition in partitions:
            self._state(partition).paused = False
        self._touched()

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return [state.name for state in self._ready_engine().states() if state.paused]

    @property
    def held_up_by(self) -> dict[TopicPartition, OdradekError]:
        """The partitions of which no record can come at the moment, and why; the others are read meanwhile.

        One that nobody leads, for example, or whose leader cannot be reached. Most of it passes within a second.
        """
        return {} if self._engine is None else self._engine.held_up_by()

    async def _prepare(self) -> None:
        """Turn the subscription into partitions, again when topics have grown. Raises `UnknownTopic`."""
        if not self._topics:
            return
        cluster = self._require_running()
        view = cluster.view
        if self._resolved is not None:
            now = {topic: view.partitions_of(topic) or self._resolved[topic] for topic in self._topics}
            if now == self._resolved:
                return
        found = {topic: await cluster.partitions_of(topic, UNKNOWN_TOPIC_TIMEOUT_MS) for topic in self._topics}
        self._resolved = found
        self._set_assignment([TopicPartition(topic, number) for topic, numbers in found.items() for number in numbers])

    def _set_assignment(self, partitions: list[TopicPartition]) -> None:
        self._assigned = partitions
        if self._engine is not None:
            self._engine.assign(partitions)

    def _ready_engine(self) -> FetchEngine:
        if self._engine is None:
            self._require_running()
            raise ClientClosed("the consumer was closed")
        return self._engine

    def _state(self, partition: TopicPartition) -> FetchState:
        state = self._ready_engine().state(TopicPartition(*partition))
        if state is None:
            raise NotAssigned(
                f"{TopicPartition(*partition)} is not assigned", hint="call assign() or subscribe() first"
            )
        return state

    def _seek_to(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> None:
        for partition in partitions or self._assigned:
            self._state(partition).seek_to(timestamp)
        self._touched()

    def _touched(self) -> None:
        self._ready_engine().look_again()
