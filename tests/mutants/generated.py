"""Small faults made by machine: one operator, constant or statement of the core is changed at a time.

The places are drawn by a seed from everything that could be changed, so that two runs with the same seed over the same
sources try the same mutants.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from tests.mutants.tree import MARK, ROOT, head

CORE = (
    "broker/odradek_broker/core/partition",
    "broker/odradek_broker/core/quorum",
    "broker/odradek_broker/core/controller",
    "broker/odradek_broker/core/metadata",
    "broker/odradek_broker/core",  # the files that stand there: what waits, and when a fetch does
    "broker/odradek_broker/storage",
)
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Generated:
    """One mutant: the file, the line, what was done to it, the module that it makes, and the lines of the statement (of
    its head, if others are nested in it) that was changed, as the unchanged file counts them.
    """

    path: str
    line: int
    change: str
    module: ast.Module = field(compare=False)
    lines: range

    @property
    def name(self) -> str:
        return f"{Path(self.path).stem}:{self.line} {self.change}"


Change = tuple[str, Callable[[ast.AST], ast.AST]]


def _changes(node: ast.AST) -> Iterator[Change]:
    """What can be done to one node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
        other = COMPARED[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} -> {other.__name__}", lambda found: _set(found, ops=[other()])
    elif isinstance(node, ast.BoolOp):
        other_op: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{type(node.op).__name__} -> {type(other_op).__name__}", lambda found: _set(found, op=other_op)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not dropped", lambda found: getattr(found, "operand")  # noqa: B009
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        turned: ast.operator = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield f"{type(node.op).__name__} -> {type(turned).__name__}", lambda found: _set(found, op=turned)
    elif isinstance(node, ast.Constant) and type(node.value) is int and node.value in (0, 1, -1):
        value = node.value + 1
        yield f"{node.value} -> {value}", lambda found: _set(found, value=value)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        turned_value = not node.value
        yield f"{node.value} -> {turned_value}", lambda found: _set(found, value=turned_value)
    elif isinstance(node, ast.If):
        yield "condition turned round", lambda found: _set(found, test=ast.UnaryOp(ast.Not(), getattr(found, "test")))  # noqa: B009
    elif _can_be_dropped(node):
        yield "statement dropped", lambda found: ast.Pass()


def _can_be_dropped(node: ast.AST) -> bool:
    """An assignment or a call alone, and none that names `super`: without the last one of a class its body would be
    compiled otherwise, which no fork can become.
    """
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if not is_call and not isinstance(node, ast.Assign | ast.AugAssign):
        return False
    return not any(isinstance(each, ast.Name) and each.id == "super" for each in ast.walk(node))


def _set(node: ast.AST, **values: object) -> ast.AST:
    for name, value in values.items():
        setattr(node, name, value)
    return node


class _Apply(ast.NodeTransformer):
    """Makes one change at one node, and puts the mark in front of the smallest statement around it."""

    def __init__(self, target: ast.AST, statement: ast.stmt, change: Callable[[ast.AST], ast.AST]) -> None:
        self._target = target
        self._statement = statement
        self._change = change

    def visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:
        found = self._change(node) if node is self._target else super().generic_visit(node)
        return [*ast.parse(MARK).body, found] if node is self._statement else found


def _statement_around(module: ast.Module, target: ast.AST) -> ast.stmt:
    """The smallest statement that contains a node, or is it."""
    parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}
    while not isinstance(target, ast.stmt):
        target = parents[target]
    return target


def _in_functions(module: ast.Module) -> Iterator[ast.AST]:
    """Nodes inside of functions, but not of their signatures, and no docstrings or messages for people."""
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                for node in ast.walk(statement):
                    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                        yield node


def generate(count: int, seed: int, places: Sequence[str] = CORE) -> list[Generated]:
    """`count` mutants of the files below `places`, drawn without repetition, in the order of the draw."""
    candidates = [each for place in places for each in _candidates(place)]
    chosen = Random(seed).sample(candidates, min(count, len(candidates)))
    return [_mutant(path, (ROOT / path).read_text(), number, which) for path, number, which in chosen]


@cache
def _candidates(place: str) -> list[tuple[str, int, int]]:
    """File, number of the node in it, number of the change."""
    found: list[tuple[str, int, int]] = []
    for path in sorted((ROOT / place).glob("*.py")):
        name = str(path.relative_to(ROOT))
        for number, node in enumerate(_in_functions(ast.parse(path.read_text()))):
            found += [(name, number, which) for which, _ in enumerate(_changes(node))]
    return found


def _mutant(path: str, text: str, number: int, which: int) -> Generated:
    module = ast.parse(text)
    node = list(_in_functions(module))[number]
    what, change = list(_changes(node))[which]
    line = getattr(node, "lineno", 0)
    statement = _statement_around(module, node)
    lines = head(statement)
    mutated = _Apply(node, statement, change).visit(module)
    assert isinstance(mutated, ast.Module)
    return Generated(path, line, what, ast.fix_missing_locations(mutated), lines)
