"""Values: small classes whose instances never change. Messages, events, effects, settings.

    class Truncate(Value, frozen=True):
        offset: int

They are what frozen, slotted dataclasses are, and are made by msgspec in C: a class takes 12 us to create instead of
half a millisecond, which is a quarter of a broker's start, and an instance 0.1 us instead of 0.6, which every record
batch pays a dozen times. Type checkers know them; they compare, hash, print and match as dataclasses do.
`frozen=True` stands at every class, because type checkers want to read it there.
See docs/decisions/0007-values.md for the figures.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

__all__ = ["Value", "field", "replace"]


class Value(Struct, frozen=True):
    """Base of every value. Fields are annotations, in the order of the positional arguments; defaults last."""
