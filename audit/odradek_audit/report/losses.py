"""What is said before anything else when acknowledged records are gone: how many, where, and who was asked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from odradek_audit.evidence.run import Moment, shown_of
from odradek_audit.report.markup import Safe, join, name, shown, tag
from odradek_audit.results import Loss
from odradek_audit.words import count, plain, plural

SHOWN_STORIES = 40
NAMED_LOSSES = 3
"""Losses told one by one; the others are one number."""

LEADER_ONLY = "acks=1 promises only the leader's copy, so no promise was broken."


def loss_sentences(losses: Sequence[Loss], replicas: int) -> list[str]:
    """One sentence for each of the largest losses, and what they add up to; empty when nothing is gone.

    `replicas` is how many were read. That they were all there are is not for an audit to say.
    """
    ordered = sorted(losses, key=lambda loss: (-loss.records, loss.topic, loss.partition, loss.acks))
    said = [_sentence(loss, replicas) for loss in ordered[:NAMED_LOSSES]]
    if rest := ordered[NAMED_LOSSES:]:
        places = plural(len({(loss.topic, loss.partition) for loss in rest}), "partition")
        more = lost_records(rest)
        are = "is" if more == 1 else "are"
        said.append(f"{plural(more, 'more record')} of {places} {are} on none of them either.")
    if losses and all(loss.acks != "all" for loss in losses):
        said.append(LEADER_ONLY)
    return said


def lost_records(losses: Sequence[Loss]) -> int:
    """How many acknowledged records are gone from every replica that was read."""
    return sum(loss.records for loss in losses)


def _sentence(loss: Loss, replicas: int) -> str:
    one = loss.records == 1
    what = f"{count(loss.records)} {'record' if one else 'records'} of {plain(loss.topic, 80)}-{loss.partition}"
    told = f"that {'was' if one else 'were'} acknowledged with acks={loss.acks}"
    has_not = "the only replica that was read does not have"
    if replicas != 1:
        has_not = f"none of the {replicas} replicas that were read has"
    gone = f"{'is' if one else 'are'} gone{_where(loss)}"
    return f"{what} {told} {gone}: {has_not} {'it' if one else 'them'}."


def _where(loss: Loss) -> str:
    if loss.first_offset < 0:
        return ""
    end = loss.end_offset - 1
    first, last = (
        f"{offset} ({plain(value)!r})" if value else f"{offset}"
        for offset, value in zip((loss.first_offset, end), loss.values, strict=True)
    )
    if end == loss.first_offset:
        return f", offset {first}"
    if loss.records < loss.end_offset - loss.first_offset:
        return f", between offsets {first} and {last}"
    return f", from offset {first} to {last}"


def losses_html(losses: Sequence[Loss]) -> Safe:
    """Every loss with its story, the largest first."""
    told = [loss for loss in sorted(losses, key=lambda loss: -loss.records) if loss.story][:SHOWN_STORIES]
    if not told:
        return Safe("")
    rows = [
        tag(
            "li",
            tag("b", name(loss.topic), f"-{loss.partition}{_where(loss)}: "),
            f"{count(loss.records)} of acks={loss.acks}.",
            tag("ul", *(tag("li", shown(f"{part[:1].upper()}{part[1:]}.")) for part in loss.story.split("; "))),
        )
        for loss in told
    ]
    return join([tag("h2", "How records were lost", id="losses"), tag("ul", *rows)])


def run_html(moments: Sequence[Moment]) -> Safe:
    """The run on one timeline: times, places, and the cuts of what is lost among what led to them."""
    if not moments:
        return Safe("")
    rows = [
        tag(
            "tr",
            tag("td", shown(_clock(moment.wall_ms), 40), class_="when"),
            tag("td", name(moment.partition)),
            tag("td", tag("b", "✗ ", shown(moment.what), ": these records are lost") if moment.lost else moment.what),
            class_="lost" if moment.lost else None,
        )
        for moment in shown_of(moments)
    ]
    left = len(moments) - len(rows)
    said = "As the brokers wrote it down, by their own clocks"
    said += f"; {plural(left, 'other moment')} farther from what was lost, or earlier, left out." if left else "."
    head = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in ("time (UTC)", "partition", "what"))))
    table = tag("table", head, tag("tbody", *rows))
    opened = tag("details", tag("summary", plural(len(rows), "moment")), table, open=any(each.lost for each in moments))
    return join([tag("h2", "The run", id="run"), tag("p", said, class_="quiet"), opened])


def _clock(wall_ms: int) -> str:
    """A broker's wall time; the number itself where a calendar has none."""
    try:
        return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{wall_ms % 1000:03}"
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms"
