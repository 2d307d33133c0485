"""Commands as they are typed, with what they print, line by line.

The words after `$ odradek` in a story are run one after the other; `-> 1` is the exit code, and what goes to standard
error is marked by `!`. `pytest --rewrite` accepts new output.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

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
