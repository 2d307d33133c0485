"""Text for people: numbers with their nouns, and text of any origin without what cannot be seen."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

from odradek_proto.words import noun, plural

__all__ = ["capital", "clock", "count", "noun", "offsets", "plain", "plural", "replicas_have"]

SENTENCE_LIMIT = 900
_UNUSUAL = re.compile("[^ -~]")
_VISIBLE_AS_ESCAPE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that a reader would not see, or that change how the rest is shown."""


def count(number: int) -> str:
    """A number for people."""
    return f"{number:,}"


def offsets(first: int, end: int) -> str:
    """Where [first, end) is: `offset 5`, `offsets 5 to 7`. An end that is not known names the first alone."""
    return f"offsets {first} to {end - 1}" if end > first + 1 else f"offset {first}"


def clock(wall_ms: int) -> str:
    """Milliseconds since 1970 as a time of UTC; empty where a calendar has none."""
    try:
        return f"{datetime.fromtimestamp(wall_ms // 1000, UTC):%Y-%m-%d %H:%M:%S}.{wall_ms % 1000:03}"
    except (OverflowError, ValueError, OSError):
        return ""


def capital(text: str) -> str:
    """A clause as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def replicas_have(replicas: Sequence[str], adverb: str = "") -> str:
    """Who has something: `replica 1 has`, `replicas 1, 3 still have`."""
    number = len(replicas)
    return f"{noun(number, 'replica')} {', '.join(replicas)} {adverb}{noun(number, 'has', 'have')}"


def plain(text: str, limit: int = SENTENCE_LIMIT) -> str:
    """Text with invisible characters as escapes, cut to a length; still to be escaped."""
    cut = text[:limit]
    result = _UNUSUAL.sub(lambda found: _visible(found[0]), cut)
    left = len(text) - len(cut)
    return f"{result}… ({left:,} more)" if left > 0 else result


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _VISIBLE_AS_ESCAPE:
        return character
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
