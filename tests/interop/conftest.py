"""Fixtures of the tests that run Apache Kafka's own programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.interop.kafka.cluster import KafkaCluster, loaded_classes
from tests.interop.kafka.java import PROGRAMS, SMALL, NoKafka, classpath_of

ClasspathOf = Callable[[Sequence[str]], str]
CLEANING = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100"}


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


@pytest.fixture(scope="session")
def kafka(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three nodes of Kafka for all tests that want some: each has topics of its own, and starts what does not run."""
    cluster = KafkaCluster(
        classpath, tmp_path_factory.mktemp("kafka") / "cluster", CLEANING, flags=(*SMALL, *loaded_classes(classpath))
    )
    cluster.format()
    try:
        yield cluster
    finally:
        cluster.stop()
