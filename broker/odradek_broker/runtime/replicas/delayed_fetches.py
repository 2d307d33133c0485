"""The fetch sessions that wait for more to read of one replica.

Followers read up to the log end offset and are woken by appends; consumers read below the high watermark and are woken
when it rises. A follower hears of a new high watermark with the next data, or when its wait ends (R-127). Whoever is
woken may stop waiting, or wait again, while the others are being woken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_broker.runtime.replicas.ports import FetchWaiter

if TYPE_CHECKING:
    from odradek_broker.runtime.replicas.replica import Replica


class DelayedFetches:
    """Those who wait, in the order in which they came."""

    __slots__ = ("_consumers", "_followers")

    def __init__(self) -> None:
        self._followers: dict[FetchWaiter, None] = {}
        self._consumers: dict[FetchWaiter, None] = {}

    def __len__(self) -> int:
        return len(self._followers) + len(self._consumers)

    def add(self, waiter: FetchWaiter, *, follower: bool) -> None:
        """Wake this session once there may be more to read."""
        (self._followers if follower else self._consumers)[waiter] = None

    def remove(self, waiter: FetchWaiter) -> None:
        self._followers.pop(waiter, None)
        self._consumers.pop(waiter, None)

    def wake_followers(self, replica: Replica) -> None:
        """The log end offset rose."""
        for waiter in list(self._followers):
            waiter.wake(replica)

    def wake_consumers(self, replica: Replica) -> None:
        """The high watermark rose."""
        for waiter in list(self._consumers):
            waiter.wake(replica)

    def tell_followers(self, replica: Replica) -> None:
        """The high watermark or the log start offset moved: they hear of it in time."""
        for waiter in list(self._followers):
            waiter.note_high_watermark(replica)

    def wake_everyone(self, replica: Replica) -> None:
        """The role changed, or the replica went offline."""
        for waiter in [*self._followers, *self._consumers]:
            waiter.wake(replica)
