"""What a seed expands to: the settings of the brokers, the load, the nemeses and how often each strikes.

Two rules. The seed alone decides what `Options` leave open, so (seed, options) is a whole bug report. And the
truncation mode is no part of the draw: the same seed meets the same faults in every mode.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from random import Random

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.partition.messages import TruncationMode

from odradek_chaos.worlds.simulated.checks.names import check_names
from odradek_chaos.worlds.simulated.plan.kinds import ALL_NEMESES, KINDS, SAFE_NEMESES, Owed

AT_ONCE = 3  # nemeses of one seed; one at a time hides bugs
HEAVY = ("rolling", "rolling-hard", "crash-all", "quorum-loss", "client-crash")  # with a pace of their own
SELDOM = 2.5
# After these whole logs are copied: not batch by batch, or long runs do little else, and peace comes too late.
COPYING = {"wipe", "new-disk", "flip-log", "flip-any", "reassign"}
COPIED_BYTES = 6_000
CORE_SHARE = 0.25  # of the seeds
SMALL_SNAPSHOTS = (400, 1_500, 5_000)  # bytes of metadata between two
SMALLEST_PACE_MS, LARGEST_PACE_MS = 400, 2_500  # mean time between two strikes of one nemesis
OTHER_NAMES = {"truncation_mode": "--truncation", "min_insync_replicas": "--min-isr"}  # in `odradek chaos`


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
    min_insync_replicas: int = 2
    acks: str = "all"
    truncation_mode: str = "fetch"
    fsync: str = "never"
    fast_restart_keeps_isr: bool = False
    nemeses: tuple[str, ...] = ()  # empty: the seed takes three of those that acks=all survives
    chance: str = "drawn"  # which chance points of the product strike: those that the seed draws, all or none
    core: str = "drawn"  # whether one machine stays broken while the others must be well: drawn, always or never
    strict: bool = False  # report what is not owed, too
    checks: tuple[str, ...] = ()  # the checks whose findings count, and end a run; empty: all
    metadata_snapshots: str = "drawn"  # small: every few records, so that nodes are sent one; drawn, small or never
    elr: str = "drawn"  # eligible leader replicas (KIP-966): drawn, on or off

    def __post_init__(self) -> None:
        unknown = [name for name in self.nemeses if name not in ALL_NEMESES]
        if unknown:
            raise ValueError(f"no nemesis is called {unknown[0]!r}; there are {', '.join(ALL_NEMESES)}")
        unknown = [name for name in self.checks if name not in check_names()]
        if unknown:
            raise ValueError(f"no check is called {unknown[0]!r}; there are {', '.join(check_names())}")
        modes = tuple(mode.value for mode in TruncationMode)
        if self.truncation_mode not in modes:
            raise ValueError(f"no truncation mode is called {self.truncation_mode!r}; there are {', '.join(modes)}")
        if self.fsync not in ("never", "before-ack"):
            raise ValueError(f"fsync must be never or before-ack, not {self.fsync!r}")
        if self.acks not in ("all", "1", "0"):
            raise ValueError(f"acks must be all, 1 or 0, not {self.acks!r}")
        if self.chance not in ("drawn", "all", "none"):
            raise ValueError(f"chance must be drawn, all or none, not {self.chance!r}")
        if self.core not in ("drawn", "always", "never"):
            raise ValueError(f"core must be drawn, always or never, not {self.core!r}")
        if self.metadata_snapshots not in ("drawn", "small", "never"):
            raise ValueError(f"metadata snapshots must be drawn, small or never, not {self.metadata_snapshots!r}")
        if self.elr not in ("drawn", "on", "off"):
            raise ValueError(f"elr must be drawn, on or off, not {self.elr!r}")

    @property
    def expectations(self) -> Expectations:
        """What is owed under these options (B.2)."""
        kinds = [KINDS[name].owed for name in self.nemeses]
        if self.strict:
            return Expectations()
        if Owed.SAFETY in kinds:
            return Expectations(keeps_records=False, recovers=False)
        unflushed = self.fsync != "before-ack"
        loses = unflushed and (Owed.FLUSHED in kinds or (self.min_insync_replicas < 2 and Owed.QUIESCENT in kinds))
        return Expectations(keeps_records=not loses)

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
    """Everything that one run does by choice. Paces are mean milliseconds between two strikes."""

    options: Options
    settings: BrokerSettings
    paces_ms: dict[str, float]
    link_ms: tuple[float, float]
    write_pause_ms: float
    in_flight: int
    wave_ms: float  # the load comes in waves of this length: idle replicas have faults of their own
    wave_share: float  # of a wave in which there is writing
    core: bool  # liveness L3: one machine stays broken for ever while the others must be well

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
            for item in fields(BrokerSettings)
            if getattr(self.settings, item.name) != getattr(usual, item.name)
        }
        return {
            **asdict(self.options),
            "core": self.core,
            "nemeses": {name: round(pace) for name, pace in self.paces_ms.items()},
            "link_ms": self.link_ms,
            "write_pause_ms": round(self.write_pause_ms, 1),
            "in_flight": self.in_flight,
            "wave_ms": round(self.wave_ms),
            "wave_share": round(self.wave_share, 2),
            "settings": changed,
        }


def expand(rng: Random, options: Options) -> Plan:
    """Draw the rest. Each draw is made whatever the options say, so that options do not shift the chance of others."""
    settings = _settings(rng, options)
    drawn = tuple(sorted(rng.sample(SAFE_NEMESES, AT_ONCE), key=SAFE_NEMESES.index))
    if not any(KINDS[name].deadly for name in drawn):
        drawn = (*drawn, "kill")  # a run in which nobody dies elects too rarely
    paces = {
        name: rng.uniform(SMALLEST_PACE_MS, LARGEST_PACE_MS) * (SELDOM if name in HEAVY else 1) for name in ALL_NEMESES
    }
    if COPYING.intersection(options.nemeses or drawn):
        settings = replace(settings, replica_fetch_max_bytes=max(settings.replica_fetch_max_bytes, COPIED_BYTES))
    core = rng.random() < CORE_SHARE
    low = rng.choice((0.05, 0.2, 1.0))
    plan = Plan(
        options=options,
        settings=settings,
        paces_ms={name: paces[name] for name in (options.nemeses or drawn)},
        link_ms=(low, low * rng.choice((1.5, 4, 10))),
        write_pause_ms=rng.uniform(15, 100),
        in_flight=rng.choice((1, 5, 50)),
        wave_ms=rng.uniform(300, 3_000),
        wave_share=rng.uniform(0.2, 0.8),
        core=core if options.core == "drawn" else options.core == "always",
    )
    small, chosen = rng.choice(SMALL_SNAPSHOTS), rng.random() < 0.5
    if options.metadata_snapshots == "small" or (options.metadata_snapshots == "drawn" and chosen):
        settings = _with_snapshots(settings, small)
    chosen = rng.random() < 0.5
    eligible = options.elr == "on" or (options.elr == "drawn" and chosen)
    return replace(plan, settings=replace(settings, odradek_elr_enable=eligible))


def _with_snapshots(settings: BrokerSettings, every_bytes: int) -> BrokerSettings:
    """A snapshot of the metadata after so many bytes of it, and little more than the last one is kept."""
    return replace(
        settings,
        metadata_log_max_record_bytes_between_snapshots=every_bytes,
        metadata_max_retention_bytes=4 * every_bytes,
        metadata_log_segment_bytes=every_bytes,
    )


def _settings(rng: Random, options: Options) -> BrokerSettings:
    heartbeat_ms, session_ms = rng.choice(((200, 1_000), (500, 2_500), (2_000, 9_000)))
    election_ms, fetch_ms = rng.choice(((300, 600), (1_000, 2_000)))
    return BrokerSettings(
        min_insync_replicas=options.min_insync_replicas,
        odradek_truncation_mode=options.truncation_mode,
        odradek_fsync=options.fsync,
        odradek_legacy_fast_restart_keeps_isr=options.fast_restart_keeps_isr,
        broker_heartbeat_interval_ms=heartbeat_ms,
        broker_session_timeout_ms=session_ms,
        controller_quorum_election_timeout_ms=election_ms,
        controller_quorum_election_backoff_max_ms=election_ms,
        controller_quorum_fetch_timeout_ms=fetch_ms,
        replica_lag_time_max_ms=rng.choice((800, 3_000, 10_000)),
        replica_fetch_wait_max_ms=rng.choice((50, 500)),
        replica_fetch_backoff_ms=rng.choice((20, 1_000)),
        replica_fetch_max_bytes=rng.choice((300, 1_048_576)),  # tiny: one batch an answer
        replica_high_watermark_checkpoint_interval_ms=rng.choice((100, 1_000, 5_000)),
        log_flush_offset_checkpoint_interval_ms=rng.choice((500, 60_000)),
        log_segment_bytes=rng.choice((20_000, 60_000)),  # a short run has one or a few, a long one a dozen or more
        log_index_interval_bytes=rng.choice((100, 4_096)),
        odradek_cache_bytes=rng.choice((2_000, 16_777_216)),
        odradek_session_grace_ms=rng.choice((50, 300)),
        leader_imbalance_check_interval_seconds=rng.choice((1, 300)),
    )
