"""Numbers and the words that follow them, in what people read: commands, reports, errors. It imports nothing."""

from __future__ import annotations


def noun(count: object, one: str, many: str = "") -> str:
    """The word that follows a number: record for 1, records for 2. `many` where it is more than an s."""
    return one if count == 1 else many or f"{one}s"


def plural(number: int, one: str, many: str = "") -> str:
    """The number and its word: 1 record, 2,000 records."""
    return f"{number:,} {noun(number, one, many)}"
