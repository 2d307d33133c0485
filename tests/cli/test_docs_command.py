"""`odradek docs`: every page and program, printed as it is written, in a checkout and from a wheel."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from odradek.cli import docs
from odradek.cli.main import main

ROOT = Path(__file__).parents[2]


def test_every_page_and_program_is_listed_and_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """The list names each with its title; a name prints the file, with or without folder and ending."""
    assert main(["docs", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    written = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert set(listed) == written | {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")}
    assert listed["lessons"]["title"] == "Lessons: replication, step by step"
    for name in ("lessons", "docs/lessons.md"):
        assert main(["docs", name]) == 0
        assert capfd.readouterr().out == (ROOT / "docs/lessons.md").read_text()


def test_a_page_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    """Code 2, and what was probably meant."""
    assert main(["docs", "lesson"]) == 2
    assert "did you mean 'lessons'?" in capfd.readouterr().err


def test_a_wheel_has_the_folders_where_the_command_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What pyproject.toml puts beside the package is found there, also when no checkout is around."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, target in wheel["force-include"].items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / target).symlink_to(ROOT / source)
    monkeypatch.setattr(docs, "__file__", str(tmp_path / "odradek" / "cli" / "docs.py"))
    assert main(["docs", "tutorial"]) == 0
    assert capfd.readouterr().out == (ROOT / "docs/tutorial.md").read_text()
    assert set(docs.FOLDERS) == set(wheel["force-include"])
