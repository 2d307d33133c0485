"""The tree of commands: found by entry points, loaded late, described in the docs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from odradek.cli.reference import page
from odradek.cli.tree import GROUP, SUMMARIES

from tests.commands_of_odradek import tree

ROOT = Path(__file__).parents[2]
HEAVY = {"grpc", "pyspark", "pyarrow", "rich", "odradek_broker", "odradek_chaos", "odradek_audit"}


def imported_by(*words: str) -> set[str]:
    """The packages that a command line imports, by Python's own account."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "odradek.cli.main", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


def test_help_loads_nothing_heavy() -> None:
    """`odradek --help` is there before grpc, Spark or any subcommand could have been loaded."""
    found = imported_by("--help")
    assert "typer" in found
    assert not found & HEAVY


ALL_HELP = """
import contextlib, io, json, sys
from odradek.cli.main import main
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        main([*words, "--help"])
    if loaded := {"asyncio", "grpc", "msgspec", "pyspark", "pyarrow"} & set(sys.modules):
        sys.exit(f"odradek {' '.join(words)} --help loads {sorted(loaded)}")
"""


def test_help_of_no_command_loads_what_runs() -> None:
    """A page needs none of what its command needs: asyncio alone is a tenth of its time. One process has them all."""
    pages = json.dumps([path[1:] for path in tree()])
    done = subprocess.run([sys.executable, "-c", ALL_HELP, pages], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_registered_command_has_a_line_on_the_first_page() -> None:
    """What an entry point registers stands in the summaries, under its own words."""
    listed = {name: summary for names in SUMMARIES.values() for name, summary in names.items()}
    firsts = {path[1]: command.help for path, command in tree().items() if len(path) == 2}
    assert {point.name for point in entry_points(group=GROUP)} == set(firsts)
    assert set(firsts) <= set(listed)
    for name in set(firsts) - {"audit"}:  # the auditor speaks for itself, and longer
        assert firsts[name].split("\n")[0] == listed[name]


def leaves() -> list[tuple[tuple[str, ...], Any]]:
    return [(path, leaf) for path, leaf in tree().items() if not hasattr(leaf, "commands")]


@pytest.mark.parametrize(
    ("path", "leaf"), leaves(), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_option_is_explained(path: tuple[str, ...], leaf: Any) -> None:
    """Each command says what it does, each option what it means."""
    assert leaf.help, path
    for parameter in leaf.params:
        assert getattr(parameter, "help", None), f"{' '.join(path)}: {parameter.name} has no help"


def test_lists_of_commands_cut_no_sentence() -> None:
    """On a terminal of 80 columns: a sentence goes on in the next line."""
    for path, group in tree().items():
        if hasattr(group, "commands") and len(path) > 1:  # the first page has lines of its own
            words = " ".join(group.get_help(group.context_class(group, info_name=path[-1])).split())
            for name, command in group.commands.items():
                assert f"{name} {command.get_short_help_str(1000)}" in words


def test_the_page_of_commands_is_current() -> None:
    """docs/commands.md is what the commands say of themselves."""
    written = (ROOT / "docs/commands.md").read_text()
    assert written == page(), "python -m odradek.cli.reference > docs/commands.md"


def test_every_exported_name_of_the_client_is_there() -> None:
    """The package loads its modules late; each name that it promises comes all the same, and no other."""
    import odradek

    assert all(getattr(odradek, name) is not None for name in odradek.__all__)
    assert set(dir(odradek)) == set(odradek.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Prodcer'"):
        vars(odradek)["__getattr__"]("Prodcer")
