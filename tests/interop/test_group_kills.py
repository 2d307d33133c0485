"""Clients of Kafka in a group, unchanged, while the group's coordinator is killed: nothing lost, nothing skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import ClasspathOf
from tests.interop.kafka.java import PROGRAMS
from tests.interop.kills.harness import Harness
from tests.seeds import unless_torture

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


@pytest.mark.parametrize(
    ("client", "protocol"),
    [("confluent", "consumer"), ("java", "classic"), *unless_torture([], [("confluent", "classic")])],
)
def test_a_group_outlives_its_coordinators(
    client: str, protocol: str, tmp_path: Path, java_artifacts: ClasspathOf
) -> None:
    """Two kills each, more in `make torture`; what was acknowledged is there, what is there was read, what was not read
    is not committed."""
    if client == "java":
        java_artifacts(PROGRAMS)
    rounds = Harness(tmp_path, client, protocol, seed=3, say=print).run(unless_torture(2, 6))
    assert len({each.killed for each in rounds}) > 1
