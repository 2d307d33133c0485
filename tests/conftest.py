"""Options of the whole test run, and what keeps it short."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, and none that fails because the machine stopped while it was drawn or tried.
settings.register_profile("odradek", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odradek")

WAITING = ("cluster", "spark")  # marks of tests that wait for processes


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` accepts what the transcripts say now; read the difference before you commit it."""
    parser.addoption("--rewrite", action="store_true", help="accept the new output of transcripts")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without Python's garbage collector, and never let it walk through what was collected.

    Modules and tests are hundreds of thousands of objects, hardly one is garbage, and all live as long as the session.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for processes comes first: workers take tests in this order, and so end with short ones together."""
    items.sort(key=lambda item: all(item.get_closest_marker(name) is None for name in WAITING))
