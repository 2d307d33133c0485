"""The pages that show tests: their programs run as they stand there, and docs/testing.md leaves no method out."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from odradek_broker.testing import AsyncCluster, Cluster

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"
PAGES = ("README.md", "docs/tutorial.md", "docs/ci.md", "docs/testing.md")
PROGRAM = re.compile(r"^```python\n# (test_\w+)\.py\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [PAGES[-1], *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES[:-1])])
def test_the_programs_of_a_page_pass(page: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a complete file; pytest runs them all with the plugin."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    text = (ROOT / page).read_text()
    programs = dict(PROGRAM.findall(text))
    assert programs
    assert len(programs) == text.count("```python\n# test_")
    pytester.makepyfile(**programs)
    result = pytester.runpytest_inprocess("-p", "odradek_broker.testing.plugin")
    result.assert_outcomes(passed=sum(source.count("def test_") for source in programs.values()))


def test_the_page_names_every_method() -> None:
    """What `Cluster` offers stands in the table."""
    text = PAGE.read_text()
    offered = [name for name in dir(Cluster) if not name.startswith("_") and name not in ("open", "close")]
    assert [name for name in offered if f"`{name}" not in text and f"cluster.{name}" not in text] == []


def test_the_page_names_what_is_no_coroutine() -> None:
    """The asynchronous cluster has the methods of the other one, and what is awaited in vain stands on the page."""
    [named] = re.findall(r"as coroutines \((.*?) only tell", PAGE.read_text(), flags=re.DOTALL)
    offered = [name for name in dir(AsyncCluster) if not name.startswith("_")]
    ordinary = [name for name in offered if not inspect.iscoroutinefunction(getattr(AsyncCluster, name))]
    assert sorted(re.findall(r"`(\w+)", named)) == ordinary
    assert {*offered} == {name for name in dir(Cluster) if not name.startswith("_")}
