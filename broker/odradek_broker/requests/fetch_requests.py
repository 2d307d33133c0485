"""What a fetch session wants of one partition, and who it is that wants it.

One rule: the position is recorded by `ask`, once for each time that a partition is named; `look_again` asks the same
question as often as one likes and records nothing (R-122).
"""

from __future__ import annotations

from msgspec import Struct
from odradek_proto.topics import TopicPartition

from odradek_broker.core.partition.messages import FetchDecision, FollowerFetch
from odradek_broker.runtime.replicas.replica import Replica

CONSUMER = -1


class Wanted(Struct, eq=False):
    """One named partition that has not been answered yet."""

    topic_partition: TopicPartition
    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    replica: Replica | None = None
    role: object = None  # of the replica when it was asked
    reread: bool = False  # the disk has been asked twice
    decision: FetchDecision | None = None  # to be told as it is: an error, a divergence, or the first look at the data
    deadline_ms: int | None = None
    told_high_watermark: int = -1
    told_log_start: int = -1
    named_at: float = 0.0  # seconds of the counters' timer, if there is one
    counted_bytes: int = 0  # towards fetch.min.bytes, from the fetch offset on
    counted_to: int = -1  # the offset behind them; -1: nothing was counted yet


class Reader:
    """The follower or the consumer at the other end, as its last message describes it."""

    __slots__ = ("follower", "read_committed", "replica_epoch", "replica_id")

    def __init__(self, *, follower: bool) -> None:
        self.follower = follower
        self.replica_id = CONSUMER
        self.replica_epoch = -1
        self.read_committed = False

    def describes_itself(self, replica_id: int, replica_epoch: int, *, read_committed: bool) -> None:
        self.replica_id = replica_id if self.follower else CONSUMER
        self.replica_epoch = replica_epoch
        self.read_committed = read_committed

    def ask(self, replica: Replica, wanted: Wanted) -> FetchDecision:
        """The partition was named. A follower's position is an acknowledgement (R-6)."""
        if self.follower:
            return replica.fetch_as_follower(self._fetch_of(wanted))
        return self._as_consumer(replica, wanted)

    def look_again(self, replica: Replica, wanted: Wanted) -> FetchDecision:
        """What a fetch that waited would be told now; its position is not recorded again (R-121, R-122)."""
        if self.follower:
            return replica.reread_for_follower(self._fetch_of(wanted))
        return self._as_consumer(replica, wanted)

    def _as_consumer(self, replica: Replica, wanted: Wanted) -> FetchDecision:
        return replica.fetch_as_consumer(
            wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch, self.read_committed
        )

    def _fetch_of(self, wanted: Wanted) -> FollowerFetch:
        return FollowerFetch(
            self.replica_id,
            self.replica_epoch,
            wanted.fetch_offset,
            wanted.current_leader_epoch,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
        )
