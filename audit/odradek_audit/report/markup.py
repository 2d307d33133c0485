"""Text of any origin as HTML and SVG. Every byte of a page goes through `tag` or `shown`.

Topic names, keys, values, file names are what somebody wrote into a log: they may hold tags, quotes, control
characters, characters that reverse the direction of writing, and a megabyte of each. So a plain `str` is always
escaped and cut; only what this module made (`SafeMarkup`) goes in as it is. Names of tags and attributes come from our
own code alone.
"""

from __future__ import annotations

import shlex
from html import escape

from odradek_audit.words import SENTENCE_LIMIT, clock, plain, plural

NAME_LIMIT = 160
COMMAND_LIMIT = 600
_VOID = frozenset({"meta", "link", "br"})


class SafeMarkup(str):
    """Markup that needs no escaping any more."""

    __slots__ = ()


def plain_bytes(content: bytes) -> str:
    """Bytes as text where they are UTF-8, and as escapes where they are not."""
    return plain(content.decode("utf-8", "backslashreplace"), limit=len(content) * 4 + 1)


def shown(value: object, limit: int = SENTENCE_LIMIT) -> SafeMarkup:
    """Any value as escaped text."""
    if isinstance(value, SafeMarkup):
        return value
    return SafeMarkup(escape(plain(str(value), limit), quote=True))


def join(*parts: object, separator: str = "") -> SafeMarkup:
    """Several pieces as one; plain strings among them are escaped."""
    return SafeMarkup(separator.join(shown(part) for part in parts))


def tag(element: str, /, *content: object, **attributes: object) -> SafeMarkup:
    """An element. `class_` is written as `class`, `view_box` as `viewBox`, other underscores as hyphens; an attribute
    of None or False is left out, one of True has no value."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if element in _VOID:
        return SafeMarkup(f"<{element}{written}>")
    return SafeMarkup(f"<{element}{written}>{join(*content)}</{element}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = "viewBox" if key == "view_box" else key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{shown(value)}"'


def head(*titles: object) -> SafeMarkup:
    """The head of a table with a title for each column."""
    return tag("thead", tag("tr", *(tag("th", title, scope="col") for title in titles)))


def scrolling(label: str, content: SafeMarkup) -> SafeMarkup:
    """A table that may be wider than the screen; it can be reached and scrolled by keyboard."""
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def name(text: str) -> SafeMarkup:
    """A name out of a log directory, set apart so that right-to-left letters in it move nothing else."""
    return tag("bdi", shown(text, NAME_LIMIT))


def code(text: object) -> SafeMarkup:
    return tag("code", shown(text, NAME_LIMIT))


def command(*words: str) -> SafeMarkup:
    """A command as a shell takes it, broken into lines only between its words."""
    said = shown(shlex.join(words), COMMAND_LIMIT).split(" ")
    return tag("code", join(*(tag("span", SafeMarkup(word)) for word in said), separator=" "), class_="command")


def instant(milliseconds: int) -> str:
    """Milliseconds since 1970 as they are, and in UTC where there is such a time."""
    if milliseconds < 0:
        return f"{milliseconds} (none)" if milliseconds == -1 else f"{milliseconds}"
    time = clock(milliseconds)
    return f"{milliseconds} ({time} UTC)" if time else f"{milliseconds}"


def size(number: int) -> str:
    """A number of bytes for people."""
    if number < 10_000:
        return plural(number, "byte")
    for unit, divisor in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if number < divisor * 1000 or unit == "GB":
            return f"{number / divisor:,.1f} {unit}"
    raise AssertionError(number)
