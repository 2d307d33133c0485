"""What an operator does while a cluster suffers: starts what died, replaces what cannot be repaired.

A broker may end by itself when its disk refuses (docs/guarantees.md); it is started again. A damaged copy is not
repaired by the broker: its directory is removed and the replica starts anew, as soon as the others have everything.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY, SimCluster
from odradek_chaos.worlds.simulated.cluster.timeline import Timeline
from odradek_chaos.worlds.simulated.world.exemptions import Exemptions
from odradek_chaos.worlds.simulated.world.faults import Faults

LOOKS_EVERY_MS = 50
RESTARTS_AFTER_MS = 300


@dataclass(frozen=True, slots=True)
class BrokerReplacement:
    broker_id: int
    partition: str
    down_ms: int


class Operator:
    """Looks every now and then."""

    def __init__(self, cluster: SimCluster, faults: Faults, exemptions: Exemptions, timeline: Timeline) -> None:
        self._cluster = cluster
        self._faults = faults
        self._exemptions = exemptions
        self._timeline = timeline
        self._replacements: list[BrokerReplacement] = []
        self._restarts: Counter[int] = Counter()  # by broker, of those that ran and did not serve
        self._patient_until_ms: dict[int, int] = {}

    @property
    def is_done(self) -> bool:
        return not self._replacements

    def replace_copy(self, broker_id: int, partition: str, down_ms: int) -> None:
        """The copy of this broker is damaged: nothing is held against it until it is replaced."""
        self._exemptions.damaged_bytes(broker_id, partition)
        self._replacements.append(BrokerReplacement(broker_id, partition, down_ms))

    def look(self) -> None:
        """Called by the world; arms itself again."""
        for waiting in list(self._replacements):
            if self._others_have_everything(waiting):
                self._replacements.remove(waiting)
                self._replace(waiting)
        if not self._faults.faulty:
            self._restart_who_serves_not()
        self._faults.later(LOOKS_EVERY_MS, self.look)

    def on_crash(self, broker_id: int) -> None:
        """A broker ended by itself, as it may when its disk refuses."""
        self._faults.later(RESTARTS_AFTER_MS, lambda: self._faults.start(broker_id))

    def _others_have_everything(self, waiting: BrokerReplacement) -> bool:
        cluster = self._cluster
        topic, _, number = waiting.partition.rpartition("-")
        if number == "delete":
            return True  # set aside to be removed: the metadata know of no such replica
        found = cluster.newest_image().topics.get(topic)
        registration = found.partitions.get(int(number)) if found is not None else None
        if registration is None:
            return False
        others = [each for each in registration.replicas if each != waiting.broker_id]
        return all(each in registration.isr and cluster.machines[each].is_running for each in others)

    def _replace(self, waiting: BrokerReplacement) -> None:
        broker_id = waiting.broker_id
        machine = self._cluster.machines[broker_id]
        self._timeline.note("!replace-copy", broker_id, waiting.partition)
        machine.kill()
        directory = machine.disk.directory(LOG_DIRECTORY)
        directory.change((waiting.partition, None))
        directory.fsync()
        self._exemptions.damaged[broker_id, waiting.partition] = machine.incarnation
        self._faults.mend(waiting.down_ms, lambda: self._faults.start(broker_id))

    def _restart_who_serves_not(self) -> None:
        """A replica that went offline stays so until its broker starts anew.

        What a restart did not cure is given twice the time before the next one.
        """
        for broker_id, machine in self._cluster.machines.items():
            hosted = self._cluster.hosted(broker_id)
            node = self._cluster.nodes.get(broker_id)
            broken = node is not None and node.broker is not None and not node.broker.replicas.sound
            loaded = node is not None and node.broker is not None and node.broker.replicas.loaded
            if self._cluster.loop.now_us // 1000 < self._patient_until_ms.get(broker_id, 0):
                continue
            if machine.is_running and self._exemptions.has_disk(broker_id) and hosted and loaded and broken:
                self._timeline.note("!restart", broker_id)
                patience_ms = RESTARTS_AFTER_MS << self._restarts[broker_id]
                self._restarts[broker_id] += 1
                self._patient_until_ms[broker_id] = self._cluster.loop.now_us // 1000 + RESTARTS_AFTER_MS + patience_ms
                machine.kill()
                self.on_crash(broker_id)
