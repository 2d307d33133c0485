"""Which copy of a partition a fault has damaged, and when it is whole again: two at once could be all that there is."""

from __future__ import annotations

from odradek_proto.topics import parse_partition_directory

from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY, SimCluster
from odradek_chaos.worlds.simulated.disk.disk import SimDisk

QUORUM_STATE = f"{LOG_DIRECTORY}/__cluster_metadata-0/quorum-state"


def has_caught_up(disk: SimDisk) -> bool:
    """Whether a voter has proved that it has what was committed, so that its votes count."""
    return disk.find(QUORUM_STATE) is not None and b'"catchingUp"' not in disk.read(QUORUM_STATE)


class DirectoryCopies:
    """Of one run, by the names of their directories."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.struck: dict[int, None] = {}  # brokers that had a damaged copy at any time
        self.struck_voters: dict[int, int] = {}  # whose metadata log was damaged, and in which incarnation last
        self._damaged: dict[str, tuple[int, int]] = {}  # broker, and its broker epoch of before

    def damaged(self, partition: str, broker_id: int) -> None:
        self.struck[broker_id] = None
        registration = self._cluster.newest_image().brokers.get(broker_id)
        self._damaged[partition] = broker_id, -1 if registration is None else registration.broker_epoch

    def voter_damaged(self, voter: int) -> None:
        self.struck_voters[voter] = self._cluster.machines[voter].incarnation

    def voters_are_sound(self) -> bool:
        """Every voter has what was committed, as far as it knows, and has looked at its log since it was damaged."""
        for voter, incarnation in self.struck_voters.items():
            node = self._cluster.nodes.get(voter)
            if self._cluster.machines[voter].incarnation <= incarnation or node is None or node.quorum is None:
                return False
            if not node.quorum.log_end_offset:
                return False
        return all(has_caught_up(self._cluster.machines[voter].disk) for voter in self._cluster.shape.voters)

    def are_sound(self, partition: str) -> bool:
        """No copy is damaged, or the one that was is in sync again since its broker registered anew."""
        if partition not in self._damaged:
            return True
        broker_id, before = self._damaged[partition]
        image, tp = self._cluster.newest_image(), parse_partition_directory(partition)
        registration = image.partition(tp) if tp is not None else None
        if registration is None or not image.is_active(broker_id) or broker_id not in registration.isr:
            return False
        return image.brokers[broker_id].broker_epoch > before
