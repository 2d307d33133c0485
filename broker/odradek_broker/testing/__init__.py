"""A real cluster inside one process, for tests of software that uses Kafka.

    with Cluster() as cluster:
        with Producer(cluster.bootstrap) as producer:
            producer.send("orders", "hello")
        cluster.kill(cluster.leader_of("orders"))

The same nodes as in `odradek server run`, real sockets to clients on 127.0.0.1, real files. The names here are loaded
when they are first used: pytest reads the plugin at every start, also where nobody wants a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek_broker.local.cluster import ClusterError
    from odradek_broker.testing.async_cluster import AsyncCluster
    from odradek_broker.testing.cluster import Cluster
    from odradek_broker.testing.containers import KafkaContainer

__all__ = ["AsyncCluster", "Cluster", "ClusterError", "KafkaContainer"]


def __getattr__(name: str) -> object:
    if name == "Cluster":
        from odradek_broker.testing.cluster import Cluster

        return Cluster
    if name == "AsyncCluster":
        from odradek_broker.testing.async_cluster import AsyncCluster

        return AsyncCluster
    if name == "KafkaContainer":
        from odradek_broker.testing.containers import KafkaContainer

        return KafkaContainer
    if name == "ClusterError":
        from odradek_broker.local.cluster import ClusterError

        return ClusterError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
