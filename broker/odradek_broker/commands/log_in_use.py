"""A word about log directories that brokers are using while they are read: files change meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from odradek_proto.transport.lock_holders import holder_of

MOST_NAMED = 3


def warn_of_brokers_at_work(partitions: Iterable[Path]) -> list[str]:
    """Say on standard error which brokers are using these partitions' log directories; returns the directories."""
    holders = {place: holder_of(place) for place in sorted({each.resolve().parent for each in partitions})}
    used = {str(place): process for place, process in holders.items() if process is not None}
    if used:
        named = [f"process {process} uses {place}" for place, process in used.items()]
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        print(
            f"odradek: brokers are running on what is read ({', '.join(named[:MOST_NAMED])}{more}): the ends of the "
            "logs may be moving; stop the brokers first, or look at copies that were made while they were stopped",
            file=sys.stderr,
        )
    return [*used]
