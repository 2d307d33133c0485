"""Generated mutants: which tests come by a line, and how a fork becomes a mutant."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import FunctionType

import pytest
from odradek_broker.core.metadata.topic_configs import TOPIC_CONFIGS
from odradek_broker.core.partition import high_watermark

from tests.mutants.fork_server import (
    ForkServer,
    Life,
    MutantTask,
    Verdict,
    become,
    differences,
    functions_of_the_broker,
    try_seeds,
)
from tests.mutants.generated import generate
from tests.mutants.reach import Reach, trace
from tests.mutants.tree import ROOT

HIGH_WATERMARK = "broker/odradek_broker/core/partition/high_watermark.py"


def changed(old: str, new: str) -> str:
    """The text of the high watermark's module with a change."""
    text = (ROOT / HIGH_WATERMARK).read_text()
    assert old in text
    return text.replace(old, new)


def test_a_function_becomes_its_mutant_for_whoever_holds_it() -> None:
    """The function object stays and its code is another; other functions are left alone."""
    candidate = high_watermark.candidate
    unchanged = candidate.__code__
    functions = functions_of_the_broker()
    try:
        become(HIGH_WATERMARK, changed("return lowest", "return lowest + 7"), functions)
        assert candidate(5, 3, [], lambda remote: False) == 12
    finally:
        candidate.__code__ = unchanged
    assert candidate(5, 3, [], lambda remote: False) == 5


def test_what_a_function_made_at_the_import_becomes_the_mutant_too() -> None:
    """The checks of settings are such functions: whoever makes them is not called again."""
    path = "broker/odradek_broker/core/metadata/config_types.py"
    check = TOPIC_CONFIGS["preallocate"].check
    assert isinstance(check, FunctionType)
    text, functions = (ROOT / path).read_text(), functions_of_the_broker()
    unchanged = [(each, each.__code__) for alike in functions.values() for each in alike]
    try:
        become(path, text.replace("if value == allowed else", "if value != allowed else"), functions)
        assert check(False) is not None
    finally:
        for each, code in unchanged:  # this process lives on: every setting that `only` checks became another
            each.__code__ = code
    other = TOPIC_CONFIGS["message.timestamp.type"].check
    assert other is not None
    assert check(False) is None
    assert other("CreateTime") is None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("return lowest", "return  lowest", "no function has changed"),
        ("def candidate(", "LIMIT = 7\n\n\ndef candidate(", "code outside of functions has changed"),
    ],
)
def test_what_no_fork_can_become_is_refused(old: str, new: str, reason: str) -> None:
    """It would survive everything."""
    with pytest.raises(ValueError, match=reason):
        differences(HIGH_WATERMARK, changed(old, new))


@pytest.mark.slow
def test_the_head_of_a_changed_statement_is_what_tests_come_by() -> None:
    """Its first line is among the lines of the mutant, and those of statements within it are not."""
    for mutant in generate(40, 3):
        lines = (ROOT / mutant.path).read_text().splitlines()
        assert 1 <= mutant.lines.start < mutant.lines.stop <= len(lines) + 1, mutant.name
        assert mutant.lines.start <= mutant.line, mutant.name


@pytest.mark.slow
def test_tests_are_known_by_the_lines_that_they_come_by(tmp_path: Path) -> None:
    """Traced: tests of the epoch cache come by its lines, and not by those of the high watermark."""
    reach = trace(["tests/broker/test_epoch_cache.py"], tmp_path / "reach.json")
    epochs = "broker/odradek_broker/core/partition/epochs.py"
    assert reach.tests_of(epochs, range(1, 120))
    assert all(test.startswith("tests/broker/test_epoch_cache.py::") for test in reach.seconds)
    assert not reach.tests_of(HIGH_WATERMARK, range(1, 40))
    assert reach.tests_of(epochs, [1]) == []


def test_quick_tests_come_first() -> None:
    """Whoever objects in a tenth of a second saves the slow ones."""
    reach = Reach({"a.py": {3: ["slow", "quick"], 4: ["slow", "middle"]}}, {"slow": 9.0, "middle": 2.0, "quick": 0.1})
    assert reach.tests_of("a.py", range(3, 5)) == ["quick", "middle", "slow"]
    assert reach.others(["slow"]) == ["quick", "middle"]


@pytest.mark.parametrize(
    ("by", "of_the_unchanged", "caught"),
    [
        ("seeds", "", True),
        ("seeds", "seeds", False),
        ("error", "", True),
        ("error", "error", False),
        ("tests", None, True),
    ],
)
def test_what_objects_to_the_unchanged_sources_catches_no_mutant(
    by: str, of_the_unchanged: str | None, caught: bool, tmp_path: Path
) -> None:
    """A seed that finds something anyway, and a fork that breaks anyway."""
    said: list[Verdict] = []
    server = ForkServer([], 1, lambda trial, verdict: said.append(verdict))
    trial = MutantTask("by hand", "isr", "it", HIGH_WATERMARK, "text", ("seeds",), {}, ("",), range(1), 1.0, 9)

    def ends(life: Life, by: str) -> None:
        target = tmp_path / "fork.json"
        target.write_text(json.dumps({"check": "it", "by": by, "seeds": 1, "seed": 3, "run": "", "reached": True}))
        server._living[1] = (life, target, time.monotonic())
        server._bury(1, 0)

    ends(Life(trial, trial), by)
    if of_the_unchanged is not None:
        (doubt,) = server._waiting
        assert not doubt.tries.path
        assert not said
        ends(server._waiting.pop(), of_the_unchanged)
    assert not server._waiting
    assert [verdict.caught for verdict in said] == [caught]


@pytest.mark.slow
def test_seeds_that_object_to_nothing_are_counted() -> None:
    """A verdict says after how many seeds nobody had objected."""
    assert try_seeds(["--faults 0.1"], range(1, 3), limit_s=900) == {"check": "", "by": "", "seeds": 2}
