"""`identity-mismatch` of whole log directories (A8): do they belong to one cluster, and is each another broker's?

A node id or directory id that two directories name is a copy of one of them, or a `meta.properties` in the wrong place.
Blamed is the replica whose own name is not its node id, where replicas are named by node ids; else the later one.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_proto.formats import META_PROPERTIES, MetaProperties

from odradek_audit.checks.checkpoints import odd_ones
from odradek_audit.findings import CHECKS, Finding

CHECK = "identity-mismatch"


def check_directories(metas: Mapping[str, MetaProperties | None]) -> list[Finding]:
    """Findings over the `meta.properties` of all replicas, by replica name; they belong to no partition."""
    known = {name: meta for name, meta in sorted(metas.items()) if meta is not None}
    found = [
        _finding(replica, f"has the cluster id {value}, others have {usual}")
        for replica, value, usual in odd_ones({name: meta.cluster_id for name, meta in known.items()})
    ]
    directories: dict[str, str] = {}
    nodes: dict[int, str] = {}
    for name in sorted(known, key=lambda name: (name != str(known[name].node_id), name)):
        meta = known[name]
        first = nodes.setdefault(meta.node_id, name)
        twin = directories.setdefault(meta.directory_id, name) if meta.directory_id else name
        if twin != name:
            found.append(_finding(name, f"has the directory id {meta.directory_id}, as replica {twin} has"))
        elif first != name:
            found.append(_finding(name, f"has the node id {meta.node_id}, as replica {first} has"))
    return found


def _finding(replica: str, what: str) -> Finding:
    return Finding(
        CHECK,
        CHECKS[CHECK].severity,
        topic="",
        partition=-1,
        replica=replica,
        sentence=f"replica {replica} {what} ({META_PROPERTIES})",
        file=META_PROPERTIES,
    )
