"""Clients of Kafka, unchanged, are told by odradek what Apache Kafka 4.1.1 tells them: results and errors."""

from __future__ import annotations

import pytest
from odradek_broker.testing import Cluster

from tests.interop.kafka.java import NoKafka
from tests.interop.scenarios.clients import CLIENTS, SETTINGS, expected, run
from tests.seeds import unless_torture

SAMPLE = ("aiokafka", "franz-go", "java-4.1.1", "kafka-python", "tools")  # in CI; `make torture` has all of them


@pytest.mark.odradek(settings=SETTINGS)
@pytest.mark.slow
@pytest.mark.parametrize("client", unless_torture(SAMPLE, tuple(CLIENTS)))
def test_a_client_is_told_what_kafka_tells_it(client: str, odradek_cluster: Cluster) -> None:
    """Producing, reading, groups, administration, and each with what is refused; then with a broker too few."""
    try:
        told = run(client, odradek_cluster, client)
    except NoKafka as error:
        pytest.skip(str(error))
    wanted = expected(client)
    assert list(told) == list(wanted)
    assert {scenario: (told[scenario], result) for scenario, result in wanted.items() if told[scenario] != result} == {}
