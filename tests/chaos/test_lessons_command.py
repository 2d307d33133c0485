"""`odradek demo LESSON`: printed, as JSON, on a terminal, and with its directories kept."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest
from odradek.cli.main import main
from odradek_chaos.demo.commands import app
from odradek_chaos.lessons.catalogue import SHOWN, lesson
from odradek_chaos.lessons.drawing import Space
from odradek_chaos.lessons.lesson import ExpectedFinding, play
from odradek_chaos.lessons.pages import pages
from odradek_chaos.lessons.stories import truncation
from odradek_chaos.lessons.terminal import HINT, drawn, print_all
from odradek_chaos.lessons.verdict import judge
from rich.text import Text
from typer.main import get_group

from tests.seeds import unless_torture

COLOURS = re.compile(r"\x1b\[(?:[0-9]+;)*[349][0-7](?:;[0-9]+)*m")
FIRST_PAGE = b"follow a script"
TIMEOUT_S = 180


def test_every_lesson_is_a_command_below_demo() -> None:
    """The catalogue and the command line have the same names; bare `odradek demo` stays the cluster's demo."""
    group = get_group(app)
    assert set(SHOWN) == set(group.commands)
    assert group.invoke_without_command
    assert {"seed", "keep", "data"} <= {parameter.name for parameter in group.params}


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["--json"], "lost-write takes its options behind its name", "odradek demo lost-write --json"),
        (["--seed", "3"], "a lesson takes no --seed", "odradek demo lost-write --help"),
        (["--data", "x", "--keep"], "a lesson takes no --keep", "odradek demo lost-write --help"),
        (
            ["--json", "--data", "x y"],
            "takes its options behind its name",
            "odradek demo lost-write --data 'x y' --json",
        ),
        (["--output", "json"], "a lesson takes no --output", "odradek demo lost-write --help"),
    ],
)
def test_options_before_a_lessons_name_are_not_dropped(
    words: list[str], says: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are the cluster's demo's: refused with code 2, and where they belong is said."""
    assert main(["demo", *words, "lost-write"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert says in err
    assert hint in err


@pytest.mark.parametrize("name", unless_torture(("lost-write", "purgatory"), SHOWN))
def test_without_a_terminal_all_steps_are_printed(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Plain text, every step, the audit and the reason; exit code 0."""
    assert main(["demo", name]) == 0
    out = capfd.readouterr().out
    steps = len(lesson(name).steps)
    assert [f"{name} · {number}/{steps} · " in out for number in range(1, steps + 1)] == [True] * steps
    assert f"{name} · the audit" in out
    assert "Read on" in out
    assert "\x1b" not in out


def test_json_has_a_line_for_each_step_and_the_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    """Each line is an object; the steps hold both worlds, the last line what the auditor found."""
    assert main(["demo", "lost-write", "--json"]) == 0
    *steps, verdict = map(json.loads, capfd.readouterr().out.splitlines())
    assert [step["step"] for step in steps] == list(range(1, len(lesson("lost-write").steps) + 1))
    old, new = steps[-1]["worlds"]
    assert (old["world"], new["world"]) == ("before Kafka 0.11", "today")
    assert [each["value"] for each in old["acknowledged"] if each["gone"]] == ["m2"]
    assert old["replicas"][0]["records"][1] == {
        "offset": 1,
        "value": "m2",
        "leader_epoch": 0,
        "differs": True,
        "again": False,
    }
    assert [world["fine"] for world in verdict["verdict"]] == [False, True]
    assert {"acknowledged-lost", "log-matching"} <= {each["check"] for each in verdict["verdict"][0]["findings"]}


def test_kept_directories_can_be_audited_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The commands that --data prints end with findings for the old world and without for today's."""
    place = tmp_path / "kept"
    assert main(["demo", "divergence", "--data", str(place)]) == 0
    again = [line.split() for line in capfd.readouterr().err.splitlines() if "audit run" in line]
    assert [main(words[1:]) for words in again] == [3, 0]


def test_a_directory_that_is_there_is_not_touched(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """--data wants a new directory: wrong usage otherwise, and nothing is written."""
    assert main(["demo", "divergence", "--data", str(tmp_path)]) == 2
    assert "is there already" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_lesson_that_ends_otherwise_fails(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and the page of the audit says what did not come."""
    old, today = lesson("lost-write").worlds
    other = replace(
        lesson("lost-write"), worlds=(replace(old, expected=(ExpectedFinding("crc-mismatch", 0, 0),)), today)
    )
    monkeypatch.setattr(truncation, "LESSONS", (other,))
    assert main(["demo", "lost-write"]) == 1
    assert "before Kafka 0.11: no crc-mismatch at offset 0, epoch 0" in capfd.readouterr().out


def test_a_terminal_that_is_too_small_says_what_a_page_needs() -> None:
    """Before it is enlarged, when the page is drawn; one of 80 columns and 24 lines holds every page."""
    page = [Text("the page")]
    small = "\n".join(line.plain for line in drawn(lambda space, hint: page, Space(40, 10)))
    assert " ".join(small.split("\n")) == "a lesson needs 80 columns and 24 lines; here are 40 and 10 " + HINT
    assert max(map(len, small.split("\n"))) < 40
    assert drawn(lambda space, hint: page, Space(80, 24)) == page


def test_a_screen_without_unicode_gets_plain_signs() -> None:
    """Everything is drawn in ASCII where the output can hold nothing else, and no line changes its length."""
    played = play(lesson("lost-write"))
    drawn = pages(played, judge(played))
    printed = {}
    for encoding in ("ascii", "utf-8"):
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        print_all(drawn, file)
        file.seek(0)
        printed[encoding] = file.read().splitlines()
    assert [len(line) for line in printed["ascii"]] == [len(line) for line in printed["utf-8"]]
    assert any("m3#" in line for line in printed["ascii"])


class Terminal:
    """A command on a terminal of 80 columns and 24 lines."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "odradek.cli.main", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environment},
            start_new_session=True,
        )
        os.close(slave)
        self.seen = b""

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._master], [], [], TIMEOUT_S)
        assert ready, self.seen
        try:
            return os.read(self._master, 65536)
        except OSError:
            return b""  # the terminal's last user is gone

    def wait_for(self, text: bytes) -> None:
        while text not in self.seen:
            piece = self._read()
            assert piece, self.seen
            self.seen += piece

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> int:
        while piece := self._read():
            self.seen += piece
        os.close(self._master)
        return self._process.wait(TIMEOUT_S)


@pytest.mark.slow
def test_keys_turn_the_pages_of_a_terminal() -> None:
    """Enter twice, back once, quit: the pages come in that order, and how it ends is not told before it was seen."""
    terminal = Terminal("demo", "lost-write")
    terminal.wait_for(FIRST_PAGE)
    terminal.press(b"\r\nbq")
    assert terminal.end() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.seen.decode())
    assert re.findall(r"lost-write · (The lost write|\d/8)", text) == ["The lost write", "1/8", "2/8", "1/8"]
    assert "acknowledged and lost" not in text
    assert COLOURS.search(terminal.seen.decode())


@pytest.mark.slow
def test_a_lesson_plays_by_itself_and_without_colours() -> None:
    """--auto turns all pages; with NO_COLOR nothing has a colour."""
    terminal = Terminal("demo", "divergence", "--auto", "--pace", "0", NO_COLOR="1")
    assert terminal.end() == 0
    text = terminal.seen.decode()
    assert all(f"{number}/7" in text for number in range(1, 8))
    assert "What Kafka did about it" in text
    assert text.rstrip().endswith("today: no finding")
    assert not COLOURS.search(text)
