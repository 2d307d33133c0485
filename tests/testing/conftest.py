"""A cluster for each test of the cluster itself, and pytest's own way to test plugins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from odradek_broker.testing import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers inside this process, for one test alone."""
    with Cluster() as running:
        yield running
