"""The consumer groups that this broker coordinates.

How far a group is behind is no number of its coordinator's, which need not have the partitions: it is the difference to
`odradek_replica_hw`, by topic and partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from prometheus_client.core import Metric

from odradek_broker.metrics.samples import Labels, counters, gauge, gauges, sliced
from odradek_broker.runtime.groups.coordinator import GroupCoordinator

KINDS = ("classic", "consumer")
MOST_OFFSETS = 10_000  # series of one broker: a client may commit for any group that it likes


def groups(coordinator: GroupCoordinator, rebalances: Mapping[str, int]) -> Iterator[Metric]:
    """How many there are, and how often they have rebalanced."""
    shards = coordinator.shards()
    states = Counter({(kind, "Stable"): 0 for kind in KINDS})
    for shard in shards:
        states.update(shard.states())
    rows: list[tuple[Labels, float]] = [
        ({"type": kind, "state": state}, count) for (kind, state), count in sorted(states.items())
    ]
    yield gauges("odradek_groups", "Groups that this broker coordinates.", rows)
    text = "Generations of classic groups and epochs of groups of KIP-848 that began on this broker."
    known = [({"type": kind}, rebalances.get(kind, 0)) for kind in KINDS]
    yield counters("odradek_group_rebalances_total", text, known)
    text = "Partitions of groups that have a committed offset here."
    yield gauge("odradek_group_committed_partitions", text, sum(len(shard.offsets) for shard in shards))


def committed(coordinator: GroupCoordinator) -> Iterator[Metric]:
    """What each group has committed, of the first `MOST_OFFSETS`."""
    found = (each for shard in coordinator.shards() for each in shard.offsets)
    rows = [
        ({"group": group, "topic": tp.topic, "partition": str(tp.partition)}, offset)
        for group, tp, offset in islice(found, MOST_OFFSETS)
    ]
    for portion in sliced(rows):
        yield gauges("odradek_group_committed_offset", "Committed offset of a group.", portion)
