"""What commands print of one thing: "1 record", not "1 records"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek_proto.words import noun, plural

ROOT = Path(__file__).parent.parent.parent
SPEAKING = (
    "client/odradek/cli",
    "broker/odradek_broker/commands",
    "chaos/odradek_chaos/*.py",
    "chaos/odradek_chaos/demo",
    "chaos/odradek_chaos/lessons",
    "chaos/odradek_chaos/worlds/simulated/campaign/campaign.py",
    "chaos/odradek_chaos/worlds/simulated/campaign/determinism.py",
    "chaos/odradek_chaos/worlds/simulated/run/result.py",
    "chaos/odradek_chaos/worlds/simulated/campaign/shrink.py",
    "chaos/odradek_chaos/worlds/compose",
    "audit/odradek_audit",
)
COUNTED = re.compile(
    r" (more |other |virtual )?(batches|brokers|bytes|controllers|events|faults|files|findings|lines|messages|offsets"
    r"|pairs|partitions|problems|records|replicas|rounds|seconds|seeds|segments|steps|times|topics|voters)\b"
)
ONE_OF_MANY = (" of ", " of the ", " of all ")  # "1 of 3 replicas"
MORE_THAN_ONE = "it is said of more than one only"
THE_DEMOS = "the demo has three brokers, two writers, several partitions and thousands of records"
A_BATCH = "no batch has less than 61 bytes"
NEVER_ONE = {
    "result.py: self.virtual_ms / 1000": "it is said with a fraction: 1.0 seconds",
    "campaign.py: self.speed": "it is said with a fraction: 1.0 times",
    "terminal.py: LOWEST": "a constant",
    "wording.py: excerpt.differing_bytes": MORE_THAN_ONE,
    "wording.py: finding.evidence[ON_ALL]": MORE_THAN_ONE,
    "cluster.py: min_isr": MORE_THAN_ONE,
    "commands.py: len(paths)": MORE_THAN_ONE,
    "datasource.py: SMALLEST_SPLIT_BYTES": "a constant",
    "excerpt_html.py: line.size": A_BATCH,
    "wording.py: count(finding.evidence['records'])": MORE_THAN_ONE,
    "wording.py: count(finding.weight)": MORE_THAN_ONE,
    "view.py: count": MORE_THAN_ONE,
    "layout.py: size": "it is said of files that are too large",
    "machine.py: limit": "with one open file no command runs",
    "pages.py: count": "two brokers or three",
    "pages.py: len(lesson.steps)": "lessons have several",
    "state.py: read.acknowledged": THE_DEMOS,
    "story.py: count": THE_DEMOS,
    "story.py: found.read": THE_DEMOS,
    "story.py: plan.partitions": THE_DEMOS,
    "story.py: replicas": THE_DEMOS,
    "story.py: self._ledger.acknowledged": THE_DEMOS,
    "structure.py: facts.size": A_BATCH,
}


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1.0, "1 record"), (0.3, "0.3 records")]
)
def test_a_noun_goes_with_its_number(number: float, said: str) -> None:
    """One alone is singular, nothing and parts are not."""
    assert f"{number:g} {noun(number, 'record')}" == said


def test_nouns_that_take_more_than_an_s() -> None:
    """The second form is given, with a verb where there is one."""
    assert [noun(count, "batch", "batches") for count in (1, 2)] == ["batch", "batches"]
    assert plural(1, "event is", "events are") == "1 event is"
    assert plural(2000, "batch", "batches") == "2,000 batches"


def speaking() -> Iterator[tuple[Path, str]]:
    """The sources in which some plural stands behind a number."""
    for place in SPEAKING:
        for path in sorted(ROOT.glob(place if place.endswith(".py") else f"{place}/**/*.py")):
            text = path.read_text()
            if re.search(f"}}{COUNTED.pattern}", re.sub(r'"\n\s*f?"', "", text)):
                yield path, text


def plurals_of_any_number(tree: ast.AST) -> Iterator[str]:
    """Lines where a number is followed by a plural, whatever the number is."""
    guarded = {
        id(node.orelse) for node in ast.walk(tree) if isinstance(node, ast.IfExp) and "== 1" in ast.unparse(node)
    }
    for text in ast.walk(tree):
        if not isinstance(text, ast.JoinedStr) or id(text) in guarded:
            continue
        before = ""
        for value, after in zip(text.values, [*text.values[1:], None], strict=True):
            if isinstance(value, ast.Constant):
                before = str(value.value)
            elif isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                said = ast.unparse(value.value)
                if COUNTED.match(str(after.value)) and not f" {before}".endswith(ONE_OF_MANY):
                    yield said


def test_no_command_puts_a_plural_behind_any_number() -> None:
    """Each of them asks `noun`, or `plural` in the audit, or stands in the list with the reason why it is never one."""
    found = [f"{path.name}: {said}" for path, text in speaking() for said in plurals_of_any_number(ast.parse(text))]
    assert sorted(found) == sorted(NEVER_ONE)


SHOWN = re.compile(rf"(?<!of )(?<!acks=)(?<![-.,\d])\b1{COUNTED.pattern}")


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda page: page.stem)
def test_no_page_shows_a_plural_of_one(page: Path) -> None:
    """What pages show of commands is what these print: a page that was not changed with its command is found."""
    assert [found[0] for found in SHOWN.finditer(page.read_text())] == []
