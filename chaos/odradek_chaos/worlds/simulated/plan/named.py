"""Classes that belong to a table by standing in one of its modules, with a `name`: one more is one class."""

from __future__ import annotations

from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def named_classes(base: type[T], *modules: ModuleType) -> tuple[type[T], ...]:
    """Those below `base` that the modules themselves define, in the order in which they stand there."""
    return tuple(
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, base) and found.__module__ == module.__name__
        if "name" in vars(found)
    )
