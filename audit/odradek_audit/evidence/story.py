"""The story of a loss or a difference, as the brokers wrote it down: who truncated its log, to follow whom, and
why.

The event files say it exactly, so for what was lost they take the place of a suspicion; for other findings they stand
behind it. Where they say nothing of a loss, a suspicion is called that, with the brokers whose files are missing. What
a broker could not write down is counted and said.

Two things prove that a change of leader cost acknowledged records: truncations that cover them, or a leader epoch that
begins at or before the first of them on every replica and, by the times written down, after the last of them had been
acknowledged: its leader did not have them. High watermarks count that were written down before that epoch began; those
of the checkpoints at the end count other records, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from odradek_audit.catalogue import CHECKS, DUPLICATED, OFFSET_GAP
from odradek_audit.findings import CheckKind, Finding
from odradek_audit.inputs.events import EVENTS_FILE, FAULTS, RETURNS, BrokerEvents, BrokerPresence, Election, Truncation
from odradek_audit.results import Loss, LossCause, PartitionSummary, ReplicaSummary
from odradek_audit.words import clock, noun, plural

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
EVER = 1 << 62
"""Later than any wall time."""


class EpochBegin(NamedTuple):
    """A leader epoch, and the highest offset at which it begins on a replica; `later` says that others came before it
    in the logs that are left, `at_end` that no log goes beyond."""

    epoch: int
    offset: int
    later: bool
    at_end: bool


class PossibleEpoch(NamedTuple):
    """A leader epoch that `start`s at or before what is lost, and not earlier than `wall_ms` (-1: nobody knows). It is
    `proven` to have cost all of it when that had been acknowledged before."""

    start: EpochBegin
    wall_ms: int
    proven: bool


class WrittenHighWatermark(NamedTuple):
    """A high watermark that a broker wrote down, and when."""

    high_watermark: int
    wall_ms: int
    broker: str


class LostRange(NamedTuple):
    """Offsets [first, end) of a partition, the truncations that touch them, by time, and the epoch that replaced
    them."""

    partition: str
    first: int
    end: int
    acknowledged: tuple[int, int] = (-1, -1)
    cuts: Sequence[tuple[str, Truncation]] = ()
    begun: PossibleEpoch | None = None

    @property
    def covered(self) -> bool:
        """Whether truncations cover all of it."""
        reached = self.first
        for _, cut in sorted(self.cuts, key=lambda each: each[1].start):
            reached = max(reached, cut.end) if cut.start <= reached else reached
        return reached >= self.end


NO_EVENTS = f"no replica has an event file ({EVENTS_FILE}; Kafka writes none)"


def events_missing(replicas: Sequence[str], file: str = "") -> str:
    """Whose event files nobody can read, in a clause, with their name where it is first told."""
    number, named = len(replicas), f" ({file})" if file else ""
    of = f"{noun(number, 'replica')} {', '.join(replicas)}{named}"
    return f"the event {noun(number, 'file')} of {of} {noun(number, 'is', 'are')} missing"


def leaders_of(events: Mapping[str, BrokerEvents]) -> dict[tuple[str, int], int]:
    """Who led a partition in an epoch, as those wrote down who chose, were chosen, or followed."""
    leaders: dict[tuple[str, int], int] = {}
    for broker in sorted(events):
        each = events[broker]
        followed = [(cut.partition, cut.epoch, cut.leader) for cut in each.truncations]
        led = [(told.partition, told.epoch, told.leader) for told in (*each.elections, *each.leaderships)]
        leaders |= {(partition, epoch): leader for partition, epoch, leader in (*followed, *led) if leader >= 0}
    return leaders


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
        everywhere = {each for broker in events.values() for each in broker.presences}
        self._presences = sorted(everywhere, key=lambda each: (each.wall_ms, each.broker, not each.injected))
        self._leaders = leaders_of(events)
        for each_broker in events.values():
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
        begun = self._begun(partition, loss, summary) if summary is not None else None
        place = self._place(partition, loss.first_offset, loss.end_offset, loss.acknowledged_ms, begun)
        gap = next((each for each in gaps if summary is not None and _is_gap_of_all(each, loss, summary)), None)
        if gap is not None and summary is not None:
            told = [*self._told(place._replace(begun=None)), self._of_gap(gap, summary)]
            return replace(loss, story="; ".join(told), cause=LossCause.GAP)
        told = list(self._told(place))
        if not place.covered:
            told.append(self._not_written(place))
        cause = self._cause(loss, place, summary)
        mark = self._leaders_mark(place) if cause is LossCause.LEADER_CHANGE else -1
        return replace(loss, story="; ".join(told), cause=cause, high_watermark=mark)

    def _cause(self, loss: Loss, place: LostRange, summary: PartitionSummary | None) -> LossCause:
        """Only what is shown of all of it, above every high watermark that anybody wrote down before, is a change of
        leader that explains it."""
        begun = place.begun is not None and place.begun.proven
        marks = [cut.high_watermark for _, cut in place.cuts]
        if (place.cuts or begun) and (known := self._highest_mark(place.partition, self._moved_ms(place))) is not None:
            marks.append(known.high_watermark)
        if any(mark > loss.first_offset for mark in marks):
            return LossCause.BELOW_HIGH_WATERMARK
        if begun or place.covered:
            return LossCause.LEADER_CHANGE
        if place.begun is not None:
            return LossCause.PROBABLY_LEADER_CHANGE
        changed = summary is None or any(
            len(each.epochs) > 1 or each.log_end <= loss.first_offset for each in summary.replicas
        )
        return LossCause.UNEXPLAINED if self._is_whole or not changed else LossCause.PERHAPS_LEADER_CHANGE

    def _place(
        self,
        partition: str,
        first: int,
        end: int,
        acknowledged: tuple[int, int] = (-1, -1),
        begun: PossibleEpoch | None = None,
    ) -> LostRange:
        cuts = sorted(self._cuts(partition, first, end), key=lambda each: (each[1].wall_ms, each[0]))
        return LostRange(partition, first, end, acknowledged, cuts, begun)

    def _begun(self, partition: str, loss: Loss, summary: PartitionSummary) -> PossibleEpoch | None:
        """The epoch that replaced a loss: the first one that began after all of it had been acknowledged; or one that
        may have, for nobody wrote down when it began, or clients read some of the acknowledgements later."""
        first_ms, last_ms = loss.acknowledged_ms
        starts = epochs_begun(summary, loss.first_offset)
        begun = [(each, self._began_ms(partition, each.epoch)) for each in starts]
        for each, wall_ms in begun:
            if first_ms > 0 and last_ms <= wall_ms:  # one without a time has -1, and comes first
                return PossibleEpoch(each, wall_ms, proven=True)
        for each, wall_ms in begun:
            may_have = first_ms <= wall_ms if min(first_ms, wall_ms) > 0 else each.offset == loss.first_offset
            if each.later and may_have:
                return PossibleEpoch(each, wall_ms, proven=False)
        return None

    def _began_ms(self, partition: str, epoch: int) -> int:
        """Before which time a leader of this epoch cannot have acknowledged anything; -1: nobody knows."""
        election = self._elections.get((partition, epoch))
        return max(self._began.get((partition, epoch), -1), election.wall_ms if election is not None else -1)

    def _leaders_mark(self, place: LostRange) -> int:
        """The highest high watermark that the leader who acknowledged it wrote down meanwhile, before the change of
        leader; -1: none was found."""
        before = max((cut.last_epoch for _, cut in place.cuts), default=-1)
        epoch = before if before >= 0 or place.begun is None else place.begun.start.epoch - 1
        leader = self._leaders.get((place.partition, epoch))
        since = max(place.acknowledged[0], self._began_ms(place.partition, epoch))
        known = self._highest_mark(place.partition, self._moved_ms(place), since, {str(leader)})
        return known.high_watermark if known is not None else -1

    @property
    def _is_whole(self) -> bool:
        return not self._without and not self._missing

    def _explained(self, finding: Finding) -> Finding:
        kind = CHECKS[finding.check].kind
        told_of = kind in (CheckKind.LOST, CheckKind.AGREEMENT) or finding.check in EXPLAINED
        lost = kind is CheckKind.LOST
        if not told_of or finding.offset < 0 or not (self._found or lost):
            return finding
        place = self._place(f"{finding.topic}-{finding.partition}", finding.offset, finding.offset + 1)
        cut = bool(place.cuts)
        unproven = self._unproven(SUSPECTED if lost and not cut else "") if lost or cut else ()
        told = [*self._told(place), *unproven]
        guess = "" if lost and cut else finding.cause
        return replace(finding, cause="; ".join(filter(None, [guess, *told])))

    def _told(self, place: LostRange) -> Iterator[str]:
        """The truncations of a place, or the epoch that replaced it, and what led to them, with when its records were
        acknowledged."""
        partition, cuts, begun = place.partition, place.cuts, place.begun
        epochs = {cut.epoch for _, cut in cuts}
        acknowledged = place.acknowledged[0] > 0
        before = [(place.acknowledged[0], self._acknowledged(*place.acknowledged))] if acknowledged else []
        if cuts:
            before += self._before(place, cuts[0][1].epoch, self._followed_ms(cuts[0][1]) or cuts[0][1].wall_ms)
        elif begun is not None:
            before += self._before(place, begun.start.epoch, begun.wall_ms)
        yield from (said for _, said in sorted(before))
        yield from (self._cut(broker, cut, place) for broker, cut in cuts[:TOLD])
        if len(cuts) > TOLD:
            yield f"and {plural(len(cuts) - TOLD, 'more truncation')}"
        for epoch in sorted({cut.last_epoch for _, cut in cuts if cut.last_epoch >= 0}):
            if (leader := self._leaders.get((partition, epoch))) is not None:
                yield f"broker {leader}, the leader of epoch {epoch}, had acknowledged what was truncated"
        if begun is not None and not place.covered:
            yield from self._replaced(place, begun, elected=begun.start.epoch not in epochs)
            epochs.add(begun.start.epoch)
        if cuts or (begun is not None and begun.proven):
            yield from self._replicated(place)
        unclean = [each for (of, _), each in sorted(self._elections.items()) if of == partition and each.unclean]
        for each in [each for each in unclean if each.epoch not in epochs][:TOLD]:
            yield f"{_chosen(each)}"

    def _replaced(self, place: LostRange, begun: PossibleEpoch, *, elected: bool) -> Iterator[str]:
        """The epoch that stands now where records were lost, or before."""
        election = self._elections.get((place.partition, begun.start.epoch))
        if elected and election is not None:
            yield _chosen(election).replace(", which was", " was", 1)
        (epoch, offset, _, at_end), leader = begun.start, self._leaders.get((place.partition, begun.start.epoch))
        of = f" of broker {leader}" if leader is not None else ""
        logs = "where all logs end" if at_end else "on every replica"
        where = "the first of them" if offset == place.first else "before the first of them"
        said = f"{logs} leader epoch {epoch}{of} begins at offset {offset}, {where}"
        if begun.proven:
            yield f"{said}, and it began after they had been acknowledged: its leader did not have them"
        elif begun.wall_ms > 0:
            yield f"{said}; it began{_at(begun.wall_ms)}, before the last acknowledgement was read"
        else:
            yield f"{said}; nobody wrote down when it began, or when they were acknowledged"

    def _not_written(self, place: LostRange) -> str:
        """That truncations are missing, and where they would stand, if they must have been."""
        said = "no truncation there was written down"
        if place.cuts:
            said = "no truncation of the other offsets was written down"
        if (place.cuts or place.begun is not None) and self._found and self._without:
            said += f": {events_missing(self._without)}"
        return said

    def _acknowledged(self, first: int, last: int) -> str:
        """When, by the clients' clocks: a client reads an answer some time after its broker gave it."""
        said = f"acknowledged{_span(first, last)}"
        killed = [each.wall_ms for each in self._presences if each.what == FAULTS["kill"]]
        if any(first < each < last for each in killed):
            said += (
                "; these are times of the clients, which may read an answer after the broker that gave it was killed"
            )
        return said

    def _before(self, place: LostRange, epoch: int, until: int) -> Iterator[tuple[int, str]]:
        """Who was killed, frozen or fenced before the election of an epoch: since the election before, and, where it is
        known when the records were acknowledged, what lasted until then or came after it."""
        began = [*self._began.items(), *((of, each.wall_ms) for of, each in self._elections.items())]
        earlier = [at for (of, other), at in began if of == place.partition and other < epoch and at < until]
        since = max(earlier, default=0)
        gone: list[BrokerPresence] = []
        for each in self._presences:
            if not since < each.wall_ms <= until:
                continue
            if each.what not in RETURNS:
                gone.append(each)
            elif each.wall_ms < place.acknowledged[0] - LATE_MS:
                gone = [other for other in gone if other.broker != each.broker]
        alike = groupby(gone[-BEFORE:], key=lambda each: (each.what, each.reason, each.injected))
        for (what, reason, injected), group in alike:
            several = list(group)
            brokers = f"{noun(len(several), 'broker')} {', '.join(str(each.broker) for each in several)}"
            what = what.replace("is ", noun(len(several), "was ", "were "), 1).replace("begins", "began")
            why = " (an injected fault)" if injected else f" ({reason})" * bool(reason)
            at = several[0].wall_ms
            yield at, f"{brokers} {what}{_span(at, several[-1].wall_ms)}{why}"

    def _unproven(self, otherwise: str) -> Iterator[str]:
        """Whose events are missing, and what follows from that."""
        so = otherwise or MORE
        if self._missing:
            yield f"{plural(self._missing, 'event is', 'events are')} missing, {MORE}"
        if not self._found:
            yield f"{NO_EVENTS}, {so}"
        elif self._without:
            yield f"{events_missing(self._without, EVENTS_FILE)}, {so}"
        elif otherwise:
            yield f"no broker wrote down that it truncated its log there, {otherwise}"

    def _followed_ms(self, cut: Truncation) -> int:
        """From when on another leader may have raised the high watermark over other records in this place; where nobody
        wrote down when it was elected or began, at any time."""
        first_ms = self._first_ms(cut.partition, cut.epoch)
        return min(cut.wall_ms, first_ms) if first_ms > 0 else 0

    def _moved_ms(self, place: LostRange) -> int:
        """From when on high watermarks may count other records in a place."""
        first_ms = EVER
        if place.begun is not None and place.begun.proven:
            first_ms = self._first_ms(place.partition, place.begun.start.epoch)
        return min([first_ms, *(self._followed_ms(cut) for _, cut in place.cuts)])

    def _replicated(self, place: LostRange) -> Iterator[str]:
        """How far the brokers knew the log that was cut to be replicated."""
        before_ms = self._moved_ms(place)
        if (known := self._highest_mark(place.partition, before_ms)) is None:
            return
        since_ms = place.acknowledged[0]
        wrote = [name for name in self._found if self._highest_mark(place.partition, before_ms, since_ms, {name})]
        if known.high_watermark > place.first:
            so = "so some had been replicated"
        elif not wrote:
            so = "before they were acknowledged, so it shows nothing of them"
        elif not self._without:
            so = "so no broker knew any of them to be replicated"
        else:
            so = f"and nothing that was read shows that any of them was replicated ({events_missing(self._without)})"
        who = f"broker {known.broker}{_at(known.wall_ms)}"
        yield f"the highest high watermark that a broker wrote down before was {known.high_watermark} ({who}), {so}"

    def _highest_mark(
        self, partition: str, before_ms: int, since_ms: int = 0, names: Iterable[str] | None = None
    ) -> WrittenHighWatermark | None:
        """The first one that is as high."""
        return max(
            (
                WrittenHighWatermark(each.high_watermark, each.wall_ms, broker)
                for broker in sorted(self._events if names is None else self._events.keys() & set(names))
                for each in self._events[broker].progress
                if each.partition == partition and since_ms <= each.wall_ms <= before_ms
            ),
            key=lambda each: (each.high_watermark, -each.wall_ms, each.broker),
            default=None,
        )

    def _of_gap(self, gap: Finding, summary: PartitionSummary) -> str:
        """What stands where the logs go on behind a gap, and what shows that it had been replicated: later records of
        the epoch, and high watermarks that were written down before the next one."""
        place = f"{gap.topic}-{gap.partition}"
        said = gap.sentence.removeprefix(f"{place}: ").replace("; ", ", ")
        lack = [each for each in summary.replicas if each.replica in gap.replicas]
        shown = []
        if gap.offset > 0 and all(epoch_at(each, gap.offset - 1) == gap.epoch for each in lack):
            shown.append(f"epoch {gap.epoch} goes on behind them on every replica")
        later = [epoch for of, epoch in [*self._elections, *self._began] if of == place and epoch > gap.epoch]
        later += [epoch for each in summary.replicas for epoch, _ in each.epochs if epoch > gap.epoch]
        before_ms = max(0, self._first_ms(place, min(later))) if later else EVER
        known = self._highest_mark(place, before_ms, self._began_ms(place, gap.epoch))
        if known is not None and known.high_watermark >= gap.end_offset:
            before = ", before the next change of leader" if later else ""
            mark = f"a high watermark of {known.high_watermark}{_at(known.wall_ms)}{before}"
            shown.append(f"broker {known.broker} wrote down {mark}, so its cluster counted them as replicated")
        told = [f"found there ({gap.check}): {said}", *shown, "this is damage or a defect, and no change of leader"]
        return "; ".join(told)

    def _first_ms(self, partition: str, epoch: int) -> int:
        """From when on an epoch may have had a leader; -1: nobody knows."""
        election = self._elections.get((partition, epoch))
        known = [election.wall_ms if election is not None else -1, self._began.get((partition, epoch), -1)]
        return min((each for each in known if each > 0), default=-1)

    def _cuts(self, partition: str, first: int, end: int) -> Iterator[tuple[str, Truncation]]:
        for broker in sorted(self._events):
            for cut in self._events[broker].truncations:
                if cut.partition == partition and cut.start < end and first < cut.end:
                    yield broker, cut

    def _cut(self, broker: str, cut: Truncation, place: LostRange) -> str:
        said = (
            f"broker {broker} wrote down that it truncated its log from {cut.end} to {cut.start} in leader epoch "
            f"{cut.epoch}"
        )
        if cut.high_watermark > cut.start:
            said += f", below its high watermark {cut.high_watermark}"
        said += _at(cut.wall_ms)
        if reason := TRUNCATED_BY.get(cut.rule):
            said += f" ({reason})"
        first, end = max(cut.start, place.first), min(cut.end, place.end)
        if (first, end) != (place.first, place.end):
            said += f", which covers {end - first:,} of them, offsets {first} to {end - 1}"
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


def _chosen(election: Election) -> str:
    how = "was elected from outside of the ISR" if election.unclean else "was elected from the ISR"
    return f"broker {election.leader}, which {how} for leader epoch {election.epoch}{_at(election.wall_ms)}"


def _span(first_ms: int, last_ms: int) -> str:
    return _at(first_ms) + (f" to{_at(last_ms).removeprefix(' at')}" if last_ms > first_ms else "")


def _at(wall_ms: int) -> str:
    """A broker's wall time; empty where there is none, or none that a calendar has."""
    time = clock(wall_ms) if wall_ms > 0 else ""
    return f" at {time} UTC" if time else ""


# --- Leader epochs of the logs ----------------------------------------------------------------------------------------


def _starts(replica: ReplicaSummary) -> dict[int, int]:
    """The file's entries count at the end of the log alone: before it batches say the same, and cannot be stale."""
    at_end = [entry for entry in replica.epoch_file or () if entry[1] == replica.log_end]
    return {entry[0]: entry[1] for entry in [*at_end, *replica.epochs]}


def epoch_at(replica: ReplicaSummary, offset: int) -> int:
    """The leader epoch in which an offset of a replica's log lies, or that begins at its end; -1: none."""
    return max((epoch for epoch, start in _starts(replica).items() if start <= offset), default=-1)


def epochs_begun(summary: PartitionSummary, offset: int) -> list[EpochBegin]:
    """The leader epochs that begin at or below an offset on every replica whose log goes beyond it, the oldest first;
    where none does, on any replica."""
    beyond = [each for each in summary.replicas if each.log_end > offset]
    known = [_starts(each) for each in beyond or summary.replicas]
    highest: dict[int, int] = {}
    for starts in known:
        for epoch, start in starts.items():
            highest[epoch] = max(start, highest.get(epoch, start))
    return [
        EpochBegin(epoch, start, later=epoch > min(highest), at_end=not beyond)
        for epoch, start in sorted(highest.items())
        if start <= offset and (not beyond or all(epoch in starts for starts in known))
    ]
