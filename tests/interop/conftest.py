"""Fixtures of the tests that run Apache Kafka's own programs."""

from __future__ import annotations

import pytest

from tests.interop.kafka.java import NoKafka, kafka_classpath


@pytest.fixture(scope="session")
def classpath() -> str:
    """Where Kafka's programs lie; skips the test where they cannot be had."""
    try:
        return kafka_classpath()
    except NoKafka as error:
        pytest.skip(str(error))
