"""Protocol mutants: what a patch says of itself, and the file that it makes, marked so that a run can say whether it
came by the changed lines.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = "__import__('builtins').__dict__.setdefault('odradek_reached', []).append(1)"
MOST_LINES = 5
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class BadPatch(ValueError):
    """A patch that does not apply, says too little about itself, or changes too much. The message names it."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One protocol mutant: a diff of one to five lines, what it breaks, and where it is most likely to show.

    `options` are options of `odradek chaos run`, one list for each kind
    of run that is tried, in order.
    """

    name: str
    area: str
    breaks: str
    options: tuple[str, ...]
    diff: str

    @property
    def path(self) -> str:
        """The one file that it changes, from the repository's root."""
        found: list[str] = re.findall(r"^\+\+\+ b/(\S+)$", self.diff, re.MULTILINE)
        if len(found) != 1:
            raise BadPatch(f"{self.name}: a mutant changes one file, not {found}")
        return found[0]

    @property
    def changed_lines(self) -> int:
        """How many lines it takes away or puts in their place, whichever is more."""
        body = [line for line in self.diff.splitlines() if not line.startswith(("+++", "---"))]
        return max(sum(line.startswith(sign) for line in body) for sign in "+-")


def load(path: Path) -> Patch:
    """Read a patch: lines `# key: value` first (`area`, `breaks`, any number of `options`), then the diff."""
    text = path.read_text(encoding="utf-8")
    head, _, diff = text.partition("--- a/")
    facts: dict[str, list[str]] = {}
    for line in head.splitlines():
        key, _, value = line.removeprefix("# ").partition(": ")
        facts.setdefault(key.strip(":"), []).append(value.strip())
    missing = {"area", "breaks"} - facts.keys()
    if missing or not diff:
        raise BadPatch(f"{path.name}: no {' and no '.join(sorted(missing)) or 'diff'}")
    patch = Patch(
        path.stem, facts["area"][0], " ".join(facts["breaks"]), tuple(facts.get("options", [""])), "--- a/" + diff
    )
    if patch.changed_lines > MOST_LINES:
        raise BadPatch(f"{path.name}: changes {patch.changed_lines} lines, more than {MOST_LINES}")
    return patch


def patches() -> list[Patch]:
    """All protocol mutants of the repository, by name."""
    return [load(path) for path in sorted((Path(__file__).parent / "patches").glob("*.patch"))]


def applied(patch: Patch) -> tuple[ast.Module, list[int]]:
    """The mutated and marked file, and which lines of the unchanged one the patch takes away, or stands beside.

    Raises `BadPatch` when it does not fit the sources.
    """
    before = (ROOT / patch.path).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="odradek-mutants-") as name:
        target = Path(name) / patch.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(before, encoding="utf-8")
        done = subprocess.run(
            ["git", "apply", "--recount", "--unidiff-zero", "-C1", "-"],
            input=patch.diff, cwd=name, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise BadPatch(f"{patch.name}: does not apply: {done.stderr.strip()}")
        mutated = target.read_text(encoding="utf-8")
    return marked(mutated, changed_lines(before, mutated)), changed_lines(mutated, before)


def changed_lines(before: str, after: str) -> list[int]:
    """Numbers of the lines of `after` that are new or changed, and of both lines around a removal.

    Not the numbers that a patch says: it may have been applied a few lines further on.
    """
    numbers: list[int] = []
    for kind, _, _, first, end in SequenceMatcher(None, before.splitlines(), after.splitlines()).get_opcodes():
        if kind == "delete":
            numbers += [first, first + 1]
        elif kind != "equal":
            numbers += range(first + 1, end + 1)
    return numbers


def marked(source: str, lines: Iterable[int]) -> ast.Module:
    """The source with a mark in front of the innermost statement at each of the lines.

    A line outside of any function marks nothing: module and class bodies are reached by the import.
    """
    module = ast.parse(source)
    wanted = set(lines)
    _Marker(wanted).visit(module)
    return ast.fix_missing_locations(module)


class _Marker(ast.NodeTransformer):
    """Puts the mark in front of the smallest statements of functions that begin at or contain a wanted line."""

    def __init__(self, wanted: set[int]) -> None:
        self._wanted = wanted
        self._in_function = False

    def visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:
        inside, self._in_function = self._in_function, self._in_function or isinstance(node, FUNCTION)
        self.generic_visit(node)
        self._in_function = inside
        marks = inside and isinstance(node, ast.stmt) and not _is_docstring(node) and self._wanted & {*head(node)}
        return [*ast.parse(MARK).body, node] if marks else node


def head(statement: ast.stmt) -> range:
    """Its lines before the first statement within: whoever begins it comes by one of them."""
    within = [node.lineno for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement]
    end = min(within) - 1 if within else statement.end_lineno or statement.lineno
    return range(statement.lineno, max(end, statement.lineno) + 1)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
