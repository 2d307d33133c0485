"""How fast a broker replicates to replicas that are not in sync, and when it may go on (KIP-73).

A broker has two of these quotas: one for the bytes that it sends as a leader, one for those that it fetches as a
follower. Which replicas a quota is for is the topics' setting `*.replication.throttled.replicas`, how many bytes a
second the brokers' `*.replication.throttled.rate`.

Rules of this module. Every byte of a replica in the list counts, but only one that is not in sync waits. So, as in
Kafka, a rate below that of the writes leaves nothing for the copies. The rate is that of the last 11 s, from the oldest
sample on, and of one second at least. A client's quota (`security/quotas.py`) is no such thing: its debts are kept, and
the traffic of replicas in sync, which nothing holds back, would pile them up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from odradek_proto.topics import TopicPartition

from odradek_broker.core.metadata.config_types import LONG_MAX
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.topic_configs import (
    ALL_REPLICAS,
    CLUSTER_DEFAULT,
    THROTTLED_RATE,
    THROTTLED_REPLICAS,
)

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
SAMPLE_MS: Final = 1_000  # replication.quota.window.size.seconds, Kafka's default
WINDOW_MS: Final = 11 * SAMPLE_MS  # replication.quota.window.num, Kafka's default


def throttled_partitions(setting: str, broker_id: int) -> frozenset[int] | None:
    """Those of a topic whose replica on this broker is in the list, `0:1,0:2`; None: all of them (`*`)."""
    replicas = [part.strip() for part in setting.split(",") if part.strip()]
    if replicas == [ALL_REPLICAS]:
        return None
    pairs = [replica.split(":") for replica in replicas]
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)


class ReplicationQuota:
    """Of a `side`, leader or follower: what was replicated, and whether that was too much."""

    def __init__(self, side: str) -> None:
        self._rate_name = THROTTLED_RATE.format(side)
        self._replicas_name = THROTTLED_REPLICAS.format(side)
        self._limit = LONG_MAX  # bytes a second
        self._partitions: dict[str, frozenset[int] | None] = {}  # by topic; None: all
        self._samples: deque[tuple[int, int]] = deque()  # when each began, and its bytes
        self._bytes = 0  # of all samples

    def update(self, image: MetadataImage, broker_id: int) -> bool:
        """Take over the settings; whether they are others than before. What was replicated stays."""
        rates: Mapping[str, str] = {
            **image.broker_configs.get(CLUSTER_DEFAULT, {}),
            **image.broker_configs.get(str(broker_id), {}),
        }
        before = self._limit, self._partitions
        self._limit = int(rates.get(self._rate_name, LONG_MAX))
        self._partitions = {
            topic: throttled_partitions(values[self._replicas_name], broker_id)
            for topic, values in image.topic_configs.items()
            if self._replicas_name in values
        }
        return before != (self._limit, self._partitions)

    def covers(self, tp: TopicPartition) -> bool:
        """Whether the replica here is in the list."""
        if tp.topic not in self._partitions:
            return False
        partitions = self._partitions[tp.topic]
        return partitions is None or tp.partition in partitions

    def record(self, tp: TopicPartition, size: int, now_ms: int) -> None:
        """So many bytes of this partition were replicated."""
        if not size or not self.covers(tp):
            return
        self._forget_old(now_ms)
        began_ms, before = self._samples[-1] if self._samples else (now_ms, 0)
        if self._samples and now_ms - began_ms < SAMPLE_MS:
            self._samples[-1] = (began_ms, before + size)
        else:
            self._samples.append((now_ms, size))
        self._bytes += size

    def rate(self, now_ms: int) -> float:
        """Bytes a second."""
        self._forget_old(now_ms)
        return self._bytes * 1000 / self._elapsed_ms(now_ms)

    def exceeded_until_ms(self, now_ms: int) -> int | None:
        """When it is worth asking again; None: the quota is not exceeded."""
        if self.rate(now_ms) <= self._limit:
            return None
        oldest_ms = self._samples[0][0]
        expires_ms = oldest_ms + WINDOW_MS
        return min(expires_ms, oldest_ms - self._bytes * -1000 // self._limit) if self._limit else expires_ms

    def _elapsed_ms(self, now_ms: int) -> int:
        return max(now_ms - self._samples[0][0], SAMPLE_MS) if self._samples else SAMPLE_MS

    def _forget_old(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= WINDOW_MS:
            self._bytes -= self._samples.popleft()[1]
