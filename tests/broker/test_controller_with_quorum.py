"""Controllers and sessions over the real metadata quorum, three voters, in the simulated world."""

from __future__ import annotations

import pytest
from odradek_broker.process.node import QuorumListener
from odradek_broker.rpc.services import merge
from odradek_broker.runtime.controller.service import ControllerService
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum.node import QuorumNode
from odradek_broker.runtime.quorum.settings import QuorumSettings
from odradek_chaos.worlds.simulated.cluster.node import NodePorts

from tests.broker.controller_cluster import CLUSTER_ID, Cluster, Member


class QuorumCluster(Cluster):
    async def _main(self, node_id: int, ports: NodePorts, ready: bool) -> None:
        feed = MetadataFeed()
        listener = QuorumListener(feed)
        settings = QuorumSettings(node_id=node_id, cluster_id=CLUSTER_ID, voters=self.voters)
        ports.files.makedirs("/data")
        quorum = QuorumNode(
            settings,
            clock=ports.clock,
            network=ports.network,
            files=ports.files,
            log_directory="/data",
            listener=listener,
        )
        member = self._assemble(node_id, ports, quorum, feed)
        listener.controller = member.controller
        listener.followers += [member.channel.on_leader_changed, member.session.on_leader_changed]
        handlers = merge(ControllerService(member.controller).handlers(), quorum.handlers())
        await ports.network.serve(self.voters[node_id], handlers)
        await quorum.start()
        await self._live(member, ready, [quorum.failed])

    def controllers(self) -> list[int]:
        return [node_id for node_id, member in self.members.items() if member.controller.active]

    @property
    def active(self) -> Member:
        (node_id,) = self.controllers()
        return self.members[node_id]


async def kill_and_revive_the_controller(cluster: QuorumCluster) -> None:
    """It is fenced, and led over, in less than a second; afterwards everybody is in sync again."""
    (target,) = cluster.controllers()
    survivor = next(iter(cluster.machines.keys() - {target}))
    cluster.kill(target)
    assert await cluster.until(lambda: cluster.fenced(target, seen_by=survivor)) < 1_000
    leader = cluster.partition(survivor).leader
    assert leader not in (target, -1)
    cluster.start(target)
    await cluster.all_unfenced()
    answer = await cluster.join_isr(leader, [leader, *(i for i in cluster.machines if i != leader)])
    assert answer.error == 0
    await cluster.until(lambda: all(len(cluster.partition(i).isr) == 3 for i in cluster.machines))


@pytest.mark.parametrize("seed", range(5))
def test_a_cluster_starts_and_survives_the_death_of_each_controller(seed: int) -> None:
    """From nothing to unfenced, then each active controller is killed in turn and comes back; leaders move in time."""

    async def story(cluster: Cluster) -> None:
        assert isinstance(cluster, QuorumCluster)
        for node_id in cluster.machines:
            cluster.start(node_id)
        await cluster.until(lambda: len(cluster.controllers()) == 1, limit_ms=3_000)
        assert await cluster.all_unfenced() < 300
        await cluster.create_topic("orders", (1, 2, 3))
        for _ in range(4):
            await kill_and_revive_the_controller(cluster)

    QuorumCluster(seed=seed).run(story)


def test_all_killed_at_once_come_back_on_their_disks() -> None:
    """The metadata log survives; topics are there again, and a leader within the time of an election."""

    async def story(cluster: Cluster) -> None:
        assert isinstance(cluster, QuorumCluster)
        for node_id in cluster.machines:
            cluster.start(node_id)
        await cluster.all_unfenced()
        topic_id = await cluster.create_topic("orders", (3, 2, 1))
        for node_id in cluster.machines:
            cluster.kill(node_id)
        await cluster.sleep(500)
        for node_id in cluster.machines:
            cluster.start(node_id)
        await cluster.all_unfenced()
        await cluster.until(lambda: cluster.partition(1).leader != -1, limit_ms=1_000)
        assert cluster.members[1].feed.image.topics["orders"].topic_id == topic_id

    QuorumCluster(seed=3).run(story)
