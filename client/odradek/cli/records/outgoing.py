"""What `odradek produce` sends: lines, JSON lines, or records that it makes up itself.

They come in portions: what one read has brought, or so many that others on the loop have their turn. A portion is
iterated once, and lazily where a record may be bad: those before it are sent.

Input is read by a thread of its own, so that a slow pipe or a person at a keyboard holds up nobody; the thread is a
daemon, since a read from a terminal cannot be called off.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
import json
import os
import queue
import select
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final, NamedTuple

from odradek_proto.command_line import CommandFailed

from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.options import LARGEST_INT64

CHUNK_BYTES: Final = 65_536
PORTION: Final = 500  # of the records that are made up
MOST_SHOWN: Final = 80  # characters of what is refused
FIELDS: Final = (
    "value", "value_b64", "key", "key_b64", "headers", "timestamp",
    "topic", "partition", "offset", "leader_epoch",  # `consume -J` prints them; where a record came from is not kept
)  # fmt: skip
HEADER_FIELDS: Final = ("key", "value", "value_b64")
Headers = tuple[tuple[str, bytes | None], ...]


class Outgoing(NamedTuple):
    """One record to be sent. None for partition and timestamp lets the producer choose."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


Portion = Iterable[Outgoing]
_NEW: Final = tuple.__new__  # a call of the class costs as much as all the rest of a record


async def lines_of(file: BinaryIO) -> AsyncIterator[list[bytes]]:
    """The lines of a file or pipe without their newline, by read; a last line may lack it. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    read = _reader(file)
    wishes: queue.SimpleQueue[asyncio.Future[bytes]] = queue.SimpleQueue()

    def settle(wish: asyncio.Future[bytes], chunk: bytes | OSError) -> None:
        if wish.done():
            return
        if isinstance(chunk, OSError):
            wish.set_exception(chunk)
        else:
            wish.set_result(chunk)

    def serve() -> None:
        while True:
            wish = wishes.get()
            chunk: bytes | OSError
            try:
                chunk = read()
            except OSError as error:
                chunk = error
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, wish, chunk)
            if not isinstance(chunk, bytes) or not chunk:
                return

    threading.Thread(target=serve, daemon=True, name="odradek-input").start()
    pieces: list[bytes] = []  # of a line whose end has not been read
    while True:
        wish: asyncio.Future[bytes] = loop.create_future()
        wishes.put(wish)
        chunk = await wish
        if not chunk:
            break
        first, *lines = chunk.split(b"\n")
        pieces.append(first)
        if lines:
            whole, pieces = [b"".join(pieces), *lines[:-1]], lines[-1:]
            yield [line.removesuffix(b"\r") for line in whole] if b"\r" in chunk or whole[0][-1:] == b"\r" else whole
    if rest := b"".join(pieces):
        yield [rest]


def _reader(file: BinaryIO) -> Callable[[], bytes]:
    """What reads the next chunk, empty at the end.

    Where there is a file descriptor it is read past the file object: a thread that waits for a line would hold the
    object's lock, and Python aborts when it ends and cannot have the lock of standard input.
    """
    try:
        descriptor = file.fileno()
    except OSError:  # bytes in memory
        return lambda: file.read(CHUNK_BYTES)

    def read() -> bytes:
        while True:
            try:
                return os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:  # somebody else has set the terminal or pipe to non-blocking
                select.select([descriptor], [], [])

    return read


async def records_of_lines(
    file: BinaryIO, key_separator: str | None, headers: Headers, partition: int | None, key: bytes | None = None
) -> AsyncIterator[Portion]:
    """A record per line. With a separator, what stands before its first occurrence is the key; else it is `key`."""
    separator = key_separator.encode() if key_separator else None
    async for lines in lines_of(file):
        if separator is None:
            yield [_NEW(Outgoing, (key, line, headers, partition, None)) for line in lines]
        else:
            parted = [line.partition(separator) for line in lines]
            yield [Outgoing(own if found else key, value if found else own, headers, partition)
                   for own, found, value in parted]  # fmt: skip


async def records_of_json(file: BinaryIO, headers: Headers, partition: int | None) -> AsyncIterator[Portion]:
    """A record per JSON object: value, key, headers, timestamp; as `odradek consume -J` prints them."""
    number = 1
    async for lines in lines_of(file):
        yield (_from_json(line, at, headers, partition) for at, line in enumerate(lines, number) if line.strip())
        number += len(lines)


def _from_json(line: bytes, number: int, headers: Headers, partition: int | None) -> Outgoing:
    try:
        raw = json.loads(line)
        if not isinstance(raw, dict):
            raise ValueError(f"an object was expected, not {type(raw).__name__}")
        _check_fields(raw, FIELDS)
        return Outgoing(
            _bytes(raw, "key"),
            _bytes(raw, "value"),
            headers + _headers(raw.get("headers") or {}),
            partition,
            _timestamp(raw.get("timestamp")),
        )
    except (ValueError, TypeError, KeyError, binascii.Error, RecursionError) as error:
        why = "lists in lists, too deep to be one" if isinstance(error, RecursionError) else error
        raise CommandFailed(
            f"input line {number} is no record: {why}",
            hint='{"key": "k", "value": "v", "headers": {"h": "x"}, "timestamp": 1735689600000}',
        ) from error


def _check_fields(raw: dict[str, Any], known: Sequence[str]) -> None:
    """Raise `ValueError` for a field that means nothing: a misspelt value must not become a record without one."""
    for name in raw:
        if name not in known:
            raise ValueError(f"there is no field {name!r}{did_you_mean(name, known)} (known: {', '.join(known)})")


def _timestamp(raw: object) -> int | None:
    """Milliseconds since 1970, as a number or a text; -1 is none. Raises `ValueError`."""
    if raw is None:
        return None
    number: object = int(raw) if isinstance(raw, str) and raw.removeprefix("-").isdecimal() else raw
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"the timestamp {json.dumps(raw)[:MOST_SHOWN]} is no whole number of milliseconds since 1970")
    if not -1 <= number <= LARGEST_INT64:
        raise ValueError(f"the timestamp {raw} is not between -1 and {LARGEST_INT64}")
    return number


def _headers(own: object) -> Headers:
    """Of an object, or of a list of objects where a name may come twice. Raises `ValueError`, `TypeError`."""
    if isinstance(own, dict):
        return tuple((_header_name(name), _as_bytes(content)) for name, content in own.items())
    if not isinstance(own, list) or not all(isinstance(item, dict) for item in own):
        raise ValueError("headers are an object, or a list of objects with key and value")
    for item in own:
        _check_fields(item, HEADER_FIELDS)
    return tuple((_header_name(item["key"]), _bytes(item, "value")) for item in own)


def _header_name(raw: object) -> str:
    """Raises `ValueError` for half of a surrogate pair, which JSON can write and UTF-8 cannot."""
    name = str(raw)
    name.encode()
    return name


def _bytes(raw: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_b64" in raw:
        return base64.b64decode(raw[f"{name}_b64"], validate=True)
    return _as_bytes(raw.get(name))


def _as_bytes(value: object) -> bytes | None:
    """Text as UTF-8, null as nothing, other JSON values as their JSON text."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, separators=(",", ":")).encode()


async def one_record(record: Outgoing) -> AsyncIterator[Portion]:
    """This one alone."""
    yield [record]


async def generated_records(
    count: int, size: int, headers: Headers, partition: int | None, key: bytes | None = None
) -> AsyncIterator[Portion]:
    """`count` records of `size` bytes each (0: without end), a number and a pattern behind it: different ones where
    there is room."""
    filling = (b"abcdefghijklmnopqrstuvwxyz0123456789" * (size // 36 + 1))[:size]
    first = 0
    while not count or first < count:
        end = first + PORTION if not count else min(first + PORTION, count)
        numbers = range(first, end)
        yield (_NEW(Outgoing, (key, (b"%d " % each + filling)[:size], headers, partition, None)) for each in numbers)
        first = end


async def until(seconds: float, source: AsyncIterator[Portion]) -> AsyncIterator[Portion]:
    """What a source gives within so long."""
    end = time.monotonic() + seconds
    async for portion in source:
        yield itertools.takewhile(lambda _: time.monotonic() < end, portion)
        if time.monotonic() >= end:
            return


def parse_headers(texts: Sequence[str]) -> Headers:
    """`name=value` texts."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandFailed(f"--headers {text!r}: expected name=value", exit_code=2)
        found.append((name, value.encode()))
    return tuple(found)
