"""Who may object to a mutant: seeds of the simulated world, and the fast tests."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

import pytest

# `check`: what objected; `by`: seeds, tests, time or error; `seeds`: how many; `seed`, `run`: the last one, its options
Objection = dict[str, str | int]

# These may fail on a busy machine, or know no rule of the protocol.
IGNORED = ("test_metrics_*", "test_quorum_over_grpc.py", "test_config*")


def try_seeds(runs: Sequence[str], seeds: range, limit_s: float) -> Objection:
    """What the first finding of any seed says; no `by`: nothing objected. Kinds of runs take turns, seed by seed."""
    from odradek_chaos.cli.simulation import parse
    from odradek_chaos.worlds.simulated.run.run import run_seed

    started, tried = time.monotonic(), 0
    for seed in seeds:
        for words in runs:
            if time.monotonic() - started > limit_s:
                return {"check": "", "by": "", "seeds": tried}
            tried += 1
            options = parse(shlex.split(words))
            check = ""
            try:
                result = run_seed(seed, options)
            except Exception as error:
                check = type(error).__name__
            else:
                check = result.findings[0].check if result.findings else ""
            if check:
                return {"check": check, "by": "seeds", "seeds": tried, "seed": seed, "run": words}
    return {"check": "", "by": "", "seeds": tried}


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
