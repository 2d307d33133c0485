"""What is said before anything else when acknowledged records are gone: how many, where, and who was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from odradek_audit.checks.directories import listed
from odradek_audit.evidence.run import shown_of
from odradek_audit.evidence.story import NO_EVENTS, events_missing
from odradek_audit.inputs.events import EVENTS_FILE
from odradek_audit.report.markup import SafeMarkup, command, head, join, name, scrolling, shown, tag
from odradek_audit.report.model import Report
from odradek_audit.results import Loss, LossCause
from odradek_audit.words import capital, clock, count, noun, plain, plural

SHOWN_STORIES = 40
NAMED_LOSSES = 3
"""Losses told one by one; the others are one number."""
_MIN_ISR = ("--config", "min.insync.replicas=2")


class CauseWording(NamedTuple):
    """What is said of losses of acks=1 with one cause: of all of them in the verdict, at the end of the story of one
    (that of a gap says so itself), and in the table."""

    of_all: str
    of_one: str
    in_short: str


CAUSES = {
    LossCause.GAP: CauseWording(
        "{} {are} missing where every replica's log goes on behind {them}. No change of leader explains {these}: it is "
        "damage, or a defect.",
        "",
        "missing in every replica: damage, or a defect",
    ),
    LossCause.BELOW_HIGH_WATERMARK: CauseWording(
        "{} {were} lost at a change of leader, from below a high watermark on, so replicas in sync had some of {them}: "
        "acks=1 does not explain that, an unclean election or a defect does.",
        "Replicas in sync had some of them: an unclean election, or a defect.",
        "a change of leader, from below a high watermark on",
    ),
    LossCause.UNEXPLAINED: CauseWording(
        "Nothing that was read explains the loss of {}: no truncation there was written down.",
        "Nothing that was read explains it.",
        "nothing that was read explains it",
    ),
    LossCause.PERHAPS_LEADER_CHANGE: CauseWording(
        "Whether a change of leader cost {}, which acks=1 allows, cannot be told: {missing}.",
        "That a change of leader cost all of them is not proven.",
        "perhaps a change of leader",
    ),
    LossCause.PROBABLY_LEADER_CHANGE: CauseWording(
        "A change of leader probably cost {}, which acks=1 allows: a later leader epoch begins at or before {them} on "
        "every replica, but it is not written down that each was acknowledged before.",
        "A change of leader probably cost all of them.",
        "probably a change of leader",
    ),
    LossCause.LEADER_CHANGE: CauseWording(
        "A change of leader cost {}: acks=1 promises only the leader's copy, so that breaks no promise. {shown}",
        "A change of leader cost them.",
        "a change of leader",
    ),
}
"""The gravest first."""
GRAVITY = {cause: place for place, cause in enumerate(CAUSES)}


def missing_events(report: Report) -> str:
    """Whose events nobody can read, in a clause; empty where all are there."""
    without, missing = report.without_events, sum(each.missing for each in report.events.values())
    said = [f"{plural(missing, 'event')} could not be written"] if missing else []
    if len(without) == len(report.replicas):
        said.append(NO_EVENTS)
    elif without:
        said.append(events_missing(without, EVENTS_FILE))
    return " and ".join(said)


def loss_sentences(report: Report) -> list[str]:
    """How many are gone, and then what they add up from, the gravest first: what acks=all promised, and what of acks=1
    is explained. Empty when nothing is gone. That the replicas that were read were all there are is not for an audit to
    say."""
    losses = _largest(report.losses)
    said = [_sentence(losses[0], len(report.replicas))] if len(losses) == 1 else []
    if len(losses) > 1:
        said.append(
            f"{count(lost_records(losses))} acknowledged records are gone: "
            f"{_has_not(len(report.replicas))} them.{_taken(report)}"
        )
        if owed := [loss for loss in losses if loss.acks == "all"]:
            what = _some_of(losses, owed)
            were = noun(lost_records(owed), "was", "were")
            said.append(
                f"{what} {were} acknowledged with acks=all, which promises that no change of leader loses them."
            )
    elif losses:
        said[0] += _taken(report)
    for cause, words in CAUSES.items():
        here = [loss for loss in losses if loss.acks != "all" and loss.cause is cause]
        if number := lost_records(here):
            forms = {"are": ("is", "are"), "were": ("was", "were"), "them": ("it", "them")}
            forms["these"] = ("it", f"these {count(number)}")
            chosen = {word: noun(number, *each) for word, each in forms.items()}
            chosen |= {"missing": missing_events(report), "shown": _shown(here)}
            said.append(words.of_all.format(_some_of(losses, here), **chosen).strip())
    return said


def _shown(losses: Sequence[Loss]) -> str:
    """Of how many a figure says that they were not replicated yet."""
    shown = lost_records([loss for loss in losses if loss.high_watermark >= 0])
    left = lost_records(losses) - shown
    if not shown:
        them = noun(left, "it", "them")
        return f"Whether a replica in sync had {them} is not shown: no high watermark of {them} was found."
    rest = f"; for the other {count(left)} no such figure was found" if left else ""
    figure = "wrote down, while they were acknowledged, a high watermark at or below the first"
    return f"For {count(shown)} of them their leader {figure}{rest}."


def perhaps_gone(report: Report) -> list[str]:
    """How many more may be gone, which are not counted with those that are."""
    unsure = {
        f"{plain(each.topic, 80)}-{each.partition}": each.history.get("perhaps_gone", 0) for each in report.partitions
    }
    if not (number := sum(unsure.values())):
        return []
    more = " more" if report.losses else ""
    what = f"{count(number)}{more} acknowledged {noun(number, 'record')}"
    places = listed(name for name, records in unsure.items() if records)
    are, them = noun(number, "is", "are"), noun(number, "it", "them")
    return [
        f"Whether {what} of {places} {are} gone cannot be told: bytes that may hold {them} cannot be read (the "
        "notes say where)."
    ]


def _taken(report: Report) -> str:
    """That other records stand where lost ones stood, in a sentence behind a space."""
    ends = {(each.topic, each.partition): each for each in report.partitions}
    placed = [loss for loss in report.losses if loss.first_offset >= 0 and (loss.topic, loss.partition) in ends]
    behind = [
        (loss, max((each.log_end for each in ends[loss.topic, loss.partition].replicas), default=0))
        for loss in placed
        if loss.cause is not LossCause.GAP
    ]
    if not any(loss.first_offset < end for loss, end in behind):
        return ""
    if len(behind) == len(report.losses) and all(loss.end_offset <= end for loss, end in behind):
        return " Other records stand at these offsets now."
    return " Other records stand at these offsets now, but for gaps and what lies behind the ends of the logs."


def _some_of(losses: Sequence[Loss], some: Sequence[Loss]) -> str:
    """Some losses as a part of all, with their offsets when they are few."""
    number = count(lost_records(some))
    where = sorted({(loss.topic, loss.partition) for loss in some})
    places = listed(f"{plain(topic, 80)}-{partition}" for topic, partition in where)
    if len(losses) == 1:
        return f"{plural(lost_records(some), 'record')} of {places}"
    if len(some) <= NAMED_LOSSES and all(loss.first_offset >= 0 for loss in some):
        places = "; ".join(
            f"{plain(loss.topic, 80)}-{loss.partition}, {_where(replace(loss, values=('', ''))).removeprefix(', ')}"
            for loss in sorted(some, key=lambda loss: (loss.topic, loss.partition, loss.first_offset))
        )
    return f"{number} of them ({places})"


def _largest(losses: Sequence[Loss]) -> list[Loss]:
    """The gravest first, and of those alike the largest."""

    def rank(loss: Loss) -> tuple[object, ...]:
        gravity = GRAVITY[loss.cause] if loss.cause is not None else len(GRAVITY)
        return loss.acks != "all", gravity, -loss.records, loss.topic, loss.partition, loss.first_offset

    return sorted(losses, key=rank)


def loss_table(losses: Sequence[Loss]) -> SafeMarkup:
    """Below the verdict: every loss, in the order in which the records were acknowledged, each with a link to its
    story."""
    if not losses:
        return SafeMarkup("")
    told = list(enumerate(_largest(losses)[:SHOWN_STORIES], start=1))
    told.sort(key=lambda each: (each[1].acknowledged_ms[0], each[1].topic, each[1].partition, each[1].first_offset))
    rows = []
    for number, loss in told:
        last, span = loss.end_offset - 1, loss.end_offset - loss.first_offset
        offsets = f"{loss.first_offset}" if span == 1 else f"{loss.first_offset} to {last}"
        cells = (
            tag("a", f"{count(loss.records)} lost", href=f"#loss-{number}"),
            join(name(loss.topic), f"-{loss.partition}"),
            "not known" if loss.first_offset < 0 else offsets + (", not all" if loss.records < span else ""),
            f"acks={loss.acks}",
            f"until {_clock(loss.acknowledged_ms[1])}" if loss.acknowledged_ms[1] > 0 else "at no time that was kept",
            CAUSES[loss.cause].in_short if loss.cause is not None else "see its story",
        )
        rows.append(tag("tr", *(tag("td", cell) for cell in cells)))
    titles = head("records", "partition", "offsets", "promise", "acknowledged (UTC)", "why")
    more = len(losses) - len(told)
    rest = tag("p", f"and {plural(more, 'more loss', 'more losses')}, in summary.json.") if more else SafeMarkup("")
    return join(scrolling("Losses", tag("table", titles, tag("tbody", *rows))), rest)


def lost_records(losses: Sequence[Loss]) -> int:
    """How many acknowledged records are gone from every replica that was read."""
    return sum(loss.records for loss in losses)


def _sentence(loss: Loss, replicas: int) -> str:
    one = loss.records == 1
    what = f"{count(loss.records)} {'record' if one else 'records'} of {plain(loss.topic, 80)}-{loss.partition}"
    told = f"that {'was' if one else 'were'} acknowledged with acks={loss.acks}"
    gone = f"{'is' if one else 'are'} gone{_where(loss)}"
    return f"{what} {told} {gone}: {_has_not(replicas)} {'it' if one else 'them'}."


def _has_not(replicas: int) -> str:
    if replicas == 1:
        return "the only replica that was read does not have"
    return f"none of the {replicas} replicas that were read has"


def _where(loss: Loss) -> str:
    if loss.first_offset < 0:
        return ""
    end = loss.end_offset - 1
    first, last = (
        f"{offset} (value {plain(value)!r})" if value else f"{offset}"
        for offset, value in zip((loss.first_offset, end), loss.values, strict=True)
    )
    if end == loss.first_offset:
        return f", offset {first}"
    if loss.records < loss.end_offset - loss.first_offset:
        return f", between offsets {first} and {last}"
    return f", from offset {first} to {last}"


def losses_html(report: Report, anchors: Mapping[str, str]) -> SafeMarkup:
    """Every loss with its story, the largest first, and what to do. `anchors` lead to the gaps, by place."""
    told = _largest(report.losses)[:SHOWN_STORIES]
    if not told:
        return SafeMarkup("")
    missing = missing_events(report)
    rows: list[SafeMarkup] = []
    for loss in told:
        parts = [shown(f"{capital(part)}.") for part in loss.story.split("; ") if part]
        if loss.cause is not None and (end := CAUSES[loss.cause].of_one):
            parts.append(tag("b", end))
        if loss.cause is LossCause.GAP and (anchor := anchors.get(f"{loss.topic}-{loss.partition}")):
            parts.append(tag("a", "Show the gap ↓", href=f"#{anchor}"))
        place = tag("b", name(loss.topic), f"-{loss.partition}{_where(loss)}: ")
        said = f"{plural(loss.records, 'record')} acknowledged with acks={loss.acks}."
        rows.append(tag("li", place, said, tag("ul", *(tag("li", part) for part in parts)), id=f"loss-{len(rows) + 1}"))
    said = f"{capital(missing)}: truncations and elections may be missing below." if missing else ""
    steps = tag("details", tag("summary", "What to do"), _steps(report, told), open=True)
    begin = [tag("h2", "How records were lost", id="losses"), tag("p", tag("b", said)) if said else ""]
    return join(*begin, tag("ul", *rows), steps)


def _steps(report: Report, losses: Sequence[Loss]) -> SafeMarkup:
    """What keeps the next records, and what gets those back that no replica has: they are sent last, for what is sent
    to copies that are wrong, or with acks=1, may be lost again."""
    steps: list[object] = [join("Keep copies, ", tag("a", "as above", href="#keep"), ".")]
    by_leader = sorted({loss.topic for loss in losses if loss.acks != "all"})
    if by_leader:
        said = (
            "Set acks=all in the producers before they go on: records that may not be lost when a leader dies need it"
        )
        in_sync = report.configuration.get("min.insync.replicas", "")
        if in_sync.isdecimal() and int(in_sync) > 1:
            rest: list[object] = [shown(f"; min.insync.replicas is {in_sync} already")]
        else:
            rest = [", at least three replicas, and "]
            rest += [command("odradek", "topic", "alter", each, *_MIN_ISR) for each in by_leader[:NAMED_LOSSES]]
        steps.append(join(said, *rest, ". acks=1 is for those that may be."))
    if report.findings:
        steps.append(join("Repair the copies, ", tag("a", "partition by partition", href="#findings"), "."))
        steps.append("Audit again.")
    history = report.history_file
    named = join("the values are in ", tag("code", shown(history, 300)), ", events ", tag("code", '"type": "ack"'))
    steps += [
        "Look for the lost records in what was not read: a broker's disk that was replaced or restored, a backup, a "
        "consumer or a sink that had read them.",
        join("What you do not find there, send again from its source, with its keys; ",
              named if history else "the history of the clients names the values", " of these offsets. The records get "
              "new offsets, behind what is there."),
    ]  # fmt: skip
    return tag("ol", *(tag("li", step) for step in steps), class_="steps")


def run_html(report: Report) -> SafeMarkup:
    """The run on one timeline: times, places, and the truncations of what is lost among what led to them."""
    moments = report.run
    if not moments:
        return SafeMarkup("")
    rows = [
        tag(
            "tr",
            tag("td", shown(_clock(moment.wall_ms), 40), class_="when"),
            tag("td", name(moment.partition)),
            tag(
                "td",
                tag("b", "✗ ", shown(moment.what), ": lost records were among these") if moment.lost else moment.what,
            ),
            class_="lost" if moment.lost else None,
        )
        for moment in shown_of(moments)
    ]
    left = len(moments) - len(rows)
    said = (
        "As the brokers wrote it down, by their own clocks; what was done to brokers, as whoever did it wrote it down"
    )
    said += ", and what was not acknowledged, by the clients' clocks"
    said += f"; {plural(left, 'other moment')} farther from what was lost, or earlier, left out." if left else "."
    if missing := missing_events(report):
        said += f" {capital(missing)}, so the elections and truncations that stood there are not here."
    table = tag("table", head("time (UTC)", "partition", "what"), tag("tbody", *rows, class_="moments"))
    folded = tag("details", tag("summary", plural(len(rows), "moment")), table, open=any(each.lost for each in moments))
    return join(tag("h2", "The run", id="run"), tag("p", said, class_="quiet"), folded)


def _clock(wall_ms: int) -> str:
    """A wall time; the number itself where a calendar has none."""
    return clock(wall_ms) or f"{wall_ms} ms"
