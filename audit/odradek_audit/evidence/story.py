"""The story of a loss or a difference, as the brokers wrote it down: who cut its log, to follow whom, and why.

The event files say it exactly, so for what was lost they take the place of a suspicion; for other findings they stand
behind it. Where they say nothing of a loss, a suspicion is called that, with the brokers whose files are missing. What
a broker could not write down is counted and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from odradek_audit.catalogue import CHECKS, DUPLICATED, OFFSET_GAP
from odradek_audit.findings import Finding, Kind
from odradek_audit.inputs.events import EVENTS_FILE, BrokerEvents, Election, Truncation
from odradek_audit.results import Loss
from odradek_audit.words import plural

TOLD = 3
"""Truncations and unclean elections that one story names."""
MORE = "so this may not be all"
SUSPECTED, UNKNOWN = "so this is not proven", "so nothing says what became of them"
"""Of a finding, which has a suspected cause, and of records that are gone."""
EXPLAINED = frozenset({OFFSET_GAP.name, DUPLICATED.name})


class Story:
    """What all brokers wrote down, asked for places."""

    def __init__(self, events: Mapping[str, BrokerEvents], replicas: Iterable[str]) -> None:
        self._events = events
        self._without = sorted(name for name in replicas if name not in events)
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

    def of_losses(self, losses: Iterable[Loss], findings: Iterable[Finding]) -> list[Loss]:
        """The losses, each with its story where there is one: what the brokers wrote down, and what is wrong with the
        logs in the same place."""
        damages = [each for each in findings if CHECKS[each.check].kind is Kind.STRUCTURE]
        return [
            replace(loss, story="; ".join([*_acknowledged(loss), *_damage(loss, damages), *self._lost(loss)]))
            if loss.first_offset >= 0
            else loss
            for loss in losses
        ]

    def _lost(self, loss: Loss) -> Iterator[str]:
        return self._told(f"{loss.topic}-{loss.partition}", loss.first_offset, loss.end_offset, UNKNOWN)

    def _explained(self, finding: Finding) -> Finding:
        kind = CHECKS[finding.check].kind
        told_of = kind in (Kind.LOST, Kind.AGREEMENT) or finding.check in EXPLAINED
        lost = kind is Kind.LOST
        if not told_of or finding.offset < 0 or not (self._events or lost):
            return finding
        place = (f"{finding.topic}-{finding.partition}", finding.offset, finding.offset + 1)
        told = list(self._told(*place, SUSPECTED if lost else ""))
        guess = "" if lost and any(self._cuts(*place)) else finding.cause
        return replace(finding, cause="; ".join(filter(None, [guess, *told])))

    def _told(self, partition: str, first: int, end: int, otherwise: str) -> Iterator[str]:
        """`otherwise` is what must be said where no truncation was written down, if anything."""
        cuts = sorted(self._cuts(partition, first, end), key=lambda each: (each[1].wall_ms, each[0]))
        epochs = {cut.epoch for _, cut in cuts}
        yield from (self._cut(broker, cut) for broker, cut in cuts[:TOLD])
        if len(cuts) > TOLD:
            yield f"and {plural(len(cuts) - TOLD, 'more truncation')}"
        for epoch in sorted({cut.last_epoch for _, cut in cuts if cut.last_epoch >= 0}):
            if (leader := self._leaders.get((partition, epoch))) is not None:
                yield f"broker {leader}, the leader of epoch {epoch}, had acknowledged what was cut"
        if cuts:
            yield from self._replicated(partition, first, min(self._followed_ms(cut) for _, cut in cuts))
        unclean = [each for (of, _), each in sorted(self._elections.items()) if of == partition and each.unclean]
        for each in [each for each in unclean if each.epoch not in epochs][:TOLD]:
            yield f"{_chosen(each)}"
        if self._missing:
            yield f"{plural(self._missing, 'event is', 'events are')} missing, {MORE}"
        if otherwise or (self._without and self._events):
            yield from self._unproven("" if cuts else otherwise)

    def _unproven(self, otherwise: str) -> Iterator[str]:
        """Whose events are missing, and what follows from that."""
        so = otherwise or MORE
        if not self._events:
            yield f"no replica has an event file ({EVENTS_FILE}; Kafka writes none), {so}"
        elif self._without:
            files = "file of replica" if len(self._without) == 1 else "files of replicas"
            are = "is" if len(self._without) == 1 else "are"
            yield f"the event {files} {', '.join(self._without)} ({EVENTS_FILE}) {are} missing, {so}"
        elif otherwise:
            yield f"no broker wrote down that it cut its log there, {otherwise}"

    def _followed_ms(self, cut: Truncation) -> int:
        """From when on another leader may have raised the high watermark over other records in this place; where nobody
        wrote down when it was elected or began, at any time."""
        place = (cut.partition, cut.epoch)
        election = self._elections.get(place)
        known = [election.wall_ms if election is not None else -1, self._began.get(place, -1)]
        return min([cut.wall_ms, *(each for each in known if each > 0)]) if max(known) > 0 else 0

    def _replicated(self, partition: str, first: int, before_ms: int) -> Iterator[str]:
        """How far the brokers knew the log that was cut to be replicated."""
        known = [
            (each.high_watermark, -each.wall_ms, broker)
            for broker in sorted(self._events)
            for each in self._events[broker].progress
            if each.partition == partition and each.wall_ms <= before_ms
        ]
        if known:
            mark, at, broker = max(known)
            so = "which is above what was cut" if mark > first else "so nobody had called it replicated"
            who = f"broker {broker}{_at(-at)}"
            yield f"the highest high watermark that a broker wrote down before was {mark} ({who}), {so}"

    def _cuts(self, partition: str, first: int, end: int) -> Iterator[tuple[str, Truncation]]:
        for broker in sorted(self._events):
            for cut in self._events[broker].truncations:
                if cut.partition == partition and cut.start < end and first < cut.end:
                    yield broker, cut

    def _cut(self, broker: str, cut: Truncation) -> str:
        rule = f" ({cut.rule})" if cut.rule else ""
        said = (
            f"broker {broker} wrote down that it cut its log from {cut.end} to {cut.start} in leader epoch {cut.epoch}"
        )
        if cut.high_watermark > cut.start:
            said += f", below its high watermark {cut.high_watermark}"
        election = self._elections.get((cut.partition, cut.epoch))
        if election is not None:
            return f"{said}{rule}{_at(cut.wall_ms)}, to follow {_chosen(election)}"
        return f"{said}{rule}{_at(cut.wall_ms)}" + (f", to follow broker {cut.leader}" if cut.leader >= 0 else "")


def _damage(loss: Loss, damages: Iterable[Finding]) -> Iterator[str]:
    """What the audit found in the logs where the records had been."""
    for each in damages:
        here = (each.topic, each.partition) == (loss.topic, loss.partition)
        if here and each.offset < loss.end_offset and loss.first_offset < max(each.end_offset, each.offset + 1):
            said = each.sentence.removeprefix(f"{loss.topic}-{loss.partition}: ")
            yield f"found there ({each.check}): {said}".replace("; ", ", ")


def _acknowledged(loss: Loss) -> Iterator[str]:
    first, last = loss.acknowledged_ms
    if first > 0:
        until = f" to{_at(last).removeprefix(' at')}" if last > first else ""
        yield f"acknowledged{_at(first)}{until}"


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
