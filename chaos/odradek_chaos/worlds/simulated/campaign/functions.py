"""Which functions of the broker seeds call, and which none does.

Every function that stands in the sources of these parts of the broker counts, methods and nested ones included; not
those without a body of their own (protocols), nor lambdas. Reached is what was called at least once, before the faults
or after them as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import odradek_broker

from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.run import run_seed

PARTS = ("core", "runtime", "storage")
ROOT = Path(odradek_broker.__file__).parent
Place = tuple[str, int]  # of a function: its file below the package, and its first line, decorators included


class PartCoverage(NamedTuple):
    """Of one part of the broker. `missing` has names as `file: Class.method`, in the order of the files."""

    part: str
    functions: int
    missing: tuple[str, ...]

    @property
    def reached(self) -> int:
        return self.functions - len(self.missing)


class CalledFunctions:
    """Notes what is called while it listens, about twice as slowly as nothing is noted."""

    def __init__(self) -> None:
        self.places: dict[Place, None] = {}
        self._codes: dict[int, object] = {}  # kept alive, so that no other one gets its id

    def __enter__(self) -> CalledFunctions:
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and id(code) not in self._codes:
            self._codes[id(code)] = code
            path = Path(code.co_filename)
            if path.is_relative_to(ROOT):
                self.places[path.relative_to(ROOT).as_posix(), code.co_firstlineno] = None


def functions_of(part: str) -> dict[Place, str]:
    """The names of all functions of a part, by their places."""
    found: dict[Place, str] = {}
    for path in sorted((ROOT / part).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, qualified in _functions_in(ast.parse(path.read_text()).body, ""):
            found[name, line] = qualified
    return found


def _functions_in(body: Iterable[ast.stmt], outer: str) -> Iterator[tuple[int, str]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _functions_in(statement.body, f"{outer}{statement.name}.")
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if not all(map(_says_nothing, statement.body)):
                yield (
                    min([statement.lineno, *(each.lineno for each in statement.decorator_list)]),
                    outer + statement.name,
                )
            yield from _functions_in(statement.body, f"{outer}{statement.name}.")
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _functions_in(getattr(statement, field, ()), outer)


def _says_nothing(statement: ast.stmt) -> bool:
    """A docstring, `...`, or that others define it."""
    if isinstance(statement, ast.Raise):
        return "NotImplementedError" in ast.dump(statement)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def coverage_of(called: CalledFunctions) -> list[PartCoverage]:
    parts = []
    for part in PARTS:
        functions = functions_of(part)
        missing = tuple(f"{place[0]}: {name}" for place, name in functions.items() if place not in called.places)
        parts.append(PartCoverage(part, len(functions), missing))
    return parts


def run_counting(seeds: Iterable[int], options: Options, called: CalledFunctions) -> int:
    """Run the seeds in this process and note what they call; returns how many have findings."""
    with_findings = 0
    for seed in seeds:
        with called:
            with_findings += bool(run_seed(seed, options).findings)
    return with_findings
