"""The names of all that a run may report, so that a misspelt one is not looked for in vain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from odradek_audit.catalogue import CHECKS

from odradek_chaos.worlds.simulated.checks.catalogue import CLASSES

AROUND_THE_INVARIANTS: Final = {  # and the rules that each sees to, if any
    "administered-topics": "S-3, I-12",
    "client-failed": "",
    "compact-last-value": "K-91",
    "core-not-healthy": "L3",
    "deadlock": "",
    "duplicated": "I-12",
    "election-storm": "L7",
    "forgotten-producer": "I-12",
    "group-delivered-once-per-commit": "K-64",
    "group-generation-rises": "K-64",
    "group-memory-equals-log": "K-42, K-64",
    "group-no-lost-member": "K-64",
    "group-not-stable": "K-64",
    "group-offset-monotone": "K-64",
    "group-one-coordinator": "K-42, K-64",
    "group-one-owner": "K-64",
    "group-over-is-refused": "K-50",
    "group-visible-committed": "K-43, K-64",
    "group-wait-ends": "K-64",
    "inconsistent-read": "S-4",
    "livelock": "",
    "lost": "S-3",
    "misplaced": "",
    "no-crash": "",
    "not-converged": "",
    "not-healthy-again": "L1, L2, L4",
    "phantom": "",
    "queues-bounded": "N14",
    "reader-behind": "L5",
    "reordered": "S-5",
    "skipped": "",
    "stuck": "",
    "timelimit": "",
    "unexpected-error": "",
    "unhandled-exception": "",
    "wrong-disk-accepted": "",
}
SPECIFIED: Final = {  # the specification's invariants by their names; one check may see to several, or several to one
    "weak-isr": "W-1",
    "strong-isr": "W-2",
    "leader-in-isr": "W-3",
    "valid-high-watermark": "W-4",
    "maximal-isr-superset": "W-5",
    "isr-shape": "W-6",
    "leader-candidate-completeness": "S-1",
    "leader-completeness": "S-2",
    "no-committed-loss": "S-3",
    "consistent-read": "S-4",
    "ack-order": "S-5",
    "hw-monotonic-leader": "S-6",
    "truncate-safe": "S-7",
    "epoch-unique": "S-8",
    "follower-hw-bound": "S-9",
    "unclean-exclusion": "S-10",
    "read-below-hw": "S-11",
    "monotonic-epoch": "M-1",
    "single-leader": "M-2",
    "majority-reached-high-watermark": "M-3",
    "monotonic-high-watermark": "M-4",
    "consistent-committed-data": "M-5",
    "snapshot-at-log-start": "M-6",
}
_NUMBER = re.compile(r"[A-Z]+-?\d+")


def checks_for(word: str) -> tuple[str, ...]:
    """The checks that a name or a number of the specification means (`weak-isr`, `W-1`, `N4`), in the table's order.

    A check's own name means that check alone; an unknown word comes back as it is.
    """
    if word in check_names():
        return (word,)
    number = SPECIFIED.get(word, word)
    return tuple(name for name, rules in _rules() if number in _NUMBER.findall(rules)) or (word,)


def _rules() -> Iterator[tuple[str, str]]:
    yield from ((kind.name, kind.rules) for kind in CLASSES)
    yield from AROUND_THE_INVARIANTS.items()


def check_names() -> tuple[str, ...]:
    """Invariants in the order of their table, what is looked at around them, and the audit's checks of the disks."""
    return (*(kind.name for kind in CLASSES), *AROUND_THE_INVARIANTS, *(f"audit-{check}" for check in CHECKS))


LOSSES = frozenset(  # checks that say that a record went; under faults that may cost records they are no findings
    {
        "acknowledged-below-high-watermark",
        "administered-topics",
        "audit-acknowledged-lost",
        "audit-checkpoint-order",
        "audit-delivered-lost",
        "audit-failed-present",
        "audit-reordered",
        "candidate-completeness",
        "compact-last-value",
        "committed-prefix-immutable",
        "end-offsets-never-fall",
        "forgotten-producer",
        "group-delivered-once-per-commit",
        "group-generation-rises",
        "group-offset-monotone",
        "group-one-coordinator",
        "group-one-owner",
        "group-over-is-refused",
        "group-visible-committed",
        "high-watermark-on-every-isr-member",
        "follower-high-watermark-bound",
        "inconsistent-read",
        "leader-completeness",
        "lost",
        "misplaced",
        "read-below-high-watermark",
        "reordered",
        "skipped",
        "strong-isr",
        "truncate-safe",
    }
)
