"""What people type, as values: partitions, settings, headers, offsets. What cannot be is a usage error (code 2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from string import ascii_letters
from typing import TYPE_CHECKING, NamedTuple

from odradek_proto.command_line import USAGE, CommandFailed

from odradek.cli.terminal.options import LARGEST_INT32, LARGEST_INT64

MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BYTES = {"b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
         "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30}  # fmt: skip

LONGEST_SHOWN = 40  # digits of a number that is refused

if TYPE_CHECKING:
    from odradek_proto.topics import TopicPartition


def bounded(digits: str, most: int, what: str) -> int:
    """A number that goes over the wire. Raises `CommandFailed` (2) for one that is too large, and names it."""
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(most)) or int(digits) > most:  # Python refuses to read thousands of digits
        raise CommandFailed(f"{what} {shortened(digits)}: at most {most}", exit_code=USAGE)
    return int(digits)


def shortened(digits: str) -> str:
    """A number as an error shows it, however long it is."""
    return digits if len(digits) <= LONGEST_SHOWN else f"{digits[:LONGEST_SHOWN]}..."


def parse_partition(text: str) -> TopicPartition:
    """`orders-0`, as everything prints it and as its directory is called; `orders/0` is taken, too."""
    from odradek_proto.topics import TopicPartition

    topic, _, number = text.rpartition("/" if "/" in text else "-")
    if not topic or not number.isdecimal() or (number.startswith("0") and number != "0"):
        raise CommandFailed(f"{text!r} is no partition", hint="TOPIC-PARTITION, for example orders-0", exit_code=USAGE)
    return TopicPartition(topic, bounded(number, LARGEST_INT32, f"{topic}: partition"))


def unreadable(option: str, path: Path, error: OSError) -> CommandFailed:
    """What to raise for a file that was named and cannot be opened."""
    return CommandFailed(
        f"{option} {path}: {error.strerror or error}", hint="name a file that can be read", exit_code=USAGE
    )


def check_topic_name(name: str) -> None:
    """Raises `CommandFailed` (2) for a name that no topic can have."""
    from odradek_proto.topics import validate_topic_name

    try:
        validate_topic_name(name)
    except ValueError as error:
        raise CommandFailed(str(error), exit_code=USAGE) from None


def check_new_topics(names: Sequence[str]) -> None:
    """The same for topics that are to be made; brokers make their own when they need them."""
    from odradek_proto.topics import INTERNAL_TOPICS

    for name in names:
        check_topic_name(name)
        if name in INTERNAL_TOPICS:
            hint = "the first group that commits has brokers make it; offsets.topic.num.partitions says how large"
            raise CommandFailed(f"{name} is an internal topic", hint=hint, exit_code=USAGE)
    refuse_twice(names)


def refuse_twice(names: Sequence[str]) -> None:
    """Raises `CommandFailed` (2) for a name that was given twice: the second time something else was meant."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise CommandFailed(f"{twice} is named twice", hint="name it once", exit_code=USAGE)


def check_group(name: str) -> None:
    """Raises `CommandFailed` (2) for the empty name, as of a variable that is not set."""
    if not name:
        raise CommandFailed("the name of the group is empty", hint="`odradek group list` shows groups", exit_code=USAGE)


def parse_settings(texts: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` texts as a mapping."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandFailed(f"{option} {text!r}: expected key=value", exit_code=USAGE)
        if key.strip() in found:
            raise CommandFailed(f"{option}: {key.strip()} is given twice", hint="give it once", exit_code=USAGE)
        found[key.strip()] = value.strip()
        _refuse_unit(option, key.strip(), value.strip())
    return found


def _refuse_unit(option: str, key: str, value: str) -> None:
    """As in Kafka, `retention.ms` is a plain number of milliseconds: say which one `7d` would be."""
    factors = {"ms": MILLISECONDS, "bytes": BYTES}.get(key.rpartition(".")[2], {})
    digits = value.rstrip(ascii_letters)
    factor = factors.get(value[len(digits) :].lower())
    if factor is not None and digits.isascii() and digits.isdecimal():
        raise CommandFailed(
            f"{option} {key}={value}: the value is a plain number, as in Kafka",
            hint=f"{key}={int(digits) * factor}" if len(digits) <= LONGEST_SHOWN else "",
            exit_code=USAGE,
        )


class Start(NamedTuple):
    """A place in a log. `kind`: beginning, end, offset, last (so many before the end), time (ms since 1970)."""

    kind: str
    number: int = 0


class ReadSpan(NamedTuple):
    """What is to be read: from a place on, and up to another one, whose record is not read; None: without an end."""

    begin: Start
    end: Start | None = None


def parse_span(text: str) -> ReadSpan:
    """A place, or two with a colon between: `5:10`, `:end`, `@2026-01-31T12:00:@2026-01-31T13:00`.

    Times have colons, too: the first one counts that leaves a place on both sides.
    """
    try:
        return ReadSpan(parse_start(text))
    except CommandFailed as refused:
        for at in (index for index, letter in enumerate(text) if letter == ":"):
            try:
                begin, end = parse_start(text[:at] or "beginning"), parse_start(text[at + 1 :])
            except CommandFailed:
                continue
            if begin.kind != "time" or end.kind in ("time", "end"):  # else it is a time that cannot be
                return ReadSpan(begin, _not_before(begin, end, text))
        hint = f"{PLACES}; or two of them as FROM:TO" if refused.hint == PLACES else refused.hint
        raise CommandFailed(str(refused), hint=hint, exit_code=USAGE) from None


def _not_before(begin: Start, end: Start, text: str) -> Start:
    """Raises `CommandFailed` for an end that surely lies before the beginning."""
    first, last = (begin.number, end.number) if begin.kind != "last" else (end.number, begin.number)
    if begin.kind == end.kind and last < first:
        raise CommandFailed(f"-o {text}: the end lies before the beginning", hint="-o FROM:TO", exit_code=USAGE)
    return end


PLACES = "beginning, end, an offset, -N for the last N records, @2026-01-31T12:00 or @MILLISECONDS"


def parse_start(text: str) -> Start:
    """beginning, end, OFFSET, -N (the last N), @MILLISECONDS or @2026-01-31T12:00."""
    word = text.strip().lower()
    if word in ("beginning", "earliest", "start"):
        return Start("beginning")
    if word in ("end", "latest"):
        return Start("end")
    if word.startswith("@"):
        return Start("time", parse_time(text.strip()[1:], "-o"))
    digits = word.removeprefix("-")
    if not digits.isdecimal():
        raise CommandFailed(f"-o {text!r} is no place in a log", hint=PLACES, exit_code=USAGE)
    return Start("last" if word.startswith("-") else "offset", bounded(digits, LARGEST_INT64, "-o"))


def parse_time(text: str, option: str) -> int:
    """Milliseconds since 1970, as such or in ISO 8601; without an offset it is local time."""
    if text.isdecimal():
        return bounded(text, LARGEST_INT64, f"{option}: the time")
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(
            f"{option} {text!r} is no time",
            hint="milliseconds since 1970, or 2026-01-31T12:00:00+01:00",
            exit_code=USAGE,
        ) from None
    try:
        milliseconds = int(time.timestamp() * 1000)
    except (ValueError, OverflowError):  # the year 1, in local time
        milliseconds = -1
    if milliseconds < 0:
        raise CommandFailed(f"{option} {text!r} is before 1970", hint="records have no such times", exit_code=USAGE)
    return milliseconds


def parse_size(text: str) -> int:
    """Bytes, `16KiB`, `1MiB`."""
    units = {"": 1, "B": 1, "KIB": 1 << 10, "K": 1 << 10, "MIB": 1 << 20, "M": 1 << 20}
    digits = text.strip().rstrip("BKMIbkmi")
    unit = text.strip()[len(digits) :].upper()
    if not digits.isdecimal() or unit not in units:
        raise CommandFailed(f"{text!r} is no size", hint="bytes, or 16KiB, 1MiB", exit_code=USAGE)
    size = bounded(digits, LARGEST_INT32, "size") * units[unit]
    return bounded(str(size), LARGEST_INT32, "size")
