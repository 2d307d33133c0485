"""What brokers wrote down about themselves, as far as it explains a finding: `odradek-events.jsonl` (docs/events.md).

Rules of this module. An event makes no finding and takes none away; `evidence.story` tells them. A line that cannot
be read is passed over. What a broker could not write is counted, and then said, so that nobody takes silence for an
answer. Kafka's directories have no such file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek_audit.inputs.disk import Disk, join

EVENTS_FILE = "odradek-events.jsonl"
OLDER_EVENTS_FILE = EVENTS_FILE + ".1"
LARGEST_READ = 16 * 1024 * 1024
"""The end of a longer file is read; what comes before it, and before an older file, counts as not read."""
KEPT = 1000


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


@dataclass(frozen=True)
class Election:
    """A controller chose a leader of a partition, from outside of the ISR if `unclean`."""

    partition: str
    leader: int
    epoch: int
    unclean: bool = False
    wall_ms: int = -1


@dataclass(frozen=True)
class BrokerEvents:
    """The events of one broker. `missing` counts those that it could not write; `cut` says that the file is longer."""

    lines: int = 0
    missing: int = 0
    cut: bool = False
    truncations: tuple[Truncation, ...] = ()
    elections: tuple[Election, ...] = ()
    leaderships: tuple[Election, ...] = ()
    """Leader epochs in which this broker itself led; whether an election was unclean they do not say."""


def read_broker_events(disk: Disk, directory: str) -> BrokerEvents | None:
    """The events beside a broker's logs; None when there is no such file or it cannot be read."""
    path, older = join(directory, EVENTS_FILE), join(directory, OLDER_EVENTS_FILE)
    try:
        if not disk.is_file(path):
            return None
        content, cut = _end_of(disk, path, LARGEST_READ)
        if disk.is_file(older):
            content, cut = _end_of(disk, older, LARGEST_READ - len(content))[0] + content, True
    except OSError:
        return None
    lines = content.split(b"\n")
    return _gather(lines[1:] if cut else lines, cut=cut)


def _end_of(disk: Disk, path: str, length: int) -> tuple[bytes, bool]:
    """At most so many bytes from the end of a file, and whether it has more."""
    size = disk.size(path)
    start = max(0, size - length)
    return disk.read(path, start, size - start), start > 0


def _gather(lines: Iterable[bytes], *, cut: bool) -> BrokerEvents:
    count = missing = 0
    truncations: list[Truncation] = []
    elections: list[Election] = []
    leaderships: list[Election] = []
    for line in lines:
        count += bool(line)
        if (
            b"truncated" not in line
            and b"leader_chosen" not in line
            and b"leader_elected" not in line
            and b"events_missing_before" not in line
        ):
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        missing += max(0, _number(event, "events_missing_before", 0))
        if event.get("event") == "truncated":
            partition, rule = str(event.get("partition", ""))[:300], str(event.get("rule", ""))[:20]
            start, end, epoch = (_number(event, key) for key in ("to", "from", "leader_epoch"))
            more = (_number(event, key) for key in ("leader", "last_epoch", "wall_ms"))
            truncations.append(Truncation(partition, start, end, epoch, rule, *more))
        elif event.get("event") == "leader_chosen":
            partition = f"{str(event.get('topic', ''))[:300]}-{_number(event, 'partition')}"
            leader, epoch, wall_ms = (_number(event, key) for key in ("leader", "leader_epoch", "wall_ms"))
            elections.append(Election(partition, leader, epoch, event.get("unclean") is True, wall_ms))
        elif event.get("event") == "leader_elected" and "partition" in event:
            broker, epoch, wall_ms = (_number(event, key) for key in ("broker", "leader_epoch", "wall_ms"))
            leaderships.append(Election(str(event["partition"])[:300], broker, epoch, wall_ms=wall_ms))
    return BrokerEvents(
        count, missing, cut, tuple(truncations[-KEPT:]), tuple(elections[-KEPT:]), tuple(leaderships[-KEPT:])
    )


def _number(event: Mapping[str, Any], key: str, otherwise: int = -1) -> int:
    value = event.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
