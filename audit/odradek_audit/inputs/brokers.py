"""`cluster.json` beside the brokers' directories: which brokers `odradek cluster up` has made there; and which
log directories brokers use while they are audited.

The file is no evidence, and an audit goes on without it. But a broker that it names and of which no directory was found
was not compared, which nobody would notice otherwise. Its paths are those of the machine where it was written, so only
the last part of them counts here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from odradek_proto.command_line import STATE_FILE
from odradek_proto.transport.lock_holders import holder_of

from odradek_audit.findings import Note

NO_BROKER = "no-broker"
IN_USE = "in-use"
ADVICE = (
    "the ends of the logs may be moving; stop the brokers first, or audit copies that were made while they were stopped"
)


def absent_brokers(data: Path, replicas: Mapping[str, Path]) -> list[Note]:
    """A note for each broker of `cluster.json` in `data` without a log directory among `replicas`.

    They are called by node id, or by their directory where that is unknown.
    """
    file = data / STATE_FILE
    if not file.is_file():
        return []
    try:
        brokers = _brokers(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        sentence = f"{STATE_FILE} cannot be read, so nobody knows which brokers it should be"
        return [Note(NO_BROKER, "", -1, "", sentence)]
    directories = {path.relative_to(data.resolve()).parts[0] for path in replicas.values()}
    return [
        Note(
            NO_BROKER,
            "",
            -1,
            name,
            f"broker {name} of {STATE_FILE} has no log directory ({directory}) there: not compared",
        )
        for name, directory in brokers.items()
        if name not in replicas and directory not in directories
    ]


def _brokers(state: Mapping[str, list[Mapping[str, object]]]) -> dict[str, str]:
    """The last part of each broker's log directory, by node id. Raises `KeyError`, `TypeError`."""
    return {str(node["node_id"]): PurePosixPath(str(node["log_directory"])).name for node in state["nodes"]}


def brokers_at_work(replicas: Mapping[str, Path]) -> list[Note]:
    """A note for each replica whose log directory a process holds locked."""
    notes = []
    for name, path in replicas.items():
        if (process := holder_of(path)) is not None:
            sentence = f"a running broker (process {process}) uses {path}: what it wrote meanwhile may look like damage"
            notes.append(Note(IN_USE, "", -1, name, sentence))
    return notes
