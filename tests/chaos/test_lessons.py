"""The lessons: how they end, what they show, and that every page is as it was. `pytest --rewrite` accepts new pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from re import compile as pattern

import pytest
from odradek_chaos.lessons.catalogue import SHOWN, lesson
from odradek_chaos.lessons.drawing import Space
from odradek_chaos.lessons.lesson import ExpectedFinding, Lesson, LessonRun, LessonWorld, Setting, play
from odradek_chaos.lessons.pages import pages
from odradek_chaos.lessons.player import KeyPress, keys_in, turn_pages
from odradek_chaos.lessons.verdict import LessonVerdict, judge
from odradek_chaos.lessons.views import ReplicaView

pytestmark = pytest.mark.xdist_group("lessons")  # in one process, so that each is played once
LESSONS = {name: lesson(name) for name in SHOWN}
FAILING = {name: each for name, each in LESSONS.items() if any(world.expected for world in each.worlds)}
GOLDEN = Path(__file__).parent / "lessons"
LETTER_BY_LETTER = {path.stem for path in GOLDEN.glob("*.txt")}  # those that fail in a world, and that draw most
DOCS = Path(__file__).parents[2] / "docs" / "lessons.md"
RULE = pattern(r"[RL]-[0-9]+")
RULE_WITH_ITS_WORDS = pattern(rf"{RULE.pattern}(?:(?:, | and | to ){RULE.pattern})* \([^)]+\)")
EVERY = pytest.mark.parametrize("lesson", LESSONS.values(), ids=list(LESSONS))
SPACES = {"80x24": Space(80, 24, steady=True), "120x40": Space(120, 40, steady=True), "200x60": Space(200, 60)}


@cache
def told(name: str) -> tuple[LessonRun, LessonVerdict]:
    """A lesson to its end."""
    story = play(LESSONS[name])
    return story, judge(story)


@cache
def drawn(name: str, space: Space) -> list[list[str]]:
    """Every page as plain lines."""
    return [[line.plain for line in page(space, "")] for page in pages(*told(name))]


def whole(name: str) -> str:
    """All pages of a lesson as they are printed."""
    return "\n\n".join("\n".join(page) for page in drawn(name, Space())) + "\n"


# --- How they end ----------------------------------------------------------------------------------------------------


@EVERY
def test_a_lesson_ends_as_it_says(lesson: Lesson) -> None:
    """The auditor finds what is expected, by offset and epoch, and nothing elsewhere; what is lost is lost."""
    verdict = told(lesson.name)[1]
    assert verdict.unmet == ()
    for setting, audited in zip(lesson.worlds, verdict.worlds, strict=True):
        assert {ExpectedFinding(each.check, each.offset, each.epoch) for each in audited.findings} >= set(
            setting.expected
        )
        assert audited.lost == setting.lost
        assert audited.compared_records >= 2


@pytest.mark.parametrize("name", ["lost-write", "divergence", "offsets-go-backwards", "fast-leader-change"])
def test_the_failure_needs_the_old_protocol(name: str) -> None:
    """With today's protocol on both sides nothing is found, and the lesson says that it did not end as it should."""
    old, today = LESSONS[name].worlds
    verdict = judge(play(replace(LESSONS[name], worlds=(replace(old, options=today.options), today))))
    assert verdict.worlds[0].findings == ()
    assert len(verdict.unmet) >= len(old.expected)


def test_a_failure_of_today_is_no_good_end() -> None:
    """Findings and losses that no world expects are told."""
    old, today = LESSONS["lost-write"].worlds
    wrong = replace(LESSONS["lost-write"], worlds=(replace(old, name="old", lost=(), expected=()), today))
    assert judge(play(wrong)).unmet == ("old: 3 findings, 2 copies of records compared", "old: lost are m2, not none")


@pytest.mark.parametrize("name", FAILING)
def test_what_is_lost_is_seen_on_the_page(name: str) -> None:
    """A world of which the auditor says acknowledged-lost shows the record as lost, unless it was never promised."""
    for frame, setting in zip(told(name)[0].frames[-1].worlds, LESSONS[name].worlds, strict=True):
        assert tuple(each.value for each in frame.acknowledged if each.gone and each.acks_all) == setting.lost


def test_nothing_was_written_down_where_nothing_happened() -> None:
    """Who looks for evidence of what never was is told so."""
    with pytest.raises(LookupError, match="broker 2 wrote down no truncated"):
        LessonWorld(Setting("today"), "1,2").last(2, "truncated")


# --- What they show --------------------------------------------------------------------------------------------------


@EVERY
def test_pages_are_as_they_were(lesson: Lesson, request: pytest.FixtureRequest) -> None:
    """All pages of a lesson at 80 columns; of most a digest is enough: `odradek demo LESSON` shows what has changed."""
    text, path = whole(lesson.name), GOLDEN / f"{lesson.name}.txt"
    if lesson.name not in LETTER_BY_LETTER:
        text, path = sha256(text.encode()).hexdigest() + "\n", path.with_suffix(".sha256")
    if request.config.getoption("--rewrite", default=False):
        path.write_text(text)
        return
    assert text == path.read_text()


def test_the_docs_show_pages_as_they_are() -> None:
    """What docs/lessons.md shows of a lesson is a page of it, and it shows or names every lesson."""
    written = DOCS.read_text()
    shown = [block for block in written.split("```")[1::2] if block.split(" · ")[0].strip() in LESSONS]
    golden = "\n\n".join(map(whole, LESSONS))
    assert len(shown) >= 4
    assert [block for block in shown if block.strip() not in golden] == []
    assert all(f"## {name}" in written for name in LESSONS)


@EVERY
@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_every_page_fits_on_the_screen(lesson: Lesson, space: Space) -> None:
    """Neither wider nor higher than the terminal, and nothing is cut off."""
    for page in pages(*told(lesson.name)):
        lines = page(space, "Enter on · b back · q quit")
        assert len(lines) <= space.lines, lines[0].plain
        assert max(line.cell_len for line in lines) < space.columns, lines[0].plain


@EVERY
def test_blocks_stand_still_on_a_screen(lesson: Lesson) -> None:
    """From step to step the line above the explanation stays where it is."""
    steps = drawn(lesson.name, SPACES["80x24"])[1 : 1 + len(lesson.steps)]
    assert len({next(at for at, line in enumerate(page) if line.startswith("──────")) for page in steps}) == 1


@EVERY
def test_a_rule_comes_with_what_it_says(lesson: Lesson) -> None:
    """Its number stands where one can read on, with a word of what it is about, and nowhere else."""
    *steps, end = drawn(lesson.name, Space())
    why, read_on = "\n".join(end).split("Read on")
    assert RULE.findall("\n".join(map("\n".join, steps)) + why) == []
    cited = " ".join(read_on.split())
    assert RULE.findall(RULE_WITH_ITS_WORDS.sub("", cited)) == []
    assert RULE.findall(cited)


@EVERY
def test_names_are_not_broken_at_their_hyphens(lesson: Lesson) -> None:
    """`min-insync-replicas` is one word, as whoever copies it needs it."""
    assert [line for page in drawn(lesson.name, Space()) for line in page if line.endswith("-")] == []


@EVERY
def test_nothing_is_said_by_colour_alone(lesson: Lesson) -> None:
    """What differs, repeats, is lost or down has a sign or a word in the plain text, for each replica and each mark."""
    for frame, page in zip(told(lesson.name)[0].frames, drawn(lesson.name, Space())[1:], strict=False):
        text = "\n".join(page)
        for world in frame.worlds:
            assert all(f"{each.value}(LOST)" in text for each in world.acknowledged if each.gone and each.acks_all)
            for replica in world.replicas:
                assert all(sign in text for sign in signs_of(replica)), (frame.step.title, replica)


def signs_of(replica: ReplicaView) -> Iterable[str]:
    """What the plain text must hold for a replica."""
    yield f"broker {replica.broker}  {replica.role if replica.role == 'follower' else replica.role.upper()}"
    yield "HW" if replica.high_watermark != replica.log_end_offset else "HW=LEO"
    for record in replica.records:
        yield f"│{record.value}≠" if record.differs else f"│{record.value} "
        if record.again:
            yield f"{record.offset}!"


# --- Turning pages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ([KeyPress.NEXT, KeyPress.NEXT], [0, 1, 2]),
        ([KeyPress.NEXT, KeyPress.BACK, KeyPress.NEXT], [0, 1, 0, 1]),
        ([KeyPress.BACK], [0, 0]),
        ([KeyPress.NEXT, KeyPress.QUIT, KeyPress.NEXT], [0, 1]),
        ([KeyPress.NEXT, KeyPress.REDRAW, KeyPress.NEXT], [0, 1, 1, 2]),
        ([KeyPress.NEXT, KeyPress.NEXT, KeyPress.NEXT, KeyPress.NEXT], [0, 1, 2]),
    ],
)
def test_pages_turn_by_keys(keys: list[KeyPress], shown: list[int]) -> None:
    """Forward, back, away; going on behind the last page ends the lesson."""
    seen: list[int] = []
    assert turn_pages(3, seen.append, keys) == shown[-1]
    assert seen == shown


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("\r", [KeyPress.NEXT]),
        ("\n b", [KeyPress.NEXT, KeyPress.NEXT, KeyPress.BACK]),
        ("\x1b[C\x1b[D\x1b[6~", [KeyPress.NEXT, KeyPress.BACK, KeyPress.NEXT]),
        ("q", [KeyPress.QUIT]),
        ("\x1b", [KeyPress.QUIT]),
        ("\x1b[15~", []),
        ("xyz", []),
        ("", []),
    ],
)
def test_what_is_typed_becomes_keys(typed: str, keys: list[KeyPress]) -> None:
    """Letters, Enter and arrows, several at once; others mean nothing, and an unknown function key does not quit."""
    assert keys_in(typed) == keys
