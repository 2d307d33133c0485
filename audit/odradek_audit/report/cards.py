"""A finding as a card: what is wrong in a plain line, where, since which epoch, probably why, and the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek_audit.catalogue import CHECKS
from odradek_audit.excerpt import ACCUSED, BatchView
from odradek_audit.findings import CheckKind, Finding
from odradek_audit.report.advice import advice
from odradek_audit.report.excerpt_html import excerpt_html
from odradek_audit.report.headlines import headline
from odradek_audit.report.losses import loss_table
from odradek_audit.report.markup import SafeMarkup, code, join, name, shown, tag
from odradek_audit.report.repair import concerns_a_copy
from odradek_audit.results import Loss
from odradek_audit.wording import is_lack
from odradek_audit.words import SENTENCE_LIMIT, capital, noun, plural

FIRST = 6
"""Findings that are named right below the verdict."""


def check_badge(finding: Finding) -> SafeMarkup:
    """The check's name; the title says what it means."""
    title = CHECKS[finding.check].title
    return tag("span", finding.check, class_=f"check {finding.severity.value}", title=title)


def first_list(
    findings: Sequence[Finding], anchors: Mapping[int, str], total: int, losses: Sequence[Loss]
) -> SafeMarkup:
    """The losses and the worst findings, each with a link to its story or its card."""
    if not findings and not losses:
        return SafeMarkup("")
    if len(findings) == 1 and not losses:
        link = tag("a", "Show the evidence ↓", href=f"#{anchors[id(findings[0])]}", class_="jump")
        return tag("p", check_badge(findings[0]), " ", link)
    rows = [
        tag(
            "li",
            tag("span", check_badge(finding), class_="where"),
            tag("a", shown(headline(finding), SENTENCE_LIMIT), href=f"#{anchors[id(finding)]}"),
        )
        for finding in findings[:FIRST]
    ]
    left = total - sum(finding.weight for finding in findings[:FIRST])
    if left:
        rows.append(tag("li", tag("a", f"and {plural(left, 'more finding')}", href="#findings")))
    worst = tag("ul", *rows, class_="first", aria_label="The worst findings") if rows else SafeMarkup("")
    return join(loss_table(losses), worst)


def card(finding: Finding, anchor: str, directories: Mapping[str, str], *, opened: bool) -> SafeMarkup:
    """One finding, whole. `directories` are what was read of each replica."""
    severity = finding.severity.value
    parts = [
        tag("h4", shown(headline(finding), SENTENCE_LIMIT)),
        tag("p", check_badge(finding), *_facts(finding), class_="facts"),
    ]
    if finding.cause:
        parts.append(tag("p", tag("b", "Suspected cause: "), shown(finding.cause, SENTENCE_LIMIT), ".", class_="cause"))
    if finding.reference:
        chosen = shown(capital(finding.reference), SENTENCE_LIMIT)
        parts.append(tag("p", chosen, ".", class_="quiet"))
    title = (
        "Where to look"
        if concerns_a_copy(finding) and CHECKS[finding.check].kind is not CheckKind.LOST
        else "What to do"
    )
    steps = tag("details", tag("summary", title), advice(finding, directories), open=opened)
    if finding.excerpt is not None:
        parts.append(excerpt_html(finding.excerpt, steps, opened=opened))
    else:
        parts.append(steps)
    parts.append(
        tag("details", tag("summary", "In the audit's words"), tag("p", shown(finding.sentence, SENTENCE_LIMIT)))
    )
    return tag("article", *parts, id=anchor, class_=f"card {severity}")


def _facts(finding: Finding) -> list[SafeMarkup]:
    facts = []
    if finding.place:
        facts.append(_fact("partition", join(name(finding.topic), f"-{finding.partition}")))
    if finding.replica:
        facts.append(_fact(noun(len(finding.replicas), "replica"), join(*map(name, finding.replicas), separator=", ")))
    batch = finding.batch(ACCUSED)
    if batch is not None and batch.trouble and not batch.records and finding.evidence.get("agree_again"):
        facts.append(_fact("batch", f"offsets {batch.line.base_offset} to {batch.line.last_offset}"))
        facts.append(_fact("equal again from", f"{finding.end_offset}"))
    elif finding.offset >= 0 and finding.evidence.get("agree_again"):
        facts.append(_fact("first wrong offset", f"{finding.offset}"))
        facts.append(_fact("equal again from", f"{finding.end_offset}"))
    elif finding.offset >= 0:
        last = finding.end_offset - 1
        facts.append(
            _fact("offsets", f"{finding.offset} to {last}")
            if last > finding.offset
            else _fact("offset", f"{finding.offset}")
        )
    if finding.epoch >= 0:
        facts.append(_fact("leader epoch", f"{finding.epoch}"))
    if finding.file:
        facts.append(_fact("file", code(finding.file)))
        facts.extend(_bytes(finding, batch))
    return facts


def _bytes(finding: Finding, batch: BatchView | None) -> list[SafeMarkup]:
    """Where the batch begins in the file, and where in it the first difference is: two places, each with its name."""
    if finding.position < 0:
        return []
    if not is_lack(finding) and (
        batch is None or not finding.file.endswith(".log") or batch.line.position != finding.position
    ):
        return [_fact("at", f"byte {finding.position:,} of the file")]
    begins = "the batch behind them begins at" if is_lack(finding) else "batch begins at"
    facts = [_fact(begins, f"byte {finding.position:,} of the file")]
    difference = finding.excerpt.first_difference if finding.excerpt is not None else -1
    if difference >= 0 and not is_lack(finding):
        part = "records" if finding.excerpt is not None and finding.excerpt.differing_in_records else "header"
        at = f"byte {finding.position + difference:,} of the file"
        facts.append(_fact(f"first difference in its {part}", f"{at}, {difference:,} of the batch"))
    return facts


def _fact(title: str, value: object) -> SafeMarkup:
    return tag("span", f"{title} ", tag("b", value), class_="fact")
