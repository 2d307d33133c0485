"""What `odradek doctor` asks of the broker's package: settings, and a cluster on this machine.

Registered by the entry point `odradek.checks`. Findings are dictionaries with the keys level (problem or note), check,
about, says and remedy.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek_proto.command_line import STATE_FILE
from odradek_proto.words import noun

from odradek_broker.config.environment import PREFIXES
from odradek_broker.local.cluster import ClusterError, LocalCluster

Facts = dict[str, str]
NODE_ID = "node.id=0"  # a placeholder: the settings are looked at, no node is started


def findings(asked: Mapping[str, Any]) -> list[Facts]:
    """`asked` names the directory of a local cluster, a settings file (either may be None), and the environment."""
    found = []
    directory, config = asked["directory"], asked["config"]
    if directory is not None:
        found += of_local_cluster(Path(directory))
    if config is not None or any(name.startswith(PREFIXES) for name in asked["environment"]):
        found += of_settings(Path(config) if config is not None else None, asked["environment"])
    return found


def of_local_cluster(directory: Path) -> list[Facts]:
    """Brokers that `odradek cluster up` started and that are not there any more, or are frozen."""
    try:
        cluster = LocalCluster.load(directory)
    except ClusterError as error:
        says, remedy = str(error), error.hint
        if error.__cause__ is not None:  # Python's words; commands without -b say what is wrong with the file
            says, remedy = f"{directory / STATE_FILE} does not describe a cluster", "put it back from a copy"
        return [_fact("problem", "local-cluster", str(directory), says, remedy)]
    found = []
    dead = [node_id for node_id in cluster.nodes if not cluster.running(node_id)]
    if dead:
        which = (
            "no broker runs"
            if len(dead) == len(cluster.nodes)
            else f"{noun(len(dead), 'broker')} {_list(dead)} {noun(len(dead), 'does', 'do')} not run"
        )
        up = f"odradek cluster up --data {shlex.quote(str(directory))}"
        remedy = f"`{up}` starts what is missing; the ends of broker-N.log say why"
        found.append(_fact("problem", "dead-process", str(directory), f"the cluster in {directory}: {which}", remedy))
    frozen = [node_id for node_id in cluster.nodes if cluster.paused(node_id)]
    for node_id in frozen:
        says = f"the cluster in {directory}: broker {node_id} (pid {cluster.nodes[node_id].pid}) is frozen by SIGSTOP"
        resume = f"odradek chaos resume --data {shlex.quote(str(directory))} --broker {node_id}"
        found.append(_fact("problem", "frozen-process", str(directory), says, f"`{resume}` lets it go on"))
    return found


def of_settings(path: Path | None, environment: Mapping[str, str]) -> list[Facts]:
    """What a broker with this file and this environment would refuse or not use."""
    from odradek_broker.config.sources import SettingError, load

    about = str(path) if path is not None else "environment"
    given = any(name.endswith("_NODE_ID") for name in environment if name.startswith(PREFIXES))
    try:
        loaded = load(path, environment=environment, overrides=() if given or _names_node(path) else (NODE_ID,))
    except SettingError as error:
        return [_fact("problem", "settings", about, str(error), "`odradek docs configuration` lists all settings")]
    return [
        _fact("note", "settings", about, line.removeprefix("warning: "), "they may be left out")
        for line in loaded.unheard()
    ]


def _names_node(path: Path | None) -> bool:
    from odradek_broker.config.sources import read_file

    return path is not None and "node.id" in read_file(path)


def _fact(level: str, check: str, about: str, says: str, remedy: str) -> Facts:
    return {"level": level, "check": check, "about": about, "says": says, "remedy": remedy}


def _list(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))
