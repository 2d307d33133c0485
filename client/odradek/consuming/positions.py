"""Questions about offsets: where a log begins and ends, which record was first at a time, where an epoch ended.

Rules of this module. The leader of a partition is asked, all partitions of one leader in one call. A question that
failed is repeated only by the keeper, which has all the time that the consumer has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from odradek_proto.topics import TopicPartition
from odradek_proto.transport.deadline import Deadline
from odradek_proto.v1 import broker_pb2 as pb

from odradek.cluster.cluster import ClusterClient
from odradek.core.cluster_view import NO_LEADER
from odradek.core.fetch_state import COMMITTED, NO_EPOCH, FetchingState, FetchPosition, FetchState
from odradek.shared.errors import BrokerUnreachable, ClientError, OdradekError, broker_error
from odradek.shared.results import OffsetAndMetadata, OffsetAndTimestamp

LIST_OFFSETS = "/odradek.v1.Broker/ListOffsets"
OFFSETS_FOR_LEADER_EPOCH = "/odradek.v1.Broker/OffsetsForLeaderEpoch"
CALL_TIMEOUT_MS = 2_000  # a frozen leader: ask again, perhaps it is another by then

A = TypeVar("A")
Offsets = dict[TopicPartition, OffsetAndTimestamp | OdradekError]
GroupOffsets = Callable[
    [Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | OdradekError | None]]
]
"""What a group has committed: asked once, with an error where that did not help."""


def _by_leader(cluster: ClusterClient, partitions: Mapping[TopicPartition, A]) -> dict[int, dict[TopicPartition, A]]:
    grouped: dict[int, dict[TopicPartition, A]] = {}
    for partition, question in partitions.items():
        grouped.setdefault(cluster.view.leader_of(partition).leader_id, {})[partition] = question
    return grouped


async def list_offsets(
    cluster: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    committed: bool,
    timeout_ms: int = CALL_TIMEOUT_MS,
) -> Offsets:
    """Ask each leader once; -1 is the end, -2 the beginning. Offset -1 in the answer: no record is so late."""

    async def ask(leader: int, asked: dict[TopicPartition, int]) -> Offsets:
        if leader == NO_LEADER:
            return {partition: cluster.view.why_leaderless(partition) for partition in asked}
        request = pb.ListOffsetsRequest(replica_id=-1, read_committed=committed)
        for (topic, number), timestamp in asked.items():
            epoch = cluster.view.leader_of(TopicPartition(topic, number)).epoch
            request.partitions.add(topic=topic, partition=number, current_leader_epoch=epoch, timestamp_ms=timestamp)
        try:
            answer = await cluster.call_broker(leader, LIST_OFFSETS, request, pb.ListOffsetsResponse, timeout_ms)
        except BrokerUnreachable as error:
            return dict.fromkeys(asked, BrokerUnreachable(f"broker {leader}: {error.message}", hint=error.hint))
        except ClientError as error:
            return dict.fromkeys(asked, error)
        found: Offsets = {}
        for item in answer.partitions:
            partition = TopicPartition(item.topic, item.partition)
            if item.error_code:
                found[partition] = broker_error(item.error_code, where=str(partition))
            else:
                found[partition] = OffsetAndTimestamp(item.offset, item.timestamp_ms, item.leader_epoch)
        return found

    grouped = _by_leader(cluster, timestamps)
    answers = await asyncio.gather(*[ask(leader, asked) for leader, asked in grouped.items()])
    return {partition: outcome for answer in answers for partition, outcome in answer.items()}


class PositionKeeper:
    """Finds the offsets that partitions need, and validates positions, until every partition may be fetched."""

    def __init__(
        self,
        cluster: ClusterClient,
        states: Callable[[], list[FetchState]],
        *,
        committed: bool,
        changed: Callable[[], None],
        group_offsets: GroupOffsets | None = None,
    ) -> None:
        self._cluster = cluster
        self._states = states
        self._committed = committed
        self._changed = changed
        self._group_offsets = group_offsets
        self._event = asyncio.Event()
        self._deadline = Deadline(cluster.clock, self._event.set)

    def wake(self) -> None:
        """A partition may need something."""
        self._event.set()

    async def run(self) -> None:
        while True:
            self._event.clear()
            now_ms = self._cluster.clock.now_ms()
            states = [state for state in self._states() if now_ms >= state.retry_at_ms]
            resets = {s.name: s for s in states if s.state is FetchingState.NEEDS_OFFSET}
            checks = {s.name: s for s in states if s.state is FetchingState.VALIDATING}
            if resets:
                await self._find_offsets(resets)
            if checks:
                await self._validate(checks)
            if resets or checks:
                self._changed()
            if not self._wait_for_retries():
                await self._event.wait()

    def _wait_for_retries(self) -> bool:
        """Have ourselves woken for the next retry. Returns whether there is something to do right now."""
        due = [
            s.retry_at_ms for s in self._states() if s.state in (FetchingState.NEEDS_OFFSET, FetchingState.VALIDATING)
        ]
        if not due or min(due) <= self._cluster.clock.now_ms():
            return bool(due)
        self._deadline.arm(min(due))
        return False

    async def _find_offsets(self, states: dict[TopicPartition, FetchState]) -> None:
        of_group = {name: state for name, state in states.items() if state.reset_to == COMMITTED}
        if of_group:
            await self._find_committed(of_group)
        await self._find_listed({name: state for name, state in states.items() if name not in of_group})

    async def _find_committed(self, states: dict[TopicPartition, FetchState]) -> None:
        assert self._group_offsets is not None, states
        found: Mapping[TopicPartition, OffsetAndMetadata | OdradekError | None] = {}
        failure: OdradekError | None = None
        try:
            found = await self._group_offsets([*states])
        except OdradekError as error:
            failure = error
        for name, state in states.items():
            outcome = found.get(name, failure)
            if isinstance(outcome, OdradekError):
                self._failed(state, outcome)
            elif outcome is None:
                state.on_committed(None, NO_EPOCH)
            else:
                state.on_committed(outcome.offset, outcome.leader_epoch)

    async def _find_listed(self, states: dict[TopicPartition, FetchState]) -> None:
        if not states:
            return
        asked = {name: state.reset_to for name, state in states.items() if state.reset_to is not None}
        timeout_ms = self._patience_ms(states)
        found = await list_offsets(self._cluster, asked, committed=self._committed, timeout_ms=timeout_ms)
        for name, timestamp in asked.items():
            outcome = found.get(name)
            if isinstance(outcome, OffsetAndTimestamp):
                states[name].on_listed_offset(timestamp, outcome.offset)
            else:
                self._failed(states[name], outcome)

    async def _validate(self, states: dict[TopicPartition, FetchState]) -> None:
        positions = {name: state.position for name, state in states.items()}
        grouped = _by_leader(self._cluster, positions)
        await asyncio.gather(*[self._validate_at(leader, asked, states) for leader, asked in grouped.items()])

    async def _validate_at(
        self, leader: int, asked: dict[TopicPartition, FetchPosition], states: dict[TopicPartition, FetchState]
    ) -> None:
        """R-266: where does the epoch of our position end, on this leader?"""
        if leader == NO_LEADER:
            for name in asked:
                self._failed(states[name], self._cluster.view.why_leaderless(name))
            return
        epochs = {name: states[name].leader.epoch for name in asked}
        request = pb.OffsetsForLeaderEpochRequest(replica_id=-1)
        for name, position in asked.items():
            request.partitions.add(
                topic=name.topic,
                partition=name.partition,
                current_leader_epoch=epochs[name],
                leader_epoch=position.epoch,
            )
        try:
            answer = await self._cluster.call_broker(
                leader, OFFSETS_FOR_LEADER_EPOCH, request, pb.OffsetsForLeaderEpochResponse, self._patience_ms(states)
            )
        except OdradekError as error:
            for name in asked:
                self._failed(states[name], error)
            return
        for item in answer.partitions:
            name = TopicPartition(item.topic, item.partition)
            if item.error_code:
                self._failed(states[name], broker_error(item.error_code, where=str(name)))
            else:
                states[name].on_epoch_end(asked[name], epochs[name], item.leader_epoch, item.end_offset)

    def _patience_ms(self, states: Mapping[TopicPartition, FetchState]) -> int:
        return self._cluster.patience_ms(max(state.failures for state in states.values()), CALL_TIMEOUT_MS)

    def _failed(self, state: FetchState, error: OdradekError | None) -> None:
        if error is not None and not error.retriable:
            state.park(error)
            return
        state.on_refused(self._cluster.clock.now_ms(), self._cluster.search_pause(state.failures + 1), error)
        self._cluster.request_refresh(f"{state.name}: {error.message if error else 'not answered'}")
