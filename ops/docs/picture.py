"""Draw a lesson as an animated SVG from the pages that `odradek demo` shows: `python ops/docs/picture.py LESSON`.

Each page is a group of text lines that CSS shows for its turn. Nothing in it depends on time or chance, so a test can
compare docs/images with what the lesson draws today.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html import escape

from odradek_chaos.lessons.catalogue import lesson
from odradek_chaos.lessons.drawing import Space
from odradek_chaos.lessons.lesson import play
from odradek_chaos.lessons.pages import pages
from odradek_chaos.lessons.verdict import judge
from rich.console import Console
from rich.style import Style
from rich.text import Text

PACE_S = 5
COLUMNS, LINES = 80, 24
CELL, LINE, MARGIN = 8.4, 18, 14  # pixels; a character of 14 px monospace is 0.6 em wide
INK, PAPER = "#d8dee9", "#1f2430"
COLOURS = {"red": "#ff7b72", "green": "#7ee787", "yellow": "#f2cc60", "cyan": "#79c0ff", "magenta": "#d2a8ff"}
DIM = "#8b949e"
WORDS = re.compile(r"\S+(?: \S+)*")  # single spaces are as wide as a character, several may be lost
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">
<style>
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: {ink} }}
g {{ visibility: hidden; animation: turn {whole}s step-end infinite }}
@keyframes turn {{ 0% {{ visibility: visible }} {share}% {{ visibility: hidden }} }}
</style>
<rect width="100%" height="100%" rx="8" fill="{paper}"/>"""


def picture(name: str) -> Iterator[str]:
    """The lines of the SVG of a lesson: its steps, and what the auditor says."""
    played = play(lesson(name))
    shown = pages(played, judge(played))[1:-1]
    console = Console(width=COLUMNS, color_system="standard", force_terminal=True)
    whole = PACE_S * len(shown)
    width, height = round(CELL * COLUMNS + 2 * MARGIN), LINE * LINES + 2 * MARGIN
    label = escape(f"The lesson {name}, page by page: {played.lesson.promise}", quote=True)
    share = f"{100 / len(shown):.3f}"
    yield HEAD.format(width=width, height=height, label=label, ink=INK, paper=PAPER, whole=whole, share=share)
    for number, page in enumerate(shown):
        yield f'<g style="animation-delay:{number * PACE_S}s">'
        for row, line in enumerate(page(Space(COLUMNS, LINES, steady=True), ""), 1):
            if line.plain.strip():
                yield f'<text x="{MARGIN}" y="{MARGIN + LINE * row - 4}">{"".join(_spans(line, console))}</text>'
        yield "</g>"
    yield "</svg>"


def _spans(line: Text, console: Console) -> Iterator[str]:
    """The pieces of a line, each placed by its column, so that they stand below each other with any font."""
    column = 0
    for piece in line.render(console):
        looks = _looks(piece.style or Style())
        for words in WORDS.finditer(piece.text):
            x = f"{MARGIN + CELL * (column + words.start()):.1f}".removesuffix(".0")
            length = f"{CELL * len(words[0]):.1f}".removesuffix(".0")
            yield f'<tspan x="{x}" textLength="{length}"{looks}>{escape(words[0], quote=False)}</tspan>'
        column += piece.cell_length


def _looks(style: Style) -> str:
    colour = COLOURS.get(style.color.name) if style.color is not None else DIM if style.dim else None
    return (f' fill="{colour}"' if colour else "") + (' font-weight="bold"' if style.bold else "")


if __name__ == "__main__":
    print("\n".join(picture(sys.argv[1])))
