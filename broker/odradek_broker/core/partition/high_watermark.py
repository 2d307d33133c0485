"""The high watermark of a partition, as its leader raises it (A3).

Rules of this module. It never lowers a high watermark, and a new leader starts from the one that it had as a follower
(R-22, R-25). It is independent of requests: its input is log end offsets, from any source. It is called for every
append and every fetch, so the common result "no" costs a few comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_broker.core.partition.in_sync import RemoteReplica


def candidate(
    own_offset: int,
    high_watermark: int,
    remotes: Sequence[RemoteReplica],
    holds: Callable[[RemoteReplica], bool],
) -> int:
    """The smallest log end offset that counts (R-20); `high_watermark` itself when it cannot rise.

    `own_offset` is the leader's log end offset, or its flushed one when only flushed records count. Every replica with
    `is_counted` holds it back. So does one outside of the ISR for which `holds` is true: it has caught up and may
    join, and if we ran ahead of it now, it would be behind again before it could.
    """
    lowest = own_offset
    if lowest <= high_watermark:
        return high_watermark
    for remote in remotes:
        offset = remote.log_end_offset
        if offset < lowest and (remote.is_counted or holds(remote)):
            if offset <= high_watermark:
                return high_watermark
            lowest = offset
    return lowest
