"""The story of a loss or a difference, as the brokers wrote it down: who truncated its log, to follow whom, and
why.

The event files say it exactly, so for what was lost they take the place of a suspicion; for other findings they stand
behind it. Where they say nothing of a loss, a suspicion is called that, with the brokers whose files are missing. What
a broker could not write down is counted and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby

from odradek_audit.catalogue import CHECKS, DUPLICATED, OFFSET_GAP
from odradek_audit.findings import Finding, Kind
from odradek_audit.inputs.events import EVENTS_FILE, RETURNS, BrokerEvents, Election, Presence, Truncation
from odradek_audit.results import Loss, LossCause, PartitionSummary
from odradek_audit.words import noun, plural

TOLD = 3
"""Truncations and unclean elections that one story names."""
MORE = "so this may not be all"
SUSPECTED = "so this is not proven"
BEFORE = 6
"""Faults and fencings before an election that one story names."""
LATE_MS = 5_000
"""So much later than the leader a client may have written down an acknowledgement, on a busy machine."""
TRUNCATED_BY = {
    "R-79": "where the two logs diverge",
    "R-75": "where the two logs diverge",
    "R-73": "to its own high watermark, for it knew no epoch",
    "R-84": "the leader's log is shorter",
    "L-1": "to its own high watermark, as before KIP-101",
}
"""Why a follower truncates, by the rules that its event names (docs/protocol.md)."""
EXPLAINED = frozenset({OFFSET_GAP.name, DUPLICATED.name})


class Story:
    """What all brokers wrote down, asked for places."""

    def __init__(self, events: Mapping[str, BrokerEvents], replicas: Iterable[str]) -> None:
        self._events = events
        self._found = [name for name in events if events[name].found]
        self._without = sorted(name for name in replicas if name not in self._found)
        self._missing = sum(each.missing for each in events.values())
        self._elections: dict[tuple[str, int], Election] = {}
        for broker in sorted(events):
            for each in events[broker].elections:
                self._elections.setdefault((each.partition, each.epoch), each)
        self._began: dict[tuple[str, int], int] = {}
        self._leaders = {(of, epoch): each.leader for (of, epoch), each in self._elections.items()}
        for each_broker in events.values():
            self._leaders |= {(each.partition, each.epoch): each.leader for each in each_broker.leaderships}
            self._began |= {(each.partition, each.epoch): each.wall_ms for each in each_broker.leaderships}

    def explain(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings with causes as the brokers tell them."""
        return [self._explained(finding) for finding in findings]

    def of_losses(
        self, losses: Iterable[Loss], findings: Iterable[Finding], partitions: Iterable[PartitionSummary]
    ) -> list[Loss]:
        """The losses, each with what explains it, and its story: what the brokers wrote down, and where the logs
        themselves have a gap."""
        gaps = [each for each in findings if each.check == OFFSET_GAP.name]
        summaries = {(each.topic, each.partition): each for each in partitions}
        return [self._of_loss(loss, gaps, summaries.get((loss.topic, loss.partition))) for loss in losses]

    def _of_loss(self, loss: Loss, gaps: Sequence[Finding], summary: PartitionSummary | None) -> Loss:
        if loss.first_offset < 0:
            return replace(loss, cause=LossCause.UNEXPLAINED if self._is_whole else LossCause.PERHAPS_LEADER_CHANGE)
        partition = f"{loss.topic}-{loss.partition}"
        gap = next((each for each in gaps if summary is not None and _is_gap_of_all(each, loss, summary)), None)
        told = list(self._told(partition, loss.first_offset, loss.end_offset, loss.acknowledged_ms))
        if gap is not None:
            told.append(_of_gap(gap, summary))
        elif not any(self._cuts(partition, loss.first_offset, loss.end_offset)):
            told.append("no truncation there was written down")
        return replace(loss, story="; ".join(told), cause=self._cause(loss, gap, summary))

    def _cause(self, loss: Loss, gap: Finding | None, summary: PartitionSummary | None) -> LossCause:
        """Only truncations that cover all of it, above every high watermark that anybody wrote down before, are a
        change of leader that explains it."""
        partition, reached = f"{loss.topic}-{loss.partition}", loss.first_offset
        cuts = [cut for _, cut in self._cuts(partition, loss.first_offset, loss.end_offset)]
        if gap is not None:
            return LossCause.GAP
        marks = [cut.high_watermark for cut in cuts]
        if cuts and (known := self._highest_mark(partition, min(map(self._followed_ms, cuts)))) is not None:
            marks.append(known[0])
        if any(mark > loss.first_offset for mark in marks):
            return LossCause.BELOW_HIGH_WATERMARK
        for cut in sorted(cuts, key=lambda each: each.start):
            reached = max(reached, cut.end) if cut.start <= reached else reached
        if reached >= loss.end_offset and cuts:
            return LossCause.LEADER_CHANGE
        changed = summary is None or any(
            len(each.epochs) > 1 or each.log_end <= loss.first_offset for each in summary.replicas
        )
        return LossCause.UNEXPLAINED if self._is_whole or not changed else LossCause.PERHAPS_LEADER_CHANGE

    @property
    def _is_whole(self) -> bool:
        return not self._without and not self._missing

    def _explained(self, finding: Finding) -> Finding:
        kind = CHECKS[finding.check].kind
        told_of = kind in (Kind.LOST, Kind.AGREEMENT) or finding.check in EXPLAINED
        lost = kind is Kind.LOST
        if not told_of or finding.offset < 0 or not (self._found or lost):
            return finding
        place = (f"{finding.topic}-{finding.partition}", finding.offset, finding.offset + 1)
        cut = any(self._cuts(*place))
        unproven = self._unproven(SUSPECTED if lost and not cut else "") if lost or cut else ()
        told = [*self._told(*place), *unproven]
        guess = "" if lost and cut else finding.cause
        return replace(finding, cause="; ".join(filter(None, [guess, *told])))

    def _told(self, partition: str, first: int, end: int, acknowledged: Sequence[int] = ()) -> Iterator[str]:
        """The truncations of a place, and what led to them, with when its records were acknowledged."""
        cuts = sorted(self._cuts(partition, first, end), key=lambda each: (each[1].wall_ms, each[0]))
        epochs = {cut.epoch for _, cut in cuts}
        before = [(acknowledged[0], _acknowledged(*acknowledged))] if acknowledged and acknowledged[0] > 0 else []
        if cuts:
            before += self._before(cuts[0][1], acknowledged[0] if acknowledged else -1)
        yield from (said for _, said in sorted(before))
        yield from (self._cut(broker, cut) for broker, cut in cuts[:TOLD])
        if len(cuts) > TOLD:
            yield f"and {plural(len(cuts) - TOLD, 'more truncation')}"
        for epoch in sorted({cut.last_epoch for _, cut in cuts if cut.last_epoch >= 0}):
            if (leader := self._leaders.get((partition, epoch))) is not None:
                yield f"broker {leader}, the leader of epoch {epoch}, had acknowledged what was truncated"
        if cuts:
            yield from self._replicated(partition, first, min(self._followed_ms(cut) for _, cut in cuts))
        unclean = [each for (of, _), each in sorted(self._elections.items()) if of == partition and each.unclean]
        for each in [each for each in unclean if each.epoch not in epochs][:TOLD]:
            yield f"{_chosen(each)}"

    def _before(self, cut: Truncation, acknowledged_ms: int) -> Iterator[tuple[int, str]]:
        """Who was killed, frozen or fenced before the election that a truncation follows: since the election before,
        and, where it is known when the records were acknowledged, what lasted until then or came after it."""
        until = self._followed_ms(cut) or cut.wall_ms
        began = [*self._began.items(), *((place, each.wall_ms) for place, each in self._elections.items())]
        earlier = [at for (of, epoch), at in began if of == cut.partition and epoch < cut.epoch and at < until]
        since = max(earlier, default=0)
        gone: list[Presence] = []
        everywhere = {each for of_broker in self._events.values() for each in of_broker.presences}
        for each in sorted(everywhere, key=lambda each: (each.wall_ms, each.broker, not each.injected)):
            if not since < each.wall_ms <= until:
                continue
            if each.what not in RETURNS:
                gone.append(each)
            elif each.wall_ms < acknowledged_ms - LATE_MS:
                gone = [other for other in gone if other.broker != each.broker]
        alike = groupby(gone[-BEFORE:], key=lambda each: (each.what, each.reason, each.injected))
        for (what, reason, injected), group in alike:
            several = list(group)
            brokers = f"{noun(len(several), 'broker')} {', '.join(str(each.broker) for each in several)}"
            what = what.replace("is ", noun(len(several), "was ", "were "), 1).replace("begins", "began")
            why = " (an injected fault)" if injected else f" ({reason})" * bool(reason)
            at = several[0].wall_ms
            yield at, f"{brokers} {what}{_at(at)}{why}"

    def _unproven(self, otherwise: str) -> Iterator[str]:
        """Whose events are missing, and what follows from that."""
        so = otherwise or MORE
        if self._missing:
            yield f"{plural(self._missing, 'event is', 'events are')} missing, {MORE}"
        if not self._found:
            yield f"no replica has an event file ({EVENTS_FILE}; Kafka writes none), {so}"
        elif self._without:
            files = "file of replica" if len(self._without) == 1 else "files of replicas"
            are = "is" if len(self._without) == 1 else "are"
            yield f"the event {files} {', '.join(self._without)} ({EVENTS_FILE}) {are} missing, {so}"
        elif otherwise:
            yield f"no broker wrote down that it truncated its log there, {otherwise}"

    def _followed_ms(self, cut: Truncation) -> int:
        """From when on another leader may have raised the high watermark over other records in this place; where nobody
        wrote down when it was elected or began, at any time."""
        place = (cut.partition, cut.epoch)
        election = self._elections.get(place)
        known = [election.wall_ms if election is not None else -1, self._began.get(place, -1)]
        return min([cut.wall_ms, *(each for each in known if each > 0)]) if max(known) > 0 else 0

    def _replicated(self, partition: str, first: int, before_ms: int) -> Iterator[str]:
        """How far the brokers knew the log that was cut to be replicated."""
        if (known := self._highest_mark(partition, before_ms)) is not None:
            mark, at, broker = known
            so = "so some had been replicated" if mark > first else "so no broker knew any of them to be replicated"
            who = f"broker {broker}{_at(-at)}"
            yield f"the highest high watermark that a broker wrote down before was {mark} ({who}), {so}"

    def _highest_mark(self, partition: str, before_ms: int) -> tuple[int, int, str] | None:
        """The mark, its time (negative) and its broker."""
        return max(
            (
                (each.high_watermark, -each.wall_ms, broker)
                for broker in sorted(self._events)
                for each in self._events[broker].progress
                if each.partition == partition and each.wall_ms <= before_ms
            ),
            default=None,
        )

    def _cuts(self, partition: str, first: int, end: int) -> Iterator[tuple[str, Truncation]]:
        for broker in sorted(self._events):
            for cut in self._events[broker].truncations:
                if cut.partition == partition and cut.start < end and first < cut.end:
                    yield broker, cut

    def _cut(self, broker: str, cut: Truncation) -> str:
        said = (
            f"broker {broker} wrote down that it truncated its log from {cut.end} to {cut.start} in leader epoch "
            f"{cut.epoch}"
        )
        if cut.high_watermark > cut.start:
            said += f", below its high watermark {cut.high_watermark}"
        said += _at(cut.wall_ms)
        if reason := TRUNCATED_BY.get(cut.rule):
            said += f" ({reason})"
        election = self._elections.get((cut.partition, cut.epoch))
        if election is not None:
            return f"{said}, to follow {_chosen(election)}"
        return said + (f", to follow broker {cut.leader}" if cut.leader >= 0 else "")


def _is_gap_of_all(gap: Finding, loss: Loss, summary: PartitionSummary) -> bool:
    """Whether a gap is in the place of a loss on every replica whose log goes on behind it: what stands there on
    another one was written by another leader, and no gap explains the loss."""
    here = (gap.topic, gap.partition) == (loss.topic, loss.partition)
    touches = gap.offset < loss.end_offset and loss.first_offset < gap.end_offset
    return (
        here
        and touches
        and all(each.replica in gap.replicas or each.log_end <= gap.offset for each in summary.replicas)
    )


def _of_gap(gap: Finding, summary: PartitionSummary | None) -> str:
    said = gap.sentence.removeprefix(f"{gap.topic}-{gap.partition}: ").replace("; ", ", ")
    mark = max((each.high_watermark or 0 for each in summary.replicas), default=0) if summary is not None else 0
    below = f"below the high watermark {mark}, so they had been replicated: " if mark >= gap.end_offset else ""
    return f"found there ({gap.check}): {said}; {below}damage or a defect, which no change of leader explains"


def _acknowledged(first: int, last: int) -> str:
    return f"acknowledged{_at(first)}" + (f" to{_at(last).removeprefix(' at')}" if last > first else "")


def _chosen(election: Election) -> str:
    how = "was elected from outside of the ISR" if election.unclean else "was elected from the ISR"
    return f"broker {election.leader}, which {how} for leader epoch {election.epoch}{_at(election.wall_ms)}"


def _at(wall_ms: int) -> str:
    """A broker's wall time; empty where there is none, or none that a calendar has."""
    try:
        return (
            f" at {datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{wall_ms % 1000:03} UTC"
            if wall_ms > 0
            else ""
        )
    except (OverflowError, ValueError, OSError):
        return ""
