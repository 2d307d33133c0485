"""What is decided before a run: the options that are given, and the plan that a seed makes of them (`expansion`)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

from odradek_broker.config.settings import FIELDS, BrokerSettings
from odradek_broker.core.partition.messages import TruncationMode

OTHER_NAMES = {"truncation_mode": "--truncation", "min_insync_replicas": "--min-isr"}  # in `odradek chaos`
CHOICES = {  # of options that are words
    "fsync": ("never", "before-ack"),
    "acks": ("all", "1", "0"),
    "chance": ("drawn", "all", "none"),
    "core": ("drawn", "always", "never"),
    "metadata_snapshots": ("drawn", "small", "never"),
    "shape": ("drawn", "combined", "observers", "controllers"),
    "elr": ("drawn", "on", "off"),
}


@dataclass(frozen=True, slots=True)
class Expectations:
    """What a run is held to. The rest of the checks holds always."""

    keeps_records: bool = True  # nothing below a high watermark goes, nothing acknowledged by acks=all
    recovers: bool = True  # all is well again in time


@dataclass(frozen=True, slots=True)
class Options:
    """What whoever runs a seed decides. Times in virtual milliseconds."""

    faults_ms: int = 8_000  # how long there are faults; checking that all is well again comes on top
    partitions: int = 3
    writers: int = 2
    members: int = 0  # of a consumer group, beside the writers
    min_insync_replicas: int = 2
    acks: str = "all"
    truncation_mode: str = "fetch"
    fsync: str = "never"
    fast_restart_keeps_isr: bool = False
    nemeses: tuple[str, ...] = ()  # empty: the seed takes three of those that acks=all survives
    chance: str = "drawn"  # which chance points of the product fire: those that the seed draws, all or none
    core: str = "drawn"  # whether one machine stays broken while the others must be well: drawn, always or never
    strict: bool = False  # report what is not owed, too
    checks: tuple[str, ...] = ()  # the checks whose findings count, and end a run; empty: all
    metadata_snapshots: str = "drawn"  # small: every few records, so that nodes are sent one; drawn, small or never
    elr: str = "drawn"  # eligible leader replicas (KIP-966): drawn, on or off
    shape: str = "drawn"  # combined: three nodes are brokers and controllers; observers, controllers; drawn
    compaction: bool = False  # in any case a compacted topic beside, whose cleaners are busy; else where it is drawn

    def __post_init__(self) -> None:
        modes = tuple(mode.value for mode in TruncationMode)
        if self.truncation_mode not in modes:
            raise ValueError(f"no truncation mode is called {self.truncation_mode!r}; there are {', '.join(modes)}")
        for name, choices in CHOICES.items():
            if (given := getattr(self, name)) not in choices:
                there = f"{', '.join(choices[:-1])} or {choices[-1]}"
                raise ValueError(f"{name.replace('_', ' ')} must be {there}, not {given!r}")

    def words(self) -> str:
        """For any command of `odradek chaos`: how long there are faults, and what is not as usual."""
        return " ".join([f"--faults {self.faults_ms / 1000:g}", *self._unusual()])

    def command(self, seed: int) -> str:
        """What runs the seed under these options."""
        words = self.words() if self.faults_ms != Options().faults_ms else " ".join(self._unusual())
        return f"odradek chaos run --seeds {seed} {words}".rstrip()

    def _unusual(self) -> list[str]:
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return [_words_of(i.name, given[i.name]) for i in fields(self)[1:] if given[i.name] != i.default]


def _words_of(name: str, value: object) -> str:
    """An option on a command line."""
    option = OTHER_NAMES.get(name, "--" + name.replace("_", "-"))
    if isinstance(value, bool):
        return option
    return f"{option} {','.join(value) if isinstance(value, tuple) else value}"


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
