"""Seeds and rounds: a few of them every day, more with the slow tests, and all by `make torture`."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

TORTURE = bool(os.environ.get("ODRADEK_TORTURE"))  # set by `make torture`: everything in its long form
T = TypeVar("T")


def unless_torture(short: T, long: T) -> T:
    """`short` in CI, and `long` where there are hours."""
    return long if TORTURE else short


def seeds(count: int, *, every_day: int, slow: int | None = None, first: int = 0) -> list[ParameterSet]:
    """`count` values for `pytest.mark.parametrize`, from `first` on; the slow tests have those behind `every_day`, if
    `slow` is given only so many in all, and `make torture` every one."""
    number = count if slow is None else unless_torture(slow, count)
    return [pytest.param(first + each, marks=pytest.mark.slow if each >= every_day else ()) for each in range(number)]
