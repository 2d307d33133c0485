"""What counts as a command on a page: nothing that a reader may type is left out by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.reading import GENERATED, PAGES, ROOT, Unmarked, blocks


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=lambda page: page.name)
def test_every_block_of_commands_is_marked(page: Path) -> None:
    """A block with commands of ours is a shell's, so that it is run, and what is run elsewhere says where."""
    for block in blocks(page):
        if block.covered_by:
            assert (ROOT / block.covered_by).is_file(), f"{block.page}:{block.line}: {block.covered_by}"


def test_commands_are_told_from_their_output(tmp_path: Path) -> None:
    """`$ ` marks commands, in `sh` every line is one, continuations are joined, programs need a note."""
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- run: beside a cluster, exit 3 -->\n```\n$ odradek a \\\n  b\nodradek said\n```\n"
        "```sh\nmake x  # why\n```\n```python\nprint(1)\n```\n<!-- run: slow -->\n```python\nprint(2)\n```\n"
        "<!-- not run: tests/x.py -->\n```sh\ndocker y\n```\n"
    )
    first, second, third, fourth = blocks(page)
    assert (first.commands, first.exit_code) == (("odradek a    b",), 3)
    assert first.notes == frozenset({"beside a cluster", "exit 3"})
    assert second.commands == ("make x  # why",)
    assert (third.program, third.notes) == ("print(2)\n", frozenset({"slow"}))
    assert fourth.covered_by == "tests/x.py"


def test_commands_in_a_plain_block_are_refused(tmp_path: Path) -> None:
    """A forgotten mark is an error that names the place; so is a note that nobody knows."""
    page = tmp_path / "page.md"
    page.write_text("text\n```\nodradek topic list\n```\n")
    with pytest.raises(Unmarked, match=r"page.md:2: 'odradek topic list'"):
        blocks(page)
    page.write_text("<!-- run: by moonlight -->\n```sh\nodradek topic list\n```\n")
    with pytest.raises(Unmarked, match="by moonlight"):
        blocks(page)
