"""What several files of tests of the broker begin with."""

from __future__ import annotations

import pytest

from tests.broker.log_bench import LogBench, opened


@pytest.fixture
def bench() -> LogBench:
    """An open log on a simulated disk."""
    return opened()
