"""What one partition of a fetch session is answered: the replica's decision, and the bytes.

Rules of this module. A permission to read holds as long as the role that gave it (R-229). Bytes come from memory, or
from a thread, never from the disk on the loop. A batch that fails its check is never served (G7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Buffer, Files

from odradek_broker.core.fetching import is_refusal
from odradek_broker.core.partition.messages import FetchDecision
from odradek_broker.requests.cold_reads import ColdReads
from odradek_broker.requests.fetch_reader import PendingFetch, Reader
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.errors import LogCorrupted


class PartitionAnswers:
    """`ready` is called when a partition for which a thread read can be looked at again."""

    def __init__(self, files: Files, reader: Reader, ready: Callable[[TopicPartition], None]) -> None:
        self._reader = reader
        self._ready = ready
        self._cold = ColdReads(files, ready)

    def find(
        self, wanted: PendingFetch, budget: int, cold_bytes: int, *, first: bool
    ) -> tuple[FetchDecision, Sequence[Buffer] | None]:
        """The decision and its bytes, at most `budget`; None instead of bytes while a thread reads.

        With `first` one batch is found whatever its size (R-39). A thread reads at most `cold_bytes`.
        """
        replica, decision = wanted.replica, wanted.decision
        if decision is None or _is_stale(replica, wanted, decision):
            assert replica is not None
            decision = self._reader.reread(replica, wanted)
        if replica is None or is_refusal(decision) or decision.limit <= wanted.fetch_offset:
            self._cold.end(wanted.topic_partition)  # it need not be named here ever again
            return decision, ()
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
