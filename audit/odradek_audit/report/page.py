"""`report.html`: one file that an engineer sends to a colleague. No script, no font, no picture from elsewhere.

In the order in which somebody reads who has a minute: the verdict and the worst findings; what was compared and what
was not; then, partition by partition, the picture of its epochs, the evidence and what to do; the numbers; what was
owed; the words. `page.html` has that order, `page.css` the looks.
Bounded: some findings of each check are shown whole, more as a line, the rest as a number, with the files that have
them all.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from string import Template

from odradek_audit.catalogue import OFFSET_GAP, gravity
from odradek_audit.findings import Finding
from odradek_audit.report.cards import card, first_list
from odradek_audit.report.headlines import merge_runs, verdict_sentences, verdict_word
from odradek_audit.report.last_copies import partitions_of_last_copies
from odradek_audit.report.losses import losses_html, run_html
from odradek_audit.report.markup import SafeMarkup, join, name, shown, tag
from odradek_audit.report.model import FINDINGS_FILE, PARQUET_FILE, SUMMARY_FILE, Report
from odradek_audit.report.repair import keep_copies, repair
from odradek_audit.report.sections import compared, guarantees, not_compared, notes, partition_numbers
from odradek_audit.report.timeline import timeline
from odradek_audit.report.words import words
from odradek_audit.words import plural

CARDS_PER_CHECK = 10
CARDS = 60
"""Findings shown whole, over all checks; one with its evidence has about 20 kB."""
OPENED = 3
"""Findings whose bytes are shown at once."""
LINES_PER_CHECK = 20
TIMELINES = 40
PARTITIONS = 400

_TEMPLATES = files("odradek_audit.report")
_SIGNS = {"fine": "✓", "findings": "✗", "inconclusive": "?"}


def page(report: Report) -> str:
    """The whole document."""
    ordered = merge_runs(sorted(report.findings, key=gravity))
    shown_whole = _whole(ordered)
    anchors = {id(finding): f"finding-{number}" for number, finding in enumerate(shown_whole, start=1)}
    gaps = {each.place: anchors[id(each)] for each in shown_whole if each.check == OFFSET_GAP.name}
    style = _TEMPLATES.joinpath("page.css").read_text(encoding="utf-8")
    made = f"Made {report.made_at}, engine {report.engine}." if report.made_at else f"Engine {report.engine}."
    parts = {
        "title": f"{verdict_word(report)}: audit of {plural(len(report.replicas), 'replica')}",
        "style": SafeMarkup(style),
        "style_hash": "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "verdict": _verdict(report),
        "first": first_list(shown_whole, anchors, sum(finding.weight for finding in ordered), report.losses),
        "keep": _keep(report),
        "losses": join(losses_html(report, gaps), run_html(report)),
        "compared": compared(report),
        "not_compared": not_compared(report),
        "findings": _findings(report, ordered, shown_whole, anchors),
        "numbers": partition_numbers(report, PARTITIONS),
        "notes": notes(report),
        "guarantees": guarantees(report),
        "words": words(report),
        "made": made,
        "findings_file": FINDINGS_FILE,
        "parquet_file": PARQUET_FILE,
        "summary_file": SUMMARY_FILE,
    }
    template = Template(_TEMPLATES.joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute({name: shown(part) for name, part in parts.items()})


def _verdict(report: Report) -> SafeMarkup:
    word = verdict_word(report)
    look = "findings" if report.verdict == "lost" else report.verdict
    said = verdict_sentences(report)
    return tag(
        "section",
        tag("div", _SIGNS[look], class_="sign", aria_hidden="true"),
        tag("div", tag("p", word, class_="word"), *(tag("p", shown(each, 900), class_="why") for each in said)),
        class_=f"verdict {look}",
        aria_label="Verdict",
    )


def _keep(report: Report) -> SafeMarkup:
    """Copies come first, where anything is wrong with what was read."""
    if not report.findings and not report.losses:
        return SafeMarkup("")
    return keep_copies(report.replicas, sorted({each for finding in report.findings for each in finding.replicas}))


def _whole(ordered: Iterable[Finding]) -> list[Finding]:
    """The findings that get a card of their own."""
    taken: Counter[str] = Counter()
    chosen: list[Finding] = []
    for finding in ordered:
        if taken[finding.check] < CARDS_PER_CHECK and len(chosen) < CARDS:
            taken[finding.check] += 1
            chosen.append(finding)
    return chosen


def _findings(report: Report, ordered: list[Finding], whole: list[Finding], anchors: dict[int, str]) -> SafeMarkup:
    """Partition by partition: those with records that one replica alone has, then by the gravest finding."""
    if not ordered:
        return join(tag("h2", "Findings", id="findings"), tag("p", "None."), _sample_timelines(report))
    parts = [tag("h2", "Findings, partition by partition", id="findings")]
    summaries = {(each.topic, each.partition): each for each in report.partitions}
    totals = Counter((finding.topic, finding.partition) for finding in report.findings)
    opened = OPENED
    places = list(dict.fromkeys((finding.topic, finding.partition) for finding in whole))
    if first := partitions_of_last_copies(report):
        said = "Repair them in this order: first what is left on one replica only."
        parts.append(tag("p", tag("b", said)))
        places.sort(key=lambda place: place not in first)
    for number, key in enumerate(places):
        mine = [finding for finding in whole if (finding.topic, finding.partition) == key]
        summary = summaries.get(key)
        title = join(name(key[0]), f"-{key[1]}") if key[1] >= 0 else SafeMarkup("Log directories")
        parts.append(tag("h3", title, f": {plural(totals[key], 'finding')}"))
        if summary is not None and number < TIMELINES:
            parts.append(timeline(summary, [(finding, anchors[id(finding)]) for finding in mine], legend=not number))
        parts.append(
            repair([finding for finding in report.findings if (finding.topic, finding.partition) == key], summary)
        )
        for finding in mine:
            parts.append(card(finding, anchors[id(finding)], report.replicas, opened=opened > 0))
            opened -= finding.excerpt is not None
    parts.append(_rest(ordered, anchors))
    return join(*parts)


def _rest(ordered: list[Finding], anchors: dict[int, str]) -> SafeMarkup:
    """Findings without a card: a line for some of each check, and a number for the others."""
    left: dict[str, list[Finding]] = {}
    for finding in ordered:
        if id(finding) not in anchors:
            left.setdefault(finding.check, []).append(finding)
    if not left:
        return SafeMarkup("")
    parts = [tag("h3", f"{plural(sum(each.weight for some in left.values() for each in some), 'more finding')}")]
    for check, findings in left.items():
        lines = [tag("li", shown(finding.sentence, 300)) for finding in findings[:LINES_PER_CHECK]]
        unsaid = len(findings) - len(lines)
        more = tag("p", f"… and {plural(unsaid, 'other')} of this check.", class_="quiet") if unsaid else SafeMarkup("")
        parts.append(tag("details", tag("summary", f"{check}: {len(findings):,} more"), tag("ul", *lines), more))
    parts.append(tag("p", f"All of them are in {FINDINGS_FILE} and {PARQUET_FILE}, beside this file.", class_="quiet"))
    return join(*parts)


def _sample_timelines(report: Report) -> SafeMarkup:
    """Without a finding: the epochs of the partitions that have most of them."""
    told = sorted(
        (each for each in report.partitions if not each.topic.startswith("__")),
        key=lambda each: (
            -max((len(replica.epochs) for replica in each.replicas), default=0),
            each.topic,
            each.partition,
        ),
    )[:2]
    pictures = [(each, timeline(each, [], legend=not number)) for number, each in enumerate(told)]
    titled = (join(tag("h3", name(each.topic), f"-{each.partition}"), picture) for each, picture in pictures if picture)
    return join(*titled)
