"""What a run of one seed gave, and how a failure is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_proto.words import noun

from odradek_chaos.worlds.simulated.cluster.timeline import Timeline
from odradek_chaos.worlds.simulated.plan.plan import Plan
from odradek_chaos.worlds.simulated.plan.script import Injection, Script, ScriptedRecord
from odradek_chaos.worlds.simulated.world.board import Board
from odradek_chaos.worlds.simulated.world.findings import Violation


@dataclass(slots=True)
class SeedResult:
    """What one seed gave. `virtual_ms` is the length of the run in virtual time."""

    seed: int
    plan: Plan
    timeline: Timeline
    board: Board
    trace_hash: str = ""
    virtual_ms: int = 0
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    failed: int = 0
    generation: int = -1  # of the group, where there are members
    commits: int = 0  # of offsets, by its members
    commits_of_consumers: int = 0  # by the members of the group of KIP-848
    read: int = 0
    compared: int = 0  # records that the audit compared between replicas
    faults_began_us: int = 0
    unavailable_ms: dict[str, int] = field(default_factory=dict)  # longest without an acknowledgement, by kind of fault
    recovered_ms: int = -1  # from the end of the faults to full ISRs and an acknowledgement of every partition
    findings: list[Violation] = field(default_factory=list)
    costs: dict[str, int] = field(default_factory=dict)  # checks that found what is not owed, or that do not count
    chances: tuple[str, ...] = ()  # chance points that may strike under this seed
    points: dict[str, int] = field(default_factory=dict)  # and how often each did
    branches: dict[str, int] = field(default_factory=dict)  # rare branches of the product that were taken
    script: Script | None = None  # what replaced the draw of faults and records
    injections: tuple[Injection, ...] = ()
    sends: tuple[ScriptedRecord, ...] = ()

    @property
    def command(self) -> str:
        """The one command that runs this again."""
        return self.plan.options.command(self.seed)

    def report(self, script_says: Mapping[str, object] | None = None) -> str:
        """A failure as a text: the check, the events around it, what the seed expands to, how to repeat it.

        `script_says` has the options in which this run is not as its script.
        """
        others = {name: f" (the script says {value})" for name, value in (script_says or {}).items()}
        lines = [f"seed {self.seed}: {finding}" for finding in self.findings]
        if self.findings:
            first = self.findings[0]
            partition = first.partition if first.partition.rpartition("-")[2].isdigit() else ""
            brokers = sorted({moment.broker_id for moment in self.timeline.moments} - {0})
            if partition:
                lines += ["", *self.board.screen(self.timeline, partition, first.time_us, brokers), ""]
            else:
                lines += ["", *self.timeline.around(first.time_us), ""]
        lines += [f"{name} = {value}{others.get(name, '')}" for name, value in self.plan.describe().items()]
        if self.script is not None:
            injections = len(self.script.injections)
            lines += ["", f"{injections} {noun(injections, 'fault')} of the script:"]
            lines += [injection.line() for injection in self.script.injections]
            sends = self.script.sends
            if sends is not None:
                lines += ["", f"{len(sends)} {noun(len(sends), 'record')} of the script:", *map(str, sends)]
            return "\n".join(lines)
        lines.append(f"chance points = {', '.join(self.chances) or 'none'}")
        lines += ["", f"again: {self.command}"]
        return "\n".join(lines)

    def summary(self) -> str:
        """One line for people."""
        faults = ", ".join(f"{count} {name}" for name, count in self.faults.items())
        return (
            f"seed {self.seed}: {self.virtual_ms / 1000:.1f} virtual seconds, "
            f"{self.events} {noun(self.events, 'event')}, {faults or 'no fault'}; "
            f"{self.acknowledged} {noun(self.acknowledged, 'record')} acknowledged, "
            f"{self.failed} unknown, {self.read} read back, {self.compared} compared on the disks; "
            f"well again after {self.recovered_ms} ms; trace {self.trace_hash}; "
            f"{len(self.findings)} {noun(len(self.findings), 'finding')}"
        )
