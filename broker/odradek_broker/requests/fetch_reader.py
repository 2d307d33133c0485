"""What a fetch wants of one partition, and who it is that wants it.

One rule: the position is recorded by `ask`, once for each time that a partition is named; `reread` asks the same
question as often as one likes and records nothing (R-122).
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.core.fetching import PartitionFetch
from odradek_broker.core.partition.messages import FetchDecision, FollowerFetch
from odradek_broker.runtime.replicas.purgatory import DelayedFetch, Key
from odradek_broker.runtime.replicas.replica import Replica

CONSUMER = -1


class PendingFetch(PartitionFetch, eq=False):
    """One named partition that has not been answered yet, and the replica that it is about."""

    replica: Replica | None = None
    role: object = None  # of the replica when it was asked
    reread: bool = False  # the disk has been asked twice
    decision: FetchDecision | None = None  # to be told as it is: an error, a divergence, or the first look at the data
    waiting: DelayedFetch | None = None  # in the purgatory, until there may be something to say
    named_at: float = 0.0  # seconds of the counters' timer, if there is one

    def wait(self, key: Key, reread: Callable[[PartitionFetch], None]) -> None:
        """Wait for this key; `reread` is called once, unless it waits already."""
        replica, waiting = self.replica, self.waiting
        assert replica is not None, self.topic_partition
        if waiting is None or waiting.completed:
            self.waiting = DelayedFetch(self, reread, deadline_ms=self.news_at_ms)
            replica.purgatory.register(self.waiting, key)
        elif waiting.deadline_ms is None and self.news_at_ms is not None:
            replica.purgatory.set_deadline(waiting, self.news_at_ms)

    def leave(self) -> None:
        """It is answered, or nobody wants it any more."""
        if self.waiting is not None and self.replica is not None:
            self.replica.purgatory.cancel(self.waiting)


class Reader:
    """The follower or the consumer at the other end, as its last message describes it."""

    __slots__ = ("at_followers", "follower", "read_committed", "replica_epoch", "replica_id")

    def __init__(self, *, follower: bool, at_followers: bool = False) -> None:
        self.follower = follower
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
