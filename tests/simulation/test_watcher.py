"""What the invariants are told of replicas is what these are, after every step."""

from __future__ import annotations

from typing import Any

import pytest
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.runtime.replicas.replica import Replica
from odradek_chaos.worlds.simulated.checks.state import ReplicaState
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_chaos.worlds.simulated.world.world import World

from tests.seeds import seeds


def seen_of(seen: ReplicaState) -> list[Any]:
    remotes = {broker_id: (each.log_end_offset, each.broker_epoch) for broker_id, each in seen.remotes.items()}
    facts = [seen.leader_epoch, seen.log_end_offset, seen.high_watermark]
    leads = [seen.partition_epoch, seen.isr, seen.maximal_isr, seen.min_isr, remotes]
    return [*facts, *leads] if seen.is_leader else facts


def as_it_is(replica: Replica) -> list[Any]:
    role, state = replica.role, replica.state
    assert role is not None
    facts = [role.leader_epoch, state.log_end_offset, state.high_watermark]
    if not isinstance(role, LeaderPartition):
        return facts
    remotes = {each.broker_id: (each.log_end_offset, each.broker_epoch) for each in role.replicas.remotes}
    isr = role.replicas.isr
    return [*facts, role.partition_epoch, role.isr, isr.maximal, role.effective_min_isr, remotes]


@pytest.mark.parametrize("seed", seeds(2, every_day=1, first=2))
def test_nothing_of_a_replica_changes_unseen(seed: int) -> None:
    """Offsets, epochs, sets, and what a leader knows of its followers, restarted ones and moved ones among them."""
    looks, stale = 0, list[object]()

    def prepare(world: World) -> None:
        look = world.cluster.after_step

        def after_step(broker_id: int) -> None:
            nonlocal looks
            look(broker_id)
            for tp, replica in world.cluster.hosted(broker_id).items():
                seen = world.state.replicas.get((broker_id, str(tp)))
                if seen is not None and replica.role is not None:
                    looks += 1
                    if seen_of(seen) != as_it_is(replica):
                        stale.append((world.now_ms, broker_id, seen, as_it_is(replica)))

        world.cluster.after_step = after_step

    result = run_seed(
        seed, Options(faults_ms=1_500, nemeses=("reassign", "stop", "kill"), core="never"), prepare=prepare
    )
    assert not result.findings, result.report()
    assert looks > 1_000
    assert stale == []
