"""A word about log directories that brokers are using while they are audited: files change while they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek_proto.transport.lock_holders import holder_of

from odradek_audit.findings import Note

IN_USE = "in-use"
ADVICE = (
    "the ends of the logs may be moving; stop the brokers first, or audit copies that were made while they were stopped"
)


def brokers_at_work(replicas: Mapping[str, Path]) -> list[Note]:
    """A note for each replica whose log directory a process holds locked."""
    notes = []
    for name, path in replicas.items():
        if (process := holder_of(path)) is not None:
            sentence = f"a running broker (process {process}) uses {path}: what it wrote meanwhile may look like damage"
            notes.append(Note(IN_USE, "", -1, name, sentence))
    return notes
