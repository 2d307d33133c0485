"""What a page shows to be typed, and under which circumstances.

A fenced block belongs to a shell when its language is `sh` (each line is a command) or when it has lines that begin
with `$ ` (these are commands, the rest is what they print). A block of `python` is a program when a comment says so.
Nothing else is run. An HTML comment on the line before a block, which readers do not see, says what the block needs:

    <!-- run: beside a cluster -->           three brokers run, with the topics `orders` and `payments`
    <!-- run: over log directories -->       ./data/broker-1 to -3, ./copies/b1 to b3 and ./history.jsonl lie there
    <!-- run: in the checkout -->            the working directory is the repository's root
    <!-- run: exit 3 -->                     the last command ends with this code
    <!-- run: slow -->                       takes so long that only `make torture` runs it
    <!-- not run: PATH -->                   the named test or script runs the same thing

Several are separated by commas. A page is one session: its blocks run in order, with the same directory and variables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.seeds import TORTURE

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = {"commands.md"}  # help texts; the test of the reference compares them with the commands

BLOCK = re.compile(
    r"(?:^<!-- (?P<what>run|not run): (?P<notes>[^>]*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```", re.M | re.S
)
OURS = re.compile(r"(?:\w+=\S+ )*(?:odradek|make|python|pip|docker|docker-compose|spark-submit|source)\b(?! {2})")
NOTES = re.compile(r"beside a cluster|over log directories|in the checkout|slow|exit \d+|needs \w+")


class Block(NamedTuple):
    """One fenced block: its commands (or its program), where it stands, and what it needs."""

    page: str
    line: int
    commands: tuple[str, ...]
    program: str
    notes: frozenset[str]
    covered_by: str  # "": it is run here

    @property
    def exit_code(self) -> int:
        return next((int(note.split()[1]) for note in self.notes if note.startswith("exit ")), 0)

    @property
    def is_run(self) -> bool:
        return not self.covered_by and (TORTURE or "slow" not in self.notes)

    @property
    def needs(self) -> set[str]:
        return {note.split()[1] for note in self.notes if note.startswith("needs ")}


class Unmarked(ValueError):
    """A block looks like commands, and nothing says that they are, or a note says something unknown."""


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are to be typed or run, in order.

    Raises `Unmarked` for a block that holds a command of ours without being marked as a shell's, and for unknown notes.
    """
    found = []
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        place = f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}"
        commands = tuple(_commands(match["language"], match["text"]))
        if not commands and match["language"] in ("", "console"):
            shown = [line for line in match["text"].splitlines() if OURS.match(line)]
            if shown:
                raise Unmarked(f"{place}: {shown[0]!r} stands in a block that is neither `sh` nor has `$ ` lines")
        covered = match["notes"].strip() if match["what"] == "not run" else ""
        notes = set() if covered else {note.strip() for note in (match["notes"] or "").split(",") if note.strip()}
        unknown = [note for note in notes if not NOTES.fullmatch(note)]
        if unknown:
            raise Unmarked(f"{place}: unknown notes {unknown}")
        program = match["text"] if match["language"] == "python" and match["what"] == "run" else ""
        if commands or program:
            line = text.count("\n", 0, match.start("text")) + 1
            found.append(Block(page.name, line, commands, program, frozenset(notes), covered))
    return found


def _commands(language: str, text: str) -> list[str]:
    """The command lines of a block; a line that ends in a backslash goes on in the next."""
    joined = text.replace("\\\n", " ")
    if language in ("sh", "bash"):
        return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
