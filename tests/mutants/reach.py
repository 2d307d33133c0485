"""Which fast test comes by which line of the broker, and how long it takes.

Made once from the unchanged sources, so that a mutant meets only those tests that can see it, the quick ones first: a
second or two each instead of all of them. A line event is noted the first time that a test comes by; a test is all
that happens between its set-up and its end, so that fixtures count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.mutants.tree import ROOT

BROKER = "/broker/odradek_broker/"
# These may fail on a busy machine, or know no rule of the protocol.
IGNORED = ("test_metrics_*", "test_quorum_over_grpc.py", "test_config*")


@dataclass(frozen=True, slots=True)
class Reach:
    """`tests_at`: by file and line, the tests that come by. `seconds`: by test, what it took, traced."""

    tests_at: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def tests_of(self, path: str, lines: Iterable[int]) -> list[str]:
        """The tests that come by any of these lines, quickest first."""
        here = self.tests_at.get(path, {})
        found = dict.fromkeys(test for line in lines for test in here.get(line, ()))
        return sorted(found, key=lambda test: (self.seconds[test], test))

    def others(self, tests: list[str]) -> list[str]:
        """All tests but these, quickest first."""
        known = set(tests)
        return sorted((test for test in self.seconds if test not in known), key=lambda test: (self.seconds[test], test))


def pytest_arguments() -> list[str]:
    """How the fast tests are run here: the first failure ends it, in this process, nothing is left behind."""
    ignored = [f"--ignore-glob=*/{pattern}" for pattern in IGNORED]
    return ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", *ignored]


class _Tracer:
    """A pytest plugin. Notes (file, line) of the broker for each test."""

    def __init__(self) -> None:
        self.lines: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self._now: set[tuple[str, int]] = set()
        self._ours: dict[str, bool] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._now = self.lines[item.nodeid] = set()
        threading.settrace(self._call)
        sys.settrace(self._call)
        started = time.process_time()
        yield
        sys.settrace(None)
        threading.settrace(None)
        self.seconds[item.nodeid] = time.process_time() - started

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        ours = self._ours.get(name)
        if ours is None:
            ours = self._ours[name] = BROKER in name
        return self._line if ours else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self._now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


def trace(paths: Iterable[str], target: Path) -> Reach:
    """Run the fast tests below `paths`, and keep what they came by in a file. Raises `ValueError` when one fails."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.reach", str(target.absolute()), *paths],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ValueError((done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["no word"])[-1])
    return read(target)


def read(path: Path) -> Reach:
    """What a run of this module wrote down."""
    found = json.loads(path.read_text())
    tests_at: dict[str, dict[int, list[str]]] = {}
    for test, files in found["lines"].items():
        for name, lines in files.items():
            for line in lines:
                tests_at.setdefault(name, {}).setdefault(line, []).append(test)
    return Reach(tests_at, found["seconds"])


def main() -> int:
    """Arguments: the file to write, then paths of tests. Writes {lines: {test: {file: [line]}}, seconds: {test: s}}."""
    target, *paths = sys.argv[1:]
    tracer = _Tracer()
    code = pytest.main([*pytest_arguments(), *paths], plugins=[tracer])
    root = f"{ROOT}/"
    lines: dict[str, dict[str, list[int]]] = {}
    for test, found in tracer.lines.items():
        for name, line in sorted(found):
            lines.setdefault(test, {}).setdefault(name.removeprefix(root), []).append(line)
    Path(target).write_text(json.dumps({"lines": lines, "seconds": tracer.seconds}))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
