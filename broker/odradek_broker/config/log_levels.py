"""The broker's loggers by name, and their levels, which may change while it runs (Kafka's BROKER_LOGGER, KIP-412).

A level that was set holds for a logger and those below it until it is unset, and no longer than the process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import cache

ROOT = "odradek"
SERVER, CONTROLLER, QUORUM, REPLICA, SESSION, STORAGE, NETWORK, METRICS, AUDIT = LOGGERS = (
    "odradek.server",
    "odradek.controller",
    "odradek.quorum",
    "odradek.replica",
    "odradek.session",
    "odradek.storage",
    "odradek.network",
    "odradek.metrics",
    "odradek.audit",
)
LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's names, but for TRACE."""
NAMES = {number: name for name, number in LEVELS.items()}
_LOGGERS = {name: logging.getLogger(name) for name in (ROOT, *LOGGERS)}


def level_named(text: str) -> int:
    """A level by its name, in whatever letters; WARNING is WARN. Raises `ValueError`."""
    name = text.strip().upper().replace("WARNING", "WARN")
    if name not in LEVELS:
        raise ValueError(f"a level is one of {', '.join(LEVELS)}, not {text!r}")
    return LEVELS[name]


def levels() -> dict[str, str]:
    """The level that holds for each logger."""
    return {name: _name_of(logger.getEffectiveLevel()) for name, logger in _LOGGERS.items()}


@cache
def _name_of(number: int) -> str:
    """Of the levels that have a name the one that lets the same through."""
    return NAMES[min((level for level in NAMES if level >= number), default=logging.CRITICAL)]


def set_levels(wanted: Mapping[str, str], unset: Iterable[str] = (), *, validate_only: bool = False) -> None:
    """Give loggers levels, and take others' away; all or nothing. Raises `ValueError`."""
    unset = list(unset)
    for name in (*wanted, *unset):
        if name not in _LOGGERS:
            raise ValueError(f"there is no logger {name!r}; there are {', '.join(_LOGGERS)}")
    if ROOT in unset:
        raise ValueError(f"the logger {ROOT} always has a level; set another")
    numbers = {name: level_named(text) for name, text in wanted.items()}
    if validate_only:
        return
    for name in unset:
        _LOGGERS[name].setLevel(logging.NOTSET)
    for name, number in numbers.items():
        _LOGGERS[name].setLevel(number)


def parse_levels(text: str) -> dict[str, str]:
    """`INFO` or `INFO,odradek.quorum=DEBUG` as loggers and their levels. Raises `ValueError`."""
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, level = part.partition("=")
        found[name.strip() if equals else ROOT] = level.strip() if equals else name
    set_levels(found, validate_only=True)
    return found
