"""The run as the brokers wrote it down: elections, changes of ISRs, brokers that were fenced, and truncations, in the
order of their wall times, with those marked that cut what is lost; faults that were injected, and the clients' longest
silences, beside them.

Brokers' clocks may differ, so the order of neighbours is no proof; epochs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek_audit.inputs.events import RETURNS, BrokerEvents, Truncation
from odradek_audit.inputs.history import AcknowledgementGap
from odradek_audit.results import Loss

SHOWN_MOMENTS = 60


class TimelineEntry(NamedTuple):
    """Something that happened, by the wall clock of the broker that wrote it. `lost` says that it cut lost records."""

    wall_ms: int
    broker: str
    what: str
    partition: str = ""
    lost: bool = False


def run_of(
    events: Mapping[str, BrokerEvents], losses: Sequence[Loss], silences: Iterable[AcknowledgementGap] = ()
) -> list[TimelineEntry]:
    """Everything in its order; what has no time is left out."""
    found = {
        TimelineEntry(
            each.began_ms, "", f"nothing is acknowledged for {each.length_ms:,} ms", f"{each.topic}-{each.partition}"
        )
        for each in silences
    }
    for broker, each in events.items():
        for election in each.elections:
            how = "from outside of the ISR" if election.unclean else "from the ISR"
            epoch = f"leader epoch {election.epoch}"
            what = (
                f"broker {election.leader} is elected {how}, {epoch}" if election.leader >= 0 else f"no leader, {epoch}"
            )
            found.add(TimelineEntry(election.wall_ms, broker, what, election.partition))
        for leader in each.leaderships:
            if leader.start_offset >= 0:
                what = f"broker {leader.leader} begins leader epoch {leader.epoch} at offset {leader.start_offset}"
                found.add(TimelineEntry(leader.wall_ms, broker, what, leader.partition))
        for change in each.isr_changes:
            became = ", ".join(map(str, change.to))
            was = ", ".join(map(str, change.before))
            found.add(
                TimelineEntry(change.wall_ms, broker, f"the ISR becomes {became}, it was {was}", change.partition)
            )
        for presence in each.presences:
            why = f" ({presence.reason})" if presence.reason else ""
            fault = "fault: " if presence.injected and presence.what not in RETURNS else ""
            found.add(TimelineEntry(presence.wall_ms, broker, f"{fault}broker {presence.broker} {presence.what}{why}"))
        for cut in each.truncations:
            what = f"broker {broker} truncates its log from {cut.end} to {cut.start}"
            followed = f", to follow broker {cut.leader} in leader epoch {cut.epoch}" if cut.leader >= 0 else ""
            found.add(TimelineEntry(cut.wall_ms, broker, what + followed, cut.partition, _is_loss(cut, losses)))
    return sorted(moment for moment in found if moment.wall_ms > 0)


def shown_of(moments: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    """Some of many, in their order: what cut lost records, and what is nearest to it; or the last ones."""
    if len(moments) <= SHOWN_MOMENTS:
        return list(moments)
    marks = [moment.wall_ms for moment in moments if moment.lost] or [moments[-1].wall_ms]
    ranked = sorted(moments, key=lambda each: (not each.lost, _distance(each.wall_ms, marks), each))
    return sorted(ranked[:SHOWN_MOMENTS])


def _distance(wall_ms: int, marks: Iterable[int]) -> int:
    """What came before tells why, so what came after counts as ten times farther."""
    return min((mark - wall_ms) if mark >= wall_ms else 10 * (wall_ms - mark) for mark in marks)


def _is_loss(cut: Truncation, losses: Iterable[Loss]) -> bool:
    return any(
        cut.partition == f"{loss.topic}-{loss.partition}"
        and cut.start < loss.end_offset
        and loss.first_offset < cut.end
        for loss in losses
        if loss.first_offset >= 0
    )
