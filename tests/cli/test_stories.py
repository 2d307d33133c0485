"""Commands as they are typed, with what they print, line by line.

The words after `$ odradek` in a story are run one after the other; `-> 1` is the exit code, and what goes to standard
error is marked by `!`. `pytest --rewrite` accepts new output. The story of this file is about keys, tombstones, ranges,
expressions, offsets and trimming.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from odradek import NewTopic
from odradek.sync import Admin

from tests.cli.conftest import Run


def tell(
    story: Path, odradek: Run, request: pytest.FixtureRequest, after_each: Callable[[], object] = lambda: None
) -> None:
    """Every command prints what the story says, and ends with its code. Progress depends on the hour: left out."""
    told, happened = story.read_text(), []
    for line in told.splitlines():
        if not line or line.startswith("#"):
            happened.append(line)
        elif line.startswith("$ "):
            code, out, err = odradek(*shlex.split(line)[2:])
            said = [f"! {words}" for words in err.splitlines() if "on their way" not in words]
            happened += [line, *said, *filter(None, out.splitlines()), *([f"-> {code}"] if code else [])]
            after_each()
    text = "\n".join(happened) + "\n"
    if request.config.getoption("--rewrite", default=False):
        story.write_text(text)
        return
    assert text == told


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
        tell(Path(__file__).parent / "records.txt", odradek, request)
        admin.delete_topics(names)
