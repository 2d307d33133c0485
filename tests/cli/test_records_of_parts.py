"""Keys, tombstones, ranges, expressions, offsets and trimming as they are typed: the story is records.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from odradek import NewTopic
from odradek.cli.terminal.parsing import Span, Start, parse_span
from odradek.sync import Admin
from odradek_proto.command_line import CommandFailed

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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", Span(Start("offset", 5))),
        ("5:10", Span(Start("offset", 5), Start("offset", 10))),
        (":end", Span(Start("beginning"), Start("end"))),
        ("-10:-2", Span(Start("last", 10), Start("last", 2))),
        ("@5:@10", Span(Start("time", 5), Start("time", 10))),
        ("@1970-01-01T00:00+00:00:end", Span(Start("time", 0), Start("end"))),
        ("@1970-01-01T00:00+00:00:@1970-01-01T00:01:00+00:00", Span(Start("time", 0), Start("time", 60_000))),
    ],
)
def test_ranges(text: str, expected: Span) -> None:
    """Two places with a colon between, which is one of several where there are times."""
    assert parse_span(text) == expected


@pytest.mark.parametrize(
    "text", [":", "5:", "5:x", "x:5", "5:10:15", "@2026-01-31T12:00:99", "@5:7", "5:1", "-2:-10", "@10:@5"]
)
def test_no_ranges(text: str) -> None:
    """A time that cannot be is not taken for a time and an offset; no range ends before it begins."""
    with pytest.raises(CommandFailed) as refused:
        parse_span(text)
    assert refused.value.exit_code == 2
