"""Each family of faults strikes, is survived, and is undone; each kind has its class and is described."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from odradek_chaos.worlds.simulated.campaign.script_reading import participants_of
from odradek_chaos.worlds.simulated.checks.names import check_names
from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.faults.catalogue import CLASSES, TABLE, family_of, what_is_wrong
from odradek_chaos.worlds.simulated.faults.damage import Damage
from odradek_chaos.worlds.simulated.faults.nemesis import Guarantee
from odradek_chaos.worlds.simulated.plan.buggify import POINTS
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.plan import Expectations
from odradek_chaos.worlds.simulated.run.expansion import expectations_of
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_chaos.worlds.simulated.world.world import TOPIC, World

from tests.simulation.worlds import new_world

ROOT = Path(__file__).parent.parent.parent
FAULTS_MS = 2_000
SEEDS = 18  # at most, until every kind of a family has struck
SURVIVED = (Guarantee.ALWAYS, Guarantee.QUIESCENT)
CAST = participants_of(Options(), None)
FAMILIES = sorted({family_of(kind) for kind in TABLE if kind.owed in SURVIVED})
EVERYDAY = ("damage",)
NAMES = [
    "kill",
    "kill-leader-and-successor",
    "stop",
    "pause",
    "rolling",
    "rolling-hard",
    "crash-all",
    "stop-all",
    "quorum-loss",
    "controller-bounce",
    "cut",
    "bridge",
    "ring",
    "swizzle",
    "flap",
    "unreachable",
    "stall",
    "slow",
    "slow-follower",
    "reset",
    "drop-calls",
    "duplicate-calls",
    "stale-metadata",
    "skew",
    "drift",
    "disk-full",
    "io-error",
    "slow-disk",
    "swap-disks",
    "client-crash",
    "zombie-client",
    "power-one",
    "torn-tail",
    "stale-checkpoint",
    "flip-index",
    "flip-log",
    "flip-copy",
    "wipe",
    "reassign",
    "elect",
    "settings",
    "topics",
    "power",
    "blackout",
    "lying-fsync",
    "flip-any",
    "new-disk",
    "flip-metadata",
    "forged-peer",
    "alternate-leaders",
]
TOGETHER = (7, 16)  # of the seeds the first two: in them every kind of damage strikes
MET = [  # a fault, a branch or an event, under which options, in which seeds every day, and in which others
    # A reader that is refused damaged bytes starts again, and reads everything in the end.
    ("flip-log", Options(faults_ms=1_500), (3026,), ()),
    # A batch with a flipped epoch stands below its high watermark until it has a leader to fetch from.
    ("corruption_found", Options(nemeses=("flip-copy", "kill", "quorum-loss", "unreachable", "elect")), (19032,), ()),
    # A bit of any file of any broker: the audit sees it, and names the copy. Or nobody can be given the batch.
    ("flip-any", Options(faults_ms=2_000, nemeses=("flip-any", "new-disk", "kill")), (7,), ()),
    ("flip-any", Options(faults_ms=4_000, nemeses=("flip-any", "new-disk", "kill")), (), (1, 6, 9)),
    ("flip-any", Options(nemeses=("flip-any", "kill")), (), (5228,)),
    # Committed metadata that a majority of lying disks forgot, and a torn checkpoint.
    ("lying-fsync", Options(nemeses=("lying-fsync", "kill")), (), (5111, 5126)),
    # KIP-279: one response of the leader does not find where the logs part.
    ("divergence-of-several-rounds", Options(faults_ms=2_000, nemeses=("alternate-leaders",)), (6,), ()),
    ("divergence-of-several-rounds", Options(faults_ms=4_000, nemeses=("alternate-leaders",)), (), (2,)),
    # A leader was dead, and the controller did not know it, when the next one became unreachable.
    ("core-unreachable", Options(), (), (12011,)),
    # A request of Kafka's writer lay on a link while another broker led: it is not idempotent, and had no answer.
    ("stall", Options(members=3), (), (18050,)),
]


def test_the_order_of_the_table_is_kept() -> None:
    """What a seed draws hangs on it: another order, or a kind in the middle, makes another run of every known seed."""
    assert [kind.name for kind in TABLE] == NAMES


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=() if each in EVERYDAY else pytest.mark.slow) for each in FAMILIES]
)
def test_a_family_of_faults_costs_nothing_that_is_owed(family: str) -> None:
    """All kinds of one family at once, acks=all and min.insync.replicas=2: no record lost, all well again in time."""
    names = tuple(kind.name for kind in TABLE if family_of(kind) == family and kind.owed in SURVIVED)
    struck: set[str] = set()
    for seed in sorted(range(SEEDS), key=lambda seed: seed not in TOGETHER):
        result = run_seed(seed, Options(faults_ms=FAULTS_MS, nemeses=names))
        assert not result.findings, result.report()
        assert not any(what_is_wrong(injection, CAST) for injection in result.injections)
        struck.update(result.faults)
        if struck.issuperset(names):
            return
    pytest.fail(f"{sorted(set(names) - struck)} did not strike in {SEEDS} seeds")


def test_faults_out_of_contract_may_cost_records_and_nothing_else() -> None:
    """What goes is counted as a cost; two leaders of an epoch, or other bytes under one epoch, would be findings."""
    names = tuple(kind.name for kind in TABLE if kind.owed is Guarantee.SAFETY)
    result = run_seed(29, Options(faults_ms=1_000, nemeses=(*names, "kill")))  # where each of them strikes
    assert result.faults.keys() == {*names, "kill"}
    assert not result.findings, result.report()
    assert not any(what_is_wrong(injection, CAST) for injection in result.injections)


@pytest.mark.parametrize(
    ("met", "options", "seed"),
    [
        pytest.param(met, options, seed, marks=() if seed in everyday else pytest.mark.slow)
        for met, options, everyday, others in MET
        for seed in (*everyday, *others)
    ],
)
def test_a_seed_that_meets_what_is_rare_finds_nothing(met: str, options: Options, seed: int) -> None:
    """What it does there costs nothing that is owed, and can be written down as a script and carried out again."""
    result = run_seed(seed, options)
    assert not result.findings, result.report()
    cast = participants_of(options, seed)
    assert [wrong for injection in result.injections if (wrong := what_is_wrong(injection, cast))] == []
    assert met in {*result.faults, *result.branches, *(moment.event for moment in result.timeline.moments)}
    assert result.compared or met == "flip-any", "nobody can compare what may be damaged anywhere"


def test_what_power_losses_choose_can_be_carried_out_again() -> None:
    """A script of their injections is not refused, as that of no other kind (the tests above)."""
    names = tuple(kind.name for kind in TABLE if kind.owed is Guarantee.FLUSHED)
    injections = run_seed(3, Options(faults_ms=FAULTS_MS, nemeses=names)).injections
    assert {injection.name for injection in injections} == {*names}
    assert [what_is_wrong(injection, CAST) for injection in injections] == [""] * len(injections)


@pytest.mark.parametrize(
    ("ending", "check"),
    [(".snapshot", "audit-file-corrupt"), (".index", "audit-index-unsound"), (".timeindex", "audit-index-unsound")],
)
def test_what_the_audit_says_of_a_flipped_index_is_no_finding(ending: str, check: str) -> None:
    """Nobody reads an old producer snapshot, or a part of an index, and so mends it. All else and all others count."""
    world = new_world()
    disk = world.cluster.machines[1].disk
    files = SimFiles(disk, world.loop, world.loop.fork_rng("files"))
    files.makedirs(f"{LOG_DIRECTORY}/{TOPIC}-0")
    files.open(f"{LOG_DIRECTORY}/{TOPIC}-0/00000000000000000007{ending}", create=True).pwritev([b"content"], 0)
    nemesis = CLASSES["flip-index"](world, world.loop.fork_rng("nemesis"), 1_000)
    assert isinstance(nemesis, Damage)
    nemesis.damage(disk, 1, nemesis.places())
    for each in ("audit-file-corrupt", "audit-index-unsound"):
        for broker_id in (1, 2):
            world.findings.report(each, "found by the audit", broker_id)
    world.loop.close()
    assert {(finding.check, finding.broker_id) for finding in world.findings.found} == {
        (each, broker_id)
        for each in ("audit-file-corrupt", "audit-index-unsound")
        for broker_id in (1, 2)
        if (each, broker_id) != (check, 1)
    }


def test_every_name_that_is_reported_is_known() -> None:
    """Whatever a source of the world reports by name can be given as one of the checks that count."""
    sources = [path.read_text() for path in sorted((ROOT / "chaos/odradek_chaos/worlds/simulated").rglob("*.py"))]
    reported = {name for source in sources for name in re.findall(r'\breport\(\s*"([a-z-]+)"', source)}
    assert len(reported) > 10
    assert reported <= {*check_names()}


def test_every_chance_point_of_the_product_is_in_the_table() -> None:
    """And the other way round: a point that nobody asks for would never be reached."""
    sources = [
        path.read_text()
        for folder in ("broker/odradek_broker", "client/odradek")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    assert [point for point in POINTS if not any(f'chance("{point}"' in source for source in sources)] == []
    asked = sum(source.count('chance("') for source in sources)
    assert asked == len(POINTS)


@pytest.mark.parametrize(
    ("options", "owed"),
    [
        (Options(), Expectations()),
        (Options(nemeses=("wipe",)), Expectations()),
        (Options(nemeses=("blackout",)), Expectations(keeps_records=False)),
        (Options(nemeses=("blackout",), strict=True), Expectations()),
        (Options(nemeses=("blackout",), fsync="before-ack"), Expectations()),
        (Options(nemeses=("wipe",), min_insync_replicas=1), Expectations(keeps_records=False)),
        (Options(nemeses=("new-disk",)), Expectations(keeps_records=False, recovers=False)),
    ],
)
def test_what_is_owed_follows_from_the_faults_and_the_settings(options: Options, owed: Expectations) -> None:
    """The table of docs/guarantees.md, as the runs use it."""
    assert expectations_of(options) == owed


def test_a_full_disk_ends_nobody_and_costs_nothing() -> None:
    """Of voters neither: who has no room for the metadata log waits for it, while the others go on (R-86)."""
    worlds: list[World] = []
    result = run_seed(1, Options(faults_ms=2_000, nemeses=("disk-full",)), prepare=worlds.append)
    assert not result.findings, result.report()
    assert worlds[0].cluster.crashes == []
    waited = {moment.event for moment in result.timeline.moments if "partition" not in moment.facts}
    assert "disk_has_room" in waited, "of its begin the full disk keeps no line"


@pytest.mark.parametrize(
    "seed", [4, pytest.param(7, marks=pytest.mark.slow)]
)  # without the checkpoint they lose committed metadata
def test_a_voter_that_lost_flushed_metadata_elects_nobody_that_lacks_them(seed: int) -> None:
    """It says so at its start, and counts again when it has fetched everything (R-217)."""
    result = run_seed(seed, Options(faults_ms=6_000, nemeses=("flip-metadata", "kill", "cut")))
    assert not result.findings, result.report()
    told = [moment.event for moment in result.timeline.moments]
    assert 0 < told.count("metadata_log_lacks_records") <= result.faults["flip-metadata"]
    assert told.count("voter_caught_up") > told.count("metadata_log_lacks_records")
