"""The start of a cluster of this machine, on ports that somebody may have taken since they were chosen.

No other cluster of this user gets them (`local/ports.py`, `local/processes.py`), but of other processes nobody knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek_broker.local.cluster import ClusterError, LocalCluster

from odradek_chaos.harness.killing import kill_all

STARTS = 3


async def start_on_free_ports(
    cluster: LocalCluster,
    ready: Callable[[], Awaitable[None]],
    say: Callable[[str], None],
    *,
    start: Callable[[], None] | None = None,
) -> None:
    """Start all brokers and await `ready`; where it fails and a port is taken, once more, on other ones.

    Brokers that run already go on where they are, also when it fails: then all keep their ports.
    `start` is what starts them, if it is not `start_all` alone. Raises `ClusterError`.
    """
    ran = {node_id for node_id in cluster.nodes if cluster.running(node_id)}
    for left in reversed(range(STARTS)):
        try:
            (start or cluster.start_all)()
            await ready()
            return
        except ClusterError:
            kill_all(cluster, ran)
            taken = cluster.renew_ports() if left and not ran else []
            if not taken:
                raise
            say(f"another process has taken {', '.join(taken)}: once more, on other ports")
