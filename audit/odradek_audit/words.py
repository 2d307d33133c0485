"""Numbers and the words that follow them."""

from __future__ import annotations


def plural(number: int, one: str, many: str = "") -> str:
    """1 record, 2,000 records. `many` where it is more than an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
