"""What a cluster's methods are given: each kind of argument is checked here, before anything is done.

All raise `ClusterError` with the argument's name, what it is to be, and what it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from odradek_broker.core.metadata.config_types import INT_MAX
from odradek_broker.local.cluster import ClusterError


def check(name: str, value: object, holds: bool, wanted: str) -> None:
    if not holds:
        raise ClusterError(f"{name} is {wanted}, not {value!r}")


def check_whole(name: str, value: object, least: int = 0, most: int = INT_MAX) -> None:
    holds = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    check(name, value, holds, f"a number from {least} to {most}")


def check_number(name: str, value: object) -> None:
    """Of the seconds of a time-out or the milliseconds of a delay."""
    holds = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= INT_MAX // 1000
    check(name, value, holds, f"a number from 0 to {INT_MAX // 1000}")


def check_text(name: str, value: object) -> None:
    check(name, value, isinstance(value, str), "a string")


def as_path(name: str, value: object) -> Path:
    check(name, value, isinstance(value, str | os.PathLike) and bool(os.fspath(value)), "a path")
    assert isinstance(value, str | os.PathLike)
    return Path(value)


def as_text(name: str, values: object) -> dict[str, str]:
    """Settings' values as a server's file has them."""
    holds = isinstance(values, Mapping) and all(isinstance(key, str) for key in values)
    check(name, values, holds, "a dictionary of Kafka's names and their values")
    assert isinstance(values, Mapping)
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}
