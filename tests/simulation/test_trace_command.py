"""`odradek chaos trace`: the same run for people and for programs, whole in a file and cut on a terminal."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import pytest
from odradek.cli.main import main
from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.cluster.timeline import Timeline, TimelineEvent
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.plan.script import Script
from odradek_chaos.worlds.simulated.run import run
from odradek_chaos.worlds.simulated.world.board import EVENT_WIDTH, Board, fitted

RUN = ("chaos", "trace", "2", "--faults", "0.6", "--nemeses", "kill", "--core", "never")
LOSES = ("chaos", "trace", "2", "--faults", "1.2", "--truncation", "high-watermark")
FOUND = 3


def printed(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == code
    return capsys.readouterr().out


def test_a_trace_is_the_same_for_people_and_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON has each line of the text as an event with its facts, and JSON lines have what JSON has."""
    monkeypatch.setattr(run, "run_seed", cache(run.run_seed))  # one run, shown three times
    text = printed(capsys, 0, *RUN).splitlines()
    whole = json.loads(printed(capsys, 0, *RUN, "--json"))
    *lines, last = map(json.loads, printed(capsys, 0, *RUN, "--output", "jsonl").splitlines())
    assert lines == whole.pop("events")
    assert last == whole
    assert len(lines) == len(text) > 10
    assert all(
        f"{event['time_us'] / 1e6:.6f}" in line and event["event"] in line
        for event, line in zip(lines, text, strict=True)
    )
    assert (whole["seed"], whole["findings"]) == (2, [])
    assert whole["faults"]["kill"] >= 1
    assert sum(event["event"] == "!kill" for event in lines) == whole["faults"]["kill"]


def test_a_finding_stands_in_the_json_of_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code says that there is one, and the object which."""
    found = json.loads(printed(capsys, FOUND, *LOSES, "--json"))
    checks = [finding["check"] for finding in found["findings"]]
    assert checks
    assert checks == [event["event"][1:] for event in found["events"] if event["event"].startswith("?")]


def test_checks_that_do_not_count_are_told_and_end_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that looks for one check alone goes on past the others, which stand in its trace as not counted."""
    found = json.loads(printed(capsys, 0, *LOSES, "--checks", "phantom", "--json"))
    said = [event for event in found["events"] if event["event"].startswith("?")]
    assert {event["event"] for event in said} >= {"?truncate-safe"}
    assert all("not_counted" in event["facts"] for event in said)
    assert found["findings"] == []


def test_a_check_may_be_named_as_the_specification_does(capsys: pytest.CaptureFixture[str]) -> None:
    """By an invariant's name or number, beside its own: what it finds is told by the check's own name."""
    for named in ("consistent-read,truncate-safe", "S-7,S-4,S-7"):
        found = json.loads(printed(capsys, FOUND, *LOSES, "--checks", named, "--json"))
        assert [finding["check"] for finding in found["findings"]] == ["truncate-safe"]


def test_a_check_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names that there are."""
    assert main([*RUN, "--checks", "log-matching,lots"]) == 2
    said = capsys.readouterr().err
    assert "no check is called 'lots'" in said
    assert "log-matching" in said


def test_a_script_of_another_seed_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its injections would hit another world, with other luck; the command to type is named."""
    file = tmp_path / "small.json"
    file.write_text(Script((), seed=1).dump({}))
    assert main(["chaos", "trace", "2", "--script", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"{file} is a script of seed 1, not 2" in said
    assert f"`odradek chaos trace 1 --script {file}`" in said


COMMAND = "again: odradek chaos run --seeds 7 --nemeses " + ",".join(["kill"] * 40)


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_line_that_was_cut_says_so_and_a_file_has_all_of_it() -> None:
    """An event with many facts; a short one and a command that is to be pasted are left as they are."""
    timeline = Timeline(SimCluster(SimLoop(1)))
    facts = {f"fact{number}": number for number in range(20)}
    timeline.moments += [
        TimelineEvent(1_000_000, 1, "truncated", "t-0", facts),
        TimelineEvent(2_000_000, 0, "!kill", "", {"on": 1}),
    ]
    header, names, long, short = Board().screen(timeline, "t-0", 2_000_000, [1])
    assert long.endswith("fact18=18 fact19=19")
    report = "\n".join([header, names, long, short, "", COMMAND])
    assert fitted(report, io.StringIO()) == report
    cut = fitted(report, Terminal()).splitlines()
    assert cut == [header, names, f"{long[: EVENT_WIDTH - 1]}…", short, "", COMMAND]
