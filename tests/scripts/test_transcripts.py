"""Runs the stories: commands, a line `---`, what was said. `pytest --rewrite` accepts new output.

A story is cut into blocks by empty lines. A block is comments (`#`), commands, `---` and the output that is expected.
Those in this directory are about partitions; controller, quorum and groups have a directory and a stage of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from odradek_chaos.stage.stage import Stage
from odradek_chaos.stage.transcript import Transcript

from tests.scripts.controller.controller_stage import ControllerStage
from tests.scripts.groups.group_stage import GroupStage
from tests.scripts.quorum.stage import QuorumStage

STAGES: dict[str, Callable[[], Stage | Transcript]] = {
    ".": Stage,
    "controller": ControllerStage,
    "quorum": QuorumStage,
    "groups": GroupStage,
}
AT_LEAST = {".": 50, "controller": 9, "quorum": 5, "groups": 12}
HERE = Path(__file__).parent
STORIES = [(subject, path) for subject in STAGES for path in sorted((HERE / subject).glob("*.txt"))]


def replay(text: str, stage: Stage | Transcript) -> str:
    """The story as it happens now: the same comments and commands, with the output of today's code."""
    blocks = []
    for block in text.strip().split("\n\n"):
        told = block.split("\n---", 1)[0]
        commands = [line for line in told.splitlines() if line and not line.startswith("#")]
        said = [str(line) for command in commands for line in stage.run(command)]
        blocks.append("\n".join([told, "---", *said]) if commands else told)
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize(("subject", "path"), STORIES, ids=[path.stem for _, path in STORIES])
def test_story_happens_as_it_is_told(subject: str, path: Path, request: pytest.FixtureRequest) -> None:
    """A transcript repeats itself line by line."""
    written = path.read_text()
    stage = STAGES[subject]()
    try:
        happened = replay(written, stage)
    finally:
        if isinstance(stage, QuorumStage):
            stage.close()
    if request.config.getoption("--rewrite", default=False):
        path.write_text(happened)
        return
    assert happened == written


@pytest.mark.parametrize("subject", STAGES)
def test_there_are_stories(subject: str) -> None:
    """An empty directory would pass everything."""
    assert sum(of == subject for of, _ in STORIES) >= AT_LEAST[subject]
