"""What clients were told: the history of a run, one JSON object a line.

    {"type": "send", "topic": "orders", "partition": 0, "value": "w1-17", "client": "w1", "time_ms": 12, "acks": "all"}
    {"type": "ack", "topic": "orders", "partition": 0, "value": "w1-17", "client": "w1", "time_ms": 19, "acks": "all",
     "offset": 42, "epoch": 3}
    {"type": "error", "topic": "orders", "partition": 0, "value": "w1-18", "client": "w1", "time_ms": 95,
     "definite": false}
    {"type": "deliver", "topic": "orders", "partition": 0, "value": "w1-17", "client": "r1", "time_ms": 31,
     "offset": 42}

Rules of the format. A producer writes `send` before the record leaves it, then `ack` or `error`; a line that is missing
at the end of the file was not yet known, and a half-written last line is ignored. Values are unique in their topic,
tombstones (`"value": null`) aside. A value that is no UTF-8 stands in `value_b64` instead of `value`, a key in
`key_b64` instead of `key`; of a compacted topic a history without keys says nothing below where the cleaner has been.
`partition` may be left out, or null, in a `send` whose partition was not chosen yet. An `ack` whose offset is not known
has none, or -1. `acks` is "all" or -1, 1, or 0, as a number or as text; "all" when absent. `definite` says that the
record was certainly not written; when it is false or absent nobody knows. `time_ms` is the client's clock; where it is
milliseconds since 1970 the audit can tell the longest silences beside what the brokers wrote down. Fields that are not
named here are kept by nobody and harm nobody: `epoch`, causes, settings. A value that a field cannot have is refused
and never read as another one: an unknown `acks` taken for 0 would hide what was lost.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek_proto.command_line import text_or_base64

SEND, ACK, ERROR, DELIVER = "send", "ack", "error", "deliver"
TYPES = (SEND, ACK, ERROR, DELIVER)
TYPE, TOPIC, PARTITION, OFFSET, EPOCH = "type", "topic", "partition", "offset", "epoch"
ISOLATION = "isolation"
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"
VALUE, VALUE_B64, KEY, KEY_B64, ACKS, TIME_MS, CLIENT, DEFINITE = (
    "value",
    "value_b64",
    "key",
    "key_b64",
    "acks",
    "time_ms",
    "client",
    "definite",
)
ACKS_ALL, ACKS_LEADER, ACKS_NONE = "all", 1, 0
_ACKS: dict[str | int, str | int] = {
    **dict.fromkeys((ACKS_ALL, -1, "-1"), ACKS_ALL),
    **dict.fromkeys((1, "1"), ACKS_LEADER),
    **dict.fromkeys((0, "0"), ACKS_NONE),
}
NO_PARTITION, NO_OFFSET = -1, -1
LARGEST_PARTITION = (1 << 31) - 1
LARGEST_OFFSET = (1 << 63) - 2
"""An int64 as in Kafka, and so is the exclusive end behind it."""
DIGEST_BYTES = 16


WALL_MS = 1_000_000_000_000
"""Times from here on are taken for milliseconds since 1970; others are some other clock's."""
SHORTEST_SILENCE_MS, SILENCES_KEPT = 200, 3


class CorruptHistory(ValueError):
    """A line of a history is not what this module describes."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"history, line {line}: {reason}")
        self.reason = reason
        self.line = line


class Event(NamedTuple):
    """One line. `value` is bytes; `partition`, `offset` and `epoch` are -1 when the line has none."""

    type: str
    topic: str
    partition: int
    value: bytes
    offset: int = -1
    acks: str | int = ACKS_ALL
    client: str = ""
    time_ms: int = 0
    definite: bool = False
    line: int = 0
    key: bytes | None = None
    tombstone: bool = False
    """The record has no value (null), and `value` is empty."""
    isolation: str = ""
    """Which records the consumer reads: `read_committed`, `read_uncommitted`, or it does not say."""

    @property
    def content(self) -> bytes | None:
        """The record's value."""
        return None if self.tombstone else self.value


def encode_event(event: Event) -> str:
    """The line of an event, without its newline."""
    raw: dict[str, Any] = {TYPE: event.type, TOPIC: event.topic}
    if event.partition != NO_PARTITION:
        raw[PARTITION] = event.partition
    if event.key is not None:
        raw |= text_or_base64(KEY, event.key)
    raw |= {VALUE: None} if event.tombstone else text_or_base64(VALUE, event.value)
    raw |= {CLIENT: event.client, TIME_MS: event.time_ms}
    if event.type in (SEND, ACK):
        raw[ACKS] = event.acks
    if event.type in (ACK, DELIVER):
        raw[OFFSET] = event.offset
    if event.isolation:
        raw[ISOLATION] = event.isolation
    if event.type == ERROR:
        raw[DEFINITE] = event.definite
    return json.dumps(raw, ensure_ascii=False)


def decode_event(text: str, line: int) -> Event:
    """Read one line. Raises `CorruptHistory`."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptHistory(f"no JSON: {error}", line) from error
    if not isinstance(raw, dict) or raw.get(TYPE) not in TYPES or not isinstance(raw.get(TOPIC), str):
        raise CorruptHistory(f"needs a type of {', '.join(TYPES)} and a topic", line)
    partition = NO_PARTITION if raw.get(PARTITION) is None else _number_of(raw, PARTITION, LARGEST_PARTITION, line)
    offset = _number_of(raw, OFFSET, LARGEST_OFFSET, line) if OFFSET in raw else NO_OFFSET
    if raw[TYPE] in (ACK, DELIVER) and partition == NO_PARTITION:
        raise CorruptHistory(f"an event of type {raw[TYPE]} needs a partition", line)
    if raw[TYPE] == DELIVER and offset == NO_OFFSET:
        raise CorruptHistory("a delivered record needs its offset", line)
    return Event(
        raw[TYPE],
        _text_of(raw, TOPIC, line),
        partition,
        _bytes_of(raw, VALUE, VALUE_B64, line) or b"",
        offset,
        _acks_of(raw, line),
        _text_of(raw, CLIENT, line),
        _time_of(raw, line),
        raw.get(DEFINITE) is True,
        line,
        _bytes_of(raw, KEY, KEY_B64, line),
        _is_tombstone(raw, line),
        _isolation_of(raw, line),
    )


def _isolation_of(raw: dict[str, Any], line: int) -> str:
    isolation = raw.get(ISOLATION, "")
    if isolation not in ("", READ_COMMITTED, READ_UNCOMMITTED):
        raise CorruptHistory(f"isolation is {READ_COMMITTED} or {READ_UNCOMMITTED}", line)
    return str(isolation)


def _number_of(raw: dict[str, Any], name: str, largest: int, line: int) -> int:
    """A partition or an offset; -1 says that it is not known."""
    number = raw[name]
    if type(number) is not int:
        raise CorruptHistory("partition and offset are integers", line)
    if not -1 <= number <= largest:
        raise CorruptHistory(f"no {name} is below 0 (-1: not known) or above {largest}", line)
    return number


def _text_of(raw: dict[str, Any], name: str, line: int) -> str:
    text = str(raw.get(name, ""))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CorruptHistory(f"its {name} cannot be written as UTF-8", line) from error
    return text


def _acks_of(raw: dict[str, Any], line: int) -> str | int:
    acks = raw.get(ACKS, ACKS_ALL)
    if type(acks) not in (str, int) or acks not in _ACKS:
        raise CorruptHistory('acks is "all" or -1, 1, or 0', line)
    return _ACKS[acks]


def _time_of(raw: dict[str, Any], line: int) -> int:
    time = raw.get(TIME_MS)
    if not isinstance(time, int | float):
        return 0
    if isinstance(time, float) and not math.isfinite(time):
        raise CorruptHistory("time_ms is not finite", line)
    return int(time)


def _bytes_of(raw: dict[str, Any], name: str, encoded_name: str, line: int) -> bytes | None:
    text, encoded = raw.get(name), raw.get(encoded_name)
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise CorruptHistory(f"{encoded_name}: {error}", line) from error
    return None


def _is_tombstone(raw: dict[str, Any], line: int) -> bool:
    if isinstance(raw.get(VALUE), str) or isinstance(raw.get(VALUE_B64), str):
        return False
    if VALUE not in raw or raw[VALUE] is not None:
        raise CorruptHistory("an event needs a value (null for a tombstone) or value_b64", line)
    return True


def read_events(path: str | Path) -> Iterator[Event]:
    """Events of a file, in its order. Raises `CorruptHistory` and `OSError`; a last line without newline that is no
    JSON is ignored."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        yield from decoded(file, 1)


def decoded(lines: Iterable[str], first: int) -> Iterator[Event]:
    """Events of lines, of which the first has this number. Raises `CorruptHistory`."""
    for number, text in enumerate(lines, start=first):
        if text.strip() and not is_torn(text):
            yield decode_event(text, number)


def is_torn(text: str) -> bool:
    """Whether a line was cut short by a crash: it has no newline, and is not whole."""
    return not text.endswith("\n") and not _is_json(text)


def _is_json(text: str) -> bool:
    """Whether a line is whole: no part of an object is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def value_digest(value: bytes | None) -> bytes:
    """A short stand-in for a record's value: 16 bytes, so that a million values fit into memory."""
    return blake2b(b"\0" if value is None else b"\1" + value, digest_size=DIGEST_BYTES).digest()


class AcknowledgementGap(NamedTuple):
    """Nobody was acknowledged anything of a partition for so long, though records waited. Wall times."""

    length_ms: int
    began_ms: int
    topic: str
    partition: int


class _Waiting:
    """How long a partition keeps its producers waiting: from the first record, or an acknowledgement, to the next."""

    def __init__(self, topic: str, partition: int) -> None:
        self.longest: list[AcknowledgementGap] = []
        self._place = topic, partition
        self._waiting = 0
        self._since_ms = 0

    def on_send(self, time_ms: int) -> None:
        if not self._waiting:
            self._since_ms = time_ms
        self._waiting += 1

    def on_outcome(self, time_ms: int, *, acknowledged: bool) -> None:
        self._waiting = max(self._waiting - 1, 0)
        length_ms = time_ms - self._since_ms
        if length_ms >= SHORTEST_SILENCE_MS and self._since_ms and (acknowledged or not self._waiting):
            kept = sorted([*self.longest, AcknowledgementGap(length_ms, self._since_ms, *self._place)], reverse=True)
            self.longest = kept[:SILENCES_KEPT]
        if acknowledged:
            self._since_ms = time_ms


@dataclass
class PartitionHistory:
    """A history's events of one partition, values as digests."""

    topic: str
    partition: int
    sent: dict[bytes, int] = field(default_factory=dict)
    """How many times each value was sent to this partition, or to the topic with the partition open."""
    acknowledged: list[tuple[int, bytes, str, int]] = field(default_factory=list)
    """(offset, value, client, line) of acks=all acknowledgements that name their offset."""
    acknowledged_anywhere: list[tuple[bytes, str, int]] = field(default_factory=list)
    """(value, client, line) of acks=all acknowledgements without an offset (duplicates that the broker had seen
    before)."""
    acknowledged_by_leader: list[tuple[int, bytes, str, int]] = field(default_factory=list)
    """(offset, value, client, line) of acks=1 acknowledgements: nothing is owed, and people ask."""
    acknowledged_by_leader_anywhere: list[tuple[bytes, str, int]] = field(default_factory=list)
    """(value, client, line) of acks=1 acknowledgements without an offset."""
    delivered: list[tuple[int, bytes, str, int]] = field(default_factory=list)
    delivered_committed: list[tuple[int, bytes, str, int]] = field(default_factory=list)
    """Those of them that went to consumers which read committed records alone."""
    failed: dict[bytes, int] = field(default_factory=dict)
    """Values whose send definitely failed, with the line."""
    order: list[tuple[str, int, bytes, int, int]] = field(default_factory=list)
    """(client, offset, value, line of the send, line of the ack) of every acks=all acknowledgement with an offset, in
    the order of the sends. A new leader may give the place of an acks=1 record again to a later one."""
    ack_times: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """When each (offset, value) was acknowledged, where the clients' times are those of a wall clock: a new leader may
    have given the offset of a lost record to another one."""
    keys: dict[int, bytes] = field(default_factory=dict)
    """Digests of the keys of acknowledged and delivered records, by offset, where the history has keys; the key of an
    acks=1 record only where nobody was told of another one at its offset."""
    labels: dict[bytes, str] = field(default_factory=dict)
    """The first characters of acknowledged and delivered values, for sentences."""

    @property
    def acknowledged_end(self) -> int:
        return max((offset for offset, *_ in self.acknowledged), default=-1) + 1

    @property
    def delivered_end(self) -> int:
        return max((offset for offset, *_ in self.delivered), default=-1) + 1


class History:
    """The events of a run by partition."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.partitions: dict[tuple[str, int], PartitionHistory] = {}
        self.open_sends: dict[str, dict[bytes, int]] = {}
        self.open_failures: dict[str, dict[bytes, int]] = {}
        self.count = 0
        self._send_lines: dict[tuple[str, int, bytes], int] = {}
        self.told_silences: list[AcknowledgementGap] = []
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        for event in events:
            self.add(event)

    @classmethod
    def read(cls, path: str | Path) -> History:
        """Read a file. Raises `CorruptHistory` and `OSError`."""
        return cls(read_events(path))

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.partitions} | set(self.open_sends))

    def of(self, topic: str, partition: int) -> PartitionHistory:
        """What is known of one partition; empty when nothing is."""
        found = self.partitions.get((topic, partition)) or PartitionHistory(topic, partition)
        open_failures = self.open_failures.get(topic)
        return replace(found, failed=open_failures | found.failed) if open_failures else found

    def sent_to(self, topic: str, partition: int) -> dict[bytes, int]:
        """How often each value was sent where it could reach the partition."""
        counts = dict(self.open_sends.get(topic, {}))
        for digest, count in self.of(topic, partition).sent.items():
            counts[digest] = counts.get(digest, 0) + count
        return counts

    @property
    def silences(self) -> list[AcknowledgementGap]:
        """The longest of the run, the longest first, as far as the clients' times are those of a wall clock."""
        every = [silence for waiting in self._waiting.values() for silence in waiting.longest]
        return sorted([*every, *self.told_silences], reverse=True)[:SILENCES_KEPT]

    def _listen(self, event: Event) -> None:
        if event.time_ms < WALL_MS or event.partition == NO_PARTITION or event.type == DELIVER:
            return
        key = (event.topic, event.partition)
        waiting = self._waiting.setdefault(key, _Waiting(*key))
        if event.type == SEND:
            waiting.on_send(event.time_ms)
        else:
            waiting.on_outcome(event.time_ms, acknowledged=event.type == ACK)

    def pass_by(self, event: Event) -> None:
        """Count an event that somebody else keeps."""
        self.count += 1
        self._listen(event)

    def add(self, event: Event) -> None:
        digest = value_digest(event.content)
        self.pass_by(event)
        line = event.line or self.count
        if event.type == SEND and event.partition == NO_PARTITION:
            sends = self.open_sends.setdefault(event.topic, {})
            sends[digest] = sends.get(digest, 0) + 1
            self._send_lines[event.topic, event.partition, digest] = line
            return
        if event.partition == NO_PARTITION:
            if event.definite:
                self.open_failures.setdefault(event.topic, {})[digest] = line
            return
        key = (event.topic, event.partition)
        partition = self.partitions.setdefault(key, PartitionHistory(*key))
        if event.key is not None and event.offset >= 0:
            known = partition.keys.get(event.offset) if event.acks == ACKS_LEADER else None
            partition.keys[event.offset] = known or value_digest(event.key)
        if event.type == SEND:
            partition.sent[digest] = partition.sent.get(digest, 0) + 1
            self._send_lines[event.topic, event.partition, digest] = line
        elif event.type == ERROR and event.definite:
            partition.failed[digest] = line
        elif event.type == DELIVER:
            told = (event.offset, digest, event.client, line)
            partition.delivered.append(told)
            if event.isolation == READ_COMMITTED:
                partition.delivered_committed.append(told)
            partition.labels[digest] = _label(event.content)
        elif event.type == ACK:
            self._acknowledge(partition, event, digest, line)

    def _acknowledge(self, partition: PartitionHistory, event: Event, digest: bytes, line: int) -> None:
        partition.labels[digest] = _label(event.content)
        if event.acks not in (ACKS_ALL, ACKS_LEADER):
            return
        owed = event.acks == ACKS_ALL
        if event.time_ms >= WALL_MS and event.offset >= 0:
            partition.ack_times[event.offset, digest] = event.time_ms
        if event.offset >= 0 and owed:
            free = self._send_lines.get((event.topic, NO_PARTITION, digest), line)
            sent_at = self._send_lines.get((event.topic, event.partition, digest), free)
            partition.order.append((event.client, event.offset, digest, sent_at, line))
        if event.offset >= 0:
            named = partition.acknowledged if owed else partition.acknowledged_by_leader
            named.append((event.offset, digest, event.client, line))
        else:
            unnamed = partition.acknowledged_anywhere if owed else partition.acknowledged_by_leader_anywhere
            unnamed.append((digest, event.client, line))


def _label(value: bytes | None) -> str:
    return "null" if value is None else value[:40].decode("utf-8", "replace")
