"""One partition that a consumer reads: where it is, what it waits for, what is buffered.

    needs an offset --listed--> fetching <--validated-- validating          parked (an error that only seek() ends)
          ^                        |  new leader epoch ------^                 ^
          +-- out of range --------+---------------------- truncated ----------+

Rules of this module. `position` is the next offset that the application gets, `fetch_offset` the next one to be
fetched; between them lies what is buffered. An answer counts only if it is for the fetch that is outstanding: for
another offset or leader epoch it is old news (R-265). Under a new leader epoch nothing is fetched before the leader
has said that it has what we have read (R-266, KIP-320); what is buffered and not handed out is then read again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from odradek_proto.records import Record
from odradek_proto.topics import TopicPartition
from odradek_proto.values import Value

from odradek.core.answers import FetchPartitionResponse
from odradek.core.cluster_view import UNKNOWN_LEADER, LeaderAndEpoch
from odradek.shared.config import OffsetReset
from odradek.shared.errors import LogTruncated, NoOffset, OdradekError

LATEST = -1  # timestamps that ListOffsets gives a meaning
EARLIEST = -2
COMMITTED = -3  # ours: what the group has committed, or else as auto.offset.reset says
NO_EPOCH = -1
REFUSAL_MS = 2_000  # a leader that refuses does so sooner; one that says nothing has nothing new


class FetchingState(Enum):
    NEEDS_OFFSET = "needs an offset"
    VALIDATING = "validating"
    FETCHING = "fetching"
    PARKED = "parked"


class FetchPosition(Value, frozen=True):
    """An offset, and the leader epoch of the record before it (-1: not known)."""

    offset: int
    epoch: int


@dataclass(slots=True)
class Chunk:
    """Whole batches of one answer, decoded up to byte `at`; `credit` is what they take of the stream's."""

    data: memoryview
    at: int
    credit: int
    broker_id: int


class FetchState:
    """One assigned partition. `reset` is auto.offset.reset."""

    __slots__ = (
        "chunks",
        "dropped",
        "error",
        "failures",
        "fetch_offset",
        "high_watermark",
        "leader",
        "log_start_offset",
        "name",
        "outstanding",
        "paused",
        "position",
        "reset",
        "reset_to",
        "retry_at_ms",
        "rows",
        "rows_epoch",
        "state",
        "trouble",
    )

    def __init__(self, name: TopicPartition, reset: OffsetReset, *, in_group: bool = False) -> None:
        self.name = name
        self.reset = reset
        self.state = FetchingState.NEEDS_OFFSET
        self.leader: LeaderAndEpoch = UNKNOWN_LEADER
        self.position = FetchPosition(-1, NO_EPOCH)
        self.reset_to: int | None = None
        self.fetch_offset = -1
        self.outstanding: tuple[int, int, int] | None = None  # broker, fetch offset, leader epoch
        self.chunks: deque[Chunk] = deque()
        self.dropped: list[Chunk] = []  # no longer wanted; whoever gives credit back takes them from here
        self.rows: deque[Record] = deque()  # of one batch, decoded
        self.rows_epoch = NO_EPOCH
        self.paused = False
        self.error: OdradekError | None = None
        self.high_watermark = -1
        self.log_start_offset = -1
        self.failures = 0
        self.retry_at_ms = 0
        self.trouble: OdradekError | None = None  # the last error that will be tried again, while nothing went well
        if in_group:
            self.seek_to(COMMITTED)
        else:
            self._ask_for_offset()

    # --- positions -------------------------------------------------------------------------------------------------

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """The application wants to read from here."""
        self.position = FetchPosition(offset, epoch)
        self.error = None
        self.rewind()
        self.state = FetchingState.FETCHING if epoch == NO_EPOCH else FetchingState.VALIDATING

    def seek_to(self, timestamp: int) -> None:
        """`EARLIEST` or `LATEST`, as the leader knows it when it is asked, or `COMMITTED`."""
        self.reset_to = timestamp
        self.position = FetchPosition(-1, NO_EPOCH)
        self.error = None
        self.rewind()
        self.state = FetchingState.NEEDS_OFFSET

    def rewind(self) -> None:
        """Forget what is buffered; fetch from the position again."""
        self.fetch_offset = self.position.offset
        self.outstanding = None
        self.dropped += self.chunks
        self.chunks.clear()
        self.rows.clear()

    def _ask_for_offset(self) -> None:
        """By the policy, or nowhere to go."""
        if self.reset == "none":
            self.park(NoOffset([self.name]))
        else:
            self.seek_to(EARLIEST if self.reset == "earliest" else LATEST)

    def park(self, error: OdradekError) -> None:
        """Nothing goes on here until the application seeks."""
        self.error = error
        self.state = FetchingState.PARKED
        self.outstanding = None

    def on_listed_offset(self, asked: int, offset: int) -> None:
        """The leader said where EARLIEST or LATEST is; not of interest any more if the application sought meanwhile."""
        if self.state is FetchingState.NEEDS_OFFSET and self.reset_to == asked:
            self.position = FetchPosition(offset, NO_EPOCH)
            self.reset_to = None
            self.trouble = None
            self.rewind()
            self.state = FetchingState.FETCHING

    def on_committed(self, offset: int | None, epoch: int) -> None:
        """The coordinator said what the group has committed; None: nothing."""
        if self.state is FetchingState.NEEDS_OFFSET and self.reset_to == COMMITTED:
            self.trouble = None
            if offset is None:
                self._ask_for_offset()
            else:
                self.seek(offset, epoch)

    # --- leaders ---------------------------------------------------------------------------------------------------

    def on_leader(self, leader: LeaderAndEpoch) -> None:
        """Metadata came. Old news is already sifted out; a new epoch means a new look at the position."""
        if leader == self.leader:
            return
        newer = leader.epoch > self.leader.epoch
        if newer:
            self.trouble = None
        self.leader = leader
        self.retry_at_ms = 0
        if not newer and self.outstanding is None:
            return
        if self.state in (FetchingState.FETCHING, FetchingState.VALIDATING):
            self.rewind()
            self.state = FetchingState.FETCHING if self.position.epoch == NO_EPOCH else FetchingState.VALIDATING

    def on_epoch_end(self, asked: FetchPosition, leader_epoch: int, end_epoch: int, end_offset: int) -> None:
        """The leader of `leader_epoch` said where the log of the position's epoch ends.

        Undefined (-1): it knows nothing of that epoch. An answer for a position that is not the current one is dropped.
        """
        if self.state is not FetchingState.VALIDATING or asked != self.position or leader_epoch != self.leader.epoch:
            return
        self.trouble = None
        undefined = end_epoch < 0 or end_offset < 0
        if not undefined and end_offset >= self.position.offset:
            self.state = FetchingState.FETCHING
        elif self.reset == "none":
            self.park(self._truncated(None if undefined else FetchPosition(end_offset, end_epoch)))
        elif undefined:
            self._ask_for_offset()
        else:
            self.position = FetchPosition(end_offset, end_epoch)
            self.rewind()
            self.state = FetchingState.FETCHING

    def _truncated(self, divergence: FetchPosition | None) -> LogTruncated:
        return LogTruncated(
            self.name,
            position=self.position.offset,
            epoch=self.position.epoch,
            divergent_offset=None if divergence is None else divergence.offset,
            divergent_epoch=None if divergence is None else divergence.epoch,
        )

    # --- fetches ---------------------------------------------------------------------------------------------------

    def may_fetch_from(self, broker_id: int, now_ms: int) -> bool:
        return (
            self.state is FetchingState.FETCHING
            and self.outstanding is None
            and not self.paused
            and self.leader.leader_id == broker_id
            and now_ms >= self.retry_at_ms
        )

    def asked(self, broker_id: int) -> None:
        """A fetch for `fetch_offset` was sent."""
        self.outstanding = (broker_id, self.fetch_offset, self.leader.epoch)

    def is_answered_by(self, broker_id: int, answer: FetchPartitionResponse) -> bool:
        """Whether this is the answer that we wait for (CL-05)."""
        return self.outstanding == (broker_id, answer.fetch_offset, answer.request_leader_epoch)

    def on_data(self, answer: FetchPartitionResponse, chunk: Chunk | None, next_offset: int) -> None:
        """The answer that we waited for, without an error; `next_offset` is the one behind its last batch."""
        self.outstanding = None
        self.failures = 0
        self.trouble = None
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        if chunk is not None:
            self.chunks.append(chunk)
            self.fetch_offset = next_offset

    def on_divergence(self, answer: FetchPartitionResponse) -> None:
        """The leader found by itself that our log is not its log: look at the position before anything else."""
        self.outstanding = None
        self.rewind()
        if self.position.epoch != NO_EPOCH:
            self.state = FetchingState.VALIDATING

    def on_out_of_range(self, error: OdradekError) -> None:
        """The position is not in the log (any more)."""
        self.outstanding = None
        if self.reset == "none":
            self.park(error)
        else:
            self._ask_for_offset()

    def on_refused(self, now_ms: int, pause_ms: int, trouble: OdradekError | None = None) -> None:
        """Ask again after a pause; `trouble` is the reason, for people."""
        self.outstanding = None
        self.failures += 1
        self.retry_at_ms = now_ms + pause_ms
        self.trouble = trouble

    def on_broken(self, broker_id: int, trouble: OdradekError) -> None:
        """A broker's stream ended, or there is none to be had: what it was asked for is asked again."""
        if self.outstanding is not None and self.outstanding[0] == broker_id:
            self.outstanding = None
        if self.leader.leader_id == broker_id:
            self.trouble = trouble

    def held_up_by(self, now_ms: int) -> OdradekError | None:
        """Why no record can come of this partition, which is led; None when it is read, or waits for new ones."""
        if self.error is not None:
            return self.error
        if self.outstanding is not None and now_ms - self.retry_at_ms > REFUSAL_MS:
            return None
        return self.trouble

    def put_back(self, rows: list[Record]) -> None:
        """Records that were taken and could not be handed out."""
        self.rows.extendleft(reversed(rows))
        self.position = FetchPosition(rows[0][0], self.position.epoch)

    def moved_to(self, offset: int, epoch: int) -> None:
        """Everything below `offset` was handed out."""
        self.position = FetchPosition(offset, epoch)
