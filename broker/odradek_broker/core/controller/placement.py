"""Placement of the replicas of new partitions.

Kafka's placement (KIP-36 with racks): leaders are assigned round robin from a random start, and the followers of each
partition are shifted by one more place each time the leaders have wrapped around, so that a dead broker's load spreads
over all others. With racks the rotation goes from rack to rack, and a rack gets a second replica of a partition only
when every rack has one. Fenced brokers get replicas only if there are not enough others (R-144: they then start outside
the ISR).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import zip_longest

NO_RACK = ""
NO_RACKS: Mapping[int, str] = {}


def place_replicas(
    partitions: int,
    replication_factor: int,
    active: Sequence[int],
    fenced: Sequence[int],
    rng: random.Random,
    racks: Mapping[int, str] = NO_RACKS,
) -> list[tuple[int, ...]]:
    """One replica list per partition, preferred leader first, an active broker.

    Needs an active broker, and brokers enough for the replication factor. Brokers without a rack share one.
    """
    assert active
    assert 1 <= replication_factor <= len(active) + len(fenced), (active, fenced, replication_factor)
    count = len(active)
    arranged = _from_rack_to_rack(active, racks)
    start, shift = rng.randrange(count), rng.randrange(count)
    placed = []
    for partition in range(partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        replicas = _pick(arranged, first, shift, min(replication_factor, count), racks)
        for index in range(replication_factor - len(replicas)):
            replicas.append(fenced[(partition + index) % len(fenced)])
        placed.append(tuple(replicas))
    return placed


def _from_rack_to_rack(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """The brokers so that neighbours are in different racks as long as that is possible; within a rack as they came."""
    by_rack: dict[str, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(racks.get(broker, NO_RACK), []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for each in rounds for broker in each if broker is not None]


def _pick(arranged: Sequence[int], first: int, shift: int, wanted: int, racks: Mapping[int, str]) -> list[int]:
    """The leader at `first` and the followers behind it, by the shift of this round."""
    count = len(arranged)
    all_racks = len({racks.get(broker, NO_RACK) for broker in arranged})
    replicas, used = [arranged[first]], {racks.get(arranged[first], NO_RACK)}
    step = 0
    while len(replicas) < wanted:
        candidate = arranged[(first + 1 + (shift * all_racks + step) % (count - 1)) % count]
        rack = racks.get(candidate, NO_RACK)
        if candidate not in replicas and (rack not in used or len(used) == all_racks):
            replicas.append(candidate)
            used.add(rack)
        step += 1
    return replicas
