"""Real broker processes are killed while they are written to; what was promised must hold.

All are slow; every day a leader is killed in tests/cli/test_cluster_walk.py. docs/guarantees.md cites the harness.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from odradek import Admin, Producer
from odradek.administration.descriptions import NewTopic
from odradek_audit.engine.local import audit
from odradek_audit.report import Report
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.cluster_health import wait_until_converged
from odradek_chaos.harness.kills import MIN_IN_FLIGHT, KillHarness, KillsOutcome, KillsPlan, report
from odradek_chaos.harness.topics import create_topic
from odradek_chaos.harness.workload import Ledger, WorkloadWriter
from odradek_chaos.worlds.processes import ProcessesWorld
from odradek_proto.transport.clock import LoopClock

from tests.seeds import unless_torture
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

STALLED = unless_torture(1, 3)  # rounds with stalled followers: a leader that is alone loses records in each
STALL_MS = 1_000  # in which a leader has its turn and acknowledges on any machine, and nobody calls it dead
STORY_OF_A_CUT = r"broker \d wrote down that it truncated its log from \d+ to \d+ in leader epoch \d+.* at \d{4}-.* UTC"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers that are not started yet, and stopped at the end whatever happens."""
    made = LocalCluster.create(tmp_path / "cluster", brokers=3)
    try:
        yield made
    finally:
        made.stop_all()


def play(cluster: LocalCluster, plan: KillsPlan, history: Path | None = None) -> KillsOutcome:
    history = history or cluster.directory / "history.jsonl"
    return asyncio.run(KillHarness(ProcessesWorld(cluster), plan, history).run())


def audited(cluster: LocalCluster, history: Path, *, settled: bool) -> Report:
    """What an audit of a cluster says that has stopped."""
    return audit({name: str(path) for name, path in cluster.replicas().items()}, history=history, settled=settled)


def test_kills_lose_nothing_and_writes_go_on(cluster: LocalCluster) -> None:
    """A round of each target, more in `make torture`; each ends when every partition has acknowledged again (SY-09).

    docs/performance.md says how long they are silent.
    """
    began = time.monotonic()
    outcome = play(cluster, KillsPlan(rounds=unless_torture(3, 20), seed=2026))
    print(report(outcome))
    moments = [each.at_ms for each in outcome.rounds]  # of the run, not of the machine
    assert moments == sorted(moments)
    assert moments[0] > 0
    assert moments[-1] < (time.monotonic() - began) * 1000
    assert outcome.read_back.sound, report(outcome)
    assert outcome.read_back.acknowledged > 20 * len(outcome.rounds)
    assert all(each.in_flight >= MIN_IN_FLIGHT for each in outcome.rounds)
    for target in ("leader", "follower", "controller"):
        assert sum(each.target == target for each in outcome.rounds) >= len(outcome.rounds) // 3


def test_acks_1_loses_what_only_the_leader_had(cluster: LocalCluster, tmp_path: Path) -> None:
    """The same harness reports losses when a record is acknowledged before anybody else has it, and the audit tells of
    each who cut it, when, to follow whom, and who had acknowledged it; the kills stand beside it."""
    plan = KillsPlan(STALLED, seed=5, acks="1", targets=("leader",), stall_others_ms=STALL_MS)
    outcome = play(cluster, plan, tmp_path / "history.jsonl")
    assert "lost" in outcome.read_back.anomalies, report(outcome)
    cluster.stop_all()
    result = audited(cluster, tmp_path / "history.jsonl", settled=True)
    assert (result.findings, sum(loss.records for loss in result.losses)) == (
        [],
        outcome.read_back.anomalies["lost"].count,
    )
    for loss in result.losses:
        assert loss.cause == "leader-change"
        assert re.search(r"acknowledged at \d{4}-.* UTC( to \d{4}-.* UTC)?; ", loss.story), loss
        assert re.search(r"broker \d was killed at \d{4}-.* UTC \(an injected fault\).* wrote down", loss.story), loss
        for said in (STORY_OF_A_CUT, "which was elected from the ISR", "had acknowledged what was truncated"):
            assert re.search(said, loss.story), loss
    assert any(" frozen at " in loss.story for loss in result.losses)
    told = [moment.what for moment in result.run]
    assert sum(what.startswith("fault: ") and what.endswith("is killed") for what in told) == STALLED
    assert any(what.startswith("nothing is acknowledged for") for what in told)


def test_the_old_truncation_loses_what_was_promised_and_each_loss_has_its_story(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """L-1 and L-12: both followers start again and cut their logs to their high watermark, the leader dies before they
    have fetched, and one of them is elected. The audit guesses nothing: it tells who cut what acks=all promised, and
    finds that brokers stayed in ISRs."""
    cluster.settings |= {
        "odradek.truncation.mode": "high-watermark",
        "odradek.legacy.fast.restart.keeps.isr": "true",
        "replica.high.watermark.checkpoint.interval.ms": "3600000",  # followers find none
        "replica.lag.time.max.ms": "10000",  # so long a new leader waits for the dead one (L-4)
        "broker.session.timeout.ms": "20000",  # in which both have started and cut, on a busy machine, too
    }
    cluster.save()
    acknowledged = asyncio.run(lose_what_was_promised(cluster, tmp_path / "history.jsonl"))
    cluster.kill_all()  # a stop would hand the leadership over, and the next follower would cut its log again
    result = audited(cluster, tmp_path / "history.jsonl", settled=False)
    assert sum(loss.records for loss in result.losses) == acknowledged
    assert {finding.check for finding in result.findings} == {"acknowledged-lost", "metadata-isr"}
    lost = [finding.cause for finding in result.findings if finding.check == "acknowledged-lost"]
    for told in (*(loss.story.partition("; ")[2] for loss in result.losses), *lost):
        assert told.startswith("broker ")
        assert re.search(STORY_OF_A_CUT, told)
        assert "had acknowledged what was truncated" in told


async def lose_what_was_promised(cluster: LocalCluster, history: Path) -> int:
    """Returns how many records were acknowledged with acks=all, none of which is in the log at the end."""
    world, clock = ProcessesWorld(cluster), LoopClock(random.Random(1))
    for node_id in cluster.nodes:
        cluster.start(node_id)
    await wait_until_converged(world, timeout_s=PATIENCE_S)
    async with Admin(cluster.bootstrap) as admin:
        await create_topic(admin, NewTopic("orders", 1, 3), timeout_s=PATIENCE_S)
    health = await wait_until_converged(world, timeout_s=PATIENCE_S, settled=lambda seen: bool(seen.of_topic("orders")))
    leader = health.of_topic("orders")[0].leadership.leader_id
    followers = cluster.nodes.keys() - {leader}
    ledger = Ledger(clock, history)
    producer: Producer[bytes, bytes] = Producer(cluster.bootstrap, delivery_timeout_ms=PATIENCE_S * 1000)
    async with producer:
        await WorkloadWriter(producer, ledger, clock, "orders", 1, "before", limit=500).run()
        acknowledged = ledger.acknowledged
        for node_id in followers:
            cluster.kill(node_id)
        cluster.pause(leader)
        for node_id in followers:
            cluster.start(node_id)
        for node_id in followers:
            await asyncio.to_thread(until, partial(cuts_of, cluster, node_id), bool)
        cluster.kill(leader)
        await WorkloadWriter(
            producer, ledger, clock, "orders", 1, "after", limit=50
        ).run()  # in the place of what is lost
    assert (ledger.acknowledged, ledger.failed) == (acknowledged + 50, 0)
    ledger.close()
    cluster.start(leader)
    await wait_until_converged(world, timeout_s=PATIENCE_S, settled=lambda seen: seen.is_at_rest("orders"))
    return acknowledged


def cuts_of(cluster: LocalCluster, broker_id: int) -> list[dict[str, Any]]:
    """What a broker wrote down of its truncations."""
    return [each for each in events_of(cluster, broker_id) if each["event"] == "truncated"]


def test_acks_all_keeps_what_acks_1_loses(cluster: LocalCluster) -> None:
    """The very same faults with acks=all lose nothing."""
    outcome = play(cluster, KillsPlan(STALLED, seed=5, targets=("leader",), stall_others_ms=STALL_MS))
    assert outcome.read_back.sound, report(outcome)


def test_a_frozen_leader_is_fenced_by_the_session_timeout_alone(cluster: LocalCluster) -> None:
    """A silent stream proves nothing: only the session timeout moves the leadership away."""
    outcome = play(cluster, KillsPlan(rounds=1, seed=5, targets=("leader",), fault="pause"))
    assert outcome.read_back.sound, report(outcome)
    (target,) = outcome.rounds[0].brokers
    assert reasons_for_fencing(cluster, target) == {"session timeout"}


def reasons_for_fencing(cluster: LocalCluster, broker_id: int) -> set[str]:
    """Why controllers took a broker for dead, as they wrote it down."""
    told = [each for node_id in cluster.nodes for each in events_of(cluster, node_id)]
    return {each["reason"] for each in told if each["event"] == "broker_fencing" and each["broker_id"] == broker_id}


def events_of(cluster: LocalCluster, broker_id: int) -> list[dict[str, Any]]:
    file = Path(cluster.nodes[broker_id].log_directory) / "odradek-events.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(("target", "rounds"), [("all", unless_torture(1, 10)), ("rolling", unless_torture(1, 5))])
def test_stopping_brokers_in_peace_writes_nothing_twice(cluster: LocalCluster, target: str, rounds: int) -> None:
    """All at once, or one after the other, with five batches of a writer on the wire: no record twice, none fails."""
    outcome = play(cluster, KillsPlan(rounds=rounds, seed=2026, targets=(target,), fault="stop"))
    print(report(outcome))
    assert outcome.read_back.sound, report(outcome)
    assert outcome.failed == 0, report(outcome)


def test_killing_all_brokers_at_once_loses_nothing(cluster: LocalCluster) -> None:
    """All three, time after time in `make torture`: the page cache survives, nothing is lost, writes go on."""
    outcome = play(cluster, KillsPlan(rounds=unless_torture(1, 20), seed=2026, targets=("all",)))
    print(report(outcome))
    assert outcome.read_back.sound, report(outcome)
