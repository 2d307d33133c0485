"""Seeds of which some are tried every day, and all with the slow tests."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet


def seeds(count: int, *, every_day: int, first: int = 0) -> list[ParameterSet]:
    """`count` values for `pytest.mark.parametrize`, from `first` on; the slow tests have those behind `every_day`."""
    return [
        pytest.param(first + number, marks=pytest.mark.slow if number >= every_day else ()) for number in range(count)
    ]
