"""Requests of every API and version, sound ones and with bytes changed, cut out and put in: nothing breaks or grows."""

from __future__ import annotations

import pytest
from odradek_broker.testing import Cluster

from tests.kafka.fuzz import SETTINGS, run_seed
from tests.seeds import seeds


@pytest.mark.odradek(brokers=1, settings=SETTINGS)
@pytest.mark.parametrize("seed", seeds(12, every_day=0, slow=5, first=1))
def test_mutated_frames_end_in_an_answer_or_a_closed_connection(odradek_cluster: Cluster, seed: int) -> None:
    """No crash, no hang, no error that nobody expected, memory and log bounded; sound requests have sound answers."""
    run_seed(odradek_cluster, seed, rounds=2)
