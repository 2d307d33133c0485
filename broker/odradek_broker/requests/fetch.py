"""A consumer's single fetch, as Kafka's protocol has it: every named partition is answered, together, once.

It is complete at once when there are `min_bytes`, an error or a divergence, or no time to wait; otherwise it waits for
one of these, a change of role or epoch included (R-121), and then reads again from the beginning (R-122). The first
partition that has anything gives at least one whole batch (KIP-74).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Buffer, Clock, Files
from odradek_proto.values import Value

from odradek_broker.core.delayed import DelayedOperation
from odradek_broker.core.fetching import FetchMinimum, is_refusal
from odradek_broker.core.partition.messages import FetchDecision
from odradek_broker.core.partition.replication_quota import LEADER, ReplicationQuota
from odradek_broker.requests.access import OPEN, Access
from odradek_broker.requests.context import Lookup, RequestContext
from odradek_broker.requests.fetch_answers import (
    FetchReader,
    PendingFetch,
    corrupted,
    count_below,
    named_leader,
    read_away_from_loop,
)
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.replicas.purgatory import Purgatory
from odradek_broker.storage.errors import LogCorrupted

MAX_LOOKS = 3  # at a partition whose role or segments change while a thread reads; then it is answered without bytes
MAX_WAIT_MS = 300_000  # five minutes bound what a caller may ask us to hold


class FetchRequest(Value, frozen=True):
    partitions: Sequence[PendingFetch]  # made for this one fetch, which writes into them
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool = False
    at_followers: bool = False  # a follower answers, too, up to its own high watermark
    reserve: Callable[[int], int] = lambda size: size  # asked before batches are read: how many of so many bytes


class FetchedPartition(Value, frozen=True):
    """One partition's answer. `decision.limit` bounds what was read; with an error or a divergence nothing was."""

    topic_partition: TopicPartition
    decision: FetchDecision
    leader_id: int = -1  # with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, as far as it is known here
    leader_epoch: int = -1
    buffers: Sequence[Buffer] = ()
    gaps: bool = False  # offsets may be missing


class FetchRequests:
    """`max_bytes` bounds every answer, whatever the client asks for: fetch.max.bytes."""

    def __init__(
        self,
        *,
        clock: Clock,
        files: Files,
        lookup: Lookup,
        purgatory: Purgatory,
        counters: Counters,
        max_bytes: int,
        access: Access = OPEN,
        quota: ReplicationQuota | None = None,
    ) -> None:
        self.access = access
        self.quota = quota or ReplicationQuota(LEADER)  # of what followers are sent
        self.clock = clock
        self.files = files
        self.lookup = lookup
        self.purgatory = purgatory
        self.counters = counters
        self.max_bytes = max_bytes
        self.times = counters.request("FetchConsumer")

    async def fetch(self, context: RequestContext, request: FetchRequest) -> list[FetchedPartition]:
        """One answer for each partition, in the order of the request. A call that is cancelled leaves nothing."""
        timer = self.counters.timer
        arrived = 0.0 if timer is None else timer()
        fetch = _Fetch(self, request, self.access.lookup(self.lookup, context, "Fetch"))
        await fetch.until_complete()
        fetched = await fetch.read()
        if timer is not None:
            self.times.observe(timer() - arrived)
        return fetched


class _DelayedFetch(DelayedOperation, eq=False):
    """A whole fetch in the purgatory, under every partition that it names."""

    fetch: _Fetch
    answered: asyncio.Future[ErrorCode]

    def outcome(self) -> ErrorCode | None:
        return ErrorCode.NONE if self.fetch.is_complete() else None

    def complete(self, outcome: ErrorCode) -> None:
        if not self.answered.done():
            self.answered.set_result(outcome)


class _Fetch:
    """One fetch, from its arrival to its answer."""

    def __init__(self, requests: FetchRequests, request: FetchRequest, lookup: Lookup) -> None:
        self._requests = requests
        self._lookup = lookup
        self._request = request
        self._reader = FetchReader(follower=False, at_followers=request.at_followers)
        self._reader.describes_itself(-1, -1, read_committed=request.read_committed)
        self._minimum = FetchMinimum(request.min_bytes)
        self._partitions = request.partitions
        for each in request.partitions:
            self._name(each)

    def _name(self, wanted: PendingFetch) -> None:
        replica = self._lookup(wanted.topic_partition, wanted.topic_id)
        if isinstance(replica, ErrorCode):
            self._requests.counters.gone.fetches += 1
            wanted.decision = FetchDecision(replica, -1, -1, -1)
        else:
            replica.traffic.fetches += 1
            wanted.replica, wanted.role = replica, replica.role

    # --- Waiting ----------------------------------------------------------------------------------------------------

    async def until_complete(self) -> None:
        """Until the fetch has what it wants, or its time is over."""
        wait_ms = min(self._request.max_wait_ms, MAX_WAIT_MS)
        if self.is_complete() or wait_ms <= 0:
            return
        purgatory = self._requests.purgatory
        answered: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        delayed = _DelayedFetch(self, answered, deadline_ms=self._requests.clock.now_ms() + wait_ms)
        purgatory.register(delayed, *(each.replica.consumer_fetches for each in self._partitions if each.replica))
        try:
            await answered
        finally:
            purgatory.cancel(delayed)

    def is_complete(self) -> bool:
        """Whether there is enough to say (R-121). What is not in memory counts as enough: it is as a rule much."""
        minimum = self._minimum
        for each in self._partitions:
            replica = each.replica
            if replica is None or replica.role is not each.role:
                return True
            decision = self._reader.reread(replica, each)
            if is_refusal(decision) or not replica.log.is_hot(each.fetch_offset):
                return True
            missing = minimum.missing_bytes(each)
            if minimum.hold(each, *count_below(replica, each, decision.limit, missing)):
                return True
        return not self._partitions or minimum.is_enough

    # --- Reading ----------------------------------------------------------------------------------------------------

    async def read(self) -> list[FetchedPartition]:
        left = self._request.reserve(max(1, min(self._request.max_bytes, self._requests.max_bytes)))
        fetched = []
        empty = True
        for each in self._partitions:
            decision, buffers = await self._read_one(each, left, first=empty)
            size = sum(map(len, buffers))
            empty = empty and not size
            left = max(0, left - size)
            self._count(each, decision, size)
            fetched.append(FetchedPartition(each.topic_partition, decision, *named_leader(each, decision), buffers))
        return fetched

    async def _read_one(
        self, wanted: PendingFetch, left: int, *, first: bool
    ) -> tuple[FetchDecision, Sequence[Buffer]]:
        """What may be read now, and its bytes; with `first` one batch is found whatever its size (R-39)."""
        replica = wanted.replica
        if replica is None:
            assert wanted.decision is not None, wanted
            return wanted.decision, ()
        for _ in range(MAX_LOOKS):
            decision, role = self._reader.reread(replica, wanted), replica.role
            max_bytes = min(wanted.max_bytes, left)
            if is_refusal(decision) or decision.limit <= wanted.fetch_offset or (max_bytes <= 0 and not first):
                return decision, ()
            try:
                if replica.log.is_hot(wanted.fetch_offset):
                    return decision, replica.log.read(
                        wanted.fetch_offset, max_bytes, decision.limit, at_least_one=first
                    )
                found = await read_away_from_loop(
                    self._requests.files, replica, wanted.fetch_offset, max_bytes, decision.limit, at_least_one=first
                )
            except LogCorrupted as error:
                return corrupted(replica, error), ()
            if found is not None and replica.role is role:  # a permission holds as long as its role
                return decision, found
        return decision, ()

    def _count(self, wanted: PendingFetch, decision: FetchDecision, size: int) -> None:
        traffic = self._requests.counters.gone if wanted.replica is None else wanted.replica.traffic
        traffic.bytes_out += size
        traffic.failed_fetches += decision.error is not ErrorCode.NONE
