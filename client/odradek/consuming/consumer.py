"""The consumer: partitions in, records out. What runs behind it is in `odradek.consuming.engine`, what is decided in
`odradek.core.fetch_state`.

Rules of this module. A position is the offset of the next record that the application gets: it moves when a record is
handed out, not when it is fetched; only the engine knows it, and that is there between start and close. Without a group
a subscription becomes an assignment when records are asked for, and again when its topics have grown; with one the
group's coordinator says what is read (`odradek.consuming.group`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Generic, Literal, Self, Unpack

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Clock, Network
from odradek_proto.v1 import broker_pb2 as pb

from odradek.cluster.client import Client
from odradek.consuming.engine import FetchEngine
from odradek.consuming.group import Callback, Callbacks, GroupMember
from odradek.consuming.positions import list_offsets
from odradek.consuming.records import as_records
from odradek.core.fetch_state import COMMITTED, EARLIEST, LATEST, FetchingState, FetchState
from odradek.shared.arguments import TIMES, as_commits, as_number, as_partition, as_topics
from odradek.shared.config import BootstrapServers, ConsumerConfig, ConsumerSettings, build, from_dotted
from odradek.shared.errors import ClientClosed, ConfigError, NotAssigned, OdradekError, RequestTimeout
from odradek.shared.results import ConsumerRecord, K, OffsetAndMetadata, OffsetAndTimestamp, V, Watermarks

DESCRIBE_REPLICAS = "/odradek.v1.Broker/DescribeReplicas"
LOOKS_LIKE_MS = 100  # a whole number above it, given to poll()
UNKNOWN_TOPIC_TIMEOUT_MS = 5_000  # Unlike Kafka, which waits without a limit for a topic that does not exist

logger = logging.getLogger("odradek")

Ends = dict[TopicPartition, int]


class Goal(Ends):
    """Up to where partitions are to be read, and the leader epochs under which their leaders said so."""

    def __init__(self, ends: Ends, epochs: Ends) -> None:
        super().__init__(ends)
        self.epochs = epochs


class Consumer(Client, Generic[K, V]):
    """Reads records. Use it with `async with`, from one task at a time.

        async with Consumer("localhost:50051", "orders", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                ...

    Without deserializers keys and values are bytes or None. Settings have Kafka's names in snake_case;
    `docs/client.md` lists them. Raises `ConfigError` for unknown ones.
    """

    _has_doubted: ClassVar[bool] = False  # that a timeout is meant in seconds

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
        config = build(ConsumerConfig, bootstrap_servers, settings)
        super().__init__(config, clock, network)
        self._config = config
        self._engine: FetchEngine | None = None
        self._group: GroupMember | None = None
        self._topics = as_topics(topics)
        self._pattern = ""
        self._callbacks = Callbacks()
        self._assigned: list[TopicPartition] = []
        self._resolved: dict[str, list[int]] | None = None  # what was assigned for the subscription
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
        if self._engine is not None:
            return
        if self._config.group_id:
            self._group = GroupMember(self._config, cluster, self._set_assignment)
            self._engine = FetchEngine(self._config, cluster, self._group.fetch_offsets)
            self._group.start(self._engine, self._engine.fail)
        else:
            self._engine = FetchEngine(self._config, cluster)
        if self._assigned:
            self._engine.assign(self._assigned)
        self._join()

    async def close(self) -> None:
        """End. Records that were fetched and not handed out are forgotten.

        With a group and enable_auto_commit, the positions are committed, and the member leaves.
        """
        await self._end(cleanly=True)

    async def _end(self, *, cleanly: bool) -> None:
        try:
            if self._group is not None:
                await self._group.end(cleanly=cleanly)
        finally:
            self._group = None
            engine, self._engine = self._engine, None
            if engine is not None:
                await engine.end()
            await self._shut()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(cleanly=kind is None)  # else the record that was being worked on is not done with

    # --- what is read, and from where on ------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Read all partitions of these topics, also those that are added later. Replaces what was read before.

        With a group its members share them, and a `pattern` (as RE2 has them, of whole names) is resolved by the
        coordinator. The callbacks are called with lists of partitions, inside of a call that asks for records; they may
        be coroutine functions. Before `on_revoked` nothing has been given up yet; what `on_lost` names may be read by
        others already (without it, `on_revoked` hears of that, too).
        """
        wanted = as_topics(topics)
        if not wanted and not pattern:
            self.unsubscribe()
            return
        if not self._config.group_id and (pattern or on_assigned or on_revoked or on_lost):
            raise ConfigError(
                "subscribe: patterns and callbacks are for members of a group", hint="set group_id, or name the topics"
            )
        self._topics, self._pattern, self._resolved = wanted, pattern or "", None
        self._callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        self._join()

    def _join(self) -> None:
        if self._group is not None and (self._topics or self._pattern):
            self._group.subscribe(self._topics, self._pattern, self._callbacks)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those that were read before keep their positions.

        With a group_id they begin where the group has committed, and the consumer is no member of the group.
        """
        if self._group is not None and self._group.is_subscribed:
            raise ConfigError("assign: the group's coordinator assigns partitions", hint="call unsubscribe() first")
        self._topics, self._pattern, self._resolved = [], "", None
        self._set_assignment([as_partition(partition) for partition in partitions])

    def unsubscribe(self) -> None:
        """Read nothing. A member of a group commits, with enable_auto_commit, and leaves the group."""
        self._topics, self._pattern, self._resolved = [], "", None
        if self._group is not None and self._group.is_subscribed:
            self._group.unsubscribe()
        else:
            self._set_assignment([])

    def subscription(self) -> list[str]:
        """The topics given to `subscribe`."""
        return [*self._topics]

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read; of a subscription, not before records were asked for."""
        return [*self._assigned]

    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None:
        """Go on at an offset. With the leader epoch of the record before it, a truncation in between is noticed.

        Raises `NotAssigned`.
        """
        offset = as_number("seek: offset", offset, "seek_to_beginning() and seek_to_end() exist")
        self._state(partition).seek(offset, leader_epoch)
        self._touched(partition)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start offset; without arguments, in all assigned partitions. Raises `NotAssigned`."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the high watermark; without arguments, in all assigned partitions. Raises `NotAssigned`."""
        self._seek_to(partitions, LATEST)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Go on where the group has committed; without arguments, in all assigned partitions. Raises `NotAssigned`."""
        self._required_group("seek_to_committed")
        self._seek_to(partitions, COMMITTED)

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
        if not self._topics or self._group is not None:
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
        partition = as_partition(partition)
        state = self._ready_engine().state(partition)
        if state is None:
            raise NotAssigned(f"{partition} is not assigned", hint="call assign() or subscribe() first")
        return state

    def _seek_to(self, partitions: tuple[TopicPartition, ...], timestamp: int) -> None:
        wanted = partitions or tuple(self._assigned)
        for partition in wanted:
            self._state(partition).seek_to(timestamp)
        self._touched(*wanted)

    def _touched(self, *sought: TopicPartition) -> None:
        if self._group is not None:
            self._group.on_seek(sought)
        self._ready_engine().look_again()

    def _required_group(self, what: str) -> GroupMember:
        self._ready_engine()
        if self._group is None:
            raise ConfigError(f"{what}: this consumer has no group", hint="set group_id")
        return self._group

    # --- records ---------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 0.0, *, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Up to max.poll.records records; waits up to `timeout` seconds for the first, and returns none after it.

        Raises `LogTruncated`, `NoOffset`, `CorruptRecords`, `SerializationError`, `UnknownTopic`, or a `BrokerError`
        that cannot be retried. All but the last two are raised again until the application seeks.
        """
        if isinstance(timeout, int) and timeout >= LOOKS_LIKE_MS and not Consumer._has_doubted:
            Consumer._has_doubted = True  # by the process: a hundred consumers are made by one line of code
            words = "poll(%d) waits for up to %d seconds, kafka-python's for milliseconds; poll(%d.0) is not doubted"
            logger.warning(words, timeout, timeout, timeout)
        return await self._poll(timeout, max_records or self._config.max_poll_records, None)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """All records from the position on, without end."""
        while True:
            await self._fetch(None, None)
            while (found := self._next(None)) is not None:
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
            while (found := self._next(ends)) is not None:
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
        if not (self._topics or self._pattern or self._assigned):
            raise NotAssigned("nothing is subscribed to or assigned", hint="call assign() or subscribe() first")
        await self._prepare()
        await self._until(lambda: self._is_ready(ends), timeout, "records", ends)

    def _is_ready(self, ends: Goal | None) -> bool:
        engine, group = self._ready_engine(), self._group
        if group is not None:
            group.on_ask()
            if group.is_settling:
                return False
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

    def _next(self, ends: Goal | None) -> list[ConsumerRecord[K, V]] | None:
        """The next record, if one is ready: the one before is done with."""
        if self._group is not None:
            self._group.on_ask()
        return self._take(1, ends)

    def _take(self, limit: int, ends: Goal | None) -> list[ConsumerRecord[K, V]] | None:
        engine, group = self._ready_engine(), self._group
        if group is not None and group.is_settling:
            return None
        found = engine.take(limit, ends)
        if found is None:
            return None
        if group is not None:
            group.on_records(*found)
        return as_records(*found, self._key_deserializer, self._value_deserializer)

    # --- what the group has committed -------------------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> dict[TopicPartition, int]:
        """Commit for the group: the positions, or the offsets of the records that come next. Returns what it committed.

        Raises `CommitFailed` when the partitions are another member's by now.
        """
        group = self._required_group("commit")
        commits = group.positions() if offsets is None else as_commits(offsets)
        await group.commit(commits, self._config.default_api_timeout_ms)
        return {partition: each.offset for partition, each in commits.items()}

    async def committed(self, partition: TopicPartition) -> int | None:
        """What the group has committed for a partition, whoever did; None where it has nothing."""
        return await self._required_group("committed").committed(as_partition(partition))

    # --- positions and offsets ----------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that will be handed out. Waits until it is known. Raises `RequestTimeout`."""
        await self._prepare()
        state = self._state(partition)
        await self._until(
            lambda: state.state is not FetchingState.NEEDS_OFFSET,
            self._config.default_api_timeout_ms / 1000,
            "position",
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

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises `UnknownTopic`."""
        return await self._require_running().partitions_of(topic, UNKNOWN_TOPIC_TIMEOUT_MS)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Ends:
        """Log start offsets."""
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {partition: answer.offset for partition, answer in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Ends:
        """High watermarks, or last stable offsets with isolation_level=read_committed."""
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST))
        return {partition: answer.offset for partition, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        what = "offsets_for_times: timestamp"
        asked = {partition: as_number(what, timestamp, TIMES) for partition, timestamp in timestamps.items()}
        found = await self._list_offsets(asked)
        return {partition: answer if answer.offset >= 0 else None for partition, answer in found.items()}

    async def offsets_or_errors(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | OdradekError]:
        """Each leader asked once, within two seconds: an answer for every partition, or why there is none now.

        A time is milliseconds since 1970, `LATEST` (-1) or `EARLIEST` (-2). Offset -1: no record is so late.
        """
        asked = {as_partition(partition): timestamp for partition, timestamp in timestamps.items()}
        cluster = self._require_running()
        committed = self._config.isolation_level == "read_committed"
        found = await list_offsets(cluster, asked, committed=committed)
        for error in found.values():
            if isinstance(error, OdradekError):
                cluster.request_refresh(f"offsets: {error.message}")
        return found

    async def watermarks(self, partition: TopicPartition) -> Watermarks:
        """Log start offset, high watermark and log end offset, as the leader knows them."""
        partition = as_partition(partition)
        cluster = self._require_running()
        await cluster.require(partition, UNKNOWN_TOPIC_TIMEOUT_MS)

        async def ask() -> Watermarks:
            leader = cluster.view.leader_of(partition).leader_id
            request = pb.DescribeReplicasRequest(topics=[partition.topic])
            answer = await cluster.call_broker(
                leader, DESCRIBE_REPLICAS, request, pb.DescribeReplicasResponse, self._config.request_timeout_ms
            )
            for replica in answer.replicas:
                if replica.partition == partition.partition and replica.topic == partition.topic:
                    return Watermarks(replica.log_start_offset, replica.high_watermark, replica.log_end_offset)
            raise NotAssigned(f"broker {leader} has no replica of {partition}")

        return await self._require_running().patiently(
            f"watermarks of {partition}", self._config.default_api_timeout_ms, ask
        )

    async def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        cluster = self._require_running()
        committed = self._config.isolation_level == "read_committed"
        left = {as_partition(partition): timestamp for partition, timestamp in timestamps.items()}
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        for partition in left:
            await cluster.require(partition, UNKNOWN_TOPIC_TIMEOUT_MS)

        async def ask() -> dict[TopicPartition, OffsetAndTimestamp]:
            failure: OdradekError | None = None
            for partition, outcome in (await list_offsets(cluster, left, committed=committed)).items():
                if isinstance(outcome, OffsetAndTimestamp):
                    found[partition] = outcome
                    del left[partition]
                else:
                    failure = outcome
            if failure is not None:
                raise failure
            return found

        return await self._require_running().patiently("offsets", self._config.default_api_timeout_ms, ask)

    async def _ends(self) -> Goal:
        await self._prepare()
        if self._group is not None:
            await self._until(self._group.has_assignment, None, "assignment")
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
        """Whether all partitions have been read up to these offsets; another member's are not waited for."""
        states = {state.name: state for state in self._ready_engine().states()}
        gone = self._group is not None
        return all(
            end <= 0 or (states[name].position.offset >= end if name in states else gone) for name, end in ends.items()
        )
