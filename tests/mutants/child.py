"""Who may object to a mutant: seeds of the simulated world, and the fast tests."""

from __future__ import annotations

import shlex
import sys
import time
import traceback
from collections.abc import Sequence

import pytest

Objection = dict[str, str | int]  # `check`: what objected, `by`: seeds, tests, time or error, `seeds`: how many

# These may fail on a busy machine, or know no rule of the protocol.
IGNORED = ("test_metrics_*", "test_quorum_over_grpc.py", "test_config*")


def try_seeds(runs: Sequence[str], seeds: int, limit_s: float) -> Objection | None:
    """What the first finding of any seed says. The kinds of runs take turns, seed by seed. None: nothing objected."""
    from odradek_chaos.worlds.simulated.__main__ import parse
    from odradek_chaos.worlds.simulated.run import run_seed

    started, tried = time.monotonic(), 0
    for seed in range(1, seeds + 1):
        for words in runs:
            if time.monotonic() - started > limit_s:
                return None
            tried += 1
            _, options = parse([str(seed), *shlex.split(words)])
            try:
                result = run_seed(seed, options)
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                return {"check": type(error).__name__, "by": "seeds", "seeds": tried}
            if result.findings:
                first = result.findings[0]
                return {"check": first.check, "by": "seeds", "seeds": tried}
    return None


def pytest_arguments() -> list[str]:
    """How the fast tests are run here: the first failure ends it, in this process, nothing is left behind."""
    ignored = [f"--ignore-glob=*/{pattern}" for pattern in IGNORED]
    return ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", *ignored]


class First:
    """A pytest plugin that keeps the name of the first test, or file of tests, that fails."""

    failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid
