"""Generated mutants without a copy of the sources: everything is imported once, and each mutant is a fork of that.

A fork takes the code of the mutated functions and puts it into the function objects that stand there already, so that
whoever holds them calls the mutant: a second or two of imports are spent once and not for each. Then it runs the tests
that come by the changed statement, quickest first, and seeds after them, and writes down what objected.
"""

from __future__ import annotations

import builtins
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutants.child import MOST_MEMORY, First, pytest_arguments, try_seeds
from tests.mutants.generated import Generated
from tests.mutants.tree import ROOT
from tests.mutants.verdict import Verdict

ENDS = {signal.SIGVTALRM: "never ends", signal.SIGALRM: "stands still", signal.SIGSEGV: "crash of the interpreter"}
SLOWER = 5  # a test of a mutant may take so many times the CPU time that it took when it was traced,
AT_LEAST_S = 5.0  # and this


@dataclass(frozen=True, slots=True)
class Trial:
    """What one mutant goes through. Times in seconds."""

    mutant: Generated
    tests: dict[str, float]  # in their order, and what each takes
    seeds: int
    limit_s: float  # for the seeds
    patience_s: int  # for all of it
    runs: tuple[str, ...] = ("",)  # options of the seeds


class Nursery:
    """A pytest plugin that stands in for the loop over all tests. Up to `jobs` forks live at the same time."""

    def __init__(self, trials: Sequence[Trial], jobs: int, say: Callable[[Trial, Verdict], None]) -> None:
        self._waiting = list(reversed(trials))
        self._jobs = jobs
        self._say = say
        self._living: dict[int, tuple[Trial, Path, float]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        import odradek_chaos.worlds.simulated.run  # noqa: F401  # before the first fork, once for all

        items = {item.nodeid: item for item in session.items}
        functions = functions_of_the_core()
        gc.freeze()
        with tempfile.TemporaryDirectory(prefix="odradek-mutants-") as name:
            while self._waiting or self._living:
                while self._waiting and len(self._living) < self._jobs:
                    self._bear(self._waiting.pop(), items, functions, Path(name))
                self._bury(*os.wait())
        return True

    def _bear(
        self, trial: Trial, items: dict[str, pytest.Item], functions: dict[CodeType, list[FunctionType]], place: Path
    ) -> None:
        target = place / f"{len(self._waiting)}.json"
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            self._living[child] = (trial, target, time.monotonic())
            return
        code = 70  # nothing was found out
        try:
            live(trial, items, functions, target)
            code = 0
        finally:
            os._exit(code)

    def _bury(self, child: int, status: int) -> None:
        trial, target, started = self._living.pop(child)
        mutant, seconds = trial.mutant, round(time.monotonic() - started, 1)
        if os.WIFSIGNALED(status):
            end = ENDS.get(signal.Signals(os.WTERMSIG(status)), f"signal {os.WTERMSIG(status)}")
            verdict = Verdict(mutant.name, "generated", mutant.change, end, "time", 0, True, seconds)
        else:
            found = json.loads(target.read_text())
            verdict = Verdict(
                mutant.name, "generated", mutant.change, found["check"], found["by"], found["seeds"],
                found["reached"], seconds,
            )  # fmt: skip
        self._say(trial, verdict)


def live(
    trial: Trial, items: dict[str, pytest.Item], functions: dict[CodeType, list[FunctionType]], target: Path
) -> None:
    """In the fork: be the mutant, meet tests and seeds, write what objected."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    signal.alarm(trial.patience_s)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    caught: dict[str, object] | None
    try:
        become(trial.mutant, functions)
        caught = _meet_tests([items[name] for name in trial.tests], list(trial.tests.values()))
        if caught is None and trial.seeds:
            signal.setitimer(signal.ITIMER_VIRTUAL, 2 * trial.limit_s)
            caught = try_seeds(list(trial.runs), trial.seeds, trial.limit_s)
    except BaseException as error:
        caught = {"check": "".join(traceback.format_exception_only(error)).strip(), "by": "start", "seeds": 0}
    reached = bool(getattr(builtins, "odradek_reached", []))
    target.write_text(json.dumps({**(caught or {"check": "", "by": "", "seeds": 0}), "reached": reached}))


def become(mutant: Generated, functions: dict[CodeType, list[FunctionType]]) -> None:
    """Give the mutated code to every function object of the core that has the unchanged code.

    Raises `ValueError` where a function can no longer be told from others, or no longer needs what it closes over.
    """
    name = str(ROOT / mutant.path)
    before = list(_codes(compile((ROOT / mutant.path).read_text(), name, "exec")))
    after = list(_codes(compile(mutant.text, name, "exec")))
    assert [code.co_qualname for code in before] == [code.co_qualname for code in after], mutant.name
    changed = 0
    for old, new in zip(before, after, strict=True):
        if _body(old) == _body(new):
            continue
        for code, holders in functions.items():
            if (code.co_filename, code.co_qualname, code.co_firstlineno) == (name, old.co_qualname, old.co_firstlineno):
                for function in holders:
                    function.__code__ = new
                    changed += 1
    if not changed:
        raise ValueError(f"{mutant.name}: no function holds that code")


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module and its classes, in the order of the text; not what is nested in functions."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function; class bodies have none
                yield constant
            else:
                yield from _codes(constant)


def _body(code: CodeType) -> object:
    """What a function does, whatever its lines are."""
    inner = tuple(_body(each) if isinstance(each, CodeType) else (type(each), repr(each)) for each in code.co_consts)
    return code.co_code, inner, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def functions_of_the_core() -> dict[CodeType, list[FunctionType]]:
    found: dict[CodeType, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and "/odradek_broker/core/" in each.__code__.co_filename:
            found.setdefault(each.__code__, []).append(each)
    return found


def _meet_tests(items: Sequence[pytest.Item], seconds: Sequence[float]) -> dict[str, object] | None:
    """The first test that fails. None: all pass. Whoever takes far more CPU time than it did ends the process."""
    if not items:
        return None
    first = First()
    items[0].config.pluginmanager.register(first)
    for item, following, took in zip(items, [*items[1:], None], seconds, strict=True):
        signal.setitimer(signal.ITIMER_VIRTUAL, AT_LEAST_S + SLOWER * took)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if first.failed:
            return {"check": first.failed, "by": "tests", "seeds": 0}
    return None


def judge_all(trials: Sequence[Trial], paths: Sequence[str], jobs: int, say: Callable[[Trial, Verdict], None]) -> None:
    """Judge generated mutants, each in a fork of this process, which imports the tests below `paths` first."""
    code = pytest.main([*pytest_arguments(), "-s", *paths], plugins=[Nursery(trials, jobs, say)])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests cannot be collected: pytest exit code {code}")
