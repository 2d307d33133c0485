"""When a fault may strike that costs nothing only as long as all others are well."""

from __future__ import annotations

from asyncio import sleep as virtual_sleep  # on the simulated loop: no real time passes

import pytest
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import IsrProposal
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.observe.tapped_network import observe
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.expansion import expand
from odradek_chaos.worlds.simulated.run.load import Load
from odradek_chaos.worlds.simulated.world import quiescence
from odradek_chaos.worlds.simulated.world.world import TOPIC, World
from odradek_proto.topics import TopicPartition


def test_nothing_is_quiescent_while_a_change_of_an_isr_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full ISRs in the metadata say nothing of what a leader has asked for, or a controller has written and no more.

    A machine that loses its power then may turn out to have been the only member.
    """
    loop = SimLoop(1)
    world = World(loop, expand(loop.fork_rng("plan"), Options(shape="combined")))

    async def story() -> None:
        observers = observe(world)
        world.cluster.start_all()
        await Load(world, observers).create_topic()
        await virtual_sleep(1)
        assert world.quiescence.is_quiescent()
        with monkeypatch.context() as controller:
            controller.setattr(quiescence, "undecided", lambda state, cluster: 1)
            assert not world.quiescence.is_quiescent()
        assert world.quiescence.is_quiescent()
        roles = [
            replica.role
            for broker_id in world.cluster.machines
            for replica in world.cluster.hosted(broker_id).values()
            if isinstance(replica.role, LeaderPartition)
        ]
        leader = roles[0]
        partition = TopicPartition(TOPIC, 0)
        leader.replicas.isr.propose(IsrProposal(bytes(16), partition, leader.leader_epoch, leader.partition_epoch, ()))
        assert not world.quiescence.is_quiescent()
        for machine in (*world.cluster.machines.values(), *world.cluster.clients):
            machine.kill()
        await virtual_sleep(0.001)

    loop.run(story(), limit_s=60)
    loop.close()
    assert not world.findings.found
