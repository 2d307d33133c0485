"""What brokers wrote down about themselves, as far as it explains a finding: `odradek-events.jsonl` (docs/events.md).

Rules of this module. An event makes no finding and takes none away; it adds to a suspected cause. A line that cannot
be read is passed over. What a broker could not write is counted, and then said, so that nobody takes silence for an
answer. Kafka's directories have no such file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from odradek_audit.findings import Finding
from odradek_audit.inputs.disk import Disk, join
from odradek_audit.words import plural

EVENTS_FILE = "odradek-events.jsonl"
OLDER_EVENTS_FILE = EVENTS_FILE + ".1"
LARGEST_READ = 16 * 1024 * 1024
"""The end of a longer file is read; what comes before it, and before an older file, counts as not read."""
KEPT = 1000
TOLD = 3
EXPLAINED = frozenset({"acknowledged-lost", "delivered-lost", "log-matching", "epoch-fork", "offset-gap", "duplicated"})


@dataclass(frozen=True)
class Truncation:
    """A replica was about to cut the offsets [start, end) from its log."""

    partition: str
    start: int
    end: int
    epoch: int
    rule: str


@dataclass(frozen=True)
class UncleanElection:
    """A leader was chosen from outside of the ISR."""

    partition: str
    leader: int
    epoch: int


@dataclass(frozen=True)
class BrokerEvents:
    """The events of one broker. `missing` counts those that it could not write; `cut` says that the file is longer."""

    lines: int = 0
    missing: int = 0
    cut: bool = False
    truncations: tuple[Truncation, ...] = ()
    unclean: tuple[UncleanElection, ...] = ()


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
    unclean: list[UncleanElection] = []
    for line in lines:
        count += bool(line)
        if b"truncated" not in line and b"unclean" not in line and b"events_missing_before" not in line:
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
            truncations.append(Truncation(partition, start, end, epoch, rule))
        elif event.get("event") == "leader_chosen" and event.get("unclean") is True:
            partition = f"{str(event.get('topic', ''))[:300]}-{_number(event, 'partition')}"
            unclean.append(UncleanElection(partition, _number(event, "leader"), _number(event, "leader_epoch")))
    return BrokerEvents(count, missing, cut, tuple(truncations[-KEPT:]), tuple(unclean[-KEPT:]))


def _number(event: Mapping[str, Any], key: str, otherwise: int = -1) -> int:
    value = event.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def explain(findings: Iterable[Finding], events: Mapping[str, BrokerEvents]) -> list[Finding]:
    """The findings with what the brokers wrote down about these offsets added to their causes."""
    missing = sum(each.missing for each in events.values())
    return [_explained(finding, events, missing) for finding in findings]


def _explained(finding: Finding, events: Mapping[str, BrokerEvents], missing: int) -> Finding:
    if not events or finding.check not in EXPLAINED or finding.offset < 0:
        return finding
    partition = f"{finding.topic}-{finding.partition}"
    told = [
        f"broker {broker} wrote down that it cut its log from {cut.end} to {cut.start} in leader epoch {cut.epoch}"
        + (f" ({cut.rule})" if cut.rule else "")
        for broker in sorted(events)
        for cut in events[broker].truncations
        if cut.partition == partition and cut.start <= finding.offset < cut.end
    ]
    told += sorted(
        {
            f"broker {chosen.leader} was elected from outside of the ISR for leader epoch {chosen.epoch}"
            for each in events.values()
            for chosen in each.unclean
            if chosen.partition == partition
        }
    )
    said = [finding.cause, *told[:TOLD]]
    if missing:
        said.append(f"{plural(missing, 'event is', 'events are')} missing, so this may not be all")
    return replace(finding, cause="; ".join(filter(None, said)))
