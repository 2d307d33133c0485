"""`odradek chaos run`, `trace` and `pairs`: what is refused before anything runs, what did not run, and what ran."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import struct
import termios
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields

import pytest
from odradek.cli.main import main
from odradek_broker.core.partition.messages import TruncationMode
from odradek_chaos.cli.campaign_progress import CampaignProgress
from odradek_chaos.cli.commands import app
from odradek_chaos.worlds.simulated.campaign.campaign import REPORTS_KEPT, Campaign, SeedSummary
from odradek_chaos.worlds.simulated.plan.buggify import BRANCHES, POINTS
from odradek_chaos.worlds.simulated.plan.options import CHOICES, Options
from odradek_proto.command_line import USAGE
from typer.testing import CliRunner

Capture = pytest.CaptureFixture[str]


def summary(seed: int, *checks: str) -> SeedSummary:
    """One seed of half a virtual hour with two faults and ten records."""
    return SeedSummary(
        seed=seed,
        trace_hash="",
        virtual_ms=1_800_000,
        cpu_s=90.0,
        events=1_000,
        faults={"kill": 2},
        points={},
        branches={},
        acknowledged=10,
        compared=30,
        recovered_ms=500,
        unavailable_ms={},
        costs=(),
        checks=checks,
        report=f"seed {seed}" if checks else "",
    )


def refused(capsys: Capture, *words: str) -> list[str]:
    """What a command says that has run nothing."""
    assert main(["chaos", *words]) == USAGE
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--nemeses", ""),
        ("run", "--checks", " "),
        ("trace", "1", "--nemeses", ""),
        ("trace", "1", "--checks", ""),
        ("pairs", "--nemeses", ""),
    ],
)
def test_an_option_that_names_nothing_is_refused(capsys: Capture, words: tuple[str, ...]) -> None:
    """A shell's variable that was not set: the defaults would run in place of what was meant."""
    sentence, hint = refused(capsys, *words)
    assert sentence == f"odradek: {words[-2]} names nothing"
    assert "leave it out" in hint


@pytest.mark.parametrize("command", ["run", "pairs"])
def test_seeds_from_the_larger_to_the_smaller_are_refused(capsys: Capture, command: str) -> None:
    """With what is wrong, and both forms that are taken."""
    sentence, hint = refused(capsys, command, "--seeds", "5..1")
    assert sentence == "odradek: --seeds 5..1: the first seed is larger than the last"
    assert hint == "  try: 1..100, or a single seed: 7"
    assert refused(capsys, command, "--seeds", "all") == ["odradek: --seeds: 'all' is no range of seeds", hint]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--truncation", "foo"), "fetch, epoch-request, epoch-single-round or high-watermark"),
        (("--fsync", "foo"), "never or before-ack"),
        (("--acks", "2"), "all, 1 or 0"),
    ],
)
def test_the_values_that_there_are_need_no_other_hint(capsys: Capture, words: tuple[str, ...], said: str) -> None:
    """They stand in the sentence, and in no document that is named beside it."""
    sentence, hint = refused(capsys, "run", *words)
    assert said in sentence
    assert "docs/" not in hint


def test_the_truncation_modes_are_those_of_the_broker() -> None:
    """The command line has a list of its own, since it imports nothing of the product."""
    assert CHOICES["truncation_mode"] == tuple(mode.value for mode in TruncationMode)


def test_faults_and_checks_are_described_elsewhere(capsys: Capture) -> None:
    """Their names alone do not say what they do."""
    for option in ("--nemeses", "--checks"):
        assert refused(capsys, "run", option, "lots")[1] == "  try: `odradek docs simulation` describes them"


@pytest.mark.slow
def test_seeds_that_were_not_begun_in_time_are_told(capsys: Capture) -> None:
    """A campaign of four seeds is not taken for one of a million."""
    words = ["chaos", "run", "--seeds", "1..1000000", "-j", "1", "--faults", "0.1", "--minutes", "0.01"]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["seeds"] + said["not_begun"] == 1_000_000
    assert said["not_begun"] > 0
    assert main(words) == 0
    *_, not_begun, last = capsys.readouterr().out.splitlines()
    assert not_begun.endswith(" seeds were not begun in time")
    assert last == "no finding"


@pytest.mark.slow
def test_nothing_is_said_of_seeds_that_were_all_begun(capsys: Capture) -> None:
    """JSON has the number always."""
    words = ["chaos", "run", "--seeds", "1", "-j", "1", "--faults", "0.1"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_begun"] == 0
    assert main(words) == 0
    assert "not begun" not in capsys.readouterr().out


def test_a_line_on_a_terminal_is_never_wider_than_it() -> None:
    """What goes over into the next row stays there when the line is drawn again. The width may change meanwhile."""
    reading, writing = pty.openpty()

    def drawn(columns: int) -> str:
        fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        progress.add(summary(1))
        return os.read(reading, 4096).decode().removeprefix("\r\x1b[2K")

    with os.fdopen(writing, "w") as out:
        progress = CampaignProgress(out, 1000)
        lines = {columns: drawn(columns) for columns in (200, 120, 80, 60, 20, 1, 0)}
    os.close(reading)
    assert lines[200].startswith("[........................] 1/1000 seeds")
    assert len(lines[120]) == len(lines[200])
    assert lines[80].startswith("[.")
    assert lines[80].endswith(" records, no findings")
    assert lines[20] == "5/1000 seeds, 2:30…"
    assert all(len(line) < max(columns, 2) for columns, line in lines.items() if columns)
    assert 40 < len(lines[0]) < 80, "a terminal that does not say how wide it is"


def test_what_was_reached_is_listed_and_what_was_not_stands_in_one_line() -> None:
    """Nothing is listed with a count of zero; JSON has all names with their counts."""
    campaign = Campaign(Options(nemeses=("kill", "pause", "cut")))
    campaign.faults = Counter({"pause": 3, "machine-gone": 1})
    lines = [*campaign.lines()]
    assert "4 faults: 3 pause, 1 machine-gone" in lines
    assert "0 chance points" in lines
    assert "0 rare branches" in lines
    (missed,) = [line for line in lines if line.startswith("not reached by these seeds: ")]
    assert missed.startswith("not reached by these seeds: kill, cut, ")
    assert campaign.reach()["faults"] == {"kill": 0, "pause": 3, "cut": 0, "machine-gone": 1}


def test_a_campaign_of_one_of_each_says_so() -> None:
    """One fault, one rare branch: a campaign of one short seed under one kind of faults."""
    campaign = Campaign(Options(nemeses=("kill",)), seeds=1, virtual_ms=1_000, events=1, acknowledged=1)
    campaign.faults = Counter({"kill": 1})
    point, branch = next(iter(POINTS)), next(iter(BRANCHES))
    campaign.points[point] = campaign.branches[branch] = 1
    lines = [*campaign.lines()]
    assert lines[:4] == [
        "1 seed, 1 virtual second, 1 event",
        "1 fault: 1 kill",
        f"1 chance point: 1 {point}",
        f"1 rare branch: 1 {branch}",
    ]
    assert "1 record acknowledged, 0 compared between replicas" in lines


@pytest.mark.parametrize("order", [1, -1])
def test_the_failures_that_are_told_do_not_hang_on_what_was_done_first(order: int) -> None:
    """Several processes finish their seeds in any order: the first seeds are kept, and stand in their order."""
    campaign = Campaign(Options())
    for seed in range(REPORTS_KEPT + 5)[::order]:
        campaign.add(summary(seed, "lost"))
    assert campaign.reports == [f"seed {seed}" for seed in range(REPORTS_KEPT)]


@pytest.mark.parametrize(
    ("options", "branch"),
    [(Options(core="never"), "core-phase"), (Options(metadata_snapshots="never"), "snapshot-installed")],
)
def test_what_the_options_rule_out_is_not_missed(options: Options, branch: str) -> None:
    """Nobody can reach it by more seeds."""
    assert branch in Campaign(Options()).unreached()
    assert branch not in Campaign(options).unreached()


USUAL = Options()
UNUSUAL = Options(
    faults_ms=148_500,
    min_insync_replicas=1,
    acks="1",
    truncation_mode="high-watermark",
    fsync="before-ack",
    fast_restart_keeps_isr=True,
    nemeses=("kill", "cut"),
    chance="all",
    core="never",
    strict=True,
    checks=("lost", "skipped"),
    partitions=5,
    writers=3,
    members=2,
    metadata_snapshots="small",
    elr="off",
    shape="observers",
    compaction=True,
)


@pytest.mark.parametrize("options", [USUAL, UNUSUAL], ids=["usual", "unusual"])
def test_the_command_that_repeats_a_failure_runs_it_under_the_same_options(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option that the commands have is given by the name that it has there."""
    assert all(getattr(UNUSUAL, item.name) != item.default for item in fields(Options))
    told: list[tuple[list[int], Options]] = []

    def run(seeds: Iterable[int], options: Options, **_: object) -> Campaign:
        told.append(([*seeds], options))
        return Campaign(options)

    monkeypatch.setattr("odradek_chaos.worlds.simulated.campaign.campaign.run_campaign", run)
    words = shlex.split(options.command(7))
    assert words[:3] == ["odradek", "chaos", "run"]
    CliRunner().invoke(app, words[2:], catch_exceptions=False)
    assert told == [([7], options)]
