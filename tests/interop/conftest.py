"""Fixtures of the tests that run Apache Kafka's own programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.interop.kafka.java import PROGRAMS, NoKafka, classpath_of

ClasspathOf = Callable[[Sequence[str]], str]


@pytest.fixture(scope="session")
def java_artifacts() -> ClasspathOf:
    """Where artifacts and all that they need lie; skips the test where they cannot be had."""

    def find(artifacts: Sequence[str]) -> str:
        try:
            return classpath_of(artifacts)
        except NoKafka as error:
            pytest.skip(str(error))

    return find


@pytest.fixture(scope="session")
def classpath(java_artifacts: ClasspathOf) -> str:
    """Where Kafka's own programs lie."""
    return java_artifacts(PROGRAMS)
