"""Which brokers get the replicas of a new partition.

Kafka's placement without racks: leaders go round robin from a random start, and the followers of each partition are
shifted by one more place each time the leaders have gone round once, so that a dead broker's load spreads over all.
Fenced brokers get replicas only when there are not enough others (R-144: they then start outside of the ISR).
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def place_replicas(
    partitions: int, replication_factor: int, active: Sequence[int], fenced: Sequence[int], rng: random.Random
) -> list[tuple[int, ...]]:
    """One replica list per partition, preferred leader first, an active broker.

    Needs an active broker, and brokers enough for the replication factor.
    """
    assert active
    assert 1 <= replication_factor <= len(active) + len(fenced), (active, fenced, replication_factor)
    count = len(active)
    from_active = min(replication_factor, count)
    start, shift = rng.randrange(count), rng.randrange(count)
    placed = []
    for partition in range(partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        replicas = [active[first]]
        for follower in range(from_active - 1):
            replicas.append(active[(first + 1 + (shift + follower) % (count - 1)) % count])
        for index in range(replication_factor - from_active):
            replicas.append(fenced[(partition + index) % len(fenced)])
        placed.append(tuple(replicas))
    return placed
