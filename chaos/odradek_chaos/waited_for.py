"""A ledger that knows how long partitions have kept a writer waiting: for their first acknowledgement, between two, and
for one that did not come.

A partition is silent from its first record on until it acknowledges one, and from each acknowledgement to the next.
What follows the last one counts only where something still waits, or was given up.
"""

from __future__ import annotations

from pathlib import Path

from odradek_proto.transport.ports import Clock

from odradek_chaos.workload import Acks, Ledger

Key = tuple[str, int]


class LedgerOfWaiting(Ledger):
    """See the module. Times are ms of the ledger's clock."""

    def __init__(self, clock: Clock, path: Path | None = None, *, keep: bool = True) -> None:
        super().__init__(clock, path, keep=keep)
        self.certainly_not_written = 0
        self._since_ms: dict[Key, int] = {}
        self._longest_ms = 0

    def send(self, topic: str, partition: int, value: bytes, client: str, acks: Acks) -> None:
        self._since_ms.setdefault((topic, partition), self._clock.now_ms())
        super().send(topic, partition, value, client, acks)

    def ack(self, topic: str, partition: int, value: bytes, client: str, acks: Acks, offset: int) -> None:
        self._waited((topic, partition))
        self._since_ms[topic, partition] = self._clock.now_ms()
        super().ack(topic, partition, value, client, acks, offset)

    def error(self, topic: str, partition: int, value: bytes, client: str, *, definite: bool) -> None:
        self._waited((topic, partition))
        self.certainly_not_written += definite
        super().error(topic, partition, value, client, definite=definite)

    def longest_silence_ms(self) -> int:
        """The longest of any partition, those included that last."""
        for key, records in self.in_flight.items():
            if records:
                self._waited(key)
        return self._longest_ms

    def _waited(self, key: Key) -> None:
        self._longest_ms = max(self._longest_ms, self._clock.now_ms() - self._since_ms[key])
