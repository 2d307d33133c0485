"""The names of all that a run may report, so that a misspelt one is not looked for in vain."""

from __future__ import annotations

from typing import Final

from odradek_audit.findings import CHECKS

from odradek_chaos.worlds.simulated.checks.catalogue import CLASSES

AROUND_THE_INVARIANTS: Final = (
    "client-failed",
    "core-not-healthy",
    "deadlock",
    "duplicated",
    "election-storm",
    "inconsistent-read",
    "livelock",
    "lost",
    "misplaced",
    "no-crash",
    "not-converged",
    "not-healthy-again",
    "phantom",
    "queues-bounded",
    "reader-behind",
    "reordered",
    "skipped",
    "stuck",
    "timelimit",
    "unexpected-error",
    "unhandled-exception",
    "wrong-disk-accepted",
)


def check_names() -> tuple[str, ...]:
    """Invariants in the order of their table, what is looked at around them, and the audit's checks of the disks."""
    return (*(kind.name for kind in CLASSES), *AROUND_THE_INVARIANTS, *(f"audit-{check}" for check in CHECKS))
