"""The commands in README.md exist, with the options that it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.commands_of_odradek import tree

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/architecture.md", "docs/differences.md", "docs/checks.md", "docs/client.md")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
IN_BLOCK = re.compile(r"(?:^|\| )(?:\$ )?(odradek [a-z-][^|#\n]*)", re.MULTILINE)
IN_TEXT = re.compile(r"`(odradek [a-z-][^`]*)`")
TREE = tree()


def mentioned() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        lines = [line for block in FENCED.findall(text) for line in IN_BLOCK.findall(block)]
        found += [(page, line.strip()) for line in lines + IN_TEXT.findall(FENCED.sub("", text))]
    return found


def test_the_pages_show_commands() -> None:
    """The pattern finds what the pages show, so that the next test has something to do."""
    assert len(mentioned()) > 15


def test_the_short_door_comes_first() -> None:
    """The first block installs the package alone and runs the demo; `make`, which installs every tool, comes later."""
    first = FENCED.findall((ROOT / "README.md").read_text())[0]
    assert 0 < first.index("pip install . ") < first.index("odradek demo")
    assert "make" not in first


@pytest.mark.parametrize(("page", "line"), mentioned(), ids=lambda value: value)
def test_a_command_in_the_docs_exists(page: str, line: str) -> None:
    """Names and options of a command line in the docs are those of the command."""
    words = shlex.split(line)
    path: tuple[str, ...] = ("odradek",)
    while len(words) > len(path) and (*path, words[len(path)]) in TREE:
        path = (*path, words[len(path)])
    assert len(path) > 1 or words[1].startswith("-"), f"{page}: {line}"
    command = TREE[path]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    used = {word.split("=")[0] for word in words if re.fullmatch(r"--?[a-zA-Z][a-z-]*(=.*)?", word)}
    assert used <= known, f"{page}: {line}"


def test_the_first_page_has_no_line_that_a_terminal_folds() -> None:
    """Tables, too."""
    assert [line for line in (ROOT / "README.md").read_text().splitlines() if len(line) > 120] == []
