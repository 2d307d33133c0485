"""The pages of a lesson in their order: what is about to happen, the steps, the audit, what Kafka did about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek_proto.words import noun
from rich.text import Text

from odradek_chaos.lessons.drawing import BAD, HEADING, MODE_NAMES, Space, frame_page, paragraph, rule, title_line
from odradek_chaos.lessons.lesson import Lesson, Played
from odradek_chaos.lessons.verdict import Audited, Verdict

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
SHOWN_FINDINGS = 5


@dataclass(frozen=True)
class _Pages:
    """What the pages are drawn from."""

    played: Played
    verdict: Verdict

    @property
    def lesson(self) -> Lesson:
        return self.played.lesson

    def all(self) -> list[Page]:
        return [self._first, *map(self._of, range(len(self.played.frames))), self._audit, self._kafka]

    def _of(self, number: int) -> Page:
        return lambda space, keys: frame_page(self.lesson, self.played.frames, number, space, keys)

    def _first(self, space: Space, keys: str) -> list[Text]:
        lesson = self.lesson
        old, new = (MODE_NAMES[mode.value] for mode in (lesson.old_mode, self.played.new.mode))
        lines = [title_line(lesson, "", lesson.title, keys, space), Text()]
        lines += paragraph(lesson.promise, space.width, "bold")
        lines += [Text()]
        lines += paragraph(
            f"Two brokers hold the partition orders-0. In {len(lesson.steps)} steps the same happens to them in two "
            "worlds, which differ in one setting, odradek.truncation.mode:",
            space.width,
        )
        lines += [Text.assemble("  left   ", (old, HEADING)), Text.assemble("  right  ", (new, HEADING)), Text()]
        for sign, meaning in LEGEND:
            lines.append(Text.assemble("  ", (sign.ljust(LEGEND_WIDTH), "bold"), meaning))
        lines += [Text()]
        return lines + paragraph(
            "What decides here is the broker itself: its leader, its follower, its log on a disk. Only the network, "
            "the controller and the clients follow a script.",
            space.width,
            "dim",
        )

    def _audit(self, space: Space, keys: str) -> list[Text]:
        """What the auditor found in both worlds' directories."""
        lines = [title_line(self.lesson, "the audit", "The last word", keys, space), Text()]
        lines += paragraph(
            "Both worlds' log directories, read by the auditor of `odradek audit run`, with what the clients were "
            "told:",
            space.width,
        )
        for audited in (self.verdict.old, self.verdict.new):
            lines += [Text(), *_findings(audited, space)]
        if self.verdict.unmet:
            lines += [Text(), Text("The lesson did not end as it should:", BAD)]
            lines += [line for each in self.verdict.unmet for line in paragraph(each, space.width, BAD, "  ")]
        return lines

    def _kafka(self, space: Space, keys: str) -> list[Text]:
        """Why it ended so, and where to read on."""
        lesson, cause = self.lesson, self.verdict.cause
        lines = [title_line(lesson, "the end", "Why", keys, space)]
        parts = [("What Kafka did about it", lesson.kafka), ("Read on", f"docs/protocol.md: {lesson.read_on}")]
        if cause is not None:
            instead = (f"What happened instead: {self.verdict.new.mode}", cause.new)
            parts = [(f"What did it: {self.verdict.old.mode}", cause.old), instead, *parts]
        for heading, words in parts:
            lines += [Text(), Text(heading, HEADING), *paragraph(words, space.width - 2, "", "  ")]
        return [*lines, Text(), rule(space), Text(summary(lesson, self.verdict), "bold")]


def pages(played: Played, verdict: Verdict) -> list[Page]:
    """All pages; each can be drawn for any space, as often as wanted."""
    return _Pages(played, verdict).all()


def summary(lesson: Lesson, verdict: Verdict) -> str:
    """The lesson in one line."""
    old, new = (f"{each.mode}: {_count(each)}" for each in (verdict.old, verdict.new))
    return f"{lesson.name}: {old}; {new}"


def _count(audited: Audited) -> str:
    count = len(audited.findings)
    return f"{count} {noun(count, 'finding')}" if count else "no finding"


def _findings(audited: Audited, space: Space) -> list[Text]:
    """The findings of one world, the check and the place first, then the auditor's sentence."""
    bad = bool(audited.findings)
    said = _count(audited) if bad else f"no finding; {audited.compared_records} records compared, all of them equal"
    sign = "✗" if bad or not audited.fine else "✓"
    head = Text.assemble((f"{audited.mode}  ", HEADING), (f"{sign} {said}", BAD if sign == "✗" else "green"))
    lines = [head]
    for finding in audited.findings[:SHOWN_FINDINGS]:
        where = [f"offset {finding.offset}"] if finding.offset >= 0 else []
        where += [f"epoch {finding.epoch}"] if finding.epoch >= 0 else []
        lines.append(Text.assemble("  ", (finding.check, "bold red"), f"  {', '.join(where)}"))
        lines += paragraph(finding.sentence, space.width - 4, "dim", "    ")
    hidden = len(audited.findings) - SHOWN_FINDINGS
    return [*lines, Text(f"  and {hidden} more", "dim")] if hidden > 0 else lines
