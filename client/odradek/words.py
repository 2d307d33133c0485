"""The words that follow numbers, for whoever speaks to people: commands and errors alike. It imports nothing."""

from __future__ import annotations


def noun(count: object, one: str, many: str = "") -> str:
    """The word that follows a number: 1 record, 2 records. `many` where it is more than an s."""
    return one if count == 1 else many or f"{one}s"
