"""kill -9 of whatever runs of a cluster, also when a broker ends by itself at that very moment."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection

from odradek_broker.local.cluster import ClusterError, LocalCluster


def signal_all(cluster: LocalCluster, spared: Collection[int] = ()) -> None:
    """SIGKILL to each broker that runs; waits for nothing, so that a signal's handler may do it."""
    for node_id in sorted(cluster.nodes.keys() - spared):
        with contextlib.suppress(ClusterError, ProcessLookupError):  # it is gone already
            cluster.signal(node_id, signal.SIGKILL)


def kill_all(cluster: LocalCluster, spared: Collection[int] = ()) -> None:
    """SIGKILL to each broker that runs, but for some, and wait until they are gone."""
    signal_all(cluster, spared)
    for node_id in sorted(cluster.nodes.keys() - spared):
        with contextlib.suppress(ClusterError, ProcessLookupError):
            cluster.kill(node_id)
