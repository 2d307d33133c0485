"""`odradek docs`: the documents and the example programs of this version, wherever it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from odradek_proto.command_line import USAGE, CommandFailed

from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, ToScreen

app = CommandGroup("Read the documents and the examples of this version.", no_args_is_help=False)
IN_A_WHEEL = "pages"  # beside this package: pyproject.toml puts them there
FOLDERS = {"docs": "*.md", "examples": "*.py"}


@app.command()
def docs(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="A page or a program; without it they are listed.")
    ] = "",
    screen: ToScreen = SCREEN,
) -> None:
    """Read the documents and the examples of this version.

    A page is printed as it is written, in Markdown: `odradek docs tutorial`, `odradek docs examples/fast_producer.py >
    mine.py`. The list says which file each is.
    """
    found = pages()
    if name:
        path = found.get(name.removeprefix("docs/").removesuffix(".md"))
        if path is None:
            meant = did_you_mean(name, found)
            raise CommandFailed(f"there is no page {name!r}{meant}", hint="`odradek docs` lists them", exit_code=USAGE)
        text = path.read_text(encoding="utf-8")
        screen.show({"name": name, "file": str(path), "text": text}, text.rstrip)
        return
    rows = [{"name": each, "title": _title(path), "file": str(path)} for each, path in found.items()]
    screen.show_rows(rows, {"name": "NAME", "title": "TITLE"})


def pages() -> dict[str, Path]:
    """Every page and program by its name. Raises `CommandFailed` where they are not installed."""
    package = Path(__file__).parents[1]
    for root in (package / IN_A_WHEEL, package.parents[1]):  # installed; or in a checkout, beside client/
        if (root / "docs" / "index.md").exists():
            return {
                path.stem if folder == "docs" else f"{folder}/{path.name}": path
                for folder, pattern in FOLDERS.items()
                for path in sorted((root / folder).glob(pattern))
            }
    raise CommandFailed("the documents are not installed", hint="they are in docs/ of the repository")


def _title(path: Path) -> str:
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.strip('#" ').rstrip(".")
