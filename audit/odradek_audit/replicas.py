"""Replicas as they are written on a command line or in an option: `name=directory`."""

from __future__ import annotations

from collections.abc import Sequence


def parse_replicas(entries: Sequence[str]) -> dict[str, str]:
    """`name=directory` entries as a mapping. Raises `ValueError` that says what is wrong."""
    replicas: dict[str, str] = {}
    for entry in entries:
        name, equals, path = entry.strip().partition("=")
        if not equals or not name or not path:
            raise ValueError(f"{entry!r} is not name=directory, such as 1=/copies/broker-1")
        if name in replicas:
            raise ValueError(f"the replica {name} is named twice")
        replicas[name] = path
    return replicas
