"""Which copy of a partition a fault has damaged, and when it is whole again: two at once could be all that there is."""

from __future__ import annotations

from odradek_proto.topics import parse_partition_directory

from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster


class Copies:
    """Of one run, by the names of their directories."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.struck: dict[int, None] = {}  # brokers that had a damaged copy at any time
        self._damaged: dict[str, tuple[int, int]] = {}  # broker, and its broker epoch of before

    def damaged(self, partition: str, broker_id: int) -> None:
        self.struck[broker_id] = None
        registration = self._cluster.newest_image().brokers.get(broker_id)
        self._damaged[partition] = broker_id, -1 if registration is None else registration.broker_epoch

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
