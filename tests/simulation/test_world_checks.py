"""Checks of a whole world that are no invariants of a step, each of which fires on what it speaks of, and its load."""

from __future__ import annotations

from random import Random

import pytest
from odradek_audit.inputs.history import ERROR, Event
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from odradek_chaos.harness.workload import PartitionProgress
from odradek_chaos.worlds.simulated.checks.state import ReplicaState
from odradek_chaos.worlds.simulated.cluster import bounds
from odradek_chaos.worlds.simulated.cluster.bounds import (
    MOST_BYTES,
    MOST_TASKS,
    MOST_WAITING,
    ReplicaWaits,
    queues_beyond_bounds,
)
from odradek_chaos.worlds.simulated.observe.tapped_network import observe
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.script import Injection, Script
from odradek_chaos.worlds.simulated.run.expansion import expand
from odradek_chaos.worlds.simulated.run.liveness import (
    ACKNOWLEDGEMENTS_MS,
    EPOCHS_PER_WINDOW,
    ERRORS_MS,
    ISRS_MS,
    LEADERS_MS,
    ElectionStorm,
    LivenessCheck,
)
from odradek_chaos.worlds.simulated.run.load import ClusterLoad
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_chaos.worlds.simulated.world.unavailability import Unavailability, in_words, percentile
from odradek_chaos.worlds.simulated.world.world import TOPIC, World
from odradek_proto.values import replace

from tests.simulation.worlds import new_world

FEW = ReplicaWaits("t-0", MOST_WAITING, MOST_WAITING)


@pytest.mark.parametrize(
    ("tasks", "untaken", "waiting", "found"),
    [
        (MOST_TASKS, MOST_BYTES, FEW, ""),
        (MOST_TASKS + 1, 0, FEW, "tasks"),
        (0, MOST_BYTES + 1, FEW, "sent and not taken"),
        (0, 0, FEW._replace(produces=MOST_WAITING + 1), "produce requests wait"),
        (0, 0, FEW._replace(fetches=MOST_WAITING + 1), "fetches wait"),
    ],
)
def test_a_queue_that_grows_beyond_its_bound_is_named(
    tasks: int, untaken: int, waiting: ReplicaWaits, found: str
) -> None:
    """At the bound all is well; one more is a sentence with the number."""
    sentence = queues_beyond_bounds(tasks, untaken, [waiting])
    assert sentence.endswith(found)
    assert bool(sentence) == bool(found)


@pytest.mark.parametrize("bound", ["MOST_TASKS", "MOST_BYTES", "MOST_WAITING"])
def test_the_queues_of_a_running_broker_are_looked_at(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound of nothing every cluster has a finding."""
    monkeypatch.setattr(bounds, bound, 0)
    found = [finding.check for seed in (1, 2) for finding in run_seed(seed, Options(faults_ms=300)).findings]
    assert set(found) == {"queues-bounded"}


@pytest.mark.parametrize("undecided", [0, 4])
@pytest.mark.parametrize("more", [0, 1])
def test_a_partition_that_elects_again_and_again_is_a_storm(more: int, undecided: int) -> None:
    """In a window three epochs, one for each broker that may come back just now, and what was decided before (L7).

    A controller cut off from the others may have elected, and that shows when it is heard again.
    """
    world = new_world()
    allowed = EPOCHS_PER_WINDOW + len(world.cluster.machines) + undecided

    def led_in(epoch: int) -> MetadataImage:
        registration = PartitionRegistration((1, 2, 3), (1, 2), 1, leader_epoch=epoch, partition_epoch=epoch)
        return MetadataImage(offset=epoch, topics={TOPIC: TopicImage(TOPIC, b"id", {0: registration})})

    world.state.image = led_in(4)
    world.state.voter_ends[1] = 4 + undecided
    storm = ElectionStorm(world)
    world.state.image = led_in(4 + allowed + more)
    storm.judge()
    world.loop.close()
    assert [finding.check for finding in world.findings.found] == ["election-storm"] * more


SESSION_MS, BEGAN_MS = 2_500, 50_000
LED = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, leader_epoch=4, partition_epoch=4)
LEADERLESS, NOT_FULL = replace(LED, leader=-1, isr=(1,)), replace(LED, isr=(1, 2))


def liveness_of(committed: int, third: int) -> tuple[World, ClusterLoad, LivenessCheck]:
    """A world at peace: one partition with so many committed records, and so many of them in its third replica."""
    world = new_world(settings={"broker_session_timeout_ms": SESSION_MS}, partitions=1)
    world.loop.now_us = BEGAN_MS * 1000
    world.state.history("t-0").committed_end = committed
    for broker_id, end in ((1, committed), (2, committed), (3, third)):
        world.state.replicas[broker_id, "t-0"] = ReplicaState(broker_id, 1, "t-0", 4, end, 0)
    load = ClusterLoad(world, observe(world))
    world.loop.close()
    return world, load, LivenessCheck(world, load)


def look(
    world: World, load: ClusterLoad, liveness: LivenessCheck, of: PartitionRegistration, at_ms: int, acked: bool = False
) -> bool:
    """What a look finds so long after the session timeout has passed."""
    image = MetadataImage(offset=9, topics={TOPIC: TopicImage(TOPIC, b"id", {0: of})})
    world.cluster.newest_image = lambda: image  # type: ignore[method-assign]  # nobody runs
    load.ledger.progress[TOPIC, 0] = PartitionProgress(0, 1, BEGAN_MS + 1 if acked else BEGAN_MS)
    world.loop.now_us = (BEGAN_MS + SESSION_MS + at_ms) * 1000
    return liveness.is_healthy()


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(
    ("bound", "of", "acked", "limit_ms"),
    [
        ("L1", LEADERLESS, True, LEADERS_MS),
        ("L2", LED, False, ACKNOWLEDGEMENTS_MS),
        ("L4", NOT_FULL, True, ISRS_MS),
    ],
)
def test_each_bound_of_a_peace_is_judged_by_itself(
    late: int, bound: str, of: PartitionRegistration, acked: bool, limit_ms: int
) -> None:
    """At its bound nothing is said; a millisecond later one finding names it."""
    world, load, liveness = liveness_of(8, 8)
    assert not look(world, load, liveness, of, limit_ms + late, acked)
    found = [(finding.check, finding.sentence.partition(":")[0]) for finding in world.findings.found]
    assert found == [("not-healthy-again", bound)] * late


def test_a_peace_in_which_all_healthy_has_no_finding() -> None:
    """However late it is found out: nobody may have looked before."""
    world, load, liveness = liveness_of(8, 8)
    assert look(world, load, liveness, LED, 60_000, acked=True)
    assert not world.findings.found


def test_who_was_led_once_is_not_found_without_a_leader_later() -> None:
    """That is an election, of which L7 speaks, or an ISR that is not full."""
    world, load, liveness = liveness_of(8, 8)
    look(world, load, liveness, NOT_FULL, 0, acked=True)
    look(world, load, liveness, LEADERLESS, LEADERS_MS + 1, acked=True)
    assert not world.findings.found


@pytest.mark.parametrize(("third", "found"), [(7, 0), (8, 1)])
def test_isrs_have_their_time_from_when_the_backlog_is_copied(third: int, found: int) -> None:
    """What one replica lacks of what was committed when the faults ended."""
    world, load, liveness = liveness_of(8, third)
    for at_ms in (0, ISRS_MS // 2, ISRS_MS + 1):
        assert not look(world, load, liveness, NOT_FULL, at_ms, acked=True)
    assert len(world.findings.found) == found
    liveness.give_up()
    assert [finding.sentence[:3] for finding in world.findings.found] == ["L4:"]


@pytest.mark.parametrize(("time_ms", "found"), [(0, 0), (1, 1)])
def test_no_writer_is_told_of_an_error_long_after_the_faults(time_ms: int, found: int) -> None:
    """The other half of L2."""
    world, load, liveness = liveness_of(8, 8)
    at_ms = BEGAN_MS + SESSION_MS + ERRORS_MS + time_ms
    load.ledger.events.append(Event(ERROR, TOPIC, 0, b"w1/0/9", client="w1", time_ms=at_ms))
    liveness.judge_errors()
    assert [finding.sentence[:3] for finding in world.findings.found] == ["L2:"] * found


@pytest.mark.slow
def test_a_cluster_that_stays_broken_is_found() -> None:
    """Two brokers of this run stay dead: what the third one knows of leaders is old, and nobody acknowledges."""

    def prepare(world: World) -> None:
        def break_the_majority(besides: int = 0) -> None:
            for broker_id in (1, 2):
                world.cluster.machines[broker_id].kill()

        world.heal = break_the_majority  # type: ignore[method-assign]  # a world in which no fault ends

    result = run_seed(1, Options(faults_ms=300, chance="none", core="never"), prepare=prepare)
    assert [finding.check for finding in result.findings] == ["not-healthy-again"]
    assert result.findings[0].sentence.startswith("L2: "), result.report()


def test_a_silence_is_told_of_the_faults_that_struck_in_it() -> None:
    """And of those in the second before it; not of older ones, nor of another partition's."""
    silences = Unavailability()
    silences.struck(0, "cut")
    silences.acknowledged(1_500_000, "t", 0)
    silences.acknowledged(1_500_000, "t", 1)
    silences.struck(1_600_000, "kill")
    silences.acknowledged(1_900_000, "t", 0)
    silences.acknowledged(1_910_000, "t", 0)
    silences.struck(2_500_000, "pause")
    silences.acknowledged(2_800_000, "t", 1)
    assert silences.longest_ms == {"kill": 1_300, "pause": 1_300}


def test_silences_are_published_as_median_99th_percentile_and_largest() -> None:
    """Of a hundred seeds the 99th, of a few the largest."""
    assert [percentile(range(1, 101), share) for share in (0.5, 0.99, 1)] == [50, 99, 100]
    assert in_words({"pause": [7], "kill": [30, 10, 20]}) == "kill 20/30/30, pause 7/7/7"


def test_a_killed_leader_costs_a_silence_that_the_run_tells() -> None:
    """The kind is there with the time that its partitions were silent (L8)."""
    result = run_seed(1, Options(faults_ms=2_000, nemeses=("kill",)))
    assert not result.findings, result.report()
    assert result.unavailable_ms["kill"] > 20


@pytest.mark.slow
@pytest.mark.parametrize(("injection", "found"), [("kill", 1), ("stop", 0)])
def test_how_a_process_ended_is_seen_on_its_disk(injection: str, found: int) -> None:
    """Killed is unclean, stopped is not; all three are killed when the run is over."""
    worlds: list[World] = []
    script = Script((Injection(1_000_000, injection, {"broker": 2, "down_ms": 200}),))
    options = Options(faults_ms=2_000, nemeses=("stop", "kill"), chance="none", core="never")
    result = run_seed(1, options, script=script, prepare=worlds.append)
    assert not result.findings, result.report()
    assert result.faults == {injection: 1}
    assert len(worlds[0].state.ended_uncleanly) == found + 3


@pytest.mark.slow
def test_a_writer_that_comes_back_as_the_writers_end_ends_with_them() -> None:
    """A client that crashed just before is told to stop even if it connects after the others were told."""
    options = Options(faults_ms=1_000, nemeses=("client-crash",), chance="none", core="never")
    end_us = run_seed(3, options, script=Script(())).faults_began_us + options.faults_ms * 1_000
    for down_ms in range(30, 90, 10):  # around the moment at which the writers are told
        crash = Injection(end_us - 5_000, "client-crash", {"client": "w1", "down_ms": down_ms})
        result = run_seed(3, options, script=Script((crash,)))
        assert not result.findings, f"down for {down_ms} ms\n{result.report()}"
        assert result.faults["client-crash"] == 1


def test_a_run_that_looks_for_one_check_gathers_its_evidence_whatever_the_others_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster that is not well in time, where that does not count, is read and audited all the same."""
    monkeypatch.setattr("odradek_chaos.worlds.simulated.run.run.CORE_LIVENESS_MS", -10_000)
    result = run_seed(1, Options(faults_ms=1_000, core="always", checks=("phantom",)))
    assert "core-not-healthy" in result.costs
    assert not result.findings
    assert result.read > 0
    assert result.compared > 0


@pytest.mark.parametrize("seed", range(20))
def test_a_lull_ends_with_the_next_wave_and_not_before(seed: int) -> None:
    """A microsecond too early would be the same lull again: all that may be in flight was handed over at once."""
    plan = expand(Random(seed), Options())
    now_us = 0
    while now_us < 20_000_000:
        passed_ms = now_us / 1000 % plan.wave_ms
        assert passed_ms < plan.wave_ms * plan.wave_share, now_us
        pause_us = round(plan.pause_ms(now_us) * 1000)
        assert pause_us >= min(plan.write_pause_ms, plan.wave_ms * (1 - plan.wave_share)) * 1000 - 1, now_us
        now_us += pause_us


def test_nobody_waits_for_a_client_that_died() -> None:
    """What it had in flight would make a silence of every lull that follows; what another one has still does."""
    world = new_world()
    load = ClusterLoad(world, observe(world))
    load.start_writers()
    for client in ("w1", "w2", "w1"):
        load.ledger.send(TOPIC, 0, b"a record", client, "all")
    load.crash("w1", 1_000)
    assert load.ledger.in_flight == {(TOPIC, 0): 1}
    load.ledger.error(TOPIC, 0, b"a record", "w1", definite=False)  # the last that is heard of it
    load.ledger.ack(TOPIC, 0, b"a record", "w2", "all", 0)
    assert load.ledger.in_flight == {(TOPIC, 0): 0}
    world.loop.close()


def test_a_lull_is_no_silence() -> None:
    """Only while somebody waits for an acknowledgement does its absence count."""
    silences = Unavailability()
    silences.awaited(0, "orders", 0)
    silences.acknowledged(5_000, "orders", 0)
    silences.struck(6_000, "kill")
    silences.awaited(2_000_000, "orders", 0)
    silences.acknowledged(2_005_000, "orders", 0)
    assert silences.longest_ms == {}
    silences.acknowledged(2_105_000, "orders", 0)
    assert silences.longest_ms == {}  # the strike was long before
    silences.struck(2_106_000, "kill")
    silences.acknowledged(2_405_000, "orders", 0)
    assert silences.longest_ms == {"kill": 300}
