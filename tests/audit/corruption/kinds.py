"""All kinds of damage by name, each with its near miss and with what a log needs that it can be planted in."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.audit.corruption.places import Planted

Damage = Callable[[Path, random.Random], Planted]
NearMiss = Callable[[Path], None]

KINDS: dict[str, Damage] = {}
NEAR_MISSES: dict[str, NearMiss] = {}
NEEDS_PRODUCERS: list[str] = []
"""Kinds for which `sample` writes nothing that could be damaged: idempotent and transactional producers,
compression. A broker's directories have it."""
NEEDS_CLEAN_STOP: list[str] = []
"""Kinds that a kill would explain: a torn tail, a checkpoint that is older than a deletion."""


def kind(
    near_miss: NearMiss, *, needs_producers: bool = False, needs_clean_stop: bool = False
) -> Callable[[Damage], Damage]:
    """A kind of damage, called like its function."""

    def register(damage: Damage) -> Damage:
        name = damage.__name__.replace("_", "-")
        KINDS[name], NEAR_MISSES[name] = damage, near_miss
        if needs_producers:
            NEEDS_PRODUCERS.append(name)
        if needs_clean_stop:
            NEEDS_CLEAN_STOP.append(name)
        return damage

    return register
