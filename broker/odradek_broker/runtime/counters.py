"""A broker's counters: plain numbers, read by the metrics.

Rules of this module. Counting is an addition to an attribute: nothing is locked, formatted or looked up by name on the
hot path. Durations that need a fine clock (of a request or an fsync) are measured only with a `timer`, which a process
passes in when metrics are enabled; the simulated world has none. Counters never fall; they start at zero with the
process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Timer = Callable[[], float]  # seconds, monotonic

_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0)  # ten equal ratios to a decade (Renard's R10)
BOUNDS_S = tuple(step * scale for scale in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0) for step in _STEPS)


class Durations:
    """How many took how long: `counts[i]` at most `BOUNDS_S[i]` seconds, the last one longer than all bounds."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds


def measured(function: Callable[[], T], durations: Durations, timer: Timer | None) -> Callable[[], T]:
    """`function`, with the time that it takes observed when there is a timer. Also for work in a thread."""
    if timer is None:
        return function

    def run() -> T:
        started = timer()
        result = function()
        durations.observe(timer() - started)
        return result

    return run


class Traffic:
    """Records and bytes of one topic on this broker. Bytes are those of record batches."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0  # records that clients wrote
        self.bytes_in = 0
        self.bytes_out = 0  # to consumers
        self.replication_bytes_in = 0  # as a follower
        self.replication_bytes_out = 0  # to followers
        self.produces = 0  # batches that clients sent, refused ones too
        self.failed_produces = 0
        self.fetches = 0  # partitions that consumers and followers named
        self.failed_fetches = 0


class Truncations:
    """Truncations by rule (R-75, R-79, ...), and what is known of the records that went."""

    __slots__ = ("acknowledged", "by_rule", "restarts", "unacknowledged", "unknown")

    def __init__(self) -> None:
        self.by_rule: dict[str, int] = {}
        self.acknowledged = 0  # records that a producer had been promised, as far as this broker knows
        self.unacknowledged = 0  # this broker led when they were written, and promised nothing
        self.unknown = 0  # another broker led: only it knows
        self.restarts = 0  # logs given up as a whole, to begin anew at the leader's start


class CleanerCounters:
    """What the cleaner of compacted logs has done, and what it found when it last looked."""

    __slots__ = ("bytes_freed", "bytes_read", "dirty_ratio", "records_dropped", "rounds")

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes_read = 0
        self.bytes_freed = 0
        self.records_dropped = 0
        self.dirty_ratio = 0.0  # of the dirtiest log


class Counters:
    """Everything that one node counts."""

    def __init__(self, timer: Timer | None = None) -> None:
        self.timer = timer
        self.topics: dict[str, Traffic] = {}
        self.gone = Traffic()  # of topics that have been deleted, and of requests for topics that are not here
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0
        self.truncations = Truncations()
        self.cleaner = CleanerCounters()
        self.recovery_dropped_bytes = 0
        self.damaged_batches = {"produce": 0, "replication": 0, "disk": 0}  # by where they came from
        self.rebalances: Counter[str] = Counter()  # of the groups that are coordinated here, by kind
        self.requests: dict[str, Durations] = {}
        self.data_fsyncs = Durations()
        self.metadata_fsyncs = Durations()

    def traffic(self, topic: str) -> Traffic:
        """The counters of a topic that this broker hosts: to be kept by whoever counts."""
        return self.topics.setdefault(topic, Traffic())

    def request(self, name: str) -> Durations:
        """The times of one kind of request, by Kafka's name."""
        found = self.requests.get(name)
        if found is None:
            found = self.requests[name] = Durations()
        return found

    def forget(self, topic: str) -> None:
        """The topic is deleted; the broker's totals must not fall by what it had."""
        left = self.topics.pop(topic, None)
        if left is not None:
            for name in Traffic.__slots__:
                setattr(self.gone, name, getattr(self.gone, name) + getattr(left, name))
