"""Which row of the list of portable tests, and which rule, is proven by which test. The lists are in rows.toml.

A row or a rule is named by a test when its id stands in the test's docstring or in a string that the test is
parametrized with, or anywhere in a story. Comments, helpers and the docstrings of modules do not count, and neither
does a range: who writes "R-60 to R-68" names two rules.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
pytestmark = pytest.mark.xdist_group("rows")  # in one process, so that each file is parsed once
LISTS = tomllib.loads((TESTS / "rows.toml").read_text())
ROW = re.compile(rf"\b(?:{'|'.join(LISTS['areas'])})-\d+\b")
RULE = re.compile(r"\b[RL]-\d+\b")
OWN = {Path(__file__).name}
STORIES = (TESTS / "scripts", TESTS / "chaos" / "lessons")


def rows() -> list[str]:
    return [f"{area}-{number:02d}" for area, facts in LISTS["areas"].items() for number in range(1, facts["rows"] + 1)]


def rules() -> list[str]:
    """Those of today, and those of the protocol before 0.11."""
    listed = []
    for letter, table in (("R", "rules"), ("L", "old_rules")):
        for ranges in LISTS[table].values():
            for first, last in (each.split("-") for each in ranges):
                listed += [f"{letter}-{number}" for number in range(int(first), int(last) + 1)]
    return listed


@cache
def said_by_tests(path: Path) -> tuple[str, ...]:
    """Docstrings of test functions, and the strings that decorate them."""
    return tuple(_said_by_tests(path))


def _said_by_tests(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield ast.get_docstring(node) or ""
            for decorator in node.decorator_list:
                for each in ast.walk(decorator):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        yield each.value


def named(pattern: re.Pattern[str]) -> dict[str, list[str]]:
    """Every id that a test or a story names, and where."""
    where: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.name not in OWN:
            for text in said_by_tests(path):
                for each in pattern.findall(text):
                    where.setdefault(each, []).append(path.name)
    for path in sorted(path for folder in STORIES for path in folder.rglob("*.txt")):
        for each in pattern.findall(path.read_text()):
            where.setdefault(each, []).append(path.name)
    return where


def excused(kind: str, what: str) -> list[str]:
    return [each for entry in LISTS[kind] for each in entry[what]]


def test_the_lists_are_whole() -> None:
    """Twelve areas with two hundred rows, seventeen sections with 183 rules and one with 12 old ones, each once."""
    assert (len(LISTS["areas"]), len(rows()), len(set(rows()))) == (12, 200, 200)
    assert (len(LISTS["rules"]), len(rules()), len(set(rules()))) == (17, 183 + 12, 183 + 12)


@pytest.mark.parametrize(
    ("pattern", "listed", "kind", "what"),
    [(ROW, rows(), "waiting", "rows"), (RULE, rules(), "unproven", "rules")],
    ids=["rows", "rules"],
)
def test_each_is_named_by_a_test_or_excused(pattern: re.Pattern[str], listed: list[str], kind: str, what: str) -> None:
    """A row that no test names stands under `waiting`, a rule under `unproven`; never both, never neither."""
    known, without = named(pattern), excused(kind, what)
    assert [each for each in listed if each not in known and each not in without] == []
    assert [(each, known[each]) for each in without if each in known] == []
    assert [each for each in without if each not in listed] == []
    assert len(without) == len(set(without))


def test_no_test_names_a_row_that_is_not_in_the_list() -> None:
    """A slip of the pen would leave the row that was meant without a test."""
    listed = rows()
    assert {row: where for row, where in named(ROW).items() if row not in listed} == {}


@pytest.mark.parametrize("kind", ["waiting", "unproven"])
def test_each_excuse_has_a_reason(kind: str) -> None:
    """What is missing is listed with why."""
    assert all(entry["reason"] for entry in LISTS[kind])
