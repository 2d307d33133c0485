"""How much a client may use in a second, and how long a client that exceeded it is throttled (KIP-13, KIP-124,
KIP-546).

Rules of this module. Of the entities that match a client the most specific one with a quota counts, in Kafka's order.
All clients of one quota share it: all connections of a user, of a client id, or of both together. A quota is a bucket
that fills at its rate, up to `BURST_S` seconds of it, and usage is deducted at once, even if the bucket has less: for
as long as it is below empty, its clients wait. Nothing is refused. Unlike Kafka, whose samples expire after eleven
seconds, a bucket keeps its balance.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from odradek_proto.security.quota_words import DEFAULT
from odradek_proto.security.quotas import QuotaEntity

BURST_S: Final = 10  # the full samples of Kafka's quota.window.num=11
MOST_BUCKETS: Final = 10_000
MOST_WAIT_MS: Final = 3_600_000  # told at once, a number of 32 bits; whoever owes more is told again after that


Quotas = Mapping[QuotaEntity, Mapping[str, float]]


def entities_of(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, QuotaEntity]]:
    """What may hold for a client, the most specific first: the entity with the quota, and who shares its bucket."""
    both, alone, client = QuotaEntity(user, client_id), QuotaEntity(user), QuotaEntity(client_id=client_id)
    yield both, both
    yield QuotaEntity(user, DEFAULT), both
    yield alone, alone
    yield QuotaEntity(DEFAULT, client_id), both
    yield QuotaEntity(DEFAULT, DEFAULT), both
    yield QuotaEntity(DEFAULT), alone
    yield client, client
    yield QuotaEntity(client_id=DEFAULT), client


class _Bucket:
    """`level` is what may be taken without a wait, as it was at `at_ms`."""

    __slots__ = ("at_ms", "level", "rate")

    def __init__(self, rate: float, now_ms: int) -> None:
        self.rate = rate
        self.level = rate * BURST_S
        self.at_ms = now_ms

    def take(self, amount: float, rate: float, now_ms: int) -> int:
        """Milliseconds until it is no longer below empty; 0: it is not. A new rate counts from now on."""
        full = self.rate * BURST_S
        self.level = min(full, self.level + self.rate * (now_ms - self.at_ms) / 1000)
        if rate != self.rate:
            self.level = self.level if self.level < 0 else self.level / full * rate * BURST_S
            self.rate = rate
        self.level -= amount
        self.at_ms = now_ms
        return 0 if self.level >= 0 else math.ceil(min(-self.level * 1000 / rate, MOST_WAIT_MS))


class QuotaBuckets:
    """What each group of clients has taken, by the quotas of the metadata at each moment. `update` is cheap."""

    def __init__(self) -> None:
        self._quotas: Quotas = {}
        self._found: dict[tuple[str, str, str], tuple[QuotaEntity, float] | None] = {}
        self._buckets: OrderedDict[tuple[QuotaEntity, str], _Bucket] = OrderedDict()

    def update(self, quotas: Quotas) -> None:
        if quotas is not self._quotas:
            self._quotas = quotas
            self._found.clear()

    def limits(self, user: str, client_id: str, key: str) -> bool:
        """Whether there is a quota of this kind for such a client."""
        return bool(self._quotas) and self._find(user, client_id, key) is not None

    def take(self, user: str, client_id: str, key: str, amount: float, now_ms: int) -> int:
        """Count what a client takes; for how many milliseconds it has to wait before it takes more."""
        found = self._find(user, client_id, key) if self._quotas else None
        if found is None:
            return 0
        sharers, rate = found
        bucket = self._buckets.get((sharers, key))
        if bucket is None:
            bucket = self._buckets[sharers, key] = _Bucket(rate, now_ms)
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end((sharers, key))
        return bucket.take(amount, rate, now_ms)

    def _find(self, user: str, client_id: str, key: str) -> tuple[QuotaEntity, float] | None:
        asked = (user, client_id, key)
        if asked not in self._found:
            if len(self._found) >= MOST_BUCKETS:
                self._found.clear()
            self._found[asked] = next(
                (
                    (sharers, quota)
                    for entity, sharers in entities_of(user, client_id)
                    if (quota := self._quotas.get(entity, {}).get(key)) is not None
                ),
                None,
            )
        return self._found[asked]
