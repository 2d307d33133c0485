"""Whether a cluster of this machine, of which only the directory is remembered, still has a broker that runs."""

from __future__ import annotations

from pathlib import Path

from odradek_broker.local.cluster import ClusterError, LocalCluster


def runs(directory: Path) -> bool:
    """False also for a directory that is gone or holds no cluster."""
    try:
        cluster = LocalCluster.load(directory)
    except ClusterError:
        return False
    return any(cluster.running(node_id) for node_id in cluster.nodes)
