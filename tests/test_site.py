"""The documents as a site (mkdocs.yml): every page has its place, and what is drawn is drawn from today's program.

`make docs` builds the site and finds links that lead nowhere; CI runs it.
"""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parent.parent
PAGE = re.compile(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", re.MULTILINE)


def api() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """The pages that are made from docstrings: title, what it is, and the names on it."""
    pages: dict[str, tuple[str, str, tuple[str, ...]]] = runpy.run_path(str(ROOT / "ops/docs/hooks.py"))["API"]
    return pages


def test_every_page_has_its_place_and_each_place_a_page() -> None:
    """The navigation names the pages of docs/ and those that are made from docstrings, each once."""
    named = PAGE.findall((ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2])
    made = api()
    written = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted([*written, *made])


def test_every_page_stands_in_the_index() -> None:
    """docs/index.md leads to all pages, decisions by the first of them."""
    text = (ROOT / "docs/index.md").read_text()
    written = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert sorted(name for name in written if f"]({name})" not in text) == []


@pytest.mark.parametrize("package", ["odradek", "odradek.sync", "odradek_broker.testing"])
def test_every_public_name_stands_in_the_api(package: str) -> None:
    """By itself or in its module; the site leaves out what has no docstring, also where a dataclass makes one up."""
    shown = [resolve_name(each) for _, _, names in api().values() for each in names]
    missing = []
    module = importlib.import_module(package)
    for name in module.__all__:
        found = getattr(module, name)
        doc = str(found.__doc__ or "")
        if all(found not in (each, vars(each).get(name)) for each in shown) or not doc or doc.startswith(f"{name}("):
            missing.append(name)
    assert missing == []


def test_the_picture_of_the_readme_is_the_lesson_of_today() -> None:
    """`make pictures` draws it anew."""
    drawn = subprocess.run(
        [sys.executable, "ops/docs/picture.py", "lost-write"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert drawn.stdout == (ROOT / "docs/images/lost-write.svg").read_text()
