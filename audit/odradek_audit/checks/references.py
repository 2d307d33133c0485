"""Which replica is right where some of them differ: the one that the others are compared with at that place.

The reference replica (newest epoch, then longest log) is the one to follow in an election, and may still hold the
damaged copy. So at each place where a replica differs from it, the reference is chosen anew, in this order:

1. a replica without damage of its own there (a wrong CRC, a gap, an epoch that falls, ...);
2. where the logs agree again behind it, the copy of the newest epoch: that epoch's leader wrote it;
3. among copies of the same epoch as that one, or as the reference replica's, the bytes that most replicas hold;
4. the reference replica.

Copies of different epochs are not put to the vote: an election may leave the majority with records that nobody owes
any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek_audit.catalogue import CHECKS, EPOCH_CACHE_MISMATCH
from odradek_audit.findings import FindingSink
from odradek_audit.wording import UNDECIDED


@dataclass(frozen=True)
class AgreeingReplicas:
    """Replicas that hold the same bytes at a place, and the leader epoch of its first batch there."""

    replicas: tuple[str, ...]
    epoch: int


@dataclass(frozen=True)
class Reference:
    """The replica to compare with at a place, and how it was chosen, in a clause."""

    replica: str
    reason: str


def damaged_replicas(sink: FindingSink) -> frozenset[str]:
    """Replicas of which the checks that looked at one replica alone found the log damaged somewhere."""
    return frozenset(finding.replica for finding in sink.findings if CHECKS[finding.check].in_the_log)


def damage_at(sink: FindingSink, replica: str, begin: int, end: int) -> int:
    """How bad a replica's copy of the offsets [begin, end) is: 0 not damaged, 1 suspicious, 2 damaged."""
    worst = 0
    for finding in sink.findings:
        if finding.replica != replica or finding.offset >= end or finding.end <= begin:
            continue
        if CHECKS[finding.check].in_the_log:
            return 2
        worst = max(worst, int(finding.check == EPOCH_CACHE_MISMATCH.name))  # less credible, and no more
    return worst


def choose_reference(
    reference_replica: str, copies: Sequence[AgreeingReplicas], damage: Mapping[str, int], *, agree_again: bool = False
) -> Reference:
    """The reference among replicas that do not all hold the same bytes; `copies` covers each of them once."""
    least = min(damage.values())
    sound = [
        AgreeingReplicas(kept, each.epoch)
        for each in copies
        if (kept := tuple(name for name in each.replicas if damage[name] == least))
    ]
    total = sum(len(each.replicas) for each in copies)
    own = next((each for each in sound if reference_replica in each.replicas), None)
    if own is None:
        best = min(sound, key=lambda each: (-len(each.replicas), -each.epoch, each.replicas))
        return Reference(
            best.replicas[0],
            f"replica {reference_replica}, which has the newest epoch, is itself damaged at this place",
        )
    leading = max(each.epoch for each in sound) if agree_again else own.epoch
    rivals = [each for each in sound if each.epoch == leading]
    best = min(rivals, key=lambda each: (-len(each.replicas), reference_replica not in each.replicas, each.replicas))
    if leading != own.epoch:
        return Reference(
            best.replicas[0],
            f"the leader of epoch {leading} wrote it, and the logs go on with that epoch or a newer one",
        )
    if reference_replica not in best.replicas:
        return Reference(best.replicas[0], f"{len(best.replicas)} of {total} replicas hold the same bytes")
    worse = sorted(name for name, score in damage.items() if score > least)
    if worse and len(rivals) == 1 and len(sound) == 1:
        return Reference(reference_replica, f"its copy is undamaged and that of replica {', '.join(worse)} is not")
    if len(rivals) < len(sound):
        newest = leading == max(each.epoch for each in sound)
        return Reference(
            reference_replica, "it has the newest leader epoch" + ("" if newest else " at the end of its log")
        )
    if len(best.replicas) * 2 > total:
        return Reference(reference_replica, f"{len(best.replicas)} of {total} replicas hold the same bytes")
    return Reference(reference_replica, f"it has the newest epoch and the longest log; {UNDECIDED}")
