"""How `odradek consume` prints a record: kcat's percent format, or JSON lines.

%t topic   %p partition   %o offset   %k key   %v value   %s value   %h headers   %T timestamp in ms
%e leader epoch   %K key's length   %S value's length   %% a percent sign   \\n \\t \\0 as usual
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from odradek_proto.command_line import USAGE, CommandFailed, text_or_base64

from odradek import ConsumerRecord
from odradek.cli.terminal.screen import as_line

Record = ConsumerRecord[bytes | None, bytes | None]
Part = Callable[[Record], bytes]
ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value if value is not None else b"NULL") for name, value in record.headers)


def _length(value: bytes | None) -> bytes:
    return b"%d" % (-1 if value is None else len(value))


PARTS: Final[dict[str, Part]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "h": _headers,
    "T": lambda record: b"%d" % record.timestamp,
    "e": lambda record: b"%d" % record.leader_epoch,
    "K": lambda record: _length(record.key),
    "S": lambda record: _length(record.value),
}


def compile_format(text: str) -> Part:
    """A function from a record to its bytes. Raises `CommandFailed` (2) for a letter that means nothing."""
    parts: list[Part | bytes] = []
    for piece in re.findall(r"%.|\\.|[^%\\]+|%$|\\$", text, re.DOTALL):
        if piece == "%%":
            parts.append(b"%")
        elif piece[0] == "%" and piece[1:] in PARTS:
            parts.append(PARTS[piece[1:]])
        elif piece[0] == "%":
            known = " ".join(f"%{letter}" for letter in PARTS)
            raise CommandFailed(
                f"-f: {piece!r} means nothing", hint=f"{known} and %% for a percent sign", exit_code=USAGE
            )
        elif piece[0] == "\\":
            parts.append(ESCAPES.get(piece[1:], piece.encode()))
        else:
            parts.append(piece.encode())
    return lambda record: b"".join([part if isinstance(part, bytes) else part(record) for part in parts])


def json_line(record: Record) -> bytes:
    """A record as one JSON object; bytes that are no UTF-8 stand in `key_b64` and `value_b64`."""
    facts: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "leader_epoch": record.leader_epoch,
        **text_or_base64("key", record.key),
        **text_or_base64("value", record.value),
    }
    if record.headers:
        facts["headers"] = [{"key": name, **text_or_base64("value", value)} for name, value in record.headers]
    return as_line(facts).encode() + b"\n"
