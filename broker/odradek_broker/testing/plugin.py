"""pytest fixtures: a cluster, its bootstrap addresses, a topic of one's own. Nothing to import, nothing to configure.

Rules of this module. It is read at every start of pytest wherever odradek is installed, so it imports nothing of a
broker before it knows of a test that wants one. Each test has a cluster of its own: nothing that another one has
written, set, killed or left running can reach it. Only what `odradek_clusters` gives is shared.
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
OURS = frozenset(("odradek_clusters", "odradek_cluster", "odradek_bootstrap", "kafka_bootstrap", "odradek_topic"))
LONGEST_NAME = 100  # of a topic; Kafka allows 249


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for `--strict-markers` and `pytest --markers`."""
    config.addinivalue_line("markers", MARKER)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Load what a cluster is made of, if a test wants one: the first of them is not to wait for it."""
    if any(OURS.intersection(getattr(item, "fixturenames", ())) for item in session.items):
        import odradek_broker.testing.cluster  # noqa: F401


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """What a test asks of its cluster."""

    brokers: int = DEFAULT_BROKERS
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        from odradek_broker.testing.arguments import as_text

        return self.brokers, *sorted(as_text("settings", self.settings).items())


class Clusters:
    """Clusters of a test session that are shared, each started when it is first asked for."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[object, ...], Cluster] = {}

    def get(self, brokers: int = DEFAULT_BROKERS, settings: Mapping[str, object] | None = None) -> Cluster:
        """A cluster with all its brokers up and without faults; a broken one makes way for a new one."""
        from odradek_broker.local.cluster import ClusterError
        from odradek_broker.testing.cluster import Cluster

        wanted = ClusterRequest(brokers, settings or {})
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

    def close(self) -> None:
        """Stop all of them."""
        for cluster in self._clusters.values():
            cluster.close()
        self._clusters.clear()


@pytest.fixture(scope="session")
def odradek_clusters() -> Iterator[Clusters]:
    """Clusters that tests share: `odradek_clusters.get(brokers=1)`, for fixtures that live longer than a test."""
    clusters = Clusters()
    yield clusters
    clusters.close()


@pytest.fixture
def odradek_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A fresh `odradek_broker.testing.Cluster`, three brokers unless `@pytest.mark.odradek(...)` says otherwise."""
    from odradek_broker.config.settings import SettingError
    from odradek_broker.local.cluster import ClusterError
    from odradek_broker.testing.cluster import Cluster

    wanted = _wanted(request.node)
    reason = ""
    try:
        cluster = Cluster(wanted.brokers, settings=wanted.settings)
        cluster.open()
    except ClusterError as error:
        reason = f"{error}; try: {error.hint}" if error.hint else str(error)
    except SettingError as error:
        reason = str(error)
    if reason:
        raise _refused(request.node, reason)
    yield cluster
    cluster.close()


@pytest.fixture
def odradek_bootstrap(odradek_cluster: Cluster) -> str:
    """The cluster's addresses, comma-separated, as clients want them."""
    return odradek_cluster.bootstrap


@pytest.fixture
def kafka_bootstrap(odradek_cluster: Cluster) -> str:
    """The addresses for Kafka's own clients (aiokafka, confluent-kafka, kafka-python): `bootstrap.servers`."""
    return odradek_cluster.kafka_bootstrap


@pytest.fixture
def odradek_topic(request: pytest.FixtureRequest, odradek_cluster: Cluster) -> str:
    """The name of a topic with one partition, named like the test."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:LONGEST_NAME].strip("-")
    odradek_cluster.create_topic(name)
    return name


def _wanted(node: pytest.Item) -> ClusterRequest:
    """The nearest marker's arguments: on the test, its class or its module."""
    marker = node.get_closest_marker("odradek")
    if marker is None:
        return ClusterRequest()
    try:
        return ClusterRequest(*marker.args, **marker.kwargs)
    except TypeError as error:
        reason = str(error).rpartition("() ")[2]  # without the name of the function that refused
    raise _refused(node, reason)


def _refused(node: pytest.Item, reason: str) -> BaseException:
    """Fails the test with a sentence: a traceback through the plugin tells nobody anything."""
    return pytest.fail.Exception(f"{node.nodeid}: @pytest.mark.{MARKER.partition(':')[0]}: {reason}", pytrace=False)
