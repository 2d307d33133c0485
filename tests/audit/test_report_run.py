"""The run on the page: what brokers wrote down of elections, ISRs, fencing and truncations, on one timeline with what
was lost."""

from __future__ import annotations

import json
from typing import Any

from odradek_audit.engine.local import audit
from odradek_audit.evidence.run import SHOWN_MOMENTS, Moment, shown_of
from odradek_audit.inputs.events import EVENTS_FILE, FAULTS_FILE
from odradek_audit.inputs.history import ACK, SEND, Event, History
from odradek_audit.report.page import page
from odradek_broker.testing import Cluster

from tests.audit.sample import SampleLog, WriteCluster, write_lines

NOON = 1_795_262_400_000


def test_the_run_is_told_in_its_order_with_the_cut_that_lost(write_cluster: WriteCluster) -> None:
    """From several brokers' files, by their times; hostile text stays text, and what has no time is left out."""
    log = SampleLog().append([b"a"], epoch=4)
    replicas = write_cluster(log, log)
    election = {"event": "leader_chosen", "topic": "t", "partition": 0, "leader": 2, "leader_epoch": 4}
    cut = {"event": "truncated", "partition": "t-0", "from": 2, "to": 1, "leader": 2, "leader_epoch": 4}
    isr = {"event": "isr_changed", "partition": "t-0", "from": [1, 2], "to": [2]}
    files: dict[str, list[dict[str, Any]]] = {
        "1": [cut | {"wall_ms": NOON + 400}, cut | {"partition": "<b>-0", "wall_ms": NOON + 500}, isr],
        "2": [
            {"event": "broker_fencing", "broker_id": 1, "reason": "dial refused", "wall_ms": NOON + 100},
            election | {"wall_ms": NOON + 200},
            isr | {"wall_ms": NOON + 300},
            {"event": "fenced", "partition": "t-0", "wall_ms": NOON + 301},
            {"event": "truncated", "rule": "R-210", "node": 2, "epoch": 2, "to": 0, "leo": 1, "wall_ms": NOON + 50},
        ],
    }
    for name, lines in files.items():
        write_lines(replicas[name] / EVENTS_FILE, lines)
    told = [Event(SEND, "t", 0, b"a"), Event(ACK, "t", 0, b"b", 1, acks=1)]
    report = audit(replicas, history=History(told))
    assert [(each.what, each.partition, each.lost) for each in report.run] == [
        ("broker 2 truncates its log from 1 to 0", "__cluster_metadata-0", False),
        ("broker 1 is fenced by the controller (dial refused)", "", False),
        ("broker 2 is elected from the ISR, leader epoch 4", "t-0", False),
        ("the ISR becomes 2, it was 1, 2", "t-0", False),
        ("broker 1 truncates its log from 2 to 1, to follow broker 2 in leader epoch 4", "t-0", True),
        ("broker 1 truncates its log from 2 to 1, to follow broker 2 in leader epoch 4", "<b>-0", False),
    ]
    assert [each["what"] for each in report.summary()["run"]] == [each.what for each in report.run]
    html = page(report)
    assert "<b>-0" not in html
    start, end = html.index('id="run"'), html.index(": lost records were among these")
    assert start < html.index("is elected from the ISR, leader epoch 4", start) < end


def test_faults_and_silences_stand_among_what_brokers_wrote(write_cluster: WriteCluster) -> None:
    """A blow, and how long clients waited; hostile lines and times of another clock are passed over."""
    replicas = write_cluster(*[SampleLog().fill(1)] * 2)
    led = {"event": "leader_elected", "broker": 2, "partition": "t-0", "leader_epoch": 3, "epoch_start_offset": 140}
    (replicas["2"] / EVENTS_FILE).write_text(json.dumps(led | {"wall_ms": NOON + 900}) + "\n")
    faults = [
        {"event": "fault", "broker": 2, "done": "kill", "wall_ms": NOON + 500},
        {"event": "fault", "broker": 2, "done": "start", "wall_ms": NOON + 600},
        {"event": "fault", "broker": 2, "done": ["kill"], "wall_ms": NOON + 501},
        {"event": "unfenced", "broker_id": 2, "wall_ms": NOON + 502},
    ]
    write_lines(replicas["2"] / FAULTS_FILE, faults)
    told = []
    for number, (sent, acked) in enumerate(((0, 10), (20, 30), (40, 2040), (2050, 2060))):
        value = f"value-{number}-".encode().ljust(100, b".")
        told += [
            Event(SEND, "t", 0, value, time_ms=NOON + sent, client="w"),
            Event(ACK, "t", 0, value, number, time_ms=NOON + acked, client="w"),
        ]
    assert [(each.what, each.partition) for each in audit(replicas, history=History(told)).run] == [
        ("nothing is acknowledged for 2,000 ms", "t-0"),
        ("fault: broker 2 is killed", ""),
        ("broker 2 is started", ""),
        ("broker 2 begins leader epoch 3 at offset 140", "t-0"),
    ]
    others = [event._replace(time_ms=event.time_ms - NOON) for event in told]
    assert not any("acknowledged" in each.what for each in audit(replicas, history=History(others)).run)


def test_of_many_moments_those_before_the_loss_are_shown() -> None:
    """The cut itself always; what came before it tells why."""
    moments = [Moment(NOON + number, "1", f"moment {number}") for number in range(1000)]
    moments[500] = moments[500]._replace(lost=True)
    shown = shown_of(moments)
    assert len(shown) == SHOWN_MOMENTS
    assert moments[500] in shown
    assert moments[450] in shown
    assert moments[520] not in shown
    assert shown_of([each._replace(lost=False) for each in moments]) == moments[-SHOWN_MOMENTS:]


def test_the_files_of_a_real_cluster_tell_its_run(odradek_cluster: Cluster, odradek_topic: str) -> None:
    """A killed leader: it is fenced, leaves the ISR, another one is elected, and it comes back."""
    leader = odradek_cluster.leader_of(odradek_topic)
    odradek_cluster.kill(leader)
    new = odradek_cluster.leader_of(odradek_topic)
    odradek_cluster.start(leader)
    odradek_cluster.wait_until_in_sync(odradek_topic)
    report = audit(odradek_cluster.replicas(), topics=[odradek_topic])
    told = [each.what for each in report.run if each.partition == f"{odradek_topic}-0"]
    elected = next(place for place, what in enumerate(told) if what.startswith(f"broker {new} is elected from the ISR"))
    assert any(what.startswith("the ISR becomes") for what in told[elected:])
    of_brokers = [each.what for each in report.run if not each.partition]
    fenced = next(place for place, what in enumerate(of_brokers) if what.startswith(f"broker {leader} is fenced by"))
    assert f"broker {leader} takes part" in of_brokers[fenced:]
