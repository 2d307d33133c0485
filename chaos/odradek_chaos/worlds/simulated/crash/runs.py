"""One broker's disk, recorded while a seed of the simulated world runs: kills, power losses, truncations and all.

Only faults that leave bytes alone may strike: a recording does not see the others.
"""

from __future__ import annotations

from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings

from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY
from odradek_chaos.worlds.simulated.crash.checks import METADATA, Bench
from odradek_chaos.worlds.simulated.disk.recording import DurabilityMark, FsyncDir, LogPromise, Operation, Recorder
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_chaos.worlds.simulated.world.world import World

NEMESES = ("kill", "stop", "power", "cut", "pause")


class Observer:
    """Hangs a recorder on one machine's disk, and marks what its broker promises as soon as that changes."""

    def __init__(self, world: World, broker_id: int) -> None:
        self._cluster = world.cluster
        self._broker_id = broker_id
        self._machine = world.cluster.machines[broker_id]
        self._told: dict[str, LogPromise] = {}
        self._lives: dict[str, tuple[Log, int]] = {}
        self.recorder = Recorder(self._machine.disk.root)
        self._looked_at = 0
        self._machine.disk.recorder = self.recorder
        self._look_first = world.cluster.after_step
        world.cluster.after_step = self._after_step

    def _after_step(self, broker_id: int) -> None:
        self._look_first(broker_id)
        if broker_id != self._broker_id:
            return
        now = {
            str(partition): LogPromise(
                hosted.log.recovery_point, hosted.log.log_start_offset, self._life(str(partition), hosted.log)
            )
            for partition, hosted in self._cluster.hosted(broker_id).items()
            if hosted.log.failed is None
        }
        node = self._cluster.nodes.get(broker_id)
        if node is not None and node.quorum is not None and node.quorum.log_end_offset:
            quorum = node.quorum
            now[METADATA] = LogPromise(quorum.flushed_offset, quorum.log_start_offset, self._machine.incarnation)
        changed = {name: promise for name, promise in now.items() if self._told.get(name) != promise}
        operations = self.recorder.operations
        replaced = any(isinstance(each, FsyncDir) for each in operations[self._looked_at :])  # a vote or a checkpoint
        if changed or replaced:
            self._told |= changed
            self.recorder.mark(DurabilityMark(changed, word=f"incarnation {self._machine.incarnation}"))
        self._looked_at = len(operations)

    def _life(self, name: str, log: Log) -> int:
        known = self._lives.get(name)
        if known is None or known[0] is not log:
            known = self._lives[name] = (log, 1 if known is None else known[1] + 1)
        return known[1]


def record_seed(seed: int, options: Options | None = None, broker_id: int = 1) -> tuple[list[Operation], Bench]:
    """Run a seed with a recorder on one broker's disk. Without options every other seed flushes before it answers."""
    observers: list[Observer] = []
    fsync = "never" if seed % 2 else "before-ack"
    run_seed(
        seed,
        options or Options(faults_ms=5_000, fsync=fsync, nemeses=NEMESES, core="never"),
        prepare=lambda world: observers.append(Observer(world, broker_id)),
    )
    return observers[0].recorder.operations, Bench(LOG_DIRECTORY, broker_id, LogSettings())
