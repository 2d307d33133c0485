"""pytest fixtures: a cluster, its bootstrap addresses, a topic of one's own. Nothing to import, nothing to configure.

Rules of this module. It is read at every start of pytest wherever odradek is installed, so it imports nothing of a
broker before a fixture is used. A cluster lives as long as the test session and is shared by all tests that want the
same brokers and settings; a test that finds brokers down, killed by the one before, finds them started again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek_broker.testing.cluster import Cluster

MARKER = "odradek(brokers=3, settings={}): how many brokers the test's cluster has, and their settings by Kafka's names"
DEFAULT_BROKERS = 3
LONGEST_NAME = 100  # of a topic; Kafka allows 249


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for `--strict-markers` and `pytest --markers`."""
    config.addinivalue_line("markers", MARKER)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a test asks of its cluster."""

    brokers: int = DEFAULT_BROKERS
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        return self.brokers, *sorted((name, str(value)) for name, value in self.settings.items())


class Clusters:
    """The clusters of a test session, each started when it is first asked for."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[object, ...], Cluster] = {}
        self._topics = 0

    def get(self, brokers: int = DEFAULT_BROKERS, settings: Mapping[str, object] | None = None) -> Cluster:
        """A cluster with all its brokers up; a broken one makes way for a new one."""
        from odradek_broker.local.cluster import ClusterError
        from odradek_broker.testing.cluster import Cluster

        wanted = Wanted(brokers, settings or {})
        cluster = self._clusters.pop(wanted.key, None)
        if cluster is not None:
            try:
                cluster.heal()
            except ClusterError:
                cluster.close()
                cluster = None
        if cluster is None:
            cluster = Cluster(wanted.brokers, settings=wanted.settings)
            cluster.open()
        self._clusters[wanted.key] = cluster
        return cluster

    def new_topic_name(self, test: str) -> str:
        """A name that no other test of the session gets."""
        self._topics += 1
        return f"{re.sub(r'[^a-zA-Z0-9._-]+', '-', test)[:LONGEST_NAME].strip('-')}-{self._topics}"

    def close(self) -> None:
        """Stop all of them."""
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()


@pytest.fixture(scope="session")
def odradek_clusters() -> Iterator[Clusters]:
    """All clusters of the session: `odradek_clusters.get(brokers=1)`, for fixtures that live longer than a test."""
    clusters = Clusters()
    yield clusters
    clusters.close()


@pytest.fixture
def odradek_cluster(request: pytest.FixtureRequest, odradek_clusters: Clusters) -> Cluster:
    """A running `odradek_broker.testing.Cluster`, three brokers unless `@pytest.mark.odradek(...)` says otherwise."""
    from odradek_broker.config.settings import ConfigError
    from odradek_broker.local.cluster import ClusterError

    wanted = _wanted(request.node)
    try:
        return odradek_clusters.get(wanted.brokers, wanted.settings)
    except ClusterError as error:
        reason = f"{error}; try: {error.hint}" if error.hint else str(error)
    except ConfigError as error:
        reason = str(error).removeprefix("command line: ")
    raise _refused(request.node, reason)


@pytest.fixture
def odradek_bootstrap(odradek_cluster: Cluster) -> str:
    """The cluster's addresses, comma-separated, as clients want them."""
    return odradek_cluster.bootstrap


@pytest.fixture
def kafka_bootstrap(odradek_cluster: Cluster) -> str:
    """The addresses for Kafka's own clients (aiokafka, confluent-kafka, kafka-python): `bootstrap.servers`."""
    return odradek_cluster.kafka_bootstrap


@pytest.fixture
def odradek_topic(request: pytest.FixtureRequest, odradek_cluster: Cluster, odradek_clusters: Clusters) -> str:
    """The name of a topic with one partition, created for this test alone."""
    name = odradek_clusters.new_topic_name(request.node.name)
    odradek_cluster.create_topic(name)
    return name


def _wanted(node: pytest.Item) -> Wanted:
    """The nearest marker's arguments: on the test, its class or its module."""
    marker = node.get_closest_marker("odradek")
    if marker is None:
        return Wanted()
    try:
        wanted = Wanted(*marker.args, **marker.kwargs)
        if not isinstance(wanted.settings, Mapping):
            raise TypeError(f"settings are a dictionary, not {wanted.settings!r}")
        return wanted
    except TypeError as error:
        reason = str(error).rpartition("() ")[2]  # without the name of the function that refused
    raise _refused(node, reason)


def _refused(node: pytest.Item, reason: str) -> BaseException:
    """Fails the test with a sentence: a traceback through the plugin tells nobody anything."""
    return pytest.fail.Exception(f"{node.nodeid}: @pytest.mark.{MARKER.partition(':')[0]}: {reason}", pytrace=False)
