"""Expressions over topic names: what they match, what they refuse, and that none takes long."""

from __future__ import annotations

import random
import re

import pytest
from odradek_broker.core.groups import patterns
from odradek_broker.core.groups.patterns import InvalidPattern, SubscriptionPattern, matching

NAMES = ["orders", "orders-eu", "Orders", "o", "a", "ab", "aab", "b.c", "x_1", "__consumer_offsets", "1.2-3", "aaaa"]

EXPRESSIONS = [
    "orders",
    "orders.*",
    "o.*s",
    "(?i)ORDERS",
    "(?i:O)rders|x_1",
    "a+b?",
    "a{2}",
    "a{2,}b*",
    "a{1,2}b??",
    "(a|b)*",
    "(?:a|aa)+b",
    "(?P<first>o)rders(-eu)?",
    "^orders$",
    "a$|^b.*",
    r"\d\.\d-\d",
    r"\w+",
    r"\W|a",
    "[a-c.]+",
    "[^a-z]+",
    "[]a]",
    "[a-]+",
    r"[\d._-]*",
    r"x\x5f1",
    r"__\w+_offsets",
    "(a*)*b",
    "(|a)+",
    "()",
    "",
    "a{,2}",
    "o{x}",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_names_match_as_with_a_backtracking_engine(expression: str) -> None:
    if expression == "a{,2}":  # in RE2 these braces stand for themselves, in Python they do not
        assert matching(expression, NAMES) == ()
        return
    assert matching(expression, NAMES) == tuple(sorted(name for name in NAMES if re.fullmatch(expression, name)))


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_match_as_with_a_backtracking_engine(seed: int) -> None:
    rng = random.Random(seed)

    def expression(depth: int) -> str:
        if depth == 0:
            return rng.choice(["a", "b", ".", "[ab]", "[^a]", r"\w", "-"])
        inner = [expression(depth - 1) for _ in range(2)]
        return rng.choice(["({0}|{1})", "{0}{1}", "({0})*", "({0})?", "({0})+", "({0}){{1,2}}", "^{0}", "{0}$"]).format(
            *inner
        )

    names = ["".join(rng.choices("ab-.", k=rng.randrange(1, 6))) for _ in range(40)]
    for _ in range(30):
        text = expression(3)
        assert matching(text, names) == tuple(sorted(name for name in names if re.fullmatch(text, name))), text


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "a)", "(a", "[a", "[b-a]", "*", "a**", "a+*", "a{2,1}", "a{1001}"),
        *(r"\b", r"\p{L}", r"\1", "(?=a)", "(?<!a)", "(?P<>a)", "[[:nothing:]]", "\\", r"\x", r"\xZZ"),
        *("(" * 51 + ")" * 51, "a" * 1001, "(a{1000}){1000}", "((){1000}){1000}"),
    ],
)
def test_what_is_not_understood_is_refused(expression: str) -> None:
    with pytest.raises(InvalidPattern):
        SubscriptionPattern(expression)


def test_posix_classes_and_quoting() -> None:
    assert matching("[[:upper:]][[:alpha:]]+", NAMES) == ("Orders",)
    assert matching(r"\Qb.c\E|\Qo", NAMES) == ("b.c", "o")


def test_no_expression_takes_exponential_time() -> None:
    """Counted in states that are visited, not in seconds."""
    for evil in ("(a*)*b", "(a|a)*b", "(a|aa)+$", "(.*)(.*)(.*)(.*)x", "(a?){30}a{30}"):
        pattern = SubscriptionPattern(evil)
        for length in (100, 249):
            pattern.matches("a" * length)
        assert pattern._program._visits_left > patterns.MAX_VISITS - 100_000, evil


def test_an_expression_that_is_too_costly_for_the_topics_is_refused() -> None:
    names = ["".join(random.Random(seed).choices("ab", k=249)) for seed in range(200)]
    with pytest.raises(InvalidPattern, match="too costly"):
        matching("(a|b)*a(a|b){200}", names)
