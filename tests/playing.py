"""Tests that are coroutines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any

import pytest

Test = Callable[..., Coroutine[Any, Any, None]]


def play(item: pytest.Function, run: Callable[[Coroutine[Any, Any, Any]], object]) -> bool | None:
    """What `pytest_pyfunc_call` does with a test: one that is a coroutine is run, any other is left to pytest."""
    if not inspect.iscoroutinefunction(item.obj):
        return None
    run(item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames}))
    return True


def plays(
    run: Callable[[Callable[..., Coroutine[Any, Any, None]]], object] | str,
) -> Callable[[Test], Callable[..., None]]:
    """`run` makes what the first parameter of the test is, and plays it; the other parameters are pytest's.

    A word is the name of a fixture that does so. What it makes are then the parameters before a lone `*`.
    """

    def decorate(test: Test) -> Callable[..., None]:
        @wraps(test)
        def played(**given: Any) -> None:
            (given.pop(run) if isinstance(run, str) else run)(partial(test, **given))

        signature = inspect.signature(test)
        _, *others = signature.parameters.values()
        if isinstance(run, str):
            others = [each for each in others if each.kind is each.KEYWORD_ONLY]
            others.append(inspect.Parameter(run, inspect.Parameter.KEYWORD_ONLY))
        played.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]  # read by pytest
        return played

    return decorate
