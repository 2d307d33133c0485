"""Runs inside of a mutated tree: seeds of the simulated world, then the fast tests, until something objects.

Prints one JSON line: what objected (`check`), where (`by`: seeds or tests), after how many seeds, and whether the
mutated lines were reached at all.
"""

from __future__ import annotations

import builtins
import json
import resource
import shlex
import sys
import time
import traceback

import pytest

# These may fail on a busy machine, or know no rule of the protocol.
IGNORED = ("test_metrics_*", "test_quorum_over_grpc.py", "test_config*")
MOST_MEMORY = 4 << 30  # a mutant that never ends fills lists, too


def try_seeds(runs: list[str], seeds: int, limit_s: float) -> dict[str, object] | None:
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
                return {"check": type(error).__name__, "by": "seeds", "seeds": tried, "detail": str(error)[:200]}
            if result.findings:
                first = result.findings[0]
                return {"check": first.check, "by": "seeds", "seeds": tried, "detail": str(first)[:200]}
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


def try_tests(tests: list[str]) -> dict[str, object] | None:
    """The name of the first of these tests, in this order, that fails. None: all pass."""
    if not tests:
        return None
    place = {test: number for number, test in enumerate(tests)}

    class InOrder:
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])

    first = First()
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    code = pytest.main([*pytest_arguments(), *files], plugins=[first, InOrder()])
    if code == pytest.ExitCode.OK:
        return None
    return {"check": first.failed or f"pytest exit code {code}", "by": "tests", "seeds": 0, "detail": ""}


def main() -> None:
    """Standard input: one JSON object with `order` (seeds, tests), `runs`, `seeds`, `limit_s`, `tests` and `cpu_s`."""
    order = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (order["cpu_s"], order["cpu_s"] + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    caught: dict[str, object] | None = None
    started = time.monotonic()
    for stage in order["order"]:
        if stage == "seeds":
            caught = try_seeds(order["runs"], order["seeds"], order["limit_s"])
        else:
            caught = try_tests(order["tests"])
        if caught is not None:
            break
    reached = bool(getattr(builtins, "odradek_reached", []))
    outcome = {**(caught or {"check": "", "by": "", "seeds": 0, "detail": ""}), "reached": reached}
    sys.stdout.flush()
    print("\n" + json.dumps({**outcome, "seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    main()
