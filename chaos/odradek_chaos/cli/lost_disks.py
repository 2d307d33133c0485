"""Brokers of a cluster on this machine that ran before and come back without their disk: said, or refused.

A voter without `quorum-state` may have forgotten what it has acknowledged (R-217). Of fewer than a majority the others
have everything that was ever committed, and give it back. A majority of such voters may agree that there never was
anything, and then those that still have records follow them: metadata and records are cut off. Nobody starts that by
mistake. Where nobody has anything there is nothing left to lose.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path

from odradek.cli.terminal.screen import first_of
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.command_line import CommandFailed

QUORUM_STATE = Path("__cluster_metadata-0", "quorum-state")


def lost_disks(cluster: LocalCluster, starting: Collection[int]) -> list[str]:
    """Sentences about those of `starting` that ran before and have nothing of it, none when all have.

    Raises `CommandFailed` when they are so many that what the others have would be lost as well.
    """
    lost = [node_id for node_id in cluster.nodes if _has_lost_its_disk(cluster, node_id)]
    concerned = [node_id for node_id in lost if node_id in starting]
    if not concerned:
        return []
    if len(lost) == len(cluster.nodes):
        return [f"no broker has anything in {cluster.directory} any more: it begins anew, without topics and records"]
    if len(lost) > len(cluster.nodes) // 2:
        raise _too_many(cluster, lost)
    others = "the others" if len(cluster.nodes) - len(lost) > 1 else "the other one"
    return [
        f"broker {node_id} has run before, but its data directory {cluster.nodes[node_id].log_directory} is empty: it"
        f" starts empty and copies everything from {others}. Until then it does not count towards the quorum; records"
        " that had no other replica are lost"
        for node_id in concerned
    ]


def _has_lost_its_disk(cluster: LocalCluster, node_id: int) -> bool:
    """Whether it was started before, does not run, and what its voter must not forget is not there."""
    if cluster.running(node_id) or (Path(cluster.nodes[node_id].log_directory) / QUORUM_STATE).exists():
        return False
    return bool(cluster.nodes[node_id].started) or cluster.log_file(node_id).exists()


def _too_many(cluster: LocalCluster, lost: list[int]) -> CommandFailed:
    left = first_of([node.log_directory for node_id, node in cluster.nodes.items() if node_id not in lost])
    count, wanted = len(cluster.nodes), len(lost) - len(cluster.nodes) // 2
    copies = "a copy of one" if wanted == 1 else f"copies of {wanted}"
    place = shlex.quote(str(cluster.directory))
    return CommandFailed(
        f"brokers {first_of(lost)} ran before, and nothing of it is in {cluster.directory}: they are a majority of the"
        f" {count} voters and would begin anew, without what is in {left}",
        hint=f"put back {copies} of their directories (broker-N); `odradek audit run --data {place}` and"
        " `odradek log dump` read what is left; `odradek cluster up` with another --data DIR starts a new cluster",
    )
