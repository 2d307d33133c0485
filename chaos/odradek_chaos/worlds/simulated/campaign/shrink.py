"""Make a failing seed small: fewer faults, fewer records, less time, until nothing more can go.

A run writes down what it did by choice (script.py), and a smaller list is tried: the same check must find something.
What is left out changes the chance of all that follows, so a candidate is tried under a few salts, which draw delays
and other luck anew, before it is given up. The result is a script, and the command that replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from odradek_proto.words import noun

from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.script import Injection, Script, ScriptedRecord
from odradek_chaos.worlds.simulated.run.result import SeedResult
from odradek_chaos.worlds.simulated.run.run import run_seed

T = TypeVar("T")
Say = Callable[[str], None]
SALTS = 3  # tries of a candidate
SALTS_OF_A_SCRIPT = 40  # tries of the first run whose records stand in a script
MARGIN_MS = 100


@dataclass(slots=True)
class ShrinkResult:
    """The smallest run found, and how many runs it took."""

    result: SeedResult
    script: Script
    runs: int

    def line(self) -> str:
        records = _counted(self.result.sends if self.script.sends is None else self.script.sends, "record")
        if self.script.sends is None:
            records += " that the seed wrote"
        runs = f"{self.runs} {noun(self.runs, 'run')}"
        return f"{_counted(self.script.injections, 'fault')}, {records}, {self.result.virtual_ms} virtual ms, {runs}"


def _counted(items: Sequence[object], one: str) -> str:
    return f"{len(items)} {noun(len(items), one)}"


class Shrinker:
    """Works on one seed and one check."""

    def __init__(self, seed: int, options: Options, say: Say = lambda line: None) -> None:
        self._seed = seed
        self._options = options
        self._say = say
        self._check = ""
        self._runs = 0

    def run(self) -> ShrinkResult | None:
        """None when the seed finds nothing wrong. What no script shows again is said so, and comes back as it was."""
        first = run_seed(self._seed, self._options)
        self._runs += 1
        if not first.findings:
            return None
        self._check = first.findings[0].check
        self._say(f"{self._check}: {_counted(first.injections, 'fault')}, {_counted(first.sends, 'record')}")
        best = self._plain(Script(first.injections, seed=self._seed), first)
        best = self._fewer_injections(best)
        scripted = self._with_sends(best)
        if scripted is not None:
            best = self._fewer_injections(self._fewer_sends(scripted))
            best = self._fewer_sends(best)
        if best.result.script is None:
            self._say(f"{self._check}: its faults alone do not show it again, under {SALTS} draws of all other luck")
        return best

    # --- steps

    def _plain(self, script: Script, first: SeedResult) -> ShrinkResult:
        """Without chance points and without a core phase, and no longer than needed, if it still fails."""
        best = ShrinkResult(first, replace(script, salt=0), self._runs)
        quiet = replace(self._options, core="never")
        for simpler in (replace(quiet, chance="none"), quiet, self._options):
            options, self._options = self._options, simpler
            found = self._try(script)
            if found is not None:
                best = found
                break
            self._options = options
        return self._sooner(best)

    def _sooner(self, best: ShrinkResult) -> ShrinkResult:
        """End the faults right after the finding, or, when that came afterwards, right after the last of them."""
        begun_us, end_us = best.result.faults_began_us, best.result.findings[0].time_us
        if end_us > begun_us + self._options.faults_ms * 1000:
            end_us = max((injection.at_us for injection in best.script.injections), default=begun_us)
        needed_ms = max(1, (end_us - begun_us) // 1000 + MARGIN_MS)
        if needed_ms < self._options.faults_ms:
            options = self._options
            self._options = replace(options, faults_ms=needed_ms)
            kept = tuple(injection for injection in best.script.injections if injection.at_us <= end_us)
            found = self._try(replace(best.script, injections=kept))
            if found is not None:
                return found
            self._options = options
        return best

    def _fewer_injections(self, best: ShrinkResult) -> ShrinkResult:
        def attempt(injections: Sequence[Injection]) -> ShrinkResult | None:
            return self._try(replace(best.script, injections=tuple(injections)))

        smaller = minimize(list(best.script.injections), best, attempt)
        self._say(f"faults: {smaller.line()}")
        return self._sooner(smaller)

    def _with_sends(self, best: ShrinkResult) -> ShrinkResult | None:
        """The same with the records in the script: those of one partition, or else all."""
        partition = best.result.findings[0].partition.rpartition("-")[2]
        end_us = best.result.findings[0].time_us
        sends = [send for send in best.result.sends if send.at_us <= end_us]
        for chosen in ([send for send in sends if str(send.partition) == partition], sends):
            found = self._try(replace(best.script, sends=tuple(chosen)), SALTS_OF_A_SCRIPT) if chosen else None
            if found is not None:
                return found
        return None

    def _fewer_sends(self, best: ShrinkResult) -> ShrinkResult:
        def attempt(sends: Sequence[ScriptedRecord]) -> ShrinkResult | None:
            return self._try(replace(best.script, sends=tuple(sends)))

        smaller = minimize(list(best.script.sends or ()), best, attempt)
        self._say(f"records: {smaller.line()}")
        return self._sooner(smaller)

    def _try(self, script: Script, salts: int = SALTS) -> ShrinkResult | None:
        """The first salt, beginning with the script's own, under which the same check finds something."""
        for salt in range(script.salt, script.salt + salts):
            salted = replace(script, salt=salt)
            result = run_seed(self._seed, self._options, script=salted)
            self._runs += 1
            if any(finding.check == self._check for finding in result.findings):
                return ShrinkResult(result, salted, self._runs)
        return None


def minimize(items: list[T], best: ShrinkResult, attempt: Callable[[Sequence[T]], ShrinkResult | None]) -> ShrinkResult:
    """Leave out as many items as possible, large pieces first (delta debugging)."""
    pieces = 2
    while items:
        size = max(1, len(items) // pieces)
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            found = attempt(rest)
            if found is not None:
                items, best = rest, found
                pieces = max(2, pieces - 1)
                break
        else:
            if size == 1:
                return best
            pieces = min(len(items), pieces * 2)
    return best
