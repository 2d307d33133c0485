"""The logs once more, from their first byte, when the story is over.

While it runs each batch is read once for each replica, when it comes. What was changed behind the newest batch after
that shows here: everything is held against what was ever seen of the same offset and epoch, and against what was
committed.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_chaos.worlds.simulated.checks.invariant import Violation
from odradek_chaos.worlds.simulated.checks.logs import CommittedPrefixImmutable, LogMatching
from odradek_chaos.worlds.simulated.checks.state import ClusterState


def logs_at_rest(now: ClusterState) -> Iterator[tuple[str, Violation]]:
    """Names of checks, and what they say of the replicas that run."""
    for (broker_id, partition), seen in sorted(now.replicas.items()):
        history = now.history(partition)
        history.forget(broker_id)
        problem = history.append(broker_id, now.disks[broker_id], seen.log_end_offset)
        if problem is not None:
            yield LogMatching.name, (broker_id, partition, f"at the end: {problem}")
            continue
        problem = history.commit(broker_id, seen.high_watermark)
        if problem is not None:
            yield CommittedPrefixImmutable.name, (broker_id, partition, f"at the end: {problem}")
