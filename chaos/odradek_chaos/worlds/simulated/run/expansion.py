"""What a seed expands to: the settings of the brokers, the load, the nemeses and how often each strikes.

Two rules. The seed alone decides what `Options` leave open, so (seed, options) is a whole bug report. And the
truncation mode is no part of the draw: the same seed meets the same faults in every mode.
"""

from __future__ import annotations

import dataclasses
from random import Random

from odradek_broker.config.settings import BrokerSettings
from odradek_proto.values import replace

from odradek_chaos.worlds.simulated.checks.names import check_names
from odradek_chaos.worlds.simulated.faults.catalogue import BESIDE, CLASSES, SAFE_NEMESES, TABLE, kind_of
from odradek_chaos.worlds.simulated.faults.nemesis import Guarantee
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.plan import Expectations, Plan
from odradek_chaos.worlds.simulated.run.members import settings_for_members

AT_ONCE = 3  # nemeses of one seed; one at a time hides bugs
DRAWN_SHAPES = ("combined", "combined", "combined", "observers", "controllers")
MOST_BESIDE = 2  # of those that a seed takes beside them
RETENTION_CHECK_MS = 400  # where topics are made that retention may shorten
SELDOM = 2.5  # how much rarer a heavy nemesis strikes
COPIED_BYTES = 6_000  # of a fetch, where whole logs are copied
CLEANER_BACKOFF_MS = 150
CORE_SHARE = 0.25  # of the seeds
COMPACTION_SHARE = 0.15  # of them, where the faults are drawn, too
SMALL_SNAPSHOTS = (400, 1_500, 5_000)  # bytes of metadata between two
BATCH_BYTES = (16_384, 1)  # Kafka's default: one batch of a partition is under way; or each record alone: up to five
BESIDE_PACES_MS = (300, 1_500)
SMALLEST_PACE_MS, LARGEST_PACE_MS = 400, 2_500  # mean time between two injections of one nemesis


def check(options: Options) -> Options:
    """The same. Raises `ValueError` for names of nemeses and checks that there are not."""
    for name in options.nemeses:
        kind_of(name)
    unknown = [name for name in options.checks if name not in check_names()]
    if unknown:
        raise ValueError(f"no check is called {unknown[0]!r}; there are {', '.join(check_names())}")
    return options


def expectations_of(options: Options) -> Expectations:
    """What is owed under these options (B.2)."""
    kinds = [CLASSES[name].owed for name in options.nemeses]
    if options.strict:
        return Expectations()
    if Guarantee.SAFETY in kinds:
        return Expectations(keeps_records=False, recovers=False)
    unflushed = options.fsync != "before-ack"
    loses = unflushed and (
        Guarantee.FLUSHED in kinds or (options.min_insync_replicas < 2 and Guarantee.QUIESCENT in kinds)
    )
    return Expectations(keeps_records=not loses)


def expand(rng: Random, options: Options) -> Plan:
    """Draw the rest. Each draw is made whatever the options say, so that options do not shift the chance of others.

    Raises `ValueError` for names of nemeses and checks that there are not.
    """
    check(options)
    settings = _settings(rng, options)
    drawn = tuple(sorted(rng.sample(SAFE_NEMESES, AT_ONCE), key=SAFE_NEMESES.index))
    if not any(CLASSES[name].deadly for name in drawn):
        drawn = (*drawn, "kill")  # a run in which nobody dies elects too rarely
    paces = {
        kind.name: rng.uniform(SMALLEST_PACE_MS, LARGEST_PACE_MS) * (SELDOM if kind.heavy else 1)
        for kind in TABLE
        if kind.drawn
    }
    paces |= {kind.name: SMALLEST_PACE_MS for kind in TABLE if not kind.drawn}
    if any(CLASSES[name].copies for name in options.nemeses or drawn):
        settings = replace(settings, replica_fetch_max_bytes=max(settings.replica_fetch_max_bytes, COPIED_BYTES))
    core = rng.random() < CORE_SHARE
    low = rng.choice((0.05, 0.2, 1.0))
    plan = Plan(
        options=options,
        expectations=expectations_of(options),
        settings=settings,
        paces_ms={name: paces[name] for name in (options.nemeses or drawn)},
        link_ms=(low, low * rng.choice((1.5, 4, 10))),
        write_pause_ms=rng.uniform(15, 100),
        in_flight=rng.choice((1, 5, 50)),
        wave_ms=rng.uniform(300, 3_000),
        wave_share=rng.uniform(0.2, 0.8),
        core=core if options.core == "drawn" else options.core == "always",
        batch_bytes=BATCH_BYTES[0],
    )
    small, chosen = rng.choice(SMALL_SNAPSHOTS), rng.random() < 0.5
    if options.metadata_snapshots == "small" or (options.metadata_snapshots == "drawn" and chosen):
        settings = _with_snapshots(settings, small)
    chosen = rng.random() < 0.5
    eligible = options.elr == "on" or (options.elr == "drawn" and chosen)
    settings = replace(settings, odradek_elr_enable=eligible)
    if options.members:
        settings = settings_for_members(settings)
    plan = dataclasses.replace(plan, batch_bytes=rng.choice(BATCH_BYTES))
    beside = rng.sample(BESIDE, rng.randint(0, MOST_BESIDE))
    if not options.nemeses:
        plan = dataclasses.replace(
            plan, paces_ms=plan.paces_ms | {name: rng.uniform(*BESIDE_PACES_MS) for name in beside}
        )
    shape = rng.choice(DRAWN_SHAPES) if not options.nemeses else DRAWN_SHAPES[0]
    plan = dataclasses.replace(plan, shape=shape if options.shape == "drawn" else options.shape)
    for kind in TABLE:
        chosen, pace = rng.random() < kind.share, rng.uniform(*BESIDE_PACES_MS)
        if kind.share and chosen and not options.nemeses:
            plan = dataclasses.replace(plan, paces_ms=plan.paces_ms | {kind.name: pace})
    chosen = rng.random() < COMPACTION_SHARE
    if options.compaction or (chosen and not options.nemeses):
        plan = dataclasses.replace(plan, compaction=True)
        settings = replace(settings, log_cleaner_backoff_ms=CLEANER_BACKOFF_MS)
    if "topics" in plan.paces_ms:
        settings = replace(settings, log_retention_check_interval_ms=RETENTION_CHECK_MS)
    return dataclasses.replace(plan, settings=settings)


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
