"""The ledger of a command that says how long it was kept waiting, and which records are certainly not there."""

from __future__ import annotations

from pathlib import Path

from odradek_proto.transport.ports import Clock

from odradek_chaos.workload import Ledger


class LedgerOfWaiting(Ledger):
    """See the module. Times are ms of the ledger's clock."""

    def __init__(self, clock: Clock, path: Path | None = None, *, keep: bool = True) -> None:
        super().__init__(clock, path, keep=keep)
        self.certainly_not_written = 0

    def error(self, topic: str, partition: int, value: bytes, client: str, *, definite: bool) -> None:
        self.certainly_not_written += definite
        super().error(topic, partition, value, client, definite=definite)

    def longest_silence_ms(self) -> int:
        """The longest of any partition, those included that last."""
        return max(self.silences_ms(self._clock.now_ms()).values(), default=0)
