"""The options of a run. Nothing of the product is imported: command lines are made of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

OTHER_NAMES = {"truncation_mode": "--truncation", "min_insync_replicas": "--min-isr"}  # in `odradek chaos`
CHOICES = {  # of options that are words
    "truncation_mode": ("fetch", "epoch-request", "epoch-single-round", "high-watermark"),
    "fsync": ("never", "before-ack"),
    "acks": ("all", "1", "0"),
    "chance": ("drawn", "all", "none"),
    "core": ("drawn", "always", "never"),
    "metadata_snapshots": ("drawn", "small", "never"),
    "shape": ("drawn", "combined", "observers", "controllers"),
    "elr": ("drawn", "on", "off"),
}


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


def option_of(name: str) -> str:
    """What a field is called on a command line."""
    return OTHER_NAMES.get(name, "--" + name.replace("_", "-"))


def _words_of(name: str, value: object) -> str:
    if isinstance(value, bool):
        return option_of(name)
    return f"{option_of(name)} {','.join(value) if isinstance(value, tuple) else value}"
