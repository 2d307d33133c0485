"""What a run found: broken promises, and those that are not owed, exempt, or do not count here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from odradek_chaos.worlds.simulated.checks.names import LOSSES
from odradek_chaos.worlds.simulated.cluster.timeline import Timeline
from odradek_chaos.worlds.simulated.plan.plan import Plan
from odradek_chaos.worlds.simulated.world.exemptions import Exemptions

MOST_KEPT = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise. `check` is kebab-case; `broker_id` is 0 when it is nobody's in particular."""

    check: str
    sentence: str
    time_us: int
    broker_id: int = 0
    partition: str = ""

    def __str__(self) -> str:
        where = " ".join(part for part in (f"b{self.broker_id}" if self.broker_id else "", self.partition) if part)
        return f"{self.check} at {self.time_us / 1e6:.6f} s{', ' + where if where else ''}: {self.sentence}"


class Findings:
    """Of one run. A run ends at its first finding unless `go_on`."""

    def __init__(self, plan: Plan, exemptions: Exemptions, timeline: Timeline) -> None:
        self.found: list[Violation] = []
        self.costs: Counter[str] = Counter()  # checks that found what is not owed, or that do not count here
        self.go_on = False
        self._counted = plan.options.checks
        self._keeps_records = plan.expectations.keeps_records
        self._exemptions = exemptions
        self._timeline = timeline
        self._reported: set[tuple[str, int, str]] = set()

    @property
    def end_the_run(self) -> bool:
        return bool(self.found) and not self.go_on

    def report(self, check: str, sentence: str, broker_id: int = 0, partition: str = "") -> None:
        """A finding. The same check is reported once per broker and partition."""
        key = (check, broker_id, partition)
        if key in self._reported or len(self.found) >= MOST_KEPT:
            return
        if self._exemptions.is_finding_exempt(check, broker_id, partition):
            return
        self._reported.add(key)
        note = self._timeline.note
        if self._counted and check not in self._counted:
            self.costs[check] += 1
            note(f"?{check}", broker_id, partition, not_counted=sentence)
        elif check in LOSSES and not self._keeps_records:
            self.costs[check] += 1
            note(f"?{check}", broker_id, partition, not_owed=sentence)
        else:
            self.found.append(Violation(check, sentence, self._timeline.now_us, broker_id, partition))
            note(f"?{check}", broker_id, partition, sentence=sentence)
