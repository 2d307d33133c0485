"""Tests that are coroutines. One without this decorator is run by `asyncio.run` (tests/conftest.py)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any

Test = Callable[..., Coroutine[Any, Any, None]]


def plays(run: Callable[[Callable[[Any], Coroutine[Any, Any, None]]], object]) -> Callable[[Test], Callable[..., None]]:
    """`run` makes what the first parameter of the test is, and plays it; the other parameters are pytest's."""

    def decorate(test: Test) -> Callable[..., None]:
        @wraps(test)
        def played(**given: Any) -> None:
            run(partial(test, **given))

        signature = inspect.signature(test)
        _, *others = signature.parameters.values()
        played.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]  # read by pytest
        return played

    return decorate
