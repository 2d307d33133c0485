"""The running part of a consumer: partitions, the links that fetch them, and the records that are ready.

Rules of this module. Records are decoded when they are asked for, one batch at a time, and are handed out partition
by partition, each in turn. An error of a partition is raised when nothing else is ready, so that what was read before
it is not lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence

from odradek_proto.compression import CodecUnavailable
from odradek_proto.errors import ErrorCode
from odradek_proto.records import CorruptBatch, Record, decode_records, iter_batches, read_header, verify_crc
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.deadline import Deadline
from odradek_proto.transport.ports import NetworkError, PeerUnavailable
from odradek_proto.v1 import broker_pb2 as pb

from odradek.cluster.cluster import ClusterClient
from odradek.cluster.tasks import log_outages, start_task
from odradek.consuming.link import FetchLink
from odradek.consuming.positions import GroupOffsets, PositionKeeper
from odradek.core.cluster_view import NO_LEADER
from odradek.core.fetch_state import Chunk, FetchingState, FetchState
from odradek.core.outages import Outages
from odradek.shared.config import ConsumerConfig
from odradek.shared.errors import (
    BrokerUnreachable,
    ClientFailed,
    CorruptRecords,
    OdradekError,
    SerializationError,
    UnknownTopic,
    broker_error,
)

DAMAGED_TRIES = 16  # 4 s: a leader whose copy is damaged hands over to a replica that has it whole, if there is one
WATCH_MS = 1_000  # how often it is looked what holds partitions up, while something may


class FetchEngine:
    """What runs between start and close of a consumer."""

    def __init__(
        self, config: ConsumerConfig, cluster: ClusterClient, group_offsets: GroupOffsets | None = None
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = cluster.clock
        self._states: dict[TopicPartition, FetchState] = {}
        self._turns: deque[FetchState] = deque()  # whose records are handed out next
        self._links: dict[int, FetchLink] = {}
        self._news = asyncio.Event()
        self._topics: tuple[str, ...] = ()
        self._outages = Outages("nothing is read")
        self._watch = Deadline(cluster.clock, self._log_outages)
        self._keeper = PositionKeeper(
            cluster,
            lambda: [*self._states.values()],
            committed=config.isolation_level == "read_committed",
            changed=self.look_again,
            group_offsets=group_offsets,
        )
        self._retry = Deadline(cluster.clock, self.look_again)
        self._ended = False
        self._fatal: ClientFailed | None = None
        self._tasks = [start_task(self._keeper.run(), self.fail)]
        cluster.listeners.append(self._on_metadata)
        cluster.failure_listeners.append(self.fail)

    async def end(self) -> None:
        self._ended = True
        for task in self._tasks:
            task.cancel()
        self._retry.cancel()
        self._watch.cancel()
        await asyncio.wait(self._tasks)
        self._news.set()

    def fail(self, error: ClientFailed) -> None:
        """Nothing new will come: whoever waits for records is told when those that are there have been read."""
        self._fatal = self._fatal or error
        self._news.set()

    # --- partitions ------------------------------------------------------------------------------------------------

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these; those that stay keep their position."""
        old = self._states
        for name, state in old.items():
            if name not in partitions:
                state.rewind()
                self._give_back(state)
        reset, in_group = self._config.auto_offset_reset, bool(self._config.group_id)
        self._states = {name: old.get(name) or FetchState(name, reset, in_group=in_group) for name in partitions}
        self._turns = deque(self._states.values())
        self._cluster.follow(dict.fromkeys(name.topic for name in self._states))
        for state in self._states.values():
            state.on_leader(self._cluster.view.leader_of(state.name))
        self.look_again()

    def state(self, partition: TopicPartition) -> FetchState | None:
        return self._states.get(partition)

    def states(self) -> list[FetchState]:
        return [*self._states.values()]

    def held_up_by(self) -> dict[TopicPartition, OdradekError]:
        """The partitions of which no record can come at the moment, and why; paused ones are not among them."""
        now_ms = self._clock.now_ms()
        found = {name: self._trouble_of(state, now_ms) for name, state in self._states.items() if not state.paused}
        return {name: error for name, error in found.items() if error is not None}

    def _trouble_of(self, state: FetchState, now_ms: int) -> OdradekError | None:
        if state.error is None and state.leader.leader_id == NO_LEADER:
            return self._cluster.view.why_leaderless(state.name)
        return state.held_up_by(now_ms)

    def look_again(self) -> None:
        """Wake whoever may have something to do for a partition now."""
        if self._ended:  # metadata still come until the cluster is closed
            return
        leaderless, now_ms = False, self._clock.now_ms()
        for state in self._states.values():
            self._give_back(state)
            if state.retry_at_ms > now_ms:
                self._retry.arm(state.retry_at_ms)
            if state.leader.leader_id == NO_LEADER:
                leaderless = True
            elif state.state is FetchingState.FETCHING:
                self._link(state.leader.leader_id).wake()
        for link in self._links.values():
            link.wake()
        self._keeper.wake()
        if leaderless:
            self._cluster.request_refresh("a partition that is read has no leader")
        self._news.set()
        self._watch.arm(now_ms + WATCH_MS)

    def _log_outages(self) -> None:
        """What the application was told by an error is none."""
        now_ms = self._clock.now_ms()
        view = self._cluster.view
        read = {name for name, state in self._states.items() if not state.paused and state.error is None}
        self._outages.forget_all_but({*read, *self._topics})
        held_up: dict[TopicPartition | str, OdradekError] = {}
        held_up |= {name: error for name, error in self.held_up_by().items() if name in read}
        held_up |= {topic: error for topic in self._topics if (error := view.trouble_of(topic)) is not None}
        unsettled = any(topic not in view.topics or topic in held_up for topic in self._topics)
        log_outages(self._outages.look({name: _cause(error) for name, error in held_up.items()}, now_ms))
        if unsettled:
            self._cluster.request_refresh("a topic of the subscription is not there")
        if self._outages or unsettled:
            self._watch.arm(now_ms + WATCH_MS)

    def watch_topics(self, topics: Collection[str]) -> None:
        """The group's topics: nobody reads one that does not exist, and nobody but the log tells (as Java's)."""
        self._topics = tuple(topics)
        self._watch.arm(self._clock.now_ms() + WATCH_MS)

    def _link(self, broker_id: int) -> FetchLink:
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = FetchLink(
                broker_id, self._config, self._cluster, self.states, self._on_answer, self._on_broken, self.fail
            )
            self._tasks.append(start_task(link.run(), self.fail))
        return link

    def _on_metadata(self) -> None:
        for state in self._states.values():
            state.on_leader(self._cluster.view.leader_of(state.name))
        self.look_again()

    # --- answers ---------------------------------------------------------------------------------------------------

    def _on_answer(self, broker_id: int, answer: pb.FetchedPartition, data: memoryview) -> None:
        state = self._states.get(TopicPartition(answer.topic, answer.partition))
        link = self._links[broker_id]
        if state is None or not state.is_answered_by(broker_id, answer):
            link.give_back(answer.size)
        elif answer.error_code:
            self._on_refusal(state, ErrorCode.from_number(answer.error_code), answer)
        elif answer.diverging:
            state.on_divergence(answer)
            self._keeper.wake()
        elif not answer.size:
            state.on_data(answer, None, state.fetch_offset)
        else:
            try:
                next_offset, whole = _next_offset(data)
            except CorruptBatch as error:
                link.give_back(answer.size)
                state.park(CorruptRecords(f"{state.name} from offset {state.fetch_offset}: {error}"))
            else:
                chunk = Chunk(data[:whole], 0, answer.size, broker_id)
                state.on_data(answer, chunk, max(next_offset, state.fetch_offset))
        self._news.set()

    def _on_refusal(self, state: FetchState, code: ErrorCode, answer: pb.FetchedPartition) -> None:
        """R-267."""
        error = broker_error(code, where=f"{state.name} at offset {state.fetch_offset}")
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            state.on_out_of_range(error)
            self._keeper.wake()
            return
        if code is ErrorCode.CORRUPT_MESSAGE and state.failures >= DAMAGED_TRIES:
            state.park(CorruptRecords(f"{state.name} from offset {state.fetch_offset}: the leader's copy is damaged"))
            return
        if not error.retriable:
            state.park(error)
            return
        pause = self._cluster.search_pause(state.failures + 1)
        state.on_refused(self._clock.now_ms(), pause, error)
        view = self._cluster.view
        if view.hint_leader(state.name, answer.current_leader_id, answer.current_leader_epoch):
            state.on_leader(view.leader_of(state.name))
            self.look_again()
            return
        if code is not ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._cluster.request_refresh(f"{state.name}: {code.name}")
        self._retry.arm(state.retry_at_ms)

    def _on_broken(self, broker_id: int, error: NetworkError) -> None:
        said = f"broker {broker_id}: {error}"
        if isinstance(error, PeerUnavailable) and error.refused:
            said = f"broker {broker_id} at {self._cluster.view.address_of(broker_id)}: connection refused"
        trouble = BrokerUnreachable(said)
        for state in self._states.values():
            state.on_broken(broker_id, trouble)
        self._watch.arm(self._clock.now_ms() + WATCH_MS)
        self._cluster.request_refresh(f"broker {broker_id}: {error}")

    # --- records out -----------------------------------------------------------------------------------------------

    def error(self) -> OdradekError | None:
        """What keeps a partition, or all of them, from going on, if anything."""
        if self._fatal is not None:
            return self._fatal
        return next((state.error for state in self._states.values() if state.error is not None), None)

    async def news(self) -> None:
        """Return when something may have changed since the last call. Raises what ended the engine, if anything."""
        await self._news.wait()
        if self._fatal is not None:
            raise self._fatal
        self._news.clear()

    def has_rows(self, ends: Mapping[TopicPartition, int] | None) -> bool:
        """Whether `take` would give something. Decodes what it has to."""
        for state in self._states.values():
            if (
                not state.paused
                and self._decoded(state)
                and (ends is None or state.rows[0][0] < ends.get(state.name, 0))
            ):
                return True
        return False

    def take(
        self, limit: int, ends: Mapping[TopicPartition, int] | None = None
    ) -> tuple[FetchState, list[Record]] | None:
        """Up to `limit` records of one partition, below its end if there is one; its position moves behind them."""
        for _ in range(len(self._turns)):
            state = self._turns[0]
            rows = [] if state.paused else self._rows_of(state, limit, None if ends is None else ends.get(state.name))
            if not state.rows or not rows:
                self._turns.rotate(-1)
            if rows:
                return state, rows
        return None

    def _rows_of(self, state: FetchState, limit: int, end: int | None) -> list[Record]:
        if not self._decoded(state):
            return []
        rows = state.rows
        if limit >= len(rows) and (end is None or rows[-1][0] < end):
            taken = [*rows]
            rows.clear()
        else:
            taken = []
            while rows and len(taken) < limit and (end is None or rows[0][0] < end):
                taken.append(rows.popleft())
        if taken:
            state.moved_to(taken[-1][0] + 1, state.rows_epoch)
        if not rows and not state.chunks and state.fetch_offset > state.position.offset:
            state.moved_to(state.fetch_offset, state.position.epoch)  # nothing is left of the batch's tail
        return taken

    def _decoded(self, state: FetchState) -> bool:
        """Whether decoded records are there; decodes a batch when there are none."""
        while state.state is FetchingState.FETCHING and not state.rows and state.chunks:
            self._decode(state)
        return bool(state.rows)

    def _decode(self, state: FetchState) -> None:
        """Decode the next batch of the first chunk."""
        chunk = state.chunks[0]
        try:
            header = read_header(chunk.data, chunk.at)
            if self._config.check_crcs and not verify_crc(chunk.data, header, chunk.at):
                raise CorruptBatch("the CRC is wrong", chunk.at)
            if not header.is_control:
                first, state.rows_epoch = state.position.offset, header.leader_epoch
                records = decode_records(chunk.data, header, chunk.at)
                if records and records[0][0] < first:
                    records = [record for record in records if record[0] >= first]
                state.rows.extend(records)
        except (CorruptBatch, CodecUnavailable) as error:
            where = f"{state.name} from offset {state.position.offset}"
            state.rewind()
            self._give_back(state)
            if isinstance(error, CodecUnavailable):
                state.park(SerializationError(f"{where}: {error.reason}", hint=error.remedy))
            else:
                state.park(CorruptRecords(f"{where}: {error}"))
            return
        chunk.at += header.size
        if not state.rows:
            state.moved_to(max(header.next_offset, state.position.offset), header.leader_epoch)
        if chunk.at >= len(chunk.data):
            state.chunks.popleft()
            self._links[chunk.broker_id].give_back(chunk.credit)

    def _give_back(self, state: FetchState) -> None:
        for chunk in state.dropped:
            self._links[chunk.broker_id].give_back(chunk.credit)
        state.dropped.clear()


def _cause(error: OdradekError) -> str:
    return str(error) if isinstance(error, UnknownTopic) else error.message


def _next_offset(data: memoryview) -> tuple[int, int]:
    """The offset and the byte behind the last whole batch. Raises `CorruptBatch` when there is none."""
    last, whole = None, 0
    for at, header in iter_batches(data):
        last, whole = header, at + header.size
    if last is None:
        raise CorruptBatch(f"{len(data)} bytes without a whole batch", 0)
    return last.next_offset, whole
