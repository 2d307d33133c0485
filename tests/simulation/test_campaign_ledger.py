"""What a campaign leaves behind: a line in a ledger, and while it runs a line on a terminal."""

from __future__ import annotations

import io
import json
import os
import platform
from pathlib import Path

import pytest
from odradek.cli.main import main
from odradek_chaos.cli.campaign_ledger import Entry, append, commit_here, core_digest, entry_of, read, sums
from odradek_chaos.cli.campaign_progress import Progress, clock
from odradek_chaos.cli.commands import app
from odradek_chaos.worlds.simulated.campaign.campaign import Campaign, SeedSummary
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.values import replace
from typer.testing import CliRunner

COMMIT = ("0123456789ab", False)
LONG = Options(faults_ms=150_000)


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def summary(seed: int, checks: tuple[str, ...] = ()) -> SeedSummary:
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
        report="",
    )


def entry(core: str, *checks: str, options: Options = LONG, first: int = 1, nemesis: str = "kill") -> Entry:
    """A campaign of two seeds, in the first of which these checks found something."""
    campaign = Campaign(options)
    for each in (summary(first, checks), summary(first + 1)):
        each.faults[nemesis] = each.faults.pop("kill")
        campaign.add(each)
    return entry_of(campaign, f"{first}..{first + 1}", core, COMMIT)


def test_campaigns_add_up_for_each_core(tmp_path: Path) -> None:
    """Another core begins at nothing; the present one is marked."""
    file = tmp_path / "campaigns.jsonl"
    written = [entry("old", "lost"), entry("new"), entry("new")]
    for each in written:
        append(file, each)
    assert list(read(file)) == written
    old, new = sums(read(file), present="new")
    assert (old.core, old.is_present, old.runs, old.findings) == ("old", False, 2, {"lost": 1})
    assert (new.core, new.is_present, new.campaigns, new.runs, new.findings) == ("new", True, 2, 4, {})
    assert (new.virtual_hours, new.faults, new.records) == (2.0, 8, 40)


@pytest.mark.parametrize(
    ("firsts", "seeds"), [((1,), 2), ((1, 3), 4), ((1, 1), 2), ((1, 2), 3), ((2, 1, 9, 2), 5), ((9, 1), 4)]
)
def test_a_seed_that_ran_twice_counts_once(firsts: tuple[int, ...], seeds: int) -> None:
    """It told the same story."""
    (found,) = sums([entry("new", first=first) for first in firsts], present="new")
    assert (found.seeds, found.runs) == (seeds, 2 * len(firsts))


def test_seeds_that_were_not_begun_in_time_do_not_count() -> None:
    """`--minutes` ends a campaign before its last seed; the first ones ran."""
    line = json.loads(entry("new").line())
    (found,) = sums([Entry(**{**line, "seeds": "1..100"}), entry("new", first=50)], present="new")
    assert found.seeds == 4


def test_campaigns_with_other_options_are_counted_apart() -> None:
    """A thousand short runs are no thousand long ones."""
    found = sums([entry("new"), entry("new", options=Options()), entry("new", first=3)], present="new")
    assert [(each.command, each.seeds) for each in found] == [("--faults-ms 150000", 4), ("", 2)]


def test_what_one_campaign_reached_was_reached() -> None:
    """What none of them reached is left; those with other options have reached nothing for them."""
    other = Options(faults_ms=1, nemeses=("kill",))
    lines = [entry("new"), entry("new", nemesis="pause"), entry("new", nemesis="cut", options=other)]
    long, _ = sums(lines, present="new")
    assert {"kill", "pause"} & {*long.not_reached} == set()
    assert {"cut", "no-leader"} <= {*long.not_reached}


def test_a_line_says_what_ran(tmp_path: Path) -> None:
    """Commit, whether it was changed, core, options, and what was not reached."""
    file = tmp_path / "campaigns.jsonl"
    append(file, entry("new"))
    line = json.loads(file.read_text())
    assert (line["commit"], line["dirty"], line["core"]) == (*COMMIT, "new")
    assert line["python"] == platform.python_version()
    assert (line["command"], line["seeds"], line["virtual_hours"]) == ("--faults-ms 150000", "1..2", 1.0)
    assert "pause" in line["not_reached"]
    assert "kill" not in line["not_reached"]


WHOLE = json.loads(entry("new").line())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{}", "it has no time, commit, dirty, core"),
        (b"nothing", "no JSON at character 1"),
        (b"", "no JSON at character 1"),
        (b"[1]", "no object with a campaign's fields"),
        (b"null", "no object with a campaign's fields"),
        (b"[" * 100_000, "too deep"),
        (b'{"time": "\xff"}', "byte 11 is no UTF-8"),
        *(
            (json.dumps({**WHOLE, name: None}).encode(), f"{name}: expected `{kind}`, got `null`")
            for name, kind in (("runs", "int"), ("virtual_hours", "float"), ("faults", "int"), ("records", "int"))
        ),
        (json.dumps({**WHOLE, "seeds": "1-2"}).encode(), "seeds: '1-2' is no range of seeds"),
        (json.dumps({**WHOLE, "seeds": "9" * 5_000}).encode(), "is no range of seeds"),
        (json.dumps({**WHOLE, "core": 7}).encode(), "core: expected `str`, got `int`"),
        (json.dumps({**WHOLE, "findings": {"lost": "x"}}).encode(), "findings"),
        (json.dumps({**WHOLE, "wall_seconds": float("nan")}).encode(), "NaN is no number"),
        (json.dumps({**WHOLE, "virtual_hours": 0}).replace(": 0,", ": 1e400,", 1).encode(), "1e400 is no number"),
        (json.dumps({**WHOLE, "core": "\ud800"}).encode(), r"core: '\ud800' cannot be printed"),
        (json.dumps({**WHOLE, "core": "a\x1b[2Jb"}).encode(), r"core: 'a\x1b[2Jb' cannot be printed"),
        (json.dumps({**WHOLE, "command": "--acks\n1"}).encode(), r"command: '--acks\n1' cannot be printed"),
        (json.dumps({**WHOLE, "not_reached": ["kill", "\x07"]}).encode(), r"not_reached: '\x07' cannot be printed"),
        (json.dumps({**WHOLE, "colour": 1}).encode(), "unknown: colour"),
    ],
    # A line has the time of its making in it, which each worker would read from a clock of its own.
    ids=lambda value: value if isinstance(value, str) else "line",
)
def test_what_is_no_campaign_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes, said: str
) -> None:
    """A ledger of something else is not added up: code 2, file and line, and what is wrong in it."""
    file = tmp_path / "campaigns.jsonl"
    append(file, entry("new"))
    file.write_bytes(file.read_bytes() + line + b"\n")
    assert main(["chaos", "ledger", str(file)]) == USAGE
    err = capsys.readouterr().err
    assert f"{file}:2 is no campaign: " in err
    assert said in err
    assert "remove that line" in err


@pytest.mark.parametrize("there", ["", "\n"], ids=["torn", "whole"])
def test_a_line_begins_behind_a_newline(tmp_path: Path, there: str) -> None:
    """Also where an editor, or a full disk, left the last line without one."""
    file = tmp_path / "campaigns.jsonl"
    file.write_text(entry("old").line() + there)
    append(file, entry("new"))
    append(file, entry("newer"))
    assert [each.core for each in read(file)] == ["old", "new", "newer"]


def test_a_line_goes_into_a_pipe_as_it_is(tmp_path: Path) -> None:
    """Which has no last byte to look at."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        append(pipe, entry("new"))
        assert os.read(reader, 65_536).decode() == entry("new").line() + "\n"
    finally:
        os.close(reader)


def test_an_empty_ledger_says_that_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No campaign ran before the core could have changed."""
    file = tmp_path / "campaigns.jsonl"
    file.touch()
    assert main(["chaos", "ledger", str(file)]) == 0
    assert capsys.readouterr() == ("", f"{file} is empty: no campaign ran\n")


def test_the_command_writes_a_line_and_adds_it_up(tmp_path: Path) -> None:
    """One short seed; the ledger knows the core that is installed here, and says when it knows another alone."""
    file = tmp_path / "campaigns.jsonl"
    run = CliRunner().invoke(
        app, ["run", "--seeds", "1", "-j", "1", "--faults", "0.3", "--ledger", str(file), "--json"]
    )
    assert run.exit_code == 0, run.output
    (written,) = read(file)
    assert (written.runs, written.core, written.findings) == (1, core_digest(), {})
    assert (written.commit, written.dirty) == commit_here()
    shown = CliRunner().invoke(app, ["ledger", str(file), "--json"])
    (row,) = json.loads(shown.stdout)
    assert (row["seeds"], row["present"], row["core"]) == (1, True, core_digest())
    assert row["not_reached"] == written.not_reached
    for_people = CliRunner().invoke(app, ["ledger", str(file)]).output
    assert f"NOT REACHED on {core_digest()} with --faults-ms 300: {', '.join(written.not_reached)}" in for_people
    not_drawn = f"NOT DRAWN on {core_digest()} by any campaign: "
    assert f"{not_drawn}power, blackout, lying-fsync, flip-any, new-disk" in for_people
    named = replace(written, command="--faults-ms 300 --nemeses power,blackout,new-disk --steady-load")
    append(file, named)
    for_people = CliRunner().invoke(app, ["ledger", str(file)]).output
    assert f"{not_drawn}lying-fsync, flip-any (" in for_people
    append(file, replace(named, command="--nemeses lying-fsync,flip-any"))
    assert "NOT DRAWN" not in CliRunner().invoke(app, ["ledger", str(file)]).output
    file.write_text(entry("another").line() + "\n")
    assert "the core has changed since" in CliRunner().invoke(app, ["ledger", str(file)]).output


def test_a_campaign_of_some_checks_is_no_line_of_the_ledger(tmp_path: Path) -> None:
    """It would be added up with campaigns in which all of them counted."""
    file = tmp_path / "campaigns.jsonl"
    given = ["run", "--seeds", "1", "--checks", "lost", "--ledger", str(file)]
    assert isinstance(CliRunner().invoke(app, given).exception, CommandFailed)
    assert not file.exists()


def test_a_terminal_shows_how_far_it_is_and_a_file_nothing() -> None:
    """Seeds, simulated time, faults, records and findings, on one line that is drawn over."""
    terminal, plain = Terminal(), io.StringIO()
    for out in (terminal, plain):
        progress = Progress(out, 4)
        progress.add(summary(1))
        progress.add(summary(2, ("lost",)))
        progress.clear()
    last = terminal.getvalue().split("\r\x1b[2K")[2]
    assert last == "[#######........] 2/4 seeds, 1:00:00 simulated, 4 faults, 20 records, 1 finding"
    assert plain.getvalue() == ""
    quiet = Terminal()
    Progress(quiet, 4, enabled=False).add(summary(1))
    assert quiet.getvalue() == ""
    assert clock(3_723_000) == "1:02:03"
