"""Plants damage in copies of log directories: so that everybody can see the audit find it.

Never point it at the only copy. Each kind of damage is a function of a partition's directory that changes one thing
and says what the audit must then report: the check, the offset, the epoch. Kinds that need a changed batch to look
whole make its CRC right again. `NEAR_MISSES` has for each kind something that looks much like it, and that a healthy
broker may leave behind.
"""

from __future__ import annotations

import random
from pathlib import Path

from odradek_proto.topics import TopicPartition, partition_directory

from tests.audit.corruption import beside_log as beside_log
from tests.audit.corruption import in_batches as in_batches
from tests.audit.corruption import in_log as in_log
from tests.audit.corruption import in_segments as in_segments
from tests.audit.corruption.kinds import KINDS, NEAR_MISSES, NEEDS_CLEAN_STOP, NEEDS_PRODUCERS
from tests.audit.corruption.near import EVERYWHERE
from tests.audit.corruption.places import NothingToDamage, Planted

__all__ = [
    "EVERYWHERE",
    "KINDS",
    "NEAR_MISSES",
    "NEEDS_CLEAN_STOP",
    "NEEDS_PRODUCERS",
    "NothingToDamage",
    "Planted",
    "plant",
]


def plant(kind: str, log_directory: Path, partition: TopicPartition, rng: random.Random) -> Planted:
    """Damage one partition in a copy of a log directory.

    Raises `NothingToDamage` when the partition is too small for this kind, `KeyError` for an unknown kind, `OSError`.
    """
    return KINDS[kind](log_directory / partition_directory(partition), rng)
