"""Commands as they are typed, with what they print, line by line.

The words after `$ odradek` in a story are run one after the other; `-> 1` is the exit code, and what goes to standard
error is marked by `!`. `pytest --rewrite` accepts new output.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

COMMANDS = """
import contextlib, io, json, logging, sys
from odradek.cli.topics import min_isr
from odradek.cli.main import main
min_isr.PATIENCE_S = 60.0  # what is warned of stands in the story, however busy the machine is
logging.getLogger('asyncio').disabled = True  # gRPC wakes the closed loop of the command before, and says so
for line in sys.stdin:
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(json.loads(line))
    print(json.dumps([code, *(each.buffer.getvalue().decode() for each in (out, err))]), flush=True)
"""


class Shell:
    """One process that runs command after command: a new one for each would cost more than all that they do."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMANDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=directory
        )

    def run(self, line: str) -> list[str]:
        """What a line prints, marked, and its exit code if that is not 0. Progress depends on the hour: left out."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(shlex.split(line)[2:]) + "\n")
        self._process.stdin.flush()
        code, out, err = json.loads(self._process.stdout.readline())
        said = [f"! {words}" for words in err.splitlines() if "on their way" not in words]
        return [*said, *filter(None, out.splitlines()), *([f"-> {code}"] if code else [])]

    def close(self) -> None:
        self._process.communicate()


def tell(
    story: Path, shell: Shell, request: pytest.FixtureRequest, after_each: Callable[[], object] = lambda: None
) -> None:
    """Every command prints what the story says, and ends with its code."""
    told, happened = story.read_text(), []
    for line in told.splitlines():
        if not line or line.startswith("#"):
            happened.append(line)
        elif line.startswith("$ "):
            happened += [line, *shell.run(line)]
            after_each()
    text = "\n".join(happened) + "\n"
    if request.config.getoption("--rewrite", default=False):
        story.write_text(text)
        return
    assert text == told
