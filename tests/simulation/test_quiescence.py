"""When a fault may strike that costs nothing only as long as all others are well."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import IsrProposal
from odradek_chaos.worlds.simulated.run.load import Load
from odradek_chaos.worlds.simulated.world import quiescence
from odradek_chaos.worlds.simulated.world.world import TOPIC
from odradek_proto.topics import TopicPartition

from tests.simulation.worlds import new_world, play


def test_nothing_is_quiescent_while_a_change_of_an_isr_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full ISRs in the metadata say nothing of what a leader has asked for, or a controller has written and no more.

    A machine that loses its power then may turn out to have been the only member.
    """
    world = new_world()

    async def story(load: Load) -> None:
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

    play(world, story)
