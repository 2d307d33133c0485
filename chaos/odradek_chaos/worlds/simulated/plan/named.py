"""Classes that belong to a table by standing in one of its modules, with a `name`: one more is one class."""

from __future__ import annotations

from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def named_classes(base: type[T], *modules: ModuleType) -> tuple[type[T], ...]:
    """Those below `base` that the modules themselves define, in the order in which they stand there.

    One without a name is what others are derived from, and not in the table.
    """
    defined = [
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, base) and found.__module__ == module.__name__
    ]
    for each in defined:
        assert "name" in vars(each) or each.__subclasses__(), f"{each.__qualname__} has no name"
    return tuple(each for each in defined if "name" in vars(each))
