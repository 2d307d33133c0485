"""The consumer: partitions in, records out. What runs behind it is in `odradek.consuming.engine`, what is decided in
`odradek.core.fetch_state`; what is read is in `odradek.consuming.assignment`.

Rules of this module. A position is the offset of the next record that the application gets: it moves when a record is
handed out, not when it is fetched. Groups are not there yet, so nothing is committed: who comes back seeks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, Self, Unpack

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Clock, Network

from odradek.consuming.assignment import ConsumerAssignment
from odradek.consuming.engine import FetchEngine
from odradek.consuming.offsets import Ends
from odradek.consuming.records import as_records
from odradek.core.fetch_state import State
from odradek.shared.config import BootstrapServers, ConsumerConfig, ConsumerSettings, build, from_dotted
from odradek.shared.errors import OdradekError, RequestTimeout
from odradek.shared.results import ConsumerRecord, K, V


class Goal(Ends):
    """Up to where partitions are to be read, and the leader epochs under which their leaders said so."""

    def __init__(self, ends: Ends, epochs: Ends) -> None:
        super().__init__(ends)
        self.epochs = epochs


class Consumer(ConsumerAssignment, Generic[K, V]):
    """Reads records. Use it with `async with`, from one task at a time.

        async with Consumer("localhost:50051", "orders", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                ...

    Without deserializers keys and values are bytes or None. Settings have Kafka's names in snake_case;
    `docs/client.md` lists them. Raises `ConfigError` for unknown ones, `UnsupportedFeature` for group_id.
    """

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
        super().__init__(build(ConsumerConfig, bootstrap_servers, settings), clock, network, topics)
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer

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
        """The same from Kafka's dotted names: `{"bootstrap.servers": "localhost:50051", "check.crcs": "false"}`."""
        bootstrap_servers, settings = from_dotted(ConsumerConfig, config)
        return cls(
            bootstrap_servers,
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            clock=clock,
            network=network,
            **settings,
        )

    # --- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the cluster. Raises `BootstrapError`."""
        cluster = await self._open(allow_auto_create_topics=self._config.allow_auto_create_topics)
        if self._engine is None:
            self._engine = FetchEngine(self._config, cluster)
            if self._assigned:
                self._engine.assign(self._assigned)

    async def close(self) -> None:
        """End. Records that were fetched and not handed out are forgotten."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.end()
        await self._shut()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- records ---------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 0.0, *, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Up to max.poll.records records; waits up to `timeout` seconds for the first, and returns none after it.

        Raises `LogTruncated`, `NoOffset`, `CorruptRecords`, `SerializationError`, `UnknownTopic`, or a `BrokerError`
        that cannot be retried. All but the last two are raised again until the application seeks.
        """
        return await self._poll(timeout, max_records or self._config.max_poll_records, None)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """All records from the position on, without end."""
        while True:
            await self._fetch(None, None)
            while (found := self._take(1, None)) is not None:
                yield found[0]

    async def records(self, *, until: Literal["end"] | None = None) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records one by one; with `until="end"` up to where the partitions end now.

        Should a new leader have less than that, its end counts; a partition that stays without a leader is an error
        after default.api.timeout.ms.
        """
        if until is None:
            async for record in self:
                yield record
            return
        ends = await self._ends()
        while not self._at(ends):
            await self._fetch(None, ends)
            while (found := self._take(1, ends)) is not None:
                yield found[0]

    async def batches(
        self, *, max_records: int | None = None, max_wait: float | None = None, until: Literal["end"] | None = None
    ) -> AsyncIterator[list[ConsumerRecord[K, V]]]:
        """Lists of up to `max_records` records of any partitions.

        With `max_wait` seconds a list comes at the latest after them, empty if need be; without, lists are never
        empty. With `until="end"` it stops where the partitions end now.
        """
        limit = max_records or self._config.max_poll_records
        ends = await self._ends() if until == "end" else None
        while ends is None or not self._at(ends):
            records = await self._poll(max_wait, limit, ends)
            if records or max_wait is not None:
                yield records

    async def _poll(self, timeout: float | None, limit: int, ends: Goal | None) -> list[ConsumerRecord[K, V]]:
        records: list[ConsumerRecord[K, V]] = []
        try:
            await self._fetch(timeout, ends)
        except RequestTimeout:
            return records
        while len(records) < limit:
            try:
                found = self._take(limit - len(records), ends)
            except OdradekError:
                if records:
                    break  # what was read before comes first; the error is there when somebody asks for more
                raise
            if found is None:
                break
            records += found
        return records

    async def _fetch(self, timeout: float | None, ends: Goal | None) -> None:
        """Return when records are ready, or all ends are reached. Raises `RequestTimeout`, or a partition's error."""
        await self._prepare()
        await self._until(lambda: self._is_ready(ends), timeout, "records", ends)

    def _is_ready(self, ends: Goal | None) -> bool:
        engine = self._ready_engine()
        if engine.has_rows(ends) or (ends is not None and self._at(ends)):
            return True
        if (error := engine.error()) is not None:
            raise error
        return False

    async def _until(
        self, condition: Callable[[], bool], timeout: float | None, what: str, ends: Goal | None = None
    ) -> None:
        if condition():
            return
        if timeout is None:
            await self._come_true(condition, ends)
            return
        try:
            async with asyncio.timeout(timeout):
                await self._come_true(condition, ends)
        except TimeoutError:
            raise RequestTimeout(f"no {what} within {timeout} s") from None

    async def _come_true(self, condition: Callable[[], bool], ends: Goal | None) -> None:
        while not condition():
            if ends is None or not await self._look_at_ends(ends):
                await self._ready_engine().news()
                await self._prepare()

    def _take(self, limit: int, ends: Goal | None) -> list[ConsumerRecord[K, V]] | None:
        found = self._ready_engine().take(limit, ends)
        return None if found is None else as_records(*found, self._key_deserializer, self._value_deserializer)

    # --- positions and ends ----------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that will be handed out. Waits until it is known. Raises `RequestTimeout`."""
        await self._prepare()
        state = self._state(partition)
        await self._until(
            lambda: state.state is not State.NEEDS_OFFSET, self._config.default_api_timeout_ms / 1000, "position"
        )
        if state.error is not None and state.position.offset < 0:
            raise state.error
        return state.position.offset

    async def lag(self, partition: TopicPartition) -> int:
        """How many offsets lie between the position and the high watermark, as of the last answer of the leader."""
        position = await self.position(partition)
        known = self._state(partition).high_watermark
        end = known if known >= position else (await self.end_offsets([partition]))[partition]
        return max(end - position, 0)

    async def _ends(self) -> Goal:
        await self._prepare()
        view = self._require_running().view
        epochs = {partition: view.leader_of(partition).epoch for partition in self._assigned}
        return Goal(await self.end_offsets(self._assigned), epochs)

    async def _look_at_ends(self, ends: Goal) -> bool:
        """Ask new leaders where their logs end: an unclean election may have left less. Returns whether it asked.

        A leader that does not know its end yet says so (KIP-207), so what was promised and is there is not missed.
        Raises the error of a partition that has no leader for default.api.timeout.ms.
        """
        view, engine = self._require_running().view, self._ready_engine()
        epochs: dict[TopicPartition, int] = {}
        for partition, end in ends.items():
            state, epoch = engine.state(partition), view.leader_of(partition).epoch
            if state is not None and state.position.offset < end and epoch > ends.epochs[partition]:
                epochs[partition] = epoch
        if epochs:
            for partition, end in (await self.end_offsets(epochs)).items():
                ends[partition] = min(ends[partition], end)
            ends.epochs.update(epochs)
        return bool(epochs)

    def _at(self, ends: Ends) -> bool:
        """Whether all partitions have been read up to these offsets."""
        states = {state.name: state for state in self._ready_engine().states()}
        return all(end <= 0 or (name in states and states[name].position.offset >= end) for name, end in ends.items())
