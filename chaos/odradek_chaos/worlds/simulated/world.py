"""One simulated world under test: the cluster, its plan, the timeline, the checks. Nemeses and phases share it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.cluster import SimCluster
from odradek_chaos.worlds.simulated.invariants import Finding, Snapshot, all_invariants
from odradek_chaos.worlds.simulated.loop import SimLoop
from odradek_chaos.worlds.simulated.options import Plan
from odradek_chaos.worlds.simulated.timeline import Timeline

TOPIC = "t"
LOOK_EVERY_MS = 4
FINDINGS_KEPT = 20


class World:
    """Everything that belongs to one run. `faulty` is true while nemeses may strike."""

    def __init__(self, loop: SimLoop, plan: Plan) -> None:
        self.loop = loop
        self.plan = plan
        self.cluster = SimCluster(loop, settings=plan.settings)
        low_ms, high_ms = plan.link_ms
        self.cluster.fabric.default_delay = lambda rng: rng.uniform(low_ms, high_ms)
        self.timeline = Timeline(self.cluster)
        self.faulty = False
        self.goes_on = False  # past findings
        self.faults: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.invariants = all_invariants()
        self.partitions = [TopicPartition(TOPIC, number) for number in range(plan.options.partitions)]
        self._reported: set[tuple[str, int, str]] = set()
        self._crashes_seen = 0

    @property
    def now_ms(self) -> int:
        return self.loop.now_us // 1000

    # --- faults

    def fault(self, name: str, broker_id: int = 0, **facts: object) -> None:
        """Note a fault that is about to strike, and look at everything once more before it does."""
        self.look()
        self.faults[name] += 1
        self.loop.trace(f"fault {name} {broker_id}")
        self.timeline.note(f"!{name}", broker_id, facts=facts)

    def later(self, delay_ms: float, act: Callable[[], None]) -> None:
        self.loop.call_world_at(self.loop.now_us + int(delay_ms * 1000), act)

    def kill(self, broker_id: int, down_ms: float, name: str = "kill") -> None:
        """SIGKILL, and a new process after `down_ms`."""
        self.fault(name, broker_id, down_ms=round(down_ms))
        self.cluster.machines[broker_id].kill()
        self.later(down_ms, lambda: self.start(broker_id))

    def start(self, broker_id: int) -> None:
        if not self.cluster.machines[broker_id].is_running:
            self.timeline.note("!start", broker_id)
            self.cluster.start(broker_id)

    def heal(self) -> None:
        """End all faults: links work, everybody runs."""
        self.faulty = False
        self.timeline.note("!heal")
        low_ms, high_ms = self.plan.link_ms
        for link in self.cluster.fabric.links():
            link.delay = lambda rng: rng.uniform(low_ms, high_ms)
            link.lose_requests = link.lose_replies = 0.0
        self.cluster.fabric.heal_all()
        for broker_id, machine in self.cluster.machines.items():
            machine.resume()
            self.start(broker_id)

    # --- checks

    def watch(self) -> None:
        """Look at the invariants every few virtual milliseconds from now on."""
        self.look()
        self.later(LOOK_EVERY_MS, self.watch)

    def look(self) -> None:
        moments, now = list(self.timeline.new_events()), Snapshot(self.cluster)
        for invariant in self.invariants:
            for broker_id, partition, sentence in invariant.on_events(moments) if moments else ():
                self.report(invariant.name, sentence, broker_id, partition)
            for broker_id, partition, sentence in invariant.look(now):
                self.report(invariant.name, sentence, broker_id, partition)
        if len(self.cluster.crashes) > self._crashes_seen:
            for crash in self.cluster.crashes[self._crashes_seen :]:
                self.report("no-crash", f"incarnation {crash.incarnation} ended by {crash.error!r}", crash.broker_id)
            self._crashes_seen = len(self.cluster.crashes)

    def report(self, check: str, sentence: str, broker_id: int = 0, partition: str = "") -> None:
        """A finding. The same check is reported once per broker and partition."""
        key = (check, broker_id, partition)
        if key in self._reported or len(self.findings) >= FINDINGS_KEPT:
            return
        self._reported.add(key)
        finding = Finding(check, sentence, self.loop.now_us, broker_id, partition)
        self.findings.append(finding)
        self.timeline.note(f"?{check}", broker_id, partition, {"sentence": sentence})


class LogWatch(logging.Handler):
    """Errors that the product logs (a handler that failed, an exception that nobody took) are findings too."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() + (f": {error!r}" if error is not None else "")
        self._world.report("unexpected-error", text, partition=record.name)
