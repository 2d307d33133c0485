"""Waits until a cluster of real brokers can be used, and says who died on the way."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Collection

from odradek import Admin, OdradekError
from odradek_broker.local.cluster import ClusterError
from odradek_proto.command_line import TIMED_OUT

from odradek_chaos.worlds.real import ObservedBrokers

POLL_S = 0.03  # between two questions to a cluster of real brokers, whatever is awaited of it
LAST_LINES = 12
CANNOT_START = re.compile(r" ERROR .*?(node \d+ cannot start: .*)")


class NotReadyInTime(ClusterError):
    """The time was over before the brokers were ready; none of them has ended."""

    exit_code = TIMED_OUT


async def wait_until_ready(
    cluster: ObservedBrokers,
    *,
    only: Collection[int] | None = None,
    timeout_s: float = 60,
    on_progress: Callable[[int], None] = lambda ready: None,
) -> None:
    """Until every broker of the cluster, or of `only`, is registered and unfenced. `on_progress` gets how many are.

    Raises `ClusterError` when a broker ends, or when the time is over. With `only`, others may be down from the start.
    """
    wanted = set(cluster.nodes if only is None else only)
    down = [node_id for node_id in cluster.nodes if node_id not in wanted and not cluster.running(node_id)]
    try:
        async with asyncio.timeout(timeout_s):
            ready = False
            while not ready:
                ready = await _ready_through(cluster, wanted, down, on_progress)
    except TimeoutError:
        missed = f"; down since before: {', '.join(map(str, down))}" if down else ""
        raise NotReadyInTime(
            f"the brokers are not ready after {timeout_s:g} s{missed}",
            hint=f"what they say: {', '.join(str(cluster.log_file(node_id)) for node_id in sorted(wanted))}",
        ) from None


async def _ready_through(
    cluster: ObservedBrokers, wanted: Collection[int], down: Collection[int], on_progress: Callable[[int], None]
) -> bool:
    """Ask until all are there (true), or until the connection must be made anew (false)."""
    check_alive(cluster, down)
    try:
        async with Admin(cluster.bootstrap, bootstrap_timeout_ms=500, request_timeout_ms=1_000) as admin:
            while True:
                check_alive(cluster, down)
                brokers = (await admin.describe_cluster()).brokers
                ready = {broker.broker_id for broker in brokers if not broker.fenced}
                on_progress(len(ready.intersection(wanted)))
                if ready.issuperset(wanted):
                    return True
                await asyncio.sleep(POLL_S)
    except OdradekError:
        return False


def check_alive(cluster: ObservedBrokers, down: Collection[int] = ()) -> None:
    """Raise `ClusterError` with the last words of the first node that does not run, save those that are to be down."""
    for node_id in cluster.nodes:
        if node_id not in down and not cluster.running(node_id):
            raise ClusterError(obituary(cluster, node_id), hint="mend what it says, and start it again")


def obituary(cluster: ObservedBrokers, node_id: int) -> str:
    """Which broker ended, how, and why it cannot start, if it says so, or the last lines of its output."""
    status = cluster.exit_status(node_id)
    if status is None:
        how = "has ended"
    elif status < 0:
        how = f"was ended by {signal.Signals(-status).name}"
    else:
        how = f"ended with exit code {status}"
    lines = cluster.last_lines(node_id, LAST_LINES)
    if lines and (reason := CANNOT_START.search(lines[-1])) is not None:
        return f"broker {node_id} {how}: {reason[1]} ({cluster.log_file(node_id)})"
    said = "".join(f"\n    {line}" for line in lines)
    return (
        f"broker {node_id} {how}; the end of {cluster.log_file(node_id)}:{said}" if lines else f"broker {node_id} {how}"
    )
