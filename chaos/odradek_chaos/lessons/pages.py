"""The pages of a lesson in their order: what is about to happen, the steps, the audit, what Kafka did about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from odradek_proto.words import noun
from rich.text import Text

from odradek_chaos.lessons.drawing import BAD, HEADING, Space, frame_page, paragraph, rule, title_line
from odradek_chaos.lessons.lesson import Lesson, LessonRun
from odradek_chaos.lessons.verdict import AuditedWorld, LessonVerdict

Page = Callable[[Space, str], list[Text]]
"""Draws itself into a space, with a hint about the keys in its first line."""

LEGEND = (
    ("│m1  │", "a record: above it its offset, below it the epoch of its leader"),
    ("▲HW", "the high watermark: what is before it is committed, for all to read"),
    ("▲LEO", "the log end offset: the offset that the next record will get"),
    ("m2≠", "the other replica holds another record at this offset"),
    ("3!", "this offset is not above the one before it"),
    ("──► ──✗", "a message that arrives, and one that is lost"),
    ("✓ ! ✗", "acknowledged; cut off or misplaced; refused"),
)
LEGEND_WIDTH = 9
LOSSES = ("acknowledged-lost", "delivered-lost")
SHOWN_FINDINGS = 5


@dataclass(frozen=True)
class _Pages:
    """What the pages are drawn from."""

    played: LessonRun
    verdict: LessonVerdict

    @property
    def lesson(self) -> Lesson:
        return self.played.lesson

    def all(self) -> list[Page]:
        return [self._first, *map(self._of, range(len(self.played.frames))), self._audit, self._kafka]

    def _of(self, number: int) -> Page:
        return lambda space, keys: frame_page(self.lesson, self.played.frames, number, space, keys)

    def _first(self, space: Space, keys: str) -> list[Text]:
        lesson = self.lesson
        lines = [title_line(lesson, "", lesson.title, keys, space), Text()]
        lines += paragraph(lesson.promise, space.width, "bold")
        lines += [Text()]
        count = ("Two", "Three")[lesson.brokers.count(",") - 1]
        brokers = f"{count} brokers hold the partition orders-0; the lesson has {len(lesson.steps)} steps."
        if len(lesson.worlds) == 1:
            lines += [*paragraph(brokers, space.width), Text()]
        else:
            left, right = (each.name for each in lesson.worlds)
            lines += paragraph(f"{brokers} They happen in two worlds, which differ in one thing:", space.width)
            lines += [Text.assemble("  left   ", (left, HEADING)), Text.assemble("  right  ", (right, HEADING)), Text()]
        for sign, meaning in _legend(lesson):
            lines.append(Text.assemble("  ", (sign.ljust(LEGEND_WIDTH), "bold"), meaning))
        lines += [Text()]
        return lines + paragraph(
            "What decides here is the broker itself: its leader, its follower, its log on a disk. Only the network, "
            "the controller and the clients follow a script.",
            space.width,
            "dim",
        )

    def _audit(self, space: Space, keys: str) -> list[Text]:
        """What the auditor found in the worlds' directories."""
        whose = "The" if len(self.verdict.worlds) == 1 else "Both worlds'"
        lines = [title_line(self.lesson, "the audit", "The last word", keys, space), Text()]
        lines += paragraph(
            f"{whose} log directories, read by the auditor of `odradek audit run`, with what the clients were told:",
            space.width,
        )
        for audited in self.verdict.worlds:
            lines += [Text(), *_findings(audited, space)]
        if self.verdict.unmet:
            lines += [Text(), Text("The lesson did not end as it should:", BAD)]
            lines += [line for each in self.verdict.unmet for line in paragraph(each, space.width, BAD, "  ")]
        return lines

    def _kafka(self, space: Space, keys: str) -> list[Text]:
        """Why it ended so, and where to read on."""
        lesson = self.lesson
        lines = [title_line(lesson, "the end", "Why", keys, space)]
        for heading, words in {**self.verdict.cause, **lesson.end}.items():
            lines += [Text(), Text(heading, HEADING), *paragraph(words, space.width - 2, "", "  ")]
        return [*lines, Text(), rule(space), *paragraph(summary(lesson, self.verdict), space.width, "bold")]


def pages(played: LessonRun, verdict: LessonVerdict) -> list[Page]:
    """All pages; each can be drawn for any space, as often as wanted."""
    return _Pages(played, verdict).all()


def summary(lesson: Lesson, verdict: LessonVerdict) -> str:
    """The lesson in one line."""
    said = [f"{each.world}: {_count(each)}" + (f", {_lost(each)}" if each.lost else "") for each in verdict.worlds]
    return f"{lesson.name}: {'; '.join(said)}"


def _count(audited: AuditedWorld) -> str:
    count = len(audited.findings)
    return f"{count} {noun(count, 'finding')}" if count else "no finding"


def _lost(audited: AuditedWorld) -> str:
    return f"{' '.join(audited.lost)} acknowledged and lost"


def _legend(lesson: Lesson) -> Iterator[tuple[str, str]]:
    """The signs that this lesson may show."""
    yield from LEGEND
    if any(step.commands.split()[-1] in ("hold", "late") for step in lesson.steps):
        yield "···", "a message that is on its way"
    if lesson.shows.remote:
        yield "▲2", "below the leader's log: the log end offset that it knows of broker 2"


def _findings(audited: AuditedWorld, space: Space) -> list[Text]:
    """The findings of one world, the check and the place first, then the auditor's sentence."""
    bad = bool(audited.findings)
    said = _count(audited) if bad else f"no finding; {audited.compared_records} copies of records compared"
    sign = "✗" if bad or not audited.fine else "✓"
    head = Text.assemble((f"{audited.world}  ", HEADING), (f"{sign} {said}", BAD if sign == "✗" else "green"))
    lines = [head]
    for finding in audited.findings[:SHOWN_FINDINGS]:
        where = [f"offset {finding.offset}"] if finding.offset >= 0 else []
        if finding.epoch >= 0 and finding.check not in LOSSES:  # the epoch there is that of another record
            where.append(f"epoch {finding.epoch}")
        lines.append(Text.assemble("  ", (finding.check, "bold red"), f"  {', '.join(where)}"))
        lines += paragraph(finding.sentence, space.width - 4, "dim", "    ")
    hidden = len(audited.findings) - SHOWN_FINDINGS
    return [*lines, Text(f"  and {hidden} more", "dim")] if hidden > 0 else lines
