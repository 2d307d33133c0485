"""The mutants fit the sources and say what they break; a caught one is told from one that is not reached."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.fork_server import differences
from tests.mutants.generated import CORE, _changes, generate
from tests.mutants.tree import ROOT, BadPatch, Patch, applied, load, marked, patches

pytestmark = pytest.mark.xdist_group("mutants")  # in one process, so that each file is parsed once
AREAS = {
    "controller", "epoch cache", "fencing", "groups", "high watermark", "isr", "listener", "log", "produce",
    "producers", "quorum", "recovery", "retention", "truncation",
}  # fmt: skip


def test_there_are_enough_over_every_area() -> None:
    """At least forty, in each part of the protocol."""
    found = patches()
    assert len(found) >= 40
    assert {patch.area for patch in found} == AREAS


@pytest.mark.slow
@pytest.mark.parametrize("patch", patches(), ids=lambda patch: patch.name)
def test_a_mutant_fits_the_sources(patch: Patch) -> None:
    """It applies, changes a function and nothing else, and a mark stands where it changed it."""
    mutated, lines = applied(patch)
    assert "odradek_reached" in ast.dump(mutated)
    assert lines
    assert differences(patch.path, mutated)


def test_a_mutant_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """By name, so that whoever changes the core knows which patch to renew."""
    stale = Patch(
        "stale", "isr", "", ("",), "--- a/pyproject.toml\n+++ b/pyproject.toml\n@@ -1 +1 @@\n-no such\n+line\n"
    )
    with pytest.raises(BadPatch, match="stale: does not apply"):
        applied(stale)
    (tmp_path / "empty.patch").write_text("# area: isr\n")
    with pytest.raises(BadPatch, match=r"empty.patch: no breaks"):
        load(tmp_path / "empty.patch")


def test_marks_stand_before_the_statement_of_the_line() -> None:
    """In the branch that is changed, not before it."""
    source = "def f(x):\n    if x:\n        y = 1\n        z = 2\n    return x\n"
    scope: dict[str, object] = {}
    text = ast.unparse(marked(source, [4]))
    assert text.index("y = 1") < text.index("odradek_reached") < text.index("z = 2")
    exec(compile(marked(source, [5]), "f", "exec"), scope)
    assert text.count("odradek_reached") == 1


@pytest.mark.slow
def test_generated_mutants_are_drawn_by_their_seed() -> None:
    """The same twice, others with another seed; each can be parsed and carries a mark."""
    first, again, other = generate(8, 1), generate(8, 1), generate(8, 2)
    assert first == again
    assert first != other
    for mutant in first:
        assert ast.unparse(mutant.module).count("odradek_reached") == 1, mutant.name


@pytest.mark.slow
@pytest.mark.parametrize("place", CORE)
def test_generated_mutants_of_each_part_of_the_core_can_be_tried(place: str) -> None:
    """They change functions alone, so that a fork can become them."""
    drawn = generate(6, 1, [place])
    assert len(drawn) == 6
    for mutant in drawn:
        assert str(Path(mutant.path).parent) == place
        assert differences(mutant.path, mutant.module), mutant.name


def test_no_mutant_drops_the_call_of_super() -> None:
    """The body of its class would be another one then, which no fork can become."""
    for source, drawn in (("super().__init__(a)", 0), ("self.__init__(a)", 1), ("self.a = super().a", 0)):
        (statement,) = ast.parse(source).body
        assert len(list(_changes(statement))) == drawn, source


@pytest.mark.slow
def test_mutants_are_caught_and_reached(tmp_path: Path) -> None:
    """One of each kind that seeds catch at once: an early acknowledgement, and two leaders of the quorum."""
    names = ["acks-all-answers-at-once", "minority-elects"]
    # The limit, in seconds for all seeds of one, is for a busy machine: how many seeds there are is what counts.
    words = ["--stages", "seeds", "--seeds", "40", "--limit", "800", "-j", "1"]
    words += ["--json", str(tmp_path / "verdicts.json")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", *names, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = json.loads((tmp_path / "verdicts.json").read_text())
    assert [(each["name"], each["by"], each["reached"]) for each in verdicts] == [
        (name, "seeds", True) for name in names
    ]
