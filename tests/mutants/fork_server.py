"""Mutants without a copy of the sources: everything is imported once, and each mutant is a fork of that.

A fork takes the code of the mutated functions and puts it into the function objects that stand there already, so that
whoever holds them calls the mutant: a second or two of imports are spent once and not for each. Then it runs the tests
that come by the changed statement, quickest first, and seeds, and writes down what objected.
"""

from __future__ import annotations

import ast
import builtins
import dis
import gc
import json
import os
import resource
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.mutants.reach import BROKER, pytest_arguments
from tests.mutants.tree import ROOT

ENDS = {signal.SIGVTALRM: "never ends", signal.SIGALRM: "stands still", signal.SIGSEGV: "crash of the interpreter"}
SLOWER = 5  # a test of a mutant may take so many times the CPU time that it took when it was traced,
AT_LEAST_S = 5.0  # and this
MOST_MEMORY = 4 << 30  # a mutant that never ends fills lists, too
# `check`: what objected; `by`: seeds, tests, time or error; `seeds`: how many; `seed`, `run`: the last one, its options
Objection = dict[str, str | int]
Functions = dict[tuple[str, str, int], list[FunctionType]]


@dataclass(frozen=True, slots=True)
class MutantTask:
    """A mutant, and what it goes through. Times in seconds."""

    name: str
    area: str
    breaks: str
    path: str  # of the mutated file; empty: the sources as they are
    mutated: str | ast.Module  # that whole file
    stages: tuple[str, ...]  # seeds, tests: in this order
    tests: dict[str, float]  # in their order, and what each takes
    runs: tuple[str, ...]  # options of the seeds, which take turns
    seeds: range
    limit_s: float  # for all seeds
    patience_s: int  # for all of it


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant."""

    name: str
    area: str
    breaks: str
    check: str
    by: str  # seeds, tests, time, error, or nothing
    seeds: int
    reached: bool
    seconds: float

    @property
    def caught(self) -> bool:
        return self.by != ""

    def line(self) -> str:
        after = f"{self.seeds} seeds" if self.by == "seeds" else self.by
        reached, check = "reached" if self.reached else "not reached", self.check or "SURVIVED"
        return f"{self.name:44} {self.area:16} {after:10} {reached:12} {self.seconds:6.1f} s  {check}"


@dataclass(frozen=True, slots=True)
class Life:
    """One fork: what it tries, for which trial, and the verdict that it is to confirm, if any."""

    tries: MutantTask
    trial: MutantTask
    doubted: Verdict | None = None


class ForkServer:
    """A pytest plugin that stands in for the loop over all tests. Up to `jobs` forks live at the same time.

    When a seed objects to a mutant, the unchanged sources go through that very seed: if it objects to them as well, the
    mutant is not caught by that, and the tests have the word. When a fork ends by an error, the unchanged sources go
    through all that it went through: what breaks with them, too, says nothing of the mutant.
    """

    def __init__(self, trials: Sequence[MutantTask], jobs: int, say: Callable[[MutantTask, Verdict], None]) -> None:
        self._waiting = [Life(trial, trial) for trial in reversed(trials)]
        self._jobs = jobs
        self._say = say
        self._living: dict[int, tuple[Life, Path, float]] = {}
        self._born = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        import odradek_chaos.worlds.simulated.run.run  # noqa: F401  # before the first fork, once for all

        items = {item.nodeid: item for item in session.items}
        functions = functions_of_the_broker()
        gc.freeze()  # what is there is there to stay: forks do not touch it
        with tempfile.TemporaryDirectory(prefix="odradek-mutants-") as name:
            while self._waiting or self._living:
                while self._waiting and len(self._living) < self._jobs:
                    self._bear(self._waiting.pop(), items, functions, Path(name))
                self._bury(*os.wait())
        gc.unfreeze()
        return True

    def _bear(self, life: Life, items: dict[str, pytest.Item], functions: Functions, place: Path) -> None:
        self._born += 1
        target = place / f"{self._born}.json"
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            self._living[child] = (life, target, time.monotonic())
            return
        code = 70  # nothing was found out
        try:
            live(life.tries, items, functions, target)
            code = 0
        finally:
            os._exit(code)

    def _bury(self, child: int, status: int) -> None:
        life, target, started = self._living.pop(child)
        trial = life.trial
        if os.WIFSIGNALED(status):
            end = ENDS.get(signal.Signals(os.WTERMSIG(status)), f"signal {os.WTERMSIG(status)}")
            found: dict[str, Any] = {"check": end, "by": "time", "seeds": 0, "reached": True}
        else:
            found = json.loads(target.read_text())
        seed, run = found.pop("seed", 0), found.pop("run", "")
        seconds = round(time.monotonic() - started, 1)
        verdict = Verdict(trial.name, trial.area, trial.breaks, seconds=seconds, **found)
        if life.doubted is None and verdict.by == "seeds":
            unchanged = replace(trial, path="", mutated="", stages=("seeds",), runs=(run,), seeds=range(seed, seed + 1))
            self._waiting.append(Life(unchanged, trial, verdict))
        elif life.doubted is None and verdict.by == "error":
            self._waiting.append(Life(replace(trial, path="", mutated=""), trial, verdict))
        elif life.doubted is None:
            self._say(trial, verdict)
        elif not verdict.caught or (life.doubted.by == "error" and verdict.by != "error"):
            self._say(trial, life.doubted)
        elif life.doubted.by == "error":
            check = f"NOT TRIED: {life.doubted.check}, with the unchanged sources, too"
            self._say(trial, replace(life.doubted, by="", check=check, reached=False))
        elif "tests" in trial.stages:
            self._waiting.append(Life(replace(trial, stages=("tests",)), trial))
        else:
            check = f"SURVIVED: {life.doubted.check} of seed {seed} finds the unchanged sources, too"
            self._say(trial, replace(life.doubted, by="", check=check))


def live(trial: MutantTask, items: dict[str, pytest.Item], functions: Functions, target: Path) -> None:
    """In the fork: be the mutant, meet tests and seeds, write what objected."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    signal.alarm(trial.patience_s)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    caught: Objection = {"check": "", "by": "", "seeds": 0}
    try:
        if trial.path:
            become(trial.path, trial.mutated, functions)
        if gone := [name for name in trial.tests if name not in items]:
            raise ValueError(f"there is no test {gone[0]}: trace them anew")
    except ValueError as error:
        target.write_text(json.dumps({"check": f"NOT TRIED: {error}", "by": "", "seeds": 0, "reached": False}))
        return
    try:
        for stage in trial.stages:
            if stage == "tests":
                caught |= _meet_tests([items[name] for name in trial.tests], list(trial.tests.values())) or {}
            else:
                signal.setitimer(signal.ITIMER_VIRTUAL, AT_LEAST_S + 2 * trial.limit_s)
                caught |= try_seeds(trial.runs, trial.seeds, trial.limit_s)
            if caught["by"]:
                break
    except BaseException as error:
        caught |= {"check": "".join(traceback.format_exception_only(error)).strip(), "by": "error"}
    reached = bool(getattr(builtins, "odradek_reached", []))
    target.write_text(json.dumps({**caught, "reached": reached}))


def become(path: str, mutated: str | ast.Module, functions: Functions) -> None:
    """Give the mutated code to every function object that has the unchanged code. Raises as `differences` does."""
    for old, new in differences(path, mutated):
        key = (str(ROOT / path), old.co_qualname, old.co_firstlineno)
        if key not in functions:
            raise ValueError(f"{path}: nobody holds {old.co_qualname}")
        for function in functions[key]:
            function.__code__ = new
        for made, inner in _made_within(old, new):
            for function in functions.get((str(ROOT / path), made.co_qualname, made.co_firstlineno), ()):
                if function.__code__ == made:
                    function.__code__ = inner


def _made_within(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The functions that a function makes, old and new: some were made by the import and are there to stay."""
    before, after = ([each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new))
    if [each.co_qualname for each in before] != [each.co_qualname for each in after]:
        return
    for held, inner in zip(before, after, strict=True):
        if held.co_freevars == inner.co_freevars:
            yield held, inner
            yield from _made_within(held, inner)


def differences(path: str, mutated: str | ast.Module) -> list[tuple[CodeType, CodeType]]:
    """The functions that a mutated file changes, old and new.

    Raises `ValueError` when there are none, or when it changes what cannot be changed in a process that has imported
    the file: code outside of functions, or the variables that a function closes over.
    """
    before = _unchanged(path)
    after = compile(mutated, str(ROOT / path), "exec")
    if _outside(before) != _outside(after):
        raise ValueError(f"{path}: code outside of functions has changed")
    functions = zip(_codes(before), _codes(after), strict=True)
    found = [(old, new) for old, new in functions if _body(old) != _body(new)]
    if not found:
        raise ValueError(f"{path}: no function has changed")
    for old, new in found:
        if old.co_freevars != new.co_freevars:
            raise ValueError(f"{path}: {old.co_qualname} closes over other variables")
    return found


@cache
def _unchanged(path: str) -> CodeType:
    return compile((ROOT / path).read_text(), str(ROOT / path), "exec")


def _outside(code: CodeType) -> object:
    """A module or class body; of the functions in it the names alone."""
    notes = _notes(code)
    inner = tuple(
        (each.co_qualname if each.co_flags & 0x2 else _outside(each)) if isinstance(each, CodeType) else repr(each)
        for index, each in enumerate(code.co_consts)
        if index not in notes
    )
    return code.co_code, inner, code.co_names


def _notes(code: CodeType) -> set[int]:
    """Which constants of a class body say where the class begins and what its functions set, as from Python 3.13 on."""
    steps = list(dis.get_instructions(code))
    return {
        value.arg
        for value, store in pairwise(steps)
        if store.opname == "STORE_NAME"
        and store.argval in ("__firstlineno__", "__static_attributes__")
        and value.arg is not None
    }


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


def functions_of_the_broker() -> Functions:
    """All function objects of this process by file, qualified name and first line; also those set aside, which the
    collector does not name.
    """
    were_set_aside = gc.get_freeze_count()
    gc.unfreeze()
    found: Functions = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and BROKER in each.__code__.co_filename:
            code = each.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(each)
    if were_set_aside:
        gc.freeze()
    return found


class First:
    """A pytest plugin that keeps the name of the first test, or file of tests, that fails."""

    failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


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


def _meet_tests(items: Sequence[pytest.Item], seconds: Sequence[float]) -> Objection | None:
    """The first test that fails. None: all pass. Whoever takes far more CPU time than it did ends the process."""
    if not items:
        return None
    first = First()
    items[0].config.pluginmanager.register(first)
    for item, following, took in zip(items, [*items[1:], None], seconds, strict=True):
        signal.setitimer(signal.ITIMER_VIRTUAL, AT_LEAST_S + SLOWER * took)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if first.failed:
            return {"check": first.failed, "by": "tests"}
    return None


def judge_all(
    trials: Sequence[MutantTask], paths: Sequence[str], jobs: int, say: Callable[[MutantTask, Verdict], None]
) -> None:
    """Judge mutants, each in a fork of this process, which imports the tests below `paths` first."""
    code = pytest.main([*pytest_arguments(), "-s", *paths], plugins=[ForkServer(trials, jobs, say)])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests cannot be collected: pytest exit code {code}")
