"""A stranger that reaches the CONTROLLER listeners and says what it likes (`forgery.py`)."""

from __future__ import annotations

import asyncio
from random import Random

from odradek_chaos.worlds.simulated.cluster.cluster import CONTROLLER_PORT, SimCluster
from odradek_chaos.worlds.simulated.faults.choices import MESSAGES, arguments
from odradek_chaos.worlds.simulated.faults.forgery import SESSION, ClusterKnowledge, Forger
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis
from odradek_chaos.worlds.simulated.world.world import World

STRANGER = "stranger"
AT_ONCE = 5  # messages of one injection
STREAM_MS = 500  # how long its streams stand


class ForgedPeer(Nemesis):
    """Some forged messages, shortly one after the other. They may depose a leader; nothing may be worse for good."""

    name = "forged-peer"
    does = "sends controllers unsolicited messages that no peer sends"
    takes = arguments(messages=MESSAGES)
    drawn = False
    beside = True

    def __init__(self, world: World, rng: Random, pace_ms: float) -> None:
        super().__init__(world, rng, pace_ms)
        self._forger = Forger(rng)

    def choose(self) -> Choice | None:
        known = known_of(self.cluster)
        messages = [self._forger.message(known) for _ in range(AT_ONCE)]
        return {"messages": [[each.node, each.method, each.request.hex()] for each in messages]}

    async def act(self, choice: Choice) -> None:
        for node, method, request in choice["messages"]:
            self.world.faults.fault(self.name, node, method=method.rpartition("/")[2])
            address, fabric = f"{self.machine(node)}:{CONTROLLER_PORT}", self.cluster.fabric
            if method == SESSION:
                stream = await fabric.say(STRANGER, address, method, bytes.fromhex(request))
                self.world.faults.mend(STREAM_MS, stream.close)
            else:
                fabric.tell(STRANGER, address, method, bytes.fromhex(request))
            await asyncio.sleep(0.001)


def known_of(cluster: SimCluster) -> ClusterKnowledge:
    """The newest that any node would tell."""
    quorums = [node.quorum for _, node in cluster.running() if node.quorum is not None]
    image = cluster.newest_image()
    return ClusterKnowledge(
        cluster_id=cluster.cluster_id,
        nodes=cluster.shape.voters,
        epoch=max((quorum.epoch for quorum in quorums), default=0),
        end_offset=max((quorum.log_end_offset for quorum in quorums), default=0),
        image=image,
    )
