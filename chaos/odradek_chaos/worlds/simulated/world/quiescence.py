"""Whether all is well, so that a fault may strike one machine that is owed everything only while the others are well.

docs/guarantees.md: a machine that loses its disk or what it had not flushed costs nothing as long as the others are
up and in every ISR, and nobody is about to take them out: a leader may have asked for that, or the controller may have
written it, while the metadata still say otherwise. Such a fault waits for a quiet moment, and until the ISRs are full
again no other fault strikes.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_broker.core.partition.leader import LeaderPartition
from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.checks.state import ClusterState
from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.world.administered import partitions_in
from odradek_chaos.worlds.simulated.world.faults import Faults

SETTLES_US = 5_000  # an injection has begun by then


def undecided(state: ClusterState, cluster: SimCluster) -> int:
    """How many metadata records some voter's log holds that nobody knows to be committed.

    A controller that hears no majority goes on deciding: who is fenced, who leads, who is in sync. What comes of that
    shows when it is heard again, all at once.
    """
    known = max(state.image.offset, cluster.newest_image().offset)
    return max(0, max(state.voter_ends.values(), default=0) - known)


class Quiescence:
    """Of one cluster and the faults that it suffers."""

    def __init__(
        self, cluster: SimCluster, faults: Faults, state: ClusterState, partitions: Sequence[TopicPartition]
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._state = state
        self._partitions = partitions
        self._reserved = False
        self._struck_us: int | None = None

    def is_quiescent(self) -> bool:
        """Nothing is broken, nobody is away, every ISR is full, and no change of one is under way."""
        if self._faults.pending or self._state.damaged or undecided(self._state, self._cluster):
            return False
        return self._all_healthy()

    def reserve(self) -> None:
        """A fault that must be alone waits for its moment: no other one is to begin."""
        self._reserved, self._struck_us = True, None

    def inject(self) -> None:
        """It strikes now; the reservation ends when all is well again."""
        self._struck_us = self._cluster.loop.now_us

    def release(self) -> None:
        self._reserved = False

    @property
    def is_reserved(self) -> bool:
        """Whether such a fault waits, or is not over yet."""
        struck_us = self._struck_us
        if self._reserved and struck_us is not None and self._cluster.loop.now_us > struck_us + SETTLES_US:
            self._reserved = not self.is_quiescent()
        return self._reserved

    def is_healthy(self, broker_id: int) -> bool:
        """The broker runs, and the metadata know this very incarnation as active; a mere controller runs."""
        cluster = self._cluster
        if broker_id not in cluster.shape.brokers:
            return cluster.machines[broker_id].is_running and not cluster.machines[broker_id].is_paused
        machine, broker = cluster.machines[broker_id], cluster.newest_image().brokers.get(broker_id)
        node = cluster.nodes.get(broker_id)
        if not machine.is_running or machine.is_paused or broker is None or not broker.active:
            return False
        return node is not None and node.broker is not None and node.broker.session.broker_epoch == broker.broker_epoch

    def _all_healthy(self) -> bool:
        cluster = self._cluster
        if any(link.is_cut or link.refuses_connections for link in cluster.fabric.links()):
            return False
        image = cluster.newest_image()
        administered = partitions_in(image)
        for broker_id in cluster.machines:
            if not self.is_healthy(broker_id):
                return False
            hosted = cluster.hosted(broker_id)
            for tp in (*self._partitions, *administered):
                registration, replica = image.partition(tp), hosted.get(tp)
                if registration is None or registration.leader < 0 or registration.reassigning:
                    return False
                if broker_id not in registration.replicas:
                    continue
                if broker_id not in registration.isr:
                    return False
                if replica is None or replica.role is None or replica.offline is not None:
                    return False
                if replica.role.leader_epoch != registration.leader_epoch:
                    return False
                if isinstance(replica.role, LeaderPartition) and not replica.role.replicas.isr.may_propose:
                    return False
        return True
