"""docs/simulation.md says of faults, chance points, branches and checks what the code says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from odradek_chaos.worlds.simulated.checks.catalogue import CLASSES
from odradek_chaos.worlds.simulated.checks.invariant import Invariant
from odradek_chaos.worlds.simulated.checks.names import (
    AROUND_THE_INVARIANTS,
    LOSSES,
    SPECIFIED,
    check_names,
    checks_for,
)
from odradek_chaos.worlds.simulated.faults.catalogue import TABLE, family_of
from odradek_chaos.worlds.simulated.faults.damage import OF_ITS_QUORUM, OF_LOST_METADATA, OF_THE_VOTER
from odradek_chaos.worlds.simulated.plan.buggify import BRANCHES, POINTS

PAGE = (Path(__file__).parents[2] / "docs/simulation.md").read_text()


def test_every_kind_of_fault_has_its_row() -> None:
    """Family, what is owed, and what it does."""
    rows = [f"| `{kind.name}` | {family_of(kind)} | {kind.owed.value} | {kind.does} |" for kind in TABLE]
    assert [row for row in rows if row not in PAGE] == []


def test_every_chance_point_and_every_branch_has_its_row() -> None:
    """And what happens there."""
    rows = [f"| `{name}` | {happens} |" for name, happens in (*POINTS.items(), *BRANCHES.items())]
    assert [row for row in rows if row not in PAGE] == []


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.name)
def test_an_invariant_says_on_the_page_what_it_says_in_the_code(kind: type[Invariant]) -> None:
    """The rules, and the first paragraph of its docstring; what it exempts may follow."""
    row = re.search(rf"^\| `{kind.name}` \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    assert row is not None
    first = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    assert row[1] == kind.rules
    assert row[2].startswith(first)


def test_every_other_check_is_named_on_the_page() -> None:
    """Whoever finds one looks for it there."""
    assert [name for name in AROUND_THE_INVARIANTS if f"`{name}`" not in PAGE] == []


def test_what_is_said_of_checks_by_name_is_said_of_checks_that_there_are() -> None:
    """A misspelt loss would be a finding where nothing is owed."""
    assert {*LOSSES, *OF_THE_VOTER, *OF_ITS_QUORUM, *OF_LOST_METADATA} <= {*check_names()}


def test_every_invariant_of_the_specification_is_found_by_its_name_and_number() -> None:
    """On the page, and by --checks: all of W, S, M and N, and the promises of liveness that a run can judge."""
    rows = [
        f"| `{name}` | {number} | {', '.join(f'`{check}`' for check in checks_for(name))} |"
        for name, number in SPECIFIED.items()
    ]
    assert [row for row in rows if row not in PAGE] == []
    numbers = [*SPECIFIED.values(), *(f"N{place}" for place in range(1, 16)), "L1", "L2", "L3", "L4", "L5", "L7"]
    assert [number for number in numbers if checks_for(number) == (number,)] == []


def test_a_name_that_is_a_checks_own_means_that_check() -> None:
    """It must see to what the specification calls so; another check may see to the same."""
    for name in {*SPECIFIED} & {*check_names()}:
        assert checks_for(name) == (name,)
        assert name in checks_for(SPECIFIED[name])
    assert checks_for("lots") == ("lots",)
