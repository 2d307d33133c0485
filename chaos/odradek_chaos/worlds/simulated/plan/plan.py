"""What a seed makes of the options that are given (`expansion`), before its run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from odradek_broker.config.settings import FIELDS, BrokerSettings

from odradek_chaos.worlds.simulated.plan.options import Options


@dataclass(frozen=True, slots=True)
class Expectations:
    """What a run is held to. The rest of the checks holds always."""

    keeps_records: bool = True  # nothing below a high watermark goes, nothing acknowledged by acks=all
    recovers: bool = True  # all is well again in time


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one run does by choice. Paces are mean milliseconds between two injections."""

    options: Options
    expectations: Expectations
    settings: BrokerSettings
    paces_ms: dict[str, float]
    link_ms: tuple[float, float]
    write_pause_ms: float
    in_flight: int
    wave_ms: float  # the load comes in waves of this length: idle replicas have faults of their own
    wave_share: float  # of a wave in which there is writing
    core: bool  # liveness L3: one machine stays broken for ever while the others must be well
    batch_bytes: int  # batch.size of the writers
    shape: str = "combined"  # of the cluster, one of `SHAPES`
    compaction: bool = False  # a compacted topic beside, whose cleaners are busy

    def pause_ms(self, now_us: int) -> float:
        """How long after one record of a partition a writer hands over the next: in a lull, until the next wave."""
        passed_ms = now_us / 1000 % self.wave_ms
        if passed_ms + self.write_pause_ms < self.wave_ms * self.wave_share:
            return self.write_pause_ms
        return math.ceil((self.wave_ms - passed_ms) * 1000) / 1000  # a microsecond too few would end in the same lull

    def describe(self) -> dict[str, object]:
        """All of it in one flat mapping; of the broker's settings those that are not the default."""
        usual = BrokerSettings()
        changed = {
            item.name: getattr(self.settings, item.name)
            for item in FIELDS
            if getattr(self.settings, item.name) != getattr(usual, item.name)
        }
        return {
            **asdict(self.options),
            "core": self.core,
            "shape": self.shape,
            "compaction": self.compaction,
            "nemeses": {name: round(pace) for name, pace in self.paces_ms.items()},
            "link_ms": tuple(round(each, 3) for each in self.link_ms),
            "write_pause_ms": round(self.write_pause_ms, 1),
            "in_flight": self.in_flight,
            "batch_bytes": self.batch_bytes,
            "wave_ms": round(self.wave_ms),
            "wave_share": round(self.wave_share, 2),
            "settings": changed,
        }
