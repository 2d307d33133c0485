"""One simulated world under test: the cluster, its plan, the timeline, the checks. Nemeses and phases share it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.checks.invariant import Finding
from odradek_chaos.worlds.simulated.cluster.bounds import queues_beyond_bounds, waiting_at
from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.cluster.timeline import Timeline
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.links import uniform
from odradek_chaos.worlds.simulated.observe.coverage import BranchCoverage
from odradek_chaos.worlds.simulated.observe.tapped_network import WireTaps
from odradek_chaos.worlds.simulated.observe.watcher import Watcher
from odradek_chaos.worlds.simulated.plan.buggify import Buggify
from odradek_chaos.worlds.simulated.plan.kinds import LOSSES
from odradek_chaos.worlds.simulated.plan.options import Plan
from odradek_chaos.worlds.simulated.plan.script import Strike
from odradek_chaos.worlds.simulated.world.board import Board
from odradek_chaos.worlds.simulated.world.exemptions import Exemptions
from odradek_chaos.worlds.simulated.world.operator import Operator
from odradek_chaos.worlds.simulated.world.quiescence import Quiescence
from odradek_chaos.worlds.simulated.world.unavailability import Unavailability

TOPIC = "t"
LOOK_EVERY_MS = 50
FINDINGS_KEPT = 20


class World:
    """Everything that belongs to one run. `faulty` is true while nemeses may strike."""

    def __init__(self, loop: SimLoop, plan: Plan) -> None:
        self.loop = loop
        self.plan = plan
        self.expectations = plan.options.expectations
        self.cluster = SimCluster(loop, settings=plan.settings)
        self.usual_delay = uniform(*plan.link_ms)  # of links without a fault, in milliseconds
        self.cluster.fabric.default_delay = self.usual_delay
        self.timeline = Timeline(self.cluster)
        self.board = Board()
        self.quiescence = Quiescence(self)
        self.operator = Operator(self)
        self.buggify = Buggify(loop, plan.options.chance)
        self.coverage = BranchCoverage(self, self.buggify.reached)
        self.faulty = False
        self.goes_on = False  # past findings
        self.faults: Counter[str] = Counter()
        self.unavailability = Unavailability()
        self.strikes: list[Strike] = []
        self.findings: list[Finding] = []
        self.costs: Counter[str] = Counter()  # checks that found what is not owed, or that do not count here
        self.exemptions = Exemptions(self)
        self.client_names: list[str] = []  # of those that may be crashed
        self.on_client_crash: Callable[[str, int], None] = lambda name, down_ms: None
        self.watcher = Watcher(self)
        self.cluster.after_step = self.watcher.after_step
        self.cluster.on_end = self.watcher.end
        self.wire_taps = WireTaps(self)
        self.cluster.network_of = self.wire_taps.network_of_broker
        self.partitions = [TopicPartition(TOPIC, number) for number in range(plan.options.partitions)]
        self._reported: set[tuple[str, int, str]] = set()
        self._crashes_seen = 0
        self._kept: dict[int, None] = {}  # brokers that stay dead, or frozen, as they are
        self._outages: Counter[int] = Counter()  # brokers that nobody but the holder of the outage may start

    @property
    def now_ms(self) -> int:
        return self.loop.now_us // 1000

    # --- faults

    def fault(self, name: str, broker_id: int = 0, /, **facts: object) -> None:
        """Note a fault that is about to strike."""
        self.look_for_crashes()
        self.faults[name] += 1
        self.unavailability.struck(self.loop.now_us, name)
        self.loop.trace(f"fault {name} {broker_id}")
        self.timeline.note(f"!{name}", broker_id, facts=facts)

    def take_back(self, name: str) -> None:
        """A strike of this kind found nothing to strike at, or not yet: it is not counted as one."""
        self.faults -= Counter((name,))

    def count(self, name: str) -> None:
        """What was taken back has found it."""
        self.faults[name] += 1

    def note(self, event: str, broker_id: int = 0, where: str = "", /, **facts: object) -> None:
        self.timeline.note(event, broker_id, where, facts)

    def later(self, delay_ms: float, act: Callable[[], object]) -> None:
        self.loop.call_world_at(self.loop.now_us + int(delay_ms * 1000), act)

    def mend(self, delay_ms: float, act: Callable[[], object]) -> None:
        """End a fault after a while; until then the world is not quiescent."""
        self.quiescence.pending += 1

        def end() -> None:
            self.quiescence.pending -= 1
            act()

        self.later(delay_ms, end)

    def kill(self, broker_id: int, down_ms: float, name: str) -> None:
        """SIGKILL, and a new process after `down_ms`."""
        self.fault(name, broker_id, down_ms=round(down_ms))
        self.cluster.machines[broker_id].kill()
        self.mend(down_ms, partial(self.start, broker_id))

    def stop(self, broker_id: int, down_ms: float, name: str) -> None:
        """SIGTERM, and a new process `down_ms` after the old one has ended."""
        self.fault(name, broker_id, down_ms=round(down_ms))
        machine = self.cluster.machines[broker_id]
        stopped = machine.incarnation
        self.cluster.stop(broker_id)

        def start_again() -> None:
            if not machine.is_running:
                self.mend(down_ms, partial(self.start, broker_id))
            elif machine.incarnation == stopped:
                self.mend(20, start_again)

        start_again()

    def power_loss(self, broker_id: int, dark_ms: float, name: str) -> None:
        """A machine without power for a while."""
        self.fault(name, broker_id, dark_ms=round(dark_ms))
        self.power_off(broker_id)
        self.mend(dark_ms, partial(self.start, broker_id))

    def power_off(self, broker_id: int) -> None:
        self.cluster.machines[broker_id].power_loss()

    def start(self, broker_id: int) -> None:
        is_barred = self._outages[broker_id] or broker_id in self._kept
        if not self.cluster.machines[broker_id].is_running and not is_barred:
            self.note("!start", broker_id)
            self.cluster.start(broker_id)

    def begin_outage(self, broker_id: int) -> None:
        """Kill a broker; nobody starts it until `end_outage`."""
        self._outages[broker_id] += 1
        self.timeline.hidden[broker_id] = None
        self.cluster.machines[broker_id].kill()

    def end_outage(self, broker_id: int, down_ms: float) -> None:
        self._outages[broker_id] -= 1
        self.timeline.hidden.pop(broker_id, None)
        self.mend(down_ms, partial(self.start, broker_id))

    def keep(self, broker_id: int) -> None:
        """Nobody starts or thaws this broker before the next `heal`: faults that began earlier end meanwhile."""
        self._kept[broker_id] = None

    def resume(self, broker_id: int) -> None:
        """End the freezing of a broker."""
        if broker_id not in self._kept:
            self.cluster.machines[broker_id].resume()

    def crash_client(self, name: str, down_ms: int) -> None:
        self.on_client_crash(name, down_ms)

    def heal(self, besides: int = 0) -> None:
        """End all faults: links work, everybody runs, disks are sound. One machine may be left as it is."""
        self.faulty = self.buggify.strikes_now = False
        self.note("!heal")
        self._kept.clear()
        fabric = self.cluster.fabric
        for link in fabric.links():
            link.delay = self.usual_delay
            link.lose_requests = link.lose_replies = link.duplicate_requests = 0.0
        fabric.held.clear()
        fabric.heal_all()
        for client in self.cluster.clients:
            client.resume()
        for broker_id, machine in self.cluster.machines.items():
            disk = machine.disk
            disk.quota, disk.slow_ms, disk.lying = None, 0.0, False
            disk.injections.clear()
            if broker_id != besides:
                machine.resume()
                self.start(broker_id)

    def forget(self) -> None:
        """The run is over. The timeline goes on without the cluster, and most of what was gathered goes at once."""
        self.timeline.close()
        self.watcher.now.histories.clear()

    # --- checks

    def watch(self) -> None:
        """Look for what no step of a broker shows, every few virtual milliseconds from now on."""
        self.look_for_crashes()
        for broker_id, node in self.cluster.running():
            machine = self.cluster.machines[broker_id]
            untaken = machine.ports.network.untaken_bytes
            problem = queues_beyond_bounds(len(machine.tasks), untaken, waiting_at(node))
            if problem:
                self.report("queues-bounded", problem, broker_id)
        self.later(LOOK_EVERY_MS, self.watch)

    def look_for_crashes(self) -> None:
        crashes = self.cluster.crashes
        while self._crashes_seen < len(crashes):
            crash = crashes[self._crashes_seen]
            self._crashes_seen += 1
            if self.exemptions.is_crash_exempt(crash):
                self.note("!ended", crash.broker_id, error=type(crash.error).__name__)
                self.operator.on_crash(crash.broker_id)
            else:
                self.report("no-crash", f"incarnation {crash.incarnation} ended by {crash.error!r}", crash.broker_id)

    def report(self, check: str, sentence: str, broker_id: int = 0, partition: str = "") -> None:
        """A finding. The same check is reported once per broker and partition."""
        key = (check, broker_id, partition)
        if key in self._reported or len(self.findings) >= FINDINGS_KEPT:
            return
        if self.exemptions.is_finding_exempt(check, broker_id, partition):
            return
        self._reported.add(key)
        counted = self.plan.options.checks
        if counted and check not in counted:
            self.costs[check] += 1
            self.note(f"?{check}", broker_id, partition, not_counted=sentence)
            return
        if check in LOSSES and not self.expectations.keeps_records:
            self.costs[check] += 1
            self.note(f"?{check}", broker_id, partition, not_owed=sentence)
            return
        self.findings.append(Finding(check, sentence, self.loop.now_us, broker_id, partition))
        self.note(f"?{check}", broker_id, partition, sentence=sentence)


class LogWatch(logging.Handler):
    """Errors that the product logs (a handler that failed, an exception that nobody took) are findings too."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if self._world.exemptions.is_log_exempt():
            return  # it says that its disk failed, and it did
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() + (f": {error!r}" if error is not None else "")
        self._world.report("unexpected-error", text, partition=record.name)
