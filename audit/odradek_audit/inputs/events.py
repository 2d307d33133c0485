"""What brokers wrote down about themselves, as far as it explains a finding: `odradek-events.jsonl` (docs/events.md).

Rules of this module. An event makes no finding and takes none away; `evidence.story` tells them. A line that cannot
be read is passed over. What a broker could not write is counted, and then said, so that nobody takes silence for an
answer. Kafka's directories have no such file. Faults that somebody injected on purpose stand beside it, in
`odradek-faults.jsonl`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from odradek_audit.inputs.disk import FileSystem, join
from odradek_audit.inputs.facts import METADATA_TOPIC

EVENTS_FILE = "odradek-events.jsonl"
OLDER_EVENTS_FILE = EVENTS_FILE + ".1"
FAULTS_FILE = "odradek-faults.jsonl"
LARGEST_READ = 16 * 1024 * 1024
"""The end of a longer file is read; what comes before it, and before an older file, counts as not read."""
LARGEST_FAULTS = 1024 * 1024
KEPT = 1000
PROGRESS_KEPT = 50_000
LISTED = 20  # brokers of an ISR
PRESENCE = {
    "broker_fencing": "is fenced by the controller",
    "broker_leaving": "begins a controlled shutdown",
    "unfenced": "takes part",
}
FAULTS = {
    "kill": "is killed",
    "stop": "is told to stop",
    "pause": "is frozen",
    "resume": "is thawed",
    "start": "is started",
    "slow": "is made to fetch late",
    "heal": "fetches as before",
}
RETURNS = frozenset({PRESENCE["unfenced"], FAULTS["resume"], FAULTS["start"], FAULTS["heal"]})
_OF_INTEREST = (
    b"truncated",
    b"leader_chosen",
    b"leader_elected",
    b"isr_changed",
    b"events_missing_before",
    b'"fault"',
    b'"progress"',
    *(name.encode() for name in PRESENCE),
)


@dataclass(frozen=True)
class Truncation:
    """A replica was about to cut the offsets [start, end) from its log: to follow `leader` in `epoch`. The last record
    was of `last_epoch`; -1 where the event does not say. `wall_ms` is the broker's own time."""

    partition: str
    start: int
    end: int
    epoch: int
    rule: str
    leader: int = -1
    last_epoch: int = -1
    wall_ms: int = -1
    high_watermark: int = -1


@dataclass(frozen=True)
class Election:
    """A controller chose a leader of a partition, from outside of the ISR if `unclean`."""

    partition: str
    leader: int
    epoch: int
    unclean: bool = False
    wall_ms: int = -1
    start_offset: int = -1
    """Where its epoch began in the leader's own log; a controller does not know it."""


@dataclass(frozen=True)
class IsrChange:
    """A leader took over another ISR."""

    partition: str
    before: tuple[int, ...]
    to: tuple[int, ...]
    wall_ms: int = -1


@dataclass(frozen=True)
class BrokerPresence:
    """What became of a broker's part in the cluster, as the controller or itself says it, or what was done to it on
    purpose (`injected`); `reason` may be empty."""

    broker: int
    what: str
    reason: str = ""
    wall_ms: int = -1
    injected: bool = False


class ReplicaProgress(NamedTuple):
    """How far a broker's replica was, at a moment."""

    partition: str
    wall_ms: int
    log_end_offset: int
    high_watermark: int


@dataclass(frozen=True)
class BrokerEvents:
    """The events of one broker, and what was done to it on purpose. `missing` counts those that it could not write;
    `cut` says that the file is longer; without `found` there is no such file."""

    lines: int = 0
    missing: int = 0
    cut: bool = False
    truncations: tuple[Truncation, ...] = ()
    elections: tuple[Election, ...] = ()
    leaderships: tuple[Election, ...] = ()
    """Leader epochs in which this broker itself led; whether an election was unclean they do not say."""
    isr_changes: tuple[IsrChange, ...] = ()
    presences: tuple[BrokerPresence, ...] = ()
    progress: tuple[ReplicaProgress, ...] = ()
    """The newest `PROGRESS_KEPT`, in their order."""
    found: bool = True


def read_broker_events(disk: FileSystem, directory: str) -> BrokerEvents | None:
    """The events beside a broker's logs, and injected faults; None where there are neither."""
    faults = _gather(_faults(disk, directory), cut=False).presences
    faults = tuple(each for each in faults if each.injected)
    nothing = BrokerEvents(presences=faults, found=False) if faults else None
    path, older = join(directory, EVENTS_FILE), join(directory, OLDER_EVENTS_FILE)
    try:
        if not disk.is_file(path):
            return nothing
        content, cut = _end_of(disk, path, LARGEST_READ)
        if disk.is_file(older):
            content, cut = _end_of(disk, older, LARGEST_READ - len(content))[0] + content, True
    except OSError:
        return nothing
    lines = content.split(b"\n")
    events = _gather(lines[1:] if cut else lines, cut=cut)
    return replace(events, presences=(*faults, *events.presences))


def _faults(disk: FileSystem, directory: str) -> list[bytes]:
    path = join(directory, FAULTS_FILE)
    try:
        return _end_of(disk, path, LARGEST_FAULTS)[0].splitlines() if disk.is_file(path) else []
    except OSError:
        return []


def _end_of(disk: FileSystem, path: str, length: int) -> tuple[bytes, bool]:
    """At most so many bytes from the end of a file, and whether it has more."""
    size = disk.size(path)
    start = max(0, size - length)
    return disk.read(path, start, size - start), start > 0


def _gather(lines: Iterable[bytes], *, cut: bool) -> BrokerEvents:
    count = missing = 0
    kept: dict[type, list[Truncation | Election | IsrChange | BrokerPresence]] = {}
    leaderships: list[Election] = []
    progress: deque[ReplicaProgress] = deque(maxlen=PROGRESS_KEPT)
    for line in lines:
        count += bool(line)
        if not any(name in line for name in _OF_INTEREST):
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        missing += max(0, _number(event, "events_missing_before", 0))
        if event.get("event") == "progress":
            progress.extend(_progress(event))
        elif event.get("event") == "leader_elected" and "partition" in event:
            broker, epoch, wall_ms = (_number(event, key) for key in ("broker", "leader_epoch", "wall_ms"))
            start = _number(event, "epoch_start_offset")
            leaderships.append(Election(_partition(event), broker, epoch, wall_ms=wall_ms, start_offset=start))
        elif (read := _read(event)) is not None:
            kept.setdefault(type(read), []).append(read)
    truncations, elections, isr_changes, presences = (
        tuple(kept.get(kind, ())[-KEPT:]) for kind in (Truncation, Election, IsrChange, BrokerPresence)
    )
    told: Any = (truncations, elections, tuple(leaderships[-KEPT:]), isr_changes, presences, tuple(progress))
    return BrokerEvents(count, missing, cut, *told)


def _progress(event: Mapping[str, Any]) -> Iterator[ReplicaProgress]:
    offsets, wall_ms = event.get("offsets"), _number(event, "wall_ms")
    for partition, marks in offsets.items() if isinstance(offsets, dict) else ():
        if isinstance(marks, list) and len(marks) == 2 and all(type(mark) is int for mark in marks):
            yield ReplicaProgress(partition[:300], wall_ms, *marks)


def _read(event: Mapping[str, Any]) -> Truncation | Election | IsrChange | BrokerPresence | None:
    """One event, if it is of a kind that is kept."""
    wall_ms = _number(event, "wall_ms")
    match event.get("event"):
        case "truncated":
            start, end, epoch = (_number(event, key) for key in ("to", "from", "leader_epoch"))
            leader, last_epoch, mark = (_number(event, key) for key in ("leader", "last_epoch", "high_watermark"))
            rule = str(event.get("rule", ""))[:20]
            if "partition" not in event:  # a node's metadata log
                end, epoch = (_number(event, key) for key in ("leo", "epoch"))
                return Truncation(f"{METADATA_TOPIC}-0", start, end, epoch, rule, wall_ms=wall_ms)
            return Truncation(_partition(event), start, end, epoch, rule, leader, last_epoch, wall_ms, mark)
        case "leader_chosen":
            partition = f"{str(event.get('topic', ''))[:300]}-{_number(event, 'partition')}"
            leader, epoch = (_number(event, key) for key in ("leader", "leader_epoch"))
            return Election(partition, leader, epoch, event.get("unclean") is True, wall_ms)
        case "isr_changed" if "partition" in event:
            return IsrChange(_partition(event), _brokers(event, "from"), _brokers(event, "to"), wall_ms)
        case "broker_fencing" | "broker_leaving" | "unfenced" as name if "broker_id" in event:
            return BrokerPresence(
                _number(event, "broker_id"), PRESENCE[name], str(event.get("reason", ""))[:100], wall_ms
            )
        case "fault" if (done := FAULTS.get(str(event.get("done")))) is not None:
            return BrokerPresence(_number(event, "broker"), done, "", wall_ms, injected=True)
    return None


def _partition(event: Mapping[str, Any]) -> str:
    return str(event.get("partition", ""))[:300]


def _brokers(event: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = event.get(key)
    return tuple(each for each in value if type(each) is int)[:LISTED] if isinstance(value, list) else ()


def _number(event: Mapping[str, Any], key: str, otherwise: int = -1) -> int:
    value = event.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
