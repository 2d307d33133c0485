"""Every command and program that a page shows is run, in the order of the page, and ends as the page says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.reading import GENERATED, PAGES, Block, blocks
from tests.pages.session import Session

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def _pages_with_commands() -> list[Path]:
    return [page for page in PAGES if page.name not in GENERATED and blocks(page)]


@pytest.fixture(scope="session")
def log_directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three brokers' directories, with the clients' history, from a cluster whose leader was killed once."""
    place = tmp_path_factory.mktemp("stopped")
    rounds = ["chaos", "rounds", "--rounds", "1", "--target", "leader", "--data", str(place / "data")]
    command = [sys.executable, "-m", "odradek.cli.main", *rounds]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(place / "data" / "history.jsonl", place)
    for number in (1, 2, 3):
        shutil.copytree(place / "data" / f"broker-{number}", place / "copies" / f"b{number}")
    return place


@pytest.fixture
def session(tmp_path: Path, log_directories: Path) -> Iterator[Session]:
    """A session in an empty directory; no cluster outlives it."""
    opened = Session(tmp_path, log_directories)
    yield opened
    opened.close()


def _missing(block: Block) -> set[str]:
    return {tool for tool in block.needs if shutil.which(tool) is None}


@pytest.mark.parametrize("page", _pages_with_commands(), ids=lambda page: page.name)
def test_what_a_page_shows_runs(page: Path, session: Session) -> None:
    """Each block of the page ends with the code that the page states, 0 if it states none."""
    for block in blocks(page):
        if not block.is_run or _missing(block):
            continue
        session.prepare(block)
        done = session.run(block)
        assert done[-1].code == block.exit_code, f"{block.page}:{block.line}: {done[-1]}"
        assert len(done) == max(1, len(block.commands)), f"{block.page}:{block.line}: ended early, {done[-1]}"
