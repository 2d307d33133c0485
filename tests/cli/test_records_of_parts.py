"""Keys, tombstones, expressions, offsets and trimming as they are typed: the story is records.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from odradek import NewTopic
from odradek.sync import Admin

from tests.cli.conftest import Run
from tests.cli.stories import tell

STORY = Path(__file__).parent / "records.txt"


def test_the_story_of_parts_of_logs(
    odradek: Run, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Every command prints what the story says, beside what is written; broker 1 leads both topics."""
    monkeypatch.chdir(tmp_path)
    names = ("story-paper", "story-pens")
    (tmp_path / "lines").write_text("one\ntwo\n")
    (tmp_path / "pens").write_text("red:1\nblue:2\n")
    times = (1767225600000, 1767225601000)  # the first two seconds of 2026
    (tmp_path / "timed").write_text("".join(f'{{"value": "timed", "timestamp": {time}}}\n' for time in times))
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, assignments={0: [1]}) for name in names])
        tell(STORY, odradek, request)
        admin.delete_topics(names)
