"""Clusters that `odradek cluster up` made on this machine, as their directories describe them: so that an audit is told
which one is meant as every other command is, by nothing at all or by addresses for gRPC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from odradek_proto.command_line import (
    CLIENT_SETTINGS,
    HOW_TO_NAME,
    STATE_FILE,
    UNREACHABLE,
    CommandFailed,
    cluster_directories,
    current_directory,
)


class LocalListeners(NamedTuple):
    """Addresses of listeners for Kafka's clients, and the file that says how to talk with them, if there is one."""

    addresses: str
    settings: Path | None


def meant_by(named: str | None) -> LocalListeners:
    """The default cluster where none is named, or one of this machine that has these addresses for gRPC, or whoever
    listens there. Raises `CommandFailed` when there is no default."""
    directories = cluster_directories()
    if named is None:
        if (default := current_directory()) is None:
            raise CommandFailed("no cluster was named", hint=HOW_TO_NAME, exit_code=UNREACHABLE)
        directories = [default]
    for directory in directories:
        listeners = _listeners(directory)
        if named is None and not listeners:
            raise CommandFailed(
                f"{directory / STATE_FILE} says no listeners for Kafka's clients",
                hint=HOW_TO_NAME,
                exit_code=UNREACHABLE,
            )
        if named is None or set(named.split(",")) <= listeners.keys():
            settings = directory / CLIENT_SETTINGS
            return LocalListeners(",".join(listeners.values()), settings if settings.exists() else None)
    return LocalListeners(named or "", None)


def _listeners(directory: Path) -> dict[str, str]:
    """By a broker's address for gRPC that for Kafka's clients; empty for what describes no cluster."""
    try:
        nodes = json.loads((directory / STATE_FILE).read_bytes())["nodes"]
        return {str(node["grpc"]): str(node["kafka"]) for node in nodes}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
