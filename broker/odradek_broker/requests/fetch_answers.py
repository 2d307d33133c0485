"""What one partition of a fetch is answered: who asks for what, the replica's decision, and the bytes.

Rules of this module. A position is recorded by `FetchReader.ask`, once for each time that a partition is named;
`reread` asks the same question as often as one likes and records nothing (R-122). A permission to read holds as long as
the role that gave it (R-229). Bytes come from memory, or from a thread, never from the disk on the loop. A batch that
fails its check is never served (G7). Of what is no longer in memory only a few partitions are read at a time: a
follower that comes back to a thousand asks for all of them at once, and what is read for it must not all lie in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance, reached
from odradek_proto.transport.ports import Buffer, Files
from odradek_proto.values import replace

from odradek_broker.core.fetching import PartitionFetch, is_refusal
from odradek_broker.core.partition.messages import FetchDecision, FollowerFetch
from odradek_broker.core.partition.replication_quota import ReplicationQuota
from odradek_broker.runtime.replicas.purgatory import DelayedFetch, PurgatoryKey
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.errors import LogCorrupted, LogDirectoryFailed, StorageError

CONSUMER = -1
MAX_READS = 8  # partitions that are read for, or whose bytes wait to be told


class PendingFetch(PartitionFetch, eq=False):
    """One named partition that has not been answered yet, and the replica that it is about."""

    topic_id: bytes = b""  # b"": the topic is found by its name alone
    replica: Replica | None = None
    role: object = None  # of the replica when it was asked
    reread: bool = False  # the disk has been asked twice
    decision: FetchDecision | None = None  # to be told as it is: an error, a divergence, or the first look at the data
    waiting: DelayedFetch | None = None  # in the purgatory, until there may be something to say
    throttled_until_ms: int | None = None  # there are records, and it is worth asking for them again then
    named_at: float = 0.0  # seconds of the counters' timer, if there is one

    def wait(self, key: PurgatoryKey, reread: Callable[[PartitionFetch], None]) -> None:
        """Wait for this key; `reread` is called once, unless it waits already."""
        replica, waiting = self.replica, self.waiting
        assert replica is not None, self.topic_partition
        deadlines = [at_ms for at_ms in (self.news_at_ms, self.throttled_until_ms) if at_ms is not None]
        deadline_ms = min(deadlines, default=None)
        if waiting is None or waiting.completed:
            self.waiting = DelayedFetch(self, reread, deadline_ms=deadline_ms)
            replica.purgatory.register(self.waiting, key)
        elif waiting.deadline_ms is None and deadline_ms is not None:
            replica.purgatory.set_deadline(waiting, deadline_ms)

    def leave(self) -> None:
        """It is answered, or nobody wants it any more."""
        if self.waiting is not None and self.replica is not None:
            self.replica.purgatory.cancel(self.waiting)


class FetchReader:
    """The follower or the consumer at the other end, as its last message describes it."""

    __slots__ = ("at_followers", "follower", "quota", "read_committed", "replica_epoch", "replica_id")

    def __init__(self, *, follower: bool, at_followers: bool = False, quota: ReplicationQuota | None = None) -> None:
        self.follower = follower
        self.quota = quota  # of the bytes that this broker sends to followers
        self.at_followers = at_followers  # a consumer that may read from a follower, too
        self.replica_id = CONSUMER
        self.replica_epoch = -1
        self.read_committed = False

    def describes_itself(self, replica_id: int, replica_epoch: int, *, read_committed: bool) -> None:
        self.replica_id = replica_id if self.follower else CONSUMER
        self.replica_epoch = replica_epoch
        self.read_committed = read_committed

    def ask(self, replica: Replica, wanted: PendingFetch) -> FetchDecision:
        """The partition was named. A follower's position is an acknowledgement (R-6)."""
        if self.follower:
            return replica.fetch_as_follower(self._fetch_of(wanted))
        return self._as_consumer(replica, wanted)

    def reread(self, replica: Replica, wanted: PendingFetch) -> FetchDecision:
        """What a fetch that waited would be told now; its position is not recorded again (R-121, R-122)."""
        if self.follower:
            return replica.reread_for_follower(self._fetch_of(wanted))
        return self._as_consumer(replica, wanted)

    def throttled_until_ms(self, replica: Replica, now_ms: int) -> int | None:
        """When this follower may be sent records, if that is not now (KIP-73)."""
        if not self.follower or self.quota is None or replica.leader is None:
            return None
        return replica.leader.throttled_until_ms(self.quota, self.replica_id, now_ms)

    def _as_consumer(self, replica: Replica, wanted: PendingFetch) -> FetchDecision:
        if self.at_followers:
            read = replica.fetch_at_follower(
                wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch
            )
            if read is not None:
                return read
        return replica.fetch_as_consumer(
            wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch, self.read_committed
        )

    def _fetch_of(self, wanted: PendingFetch) -> FollowerFetch:
        return FollowerFetch(
            self.replica_id,
            self.replica_epoch,
            wanted.fetch_offset,
            wanted.current_leader_epoch,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
        )


async def read_away_from_loop(
    files: Files, replica: Replica, offset: int, max_bytes: int, limit: int, *, at_least_one: bool = True
) -> list[Buffer] | None:
    """Whole batches as `Log.read` finds them; None when the log is not to be read any more: the replica says why.

    Raises `LogCorrupted`. A disk that refuses takes the replica offline.
    """
    try:
        return await files.offload(lambda: replica.log.read(offset, max_bytes, limit, at_least_one=at_least_one))
    except LogCorrupted:
        raise
    except LogDirectoryFailed as error:
        replica.storage_failed(error)
    except StorageError:  # the log was closed under the read: the next look says why
        pass
    return None


@dataclass(slots=True)
class ColdRead:
    """One partition's read. `found` is None while a thread reads, and for ever when what it found may not be told."""

    role: object  # of the replica when the read began: what another role would say is another matter
    found: list[Buffer] | LogCorrupted | None = None
    done: bool = False


class ColdReads:
    """`ready` is called when a partition's read is done, or when its turn has come to be read for."""

    def __init__(self, files: Files, ready: Callable[[TopicPartition], None]) -> None:
        self._files = files
        self._ready = ready
        self._reads: dict[TopicPartition, ColdRead] = {}
        self._line: dict[TopicPartition, None] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def get(self, tp: TopicPartition) -> ColdRead | None:
        return self._reads.get(tp)

    def begin(self, replica: Replica, offset: int, max_bytes: int, limit: int) -> None:
        """Read this partition in a thread, now or when it is its turn."""
        tp = replica.topic_partition
        if len(self._reads) >= MAX_READS:
            self._line[tp] = None
            return
        reached("cold-read")
        self._line.pop(tp, None)
        read = self._reads[tp] = ColdRead(replica.role)
        task = asyncio.ensure_future(self._read(read, replica, offset, max_bytes, limit))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._call_next()

    async def _read(self, read: ColdRead, replica: Replica, offset: int, max_bytes: int, limit: int) -> None:
        try:
            if chance("cold-read-late", 0.1):
                await self._files.offload(lambda: None)
            read.found = await read_away_from_loop(self._files, replica, offset, max_bytes, limit)
        except LogCorrupted as error:
            read.found = error
        read.done = True
        if self._reads.get(replica.topic_partition) is read:
            self._ready(replica.topic_partition)

    def end(self, tp: TopicPartition) -> None:
        """This partition is answered or forgotten; the next in line may be read for."""
        if self._reads.pop(tp, None) is not None or tp in self._line:
            self._line.pop(tp, None)
            self._call_next()

    def _call_next(self) -> None:
        """Whoever is called keeps its place until it begins: it may turn out that nothing is to be read for it."""
        if self._line and len(self._reads) < MAX_READS:
            self._ready(next(iter(self._line)))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


class PartitionAnswers:
    """`ready` is called when a partition for which a thread read can be looked at again."""

    def __init__(self, files: Files, reader: FetchReader, ready: Callable[[TopicPartition], None]) -> None:
        self._reader = reader
        self._ready = ready
        self._cold = ColdReads(files, ready)

    def find(
        self, wanted: PendingFetch, budget: int, cold_bytes: int, now_ms: int, *, first: bool
    ) -> tuple[FetchDecision, Sequence[Buffer] | None]:
        """The decision and its bytes, at most `budget`; None instead of bytes while a thread reads.

        With `first` one batch is found whatever its size (R-39). A thread reads at most `cold_bytes`. A follower that
        is throttled finds nothing, as at the end of the log; what a thread has read already it gets.
        """
        replica, decision = wanted.replica, wanted.decision
        wanted.throttled_until_ms = None
        if decision is None or _is_stale(replica, wanted, decision):
            assert replica is not None
            decision = self._reader.reread(replica, wanted)
        if replica is None or is_refusal(decision) or decision.limit <= wanted.fetch_offset:
            self._cold.end(wanted.topic_partition)  # it need not be named here ever again
            return decision, ()
        if self._cold.get(wanted.topic_partition) is None:
            wanted.throttled_until_ms = self._reader.throttled_until_ms(replica, now_ms)
            if wanted.throttled_until_ms is not None:
                self._cold.end(wanted.topic_partition)  # it may have stood in line
                return replace(decision, limit=wanted.fetch_offset), ()
        try:
            return decision, self._read(replica, wanted, decision, budget, cold_bytes, first=first)
        except LogCorrupted as error:
            return corrupted(replica, error), ()

    def limit_in_memory(self, wanted: PendingFetch, now_ms: int) -> int | None:
        """Where the bytes end that could be told of a partition; None when there is more to say than bytes.

        What is not in memory counts as more: it is as a rule much, and to look for it costs as much as to read it.
        """
        replica, decision = wanted.replica, wanted.decision
        if replica is None or replica.role is not wanted.role or not replica.log.is_hot(wanted.fetch_offset):
            return None
        if self._cold.get(wanted.topic_partition) is not None:
            return None
        if wanted.wait_is_over(now_ms):
            return None  # a changed high watermark is due
        if self._reader.throttled_until_ms(replica, now_ms) is not None:
            return wanted.fetch_offset
        if decision is None or decision.error is ErrorCode.NONE:
            decision = self._reader.reread(replica, wanted)
        return None if is_refusal(decision) else decision.limit

    def forget(self, tp: TopicPartition) -> None:
        """Nobody wants what is read for this partition any more."""
        self._cold.end(tp)

    def close(self) -> None:
        self._cold.close()

    def _read(
        self,
        replica: Replica,
        wanted: PendingFetch,
        decision: FetchDecision,
        budget: int,
        cold_bytes: int,
        *,
        first: bool,
    ) -> list[Buffer] | None:
        """Bytes from memory, or those that a thread has found; None while it reads. Raises `LogCorrupted`."""
        tp, offset = wanted.topic_partition, wanted.fetch_offset
        cold = self._cold.get(tp)
        if cold is None:
            if replica.log.is_hot(offset):
                self._cold.end(tp)  # it may have stood in line
                limit_bytes = min(wanted.max_bytes, budget)
                return replica.log.read(offset, limit_bytes, decision.limit, at_least_one=first)
            self._cold.begin(replica, offset, min(wanted.max_bytes, cold_bytes), decision.limit)
            return None
        if not cold.done:
            return None
        if isinstance(cold.found, LogCorrupted):
            self._cold.end(tp)
            raise cold.found
        if cold.found and not first and sum(map(len, cold.found)) > budget:
            return []  # it goes first in the next answer
        self._cold.end(tp)
        if cold.role is not replica.role or (not cold.found and not wanted.reread):
            wanted.decision, wanted.reread = None, True  # segments changed under the reader, or the role: look again
            self._ready(tp)
            return None
        return cold.found or []


def count_below(replica: Replica, wanted: PendingFetch, limit: int, missing_bytes: int) -> tuple[int, int]:
    """Count on in memory from where the last count ended: bytes, and the offset behind them."""
    if missing_bytes <= 0:
        return 0, wanted.counted_to
    return replica.log.count_in_memory(max(wanted.counted_to, wanted.fetch_offset), limit, missing_bytes)


def named_leader(wanted: PendingFetch, decision: FetchDecision) -> tuple[int, int]:
    """Who leads and in which epoch, for a reader that asked the wrong broker or with an old epoch; else (-1, -1)."""
    registration = wanted.replica.registration if wanted.replica is not None else None
    if registration is None or decision.error not in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ):
        return -1, -1
    return registration.leader, registration.leader_epoch


def _is_stale(replica: Replica | None, wanted: PendingFetch, decision: FetchDecision) -> bool:
    """Whether a permission to read was given by a role that is over, or for what has been deleted since."""
    if replica is None or is_refusal(decision):
        return False
    return replica.role is not wanted.role or wanted.fetch_offset < replica.state.log_start_offset


def corrupted(replica: Replica, error: LogCorrupted) -> FetchDecision:
    """A batch that fails its check is never served (G7)."""
    replica.corrupted(error)
    state = replica.state
    return FetchDecision(ErrorCode.CORRUPT_MESSAGE, state.high_watermark, state.high_watermark, state.log_start_offset)
