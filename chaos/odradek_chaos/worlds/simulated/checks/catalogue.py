"""All invariants, in the order in which they are told: the first reads the logs for all others."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.checks import isr, leaders, logs, quorum, requests, watermarks
from odradek_chaos.worlds.simulated.checks.invariant import Invariant
from odradek_chaos.worlds.simulated.plan.named import named_classes

CLASSES = named_classes(Invariant, logs, watermarks, leaders, isr, quorum, requests)


def all_invariants() -> list[Invariant]:
    return [kind() for kind in CLASSES]
