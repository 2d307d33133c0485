"""What brokers wrote down about themselves explains findings, and what they could not write is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.events import EVENTS_FILE, read_broker_events
from odradek_audit.inputs.history import ACK, SEND, Event, History
from odradek_audit.report import Report
from odradek_audit.report.page import page

from tests.audit.sample import SampleLog

WriteCluster = Callable[..., dict[str, Path]]
CUT = {"event": "truncated", "rule": "R-79", "partition": "t-0", "from": 2, "to": 1, "leader_epoch": 4}
UNCLEAN = {"event": "leader_chosen", "topic": "t", "partition": 0, "leader": 2, "leader_epoch": 4, "unclean": True}


def lost(write_cluster: WriteCluster, *events: dict[str, Any]) -> Report:
    """An acknowledged record at offset 1 is on no replica; broker 2 wrote these events."""
    log = SampleLog().append([b"a"], epoch=4)
    replicas = write_cluster(log, log)
    if events:
        (replicas["2"] / EVENTS_FILE).write_text("".join(json.dumps(event) + "\n" for event in events))
    told = [Event(SEND, "t", 0, b"a"), Event(SEND, "t", 0, b"b"), Event(ACK, "t", 0, b"b", 1)]
    report = audit(replicas, history=History(told))
    assert [(finding.check, finding.offset) for finding in report.findings] == [("acknowledged-lost", 1)]
    return report


def test_cut_that_covers_the_offset_is_told(write_cluster: WriteCluster) -> None:
    """Broker, offsets, epoch and rule, behind the cause that the logs suggest; an unclean election too."""
    report = lost(write_cluster, CUT, UNCLEAN)
    cause = report.findings[0].cause
    assert "; broker 2 wrote down that it cut its log from 2 to 1 in leader epoch 4 (R-79)" in cause
    assert "; broker 2 was elected from outside of the ISR for leader epoch 4" in cause
    assert "Replica 1 has not a file of the broker&#x27;s events" in page(report)


@pytest.mark.parametrize(
    "event",
    [
        CUT | {"partition": "u-0"},
        CUT | {"to": 2, "from": 9},
        CUT | {"event": "became_follower"},
        UNCLEAN | {"unclean": False},
    ],
)
def test_events_of_other_places_are_not_told(write_cluster: WriteCluster, event: dict[str, Any]) -> None:
    """Another partition, other offsets, another event, a clean election."""
    assert "broker 2" not in lost(write_cluster, event).findings[0].cause


def test_missing_events_are_said_instead_of_guessing(write_cluster: WriteCluster) -> None:
    """On the page, in the finding and in the numbers."""
    report = lost(write_cluster, {"event": "unfenced", "events_missing_before": 5})
    assert report.findings[0].cause.endswith("5 events are missing, so this may not be all")
    assert "Events missing: broker 2 could not write 5 of its events" in page(report)
    assert report.summary()["broker_events"] == {"2": {"lines": 1, "missing": 5, "cut": False}}


def test_hostile_event_files_are_passed_over(tmp_path: Path) -> None:
    """Lines that are no JSON, no object, or have other types count as lines and explain nothing."""
    lines = [b'{"event":"truncated"', b'["truncated"]', b'"truncated"', b"\xff truncated", b"[" * 5000 + b"truncated"]
    lines += [b'{"event":"truncated","partition":7,"from":"x","to":true,"events_missing_before":-4}']
    (tmp_path / EVENTS_FILE).write_bytes(b"\n".join(lines))
    events = read_broker_events(LocalDisk(), str(tmp_path))
    assert events is not None
    assert (events.lines, events.missing, len(events.truncations)) == (6, 0, 1)
    assert read_broker_events(LocalDisk(), str(tmp_path / "absent")) is None
