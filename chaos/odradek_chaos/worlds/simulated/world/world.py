"""One simulated world under test: the cluster, its plan, and what everybody who strikes, uses or judges it shares."""

from __future__ import annotations

import logging

from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.checks.state import ClusterState
from odradek_chaos.worlds.simulated.cluster.bounds import queues_beyond_bounds, waiting_at
from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.cluster.timeline import Timeline
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.links import uniform
from odradek_chaos.worlds.simulated.plan.buggify import Buggify
from odradek_chaos.worlds.simulated.plan.plan import Plan
from odradek_chaos.worlds.simulated.world.administered import AdministeredTopics, partitions_in
from odradek_chaos.worlds.simulated.world.board import Board
from odradek_chaos.worlds.simulated.world.copies import DirectoryCopies
from odradek_chaos.worlds.simulated.world.exemptions import Exemptions
from odradek_chaos.worlds.simulated.world.faults import Faults
from odradek_chaos.worlds.simulated.world.findings import Findings
from odradek_chaos.worlds.simulated.world.operator import Operator
from odradek_chaos.worlds.simulated.world.quiescence import Quiescence

TOPIC = "t"
STATES = "s"  # compacted, with `Options.compaction`
LOOK_EVERY_MS = 50


class World:
    """Everything that belongs to one run. Whoever observes its brokers is hung on from outside (`observe`)."""

    def __init__(self, loop: SimLoop, plan: Plan) -> None:
        self.loop = loop
        self.plan = plan
        self.expectations = plan.expectations
        self.partitions = [TopicPartition(TOPIC, number) for number in range(plan.options.partitions)]
        self.administered = AdministeredTopics()
        self.cluster = SimCluster(loop, shape=plan.shape, settings=plan.settings, kafka=plan.options.members > 0)
        usual_delay = self.cluster.fabric.default_delay = uniform(*plan.link_ms)
        self.timeline = Timeline(self.cluster)
        self.board = Board()
        self.buggify = Buggify(loop, plan.options.chance)
        self.exemptions = Exemptions(self.cluster, recovers=self.expectations.recovers)
        self.copies = DirectoryCopies(self.cluster)
        self.findings = Findings(plan, self.exemptions, self.timeline)
        self.state = ClusterState(
            damaged=self.exemptions.damaged,
            min_isr=plan.settings.min_insync_replicas,
            flushes_before_ack=plan.settings.odradek_fsync == "before-ack",
            holds_under_min_isr=plan.settings.odradek_truncation_mode != "high-watermark",
        )
        self.faults = Faults(self.cluster, self.timeline, usual_delay)
        self.faults.on_fault = self.look_for_crashes
        self.quiescence = Quiescence(self.cluster, self.faults, self.state, self.partitions)
        self.operator = Operator(self.cluster, self.faults, self.exemptions, self.timeline)
        self._crashes_seen = 0

    @property
    def now_ms(self) -> int:
        return self.loop.now_us // 1000

    def every_partition(self) -> list[TopicPartition]:
        """Those of the topic that all checks look at, and those that administrators have made."""
        return [*self.partitions, *partitions_in(self.cluster.newest_image())]

    def heal(self, besides: int = 0) -> None:
        """End all faults, failpoints included. One machine may be left as it is."""
        self.buggify.fires_now = False
        self.faults.heal(besides)

    def forget(self) -> None:
        """The run is over. The timeline goes on without the cluster, and most of what was gathered goes at once."""
        self.timeline.close()
        self.state.histories.clear()

    def watch(self) -> None:
        """Look for what no step of a broker shows, every few virtual milliseconds from now on."""
        self.look_for_crashes()
        for broker_id, node in self.cluster.running():
            machine = self.cluster.machines[broker_id]
            untaken = machine.ports.network.untaken_bytes
            problem = queues_beyond_bounds(len(machine.tasks), untaken, waiting_at(node))
            if problem:
                self.findings.report("queues-bounded", problem, broker_id)
        self.faults.later(LOOK_EVERY_MS, self.watch)

    def look_for_crashes(self) -> None:
        crashes = self.cluster.crashes
        while self._crashes_seen < len(crashes):
            crash = crashes[self._crashes_seen]
            self._crashes_seen += 1
            if self.exemptions.is_crash_exempt(crash):
                self.timeline.note("!ended", crash.broker_id, error=type(crash.error).__name__)
                self.operator.on_crash(crash.broker_id)
            else:
                sentence = f"incarnation {crash.incarnation} ended by {crash.error!r}"
                self.findings.report("no-crash", sentence, crash.broker_id)


class LogWatch(logging.Handler):
    """Errors that the product logs (a handler that failed, an exception that nobody took) are findings too."""

    def __init__(self, exemptions: Exemptions, findings: Findings, copies: DirectoryCopies) -> None:
        super().__init__(logging.ERROR)
        self._exemptions = exemptions
        self._copies = copies
        self._findings = findings

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if self._exemptions.is_log_exempt(error) or self._is_of_damage(record):
            return  # it says that its disk failed, and it did
        text = record.getMessage() + (f": {error!r}" if error is not None else "")
        self._findings.report("unexpected-error", text, partition=record.name)

    def _is_of_damage(self, record: logging.LogRecord) -> bool:
        """What a broker finds at a start that it lacks, a torn tail too, is judged by what follows from it."""
        event = getattr(record, "event", "")
        broker_id, copies = getattr(record, "broker", 0), self._copies
        found = event == "corruption_found" and broker_id in copies.struck
        lacks = event == "metadata_log_lacks_records" and broker_id in copies.struck_voters
        return found or lacks or event == "log_lacks_records"
