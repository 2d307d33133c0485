"""Runs the stories of the metadata quorum in this directory; `pytest --rewrite` accepts new output.

A story is cut into blocks by empty lines. A block is comments (`#`), commands, `---` and the output that is expected.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.quorum.stage import QuorumStage

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


def replay(text: str) -> str:
    """The story as it happens now: the same comments and commands, with the output of today's code."""
    stage = QuorumStage()
    blocks = []
    for block in text.strip().split("\n\n"):
        told = block.split("\n---", 1)[0]
        commands = [line for line in told.splitlines() if line and not line.startswith("#")]
        said = [line for command in commands for line in stage.run(command)]
        blocks.append("\n".join([told, "---", *said, *stage.states()]) if commands else told)
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_quorum_story_happens_as_it_is_told(path: Path, request: pytest.FixtureRequest) -> None:
    """A transcript repeats itself line by line."""
    written = path.read_text()
    happened = replay(written)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(happened)
        return
    assert happened == written


def test_there_are_quorum_stories() -> None:
    """An empty directory would pass everything."""
    assert len(STORIES) >= 5
