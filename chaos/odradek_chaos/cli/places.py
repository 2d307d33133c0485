"""Directories of clusters on this machine: found again, refused, removed.

Rules. A directory belongs to odradek, and goes with the cluster, only while it is the very one that was made as a
temporary one: who moves, copies or names it wants to keep it. No cluster lies inside of another one, for whoever
audits the outer one would take the inner one's brokers for replicas.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from dataclasses import MISSING, fields
from pathlib import Path

from odradek.cli.clusters.current import talk_as_told
from odradek.cli.clusters.file import flaw, unreadable
from odradek_broker.local.cluster import ClusterError, LocalCluster, NodeProcess
from odradek_proto.command_line import STATE_FILE, USAGE, CommandFailed, check_directory, cluster_directories
from odradek_proto.formats import META_PROPERTIES

KNOWN = [each.name for each in fields(NodeProcess)]  # what is said of a broker
NEEDED = [each.name for each in fields(NodeProcess) if each.default is MISSING]


def find(directory: Path) -> LocalCluster:
    """The cluster there. Raises `ClusterError` when there is none, `CommandFailed` when its file is broken.

    It is temporary only where it was laid out, never where it was moved or copied to.
    """
    place = directory.absolute()
    try:
        cluster = LocalCluster.load(place)
    except ClusterError as error:
        if error.__cause__ is None:
            raise
        raise _broken(place, error.__cause__) from error
    if not cluster.nodes or not isinstance(cluster.settings, dict):
        raise _broken(place, None)
    talk_as_told(place)
    cluster.temporary = cluster.temporary and _was_laid_out(place)
    return cluster


def _was_laid_out(place: Path) -> bool:
    """Whether the file speaks of this very directory."""
    nodes = json.loads((place / STATE_FILE).read_text())["nodes"]
    return all(Path(node["log_directory"]).parent.resolve() == place.resolve() for node in nodes)


def _broken(place: Path, error: BaseException | None) -> CommandFailed:
    file = place / STATE_FILE
    if isinstance(error, OSError):
        return unreadable(file, error)
    return CommandFailed(
        f"{file} {flaw(file.read_bytes(), needed=NEEDED, known=KNOWN)}",
        hint="put it back from a copy, or start another cluster elsewhere with --data DIR; the records are in the"
        f" brokers' directories beside it: `odradek audit run --data {shlex.quote(str(place))}` reads them without it",
    )


def place_for_another(path: str) -> Path:
    """Where a new cluster is to lie. Raises `CommandFailed` (2) for what can be no directory, or not one for it."""
    place = check_directory("--data", path)
    refuse_inside_another(place)
    return place


def refuse_inside_another(directory: Path) -> None:
    """Raise `CommandFailed` (2) for a new cluster's directory inside of another cluster or of a broker's directory."""
    within = {STATE_FILE: "the cluster in", META_PROPERTIES: "the log directory"}
    outer = next(
        (
            f"{what} {above}"
            for name, what in within.items()
            for above in directory.resolve().parents
            if (above / name).exists()
        ),
        "",
    )
    if outer:
        raise CommandFailed(
            f"{directory} lies inside of {outer}",
            hint="name a directory outside of it with --data: who audits the one would count the other's brokers",
            exit_code=USAGE,
        )


def remove_unless_named(cluster: LocalCluster, said: Exception) -> Exception:
    """The directory of a temporary cluster that did not come up goes, unless the error sends somebody to logs in it.

    Returns the error; in the other case with how to remove the directory.
    """
    if not cluster.temporary or cluster.topics():
        return said
    hint = str(getattr(said, "hint", ""))
    if not any(str(cluster.log_file(node_id)) in f"{said} {hint}" for node_id in cluster.nodes):
        shutil.rmtree(cluster.directory, ignore_errors=True)
        return said
    removal = f"`odradek cluster down --data {shlex.quote(str(cluster.directory))} --remove` removes what it left"
    code = int(getattr(said, "exit_code", 1))
    return CommandFailed(str(said), hint=f"{hint}; {removal}" if hint else removal, exit_code=code)


def known_clusters() -> list[LocalCluster]:
    """Those that `cluster up` started and that are still there, the default first; what cannot be read is left out."""
    found = []
    for directory in cluster_directories():
        with contextlib.suppress(ClusterError, CommandFailed):
            found.append(find(directory))
    return found


def stopped_with_data() -> LocalCluster | None:
    """The newest of them of which no broker runs and that has topics."""
    for cluster in known_clusters():
        if cluster.topics() and not any(map(cluster.running, cluster.nodes)):
            return cluster
    return None


def runs(directory: Path) -> bool:
    """Whether a cluster there still has a broker that runs; it may be gone, or hold none."""
    try:
        cluster = LocalCluster.load(directory)
    except ClusterError:
        return False
    return any(cluster.running(node_id) for node_id in cluster.nodes)
