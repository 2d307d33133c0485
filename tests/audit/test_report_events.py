"""What brokers wrote down about themselves explains findings, and what they could not write is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.evidence.run import SHOWN_MOMENTS, TimelineEntry, shown_of
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.events import EVENTS_FILE, FAULTS_FILE, read_broker_events
from odradek_audit.inputs.history import ACK, ACKS_ALL, ACKS_LEADER, SEND, Event, History
from odradek_audit.report import Report
from odradek_audit.report.headlines import headline
from odradek_audit.report.losses import loss_sentences
from odradek_audit.report.page import page
from odradek_broker.testing import Cluster

from tests.audit.acknowledged import VALUES, told
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster, write_lines
from tests.audit.test_report_loss_proofs import DAY, NOON, audited, elected, fault, marked, written

CUT = {"event": "truncated", "rule": "R-79", "partition": "t-0", "from": 2, "to": 1, "leader_epoch": 4}
UNCLEAN = {"event": "leader_chosen", "topic": "t", "partition": 0, "leader": 2, "leader_epoch": 4, "unclean": True}
FENCED = {"event": "broker_fencing", "broker_id": 1, "reason": "dial refused"}
UNFENCED = {"event": "unfenced"}


def at(event: dict[str, Any], after: int) -> dict[str, Any]:
    return event | {"wall_ms": NOON + after}


def lost(write_cluster: WriteCluster, files: Mapping[str, Sequence[dict[str, Any]]]) -> Report:
    """An acknowledged record at offset 1 is on no replica; brokers wrote these events."""
    told = [Event(SEND, "t", 0, b"a"), Event(SEND, "t", 0, b"b"), Event(ACK, "t", 0, b"b", 1)]
    report = audited(write_cluster(*[SampleLog().append([b"a"], epoch=4)] * 2), files, History(told))
    assert [(finding.check, finding.offset) for finding in report.findings] == [("acknowledged-lost", 1)]
    return report


def test_cut_that_covers_the_offset_is_told(write_cluster: WriteCluster) -> None:
    """Broker, offsets, epoch, rule, time and election, and who had acknowledged the record: no guess beside it."""
    before = {"event": "leader_elected", "partition": "t-0", "broker": 1, "leader_epoch": 3}
    when = {"wall_ms": 1_795_264_699_273, "last_epoch": 3}
    report = lost(write_cluster, {"2": [before, UNCLEAN, CUT | when]})
    assert report.findings[0].cause == (
        "broker 2 wrote down that it truncated its log from 2 to 1 in leader epoch 4 at 2026-11-21 12:38:19.273 UTC "
        "(where the two logs diverge), to follow broker 2, which was elected from outside of the ISR for leader epoch "
        "4; broker 1, the leader of epoch 3, had acknowledged what was truncated; "
        "the event file of replica 1 (odradek-events.jsonl) is missing, so this may not be all"
    )
    assert "The event file of replica 1 (odradek-events.jsonl) is missing: causes are suspected" in page(report)


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
    assert "broker 2" not in lost(write_cluster, {"2": [event]}).findings[0].cause


def test_missing_events_are_said_instead_of_guessing(write_cluster: WriteCluster) -> None:
    """On the page, in the finding and in the numbers."""
    report = lost(write_cluster, {"2": [UNFENCED | {"events_missing_before": 5}]})
    assert "5 events are missing, so this may not be all" in report.findings[0].cause
    assert "Events missing: broker 2 could not write 5 of its events" in page(report)
    assert report.summary()["broker_events"] == {"2": {"lines": 1, "missing": 5, "cut": False}}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ("", "no replica has an event file (odradek-events.jsonl; Kafka writes none), so this is not proven"),
        ("1", "the event file of replica 2 (odradek-events.jsonl) is missing, so this is not proven"),
        ("12", "no broker wrote down that it truncated its log there, so this is not proven"),
    ],
)
def test_a_cause_that_no_broker_wrote_down_is_not_proven(write_cluster: WriteCluster, files: str, said: str) -> None:
    """A suspicion from the logs alone says whose events would prove it; so does the story of what is gone."""
    report = lost(write_cluster, dict.fromkeys(files, (UNFENCED,)))
    assert report.findings[0].cause.endswith(f"; {said}")
    assert report.losses[0].story == "no truncation there was written down"
    assert report.losses[0].cause == ("unexplained" if files == "12" else "perhaps-leader-change")
    assert said[:20] in page(report)


def test_a_high_watermark_of_the_next_leader_is_none_of_what_was_cut(write_cluster: WriteCluster) -> None:
    """The election stands in a file that is missing: then the leader's own beginning counts, and where nobody wrote
    that down either, no high watermark is told."""
    replicas = write_cluster(*[SampleLog().append([b"a"], epoch=4)] * 3)
    began = {"event": "leader_elected", "partition": "t-0", "broker": 1, "leader_epoch": 4, "wall_ms": NOON + 12}
    history, then = History([Event(SEND, "t", 0, b"a"), Event(ACK, "t", 0, b"b", 1, acks=1)]), at(CUT, 20)
    for lines in ([marked(9, 15)], [marked(9, 10)], [began, marked(9, 15)]):
        (loss,) = audited(replicas, {"1": [*lines, then]}, history).losses
        assert "high watermark" not in loss.story
    (loss,) = audited(replicas, {"1": [marked(9, 10), began, then]}, history).losses
    assert "the highest high watermark that a broker wrote down before was 9" in loss.story


@pytest.mark.parametrize("files", ["", "1", "12"])
def test_a_gap_of_all_replicas_is_no_change_of_leader(write_cluster: WriteCluster, files: str) -> None:
    """Acknowledged with acks=1, replicated, and gone from the middle of every log: damage, whoever wrote events. The
    page says so before all, leads to the gap, and does not excuse it."""
    log = SampleLog().append([b"a"]).append([b"b"]).append([b"c"]).without(1)
    replicas = write_cluster(*[SamplePartition(log, high_watermark=3)] * 2)
    report = audited(replicas, dict.fromkeys(files, (UNFENCED,)), History(told(ACKS_LEADER, values=VALUES[:3])))
    assert report.losses[0].cause == "gap"
    assert report.losses[0].story.startswith("found there (offset-gap): replica 1 has no records from offset 1 to 1")
    assert "replica 2 lacks them, too; epoch 0 goes on behind them" in report.losses[0].story
    assert "high watermark" not in report.losses[0].story  # the checkpoint's at the end shows nothing
    said = " ".join(loss_sentences(report))
    assert "1 record of t-0 is missing where every replica's log goes on behind it" in said
    assert "damage, or a defect" in said
    assert "promise" not in said
    assert "Show the gap" in page(report)
    assert [headline(finding) for finding in report.findings] == [
        "All 2 replicas lack offset 1 in t-0: none that was read has it."
    ]


def test_a_gap_of_one_replica_explains_no_loss_of_another_leader(write_cluster: WriteCluster) -> None:
    """Replica 1 has a gap where replica 2 holds what the next leader wrote: the lost record stood there before."""
    whole = SampleLog().append([b"a"]).append([b"x"], epoch=1).append([b"c"], epoch=1)
    told = [Event(SEND, "t", 0, value) for value in (b"a", b"b", b"c", b"x")] + [Event(ACK, "t", 0, b"b", 1, acks=1)]
    report = audit(write_cluster(whole.without(1), whole), history=History(told))
    assert [finding.check for finding in report.findings] == ["offset-gap"]
    assert report.losses[0].cause == "perhaps-leader-change"
    assert "offset-gap" not in report.losses[0].story
    assert headline(report.findings[0]) == "Replica 1 lacks offset 1 in t-0; replica 2 has it."


@pytest.mark.parametrize(
    ("cut", "other", "cause"),
    [
        ({}, {}, "leader-change"),
        ({}, {"progress": 1}, "leader-change"),
        ({"to": 2}, {}, "perhaps-leader-change"),
        ({"high_watermark": 2}, {}, "below-high-watermark"),
        ({}, {"progress": 2}, "below-high-watermark"),
        ({"partition": "u-0"}, {}, "perhaps-leader-change"),
        ({"partition": "u-0"}, {"whole": True}, "unexplained"),
        ({"partition": "u-0"}, {"epochs": 1, "log": 4}, "unexplained"),
    ],
)
def test_only_a_truncation_above_every_high_watermark_is_what_acks_1_allows(
    write_cluster: WriteCluster, cut: dict[str, Any], other: dict[str, int], cause: str
) -> None:
    """Of all that is lost, by a broker's own words; while a file is missing it is a possibility, but only where the
    logs have seen a change of leader or end there."""
    log = SampleLog().append([b"a"], epoch=4)
    for number in range(1, other.get("log", 1)):
        log.append([b"%d" % number], epoch=4)
    replicas = write_cluster(log, log)
    files = {"1": [elected(2, 4, 15), at(CUT, 20) | {"from": 3} | cut]}
    if "progress" in other:
        files["1"].append(marked(other["progress"], 10))
    if "whole" in other:
        files["2"] = [UNFENCED]
    told = [Event(SEND, "t", 0, b"a"), *(Event(ACK, "t", 0, b"v%d" % at, at, acks=1) for at in (1, 2))]
    told += [Event(SEND, "t", 0, b"%d" % number) for number in range(1, 4)]
    report = audited(replicas, files, History(told))
    assert [loss.cause for loss in report.losses] == [cause]
    said = " ".join(loss_sentences(report))
    assert ("so that breaks no promise" in said) is (cause == "leader-change")
    assert ("the event file of replica 2 (odradek-events.jsonl) is missing." in said) is (
        cause == "perhaps-leader-change"
    )


def test_what_led_to_a_truncation_is_told_in_its_order(write_cluster: WriteCluster) -> None:
    """Followers were frozen, the leader acknowledged alone and was killed, another one was elected. What was over when
    the records were acknowledged, and what came after the election, is not told."""
    replicas = write_cluster(*[SampleLog().append([b"a"], epoch=4)] * 3)
    faults = {
        "1": [fault(1, "kill", -20_000), fault(1, "start", -10_000), fault(1, "kill", 50), fault(1, "start", 90)],
        "2": [fault(2, "pause", 10), fault(2, "resume", 51)],
        "3": [fault(3, "pause", 11), fault(3, "resume", 52), fault(3, "kill", 99)],
    }
    written(replicas, faults, FAULTS_FILE)
    events = {"1": [at(CUT, 95) | {"from": 3}], "2": [elected(2, 4, 60)], "3": [at(FENCED, 55)]}
    acks = [Event(ACK, "t", 0, b"%d" % offset, offset, time_ms=NOON + 20, acks=1) for offset in (1, 2)]
    (loss,) = audited(replicas, events, History([Event(SEND, "t", 0, b"a"), *acks])).losses
    assert loss.story.split("; ")[:5] == [
        f"brokers 2, 3 were frozen at {DAY}.010 UTC to {DAY}.011 UTC (an injected fault)",
        f"acknowledged at {DAY}.020 UTC",
        f"broker 1 was killed at {DAY}.050 UTC (an injected fault)",
        f"broker 1 was fenced by the controller at {DAY}.055 UTC (dial refused)",
        f"broker 1 wrote down that it truncated its log from 3 to 1 in leader epoch 4 at {DAY}.095 UTC (where the two "
        f"logs diverge), to follow broker 2, which was elected from the ISR for leader epoch 4 at {DAY}.060 UTC",
    ]
    assert loss.cause == "leader-change"


def test_faults_are_told_where_the_event_file_is_missing(write_cluster: WriteCluster) -> None:
    """The journal of injected faults is another file: it is read, and the broker's own events stay missing."""
    replicas = write_cluster(*[SampleLog().append([b"a"])] * 2)
    written(replicas, {"2": [fault(2, "kill", 900)]}, FAULTS_FILE)
    report = audit(replicas)
    assert [moment.what for moment in report.run] == ["fault: broker 2 is killed"]
    assert report.without_events == ["1", "2"]
    assert report.summary()["broker_events"] == {}


def test_hostile_event_files_are_passed_over(tmp_path: Path) -> None:
    """Lines that are no JSON, no object, or have other types count as lines and explain nothing."""
    lines = [b'{"event":"truncated"', b'["truncated"]', b'"truncated"', b"\xff truncated", b"[" * 5000 + b"truncated"]
    lines += [b'{"event":"truncated","partition":7,"from":"x","to":true,"events_missing_before":-4}']
    (tmp_path / EVENTS_FILE).write_bytes(b"\n".join(lines))
    events = read_broker_events(LocalDisk(), str(tmp_path))
    assert events is not None
    assert (events.lines, events.missing, len(events.truncations)) == (6, 0, 1)
    assert read_broker_events(LocalDisk(), str(tmp_path / "absent")) is None


def test_a_loss_that_broke_no_promise_has_its_story_too(write_cluster: WriteCluster) -> None:
    """Acknowledged with acks=1, cut at a clean election: no finding, and the page says who cut it, and when."""
    replicas = write_cluster(*[SampleLog().append([b"a"], epoch=4)] * 2)
    told = [Event(SEND, "t", 0, b"a"), *(Event(ACK, "t", 0, b"%d" % at, at, acks=1) for at in (1, 2, 40))]
    report = audited(replicas, {"1": [elected(2, 4, 0), at(CUT, 273) | {"from": 3}]}, History(told))
    assert report.findings == []
    assert [(loss.records, loss.first_offset, loss.end_offset) for loss in report.losses] == [(2, 1, 3), (1, 40, 41)]
    first, second = report.losses
    assert "broker 1 wrote down that it truncated its log from 3 to 1" in first.story
    assert "to follow broker 2, which was elected from the ISR for leader epoch 4" in first.story
    assert second.story == "no truncation there was written down"
    assert "How records were lost" in page(report)
    assert page(report).count("event file of replica 2") == 4  # verdict, losses, run, what was not compared


@pytest.mark.parametrize(
    ("mark", "files", "so"),
    [
        (1, "12", "so no broker knew any of them to be replicated"),
        (
            1,
            "1",
            "and nothing that was read shows that any of them was replicated (the event file of replica 2 is missing)",
        ),
        (2, "1", "so some had been replicated"),
    ],
)
def test_when_it_was_acknowledged_and_how_far_it_was_replicated(
    write_cluster: WriteCluster, mark: int, files: str, so: str
) -> None:
    """By the clients' wall clock, not when the next leader gave away the offset again; and what a broker wrote down of
    its progress before that leader was elected: later it counts other records."""
    replicas = write_cluster(*[SampleLog().append([b"a"], epoch=4)] * 2)
    progress = {"event": "progress", "offsets": {"t-0": [3, mark], "u-0": [9, 9], "v-0": ["x", 1], "w-0": 7}}
    lines = [at(progress, 10), at(CUT, 20) | {"from": 3}, elected(2, 4, 12), marked(9, 15), marked(9, 30)]
    lines.append({"event": "progress", "offsets": [1]})
    told = [
        Event(SEND, "t", 0, b"a"),
        *(Event(ACK, "t", 0, b"%d" % at, at, time_ms=NOON + at, acks=1) for at in (1, 2)),
        Event(ACK, "t", 0, b"a", 1, time_ms=NOON + 19, acks=1),
    ]
    (loss,) = audited(replicas, dict.fromkeys(files, (UNFENCED,)) | {"1": lines}, History(told)).losses
    assert loss.story.startswith(f"acknowledged at {DAY}.001 UTC to {DAY}.002 UTC; broker 1")
    highest = "the highest high watermark that a broker wrote down before"
    assert f"{highest} was {mark} (broker 1 at {DAY}.010 UTC), {so}" in loss.story


def test_offsets_that_are_given_again_are_told_with_the_loss(write_cluster: WriteCluster) -> None:
    """What a client sent later stands where its lost record stood: a consequence, and no second damage."""
    log = SampleLog().append([b"a"], epoch=4).append([b"d"], epoch=5)
    again = [Event(SEND, "t", 0, b"d", client="w"), Event(ACK, "t", 0, b"d", 1, client="w")]
    history = History([*told(ACKS_ALL, values=VALUES[:3]), *again])
    report = audit(write_cluster(log, log), history=history)
    assert [(finding.check, finding.offset) for finding in report.findings] == [
        ("acknowledged-lost", 1),
        ("acknowledged-lost", 2),
    ]
    assert report.findings[0].evidence["reordered"] == 1


# --- The run on the page ----------------------------------------------------------------------------------------------


def test_the_run_is_told_in_its_order_with_the_cut_that_lost(write_cluster: WriteCluster) -> None:
    """From several brokers' files, by their times; hostile text stays text, and what has no time is left out."""
    cut = {"event": "truncated", "partition": "t-0", "from": 2, "to": 1, "leader": 2, "leader_epoch": 4}
    isr = {"event": "isr_changed", "partition": "t-0", "from": [1, 2], "to": [2]}
    files: dict[str, list[dict[str, Any]]] = {
        "1": [at(cut, 400), at(cut, 500) | {"partition": "<b>-0"}, isr],
        "2": [
            *(at(FENCED, 100), elected(2, 4, 200), at(isr, 300), at({"event": "fenced", "partition": "t-0"}, 301)),
            {"event": "truncated", "rule": "R-210", "node": 2, "epoch": 2, "to": 0, "leo": 1, "wall_ms": NOON + 50},
        ],
    }
    told = [Event(SEND, "t", 0, b"a"), Event(ACK, "t", 0, b"b", 1, acks=1)]
    report = audited(write_cluster(*[SampleLog().append([b"a"], epoch=4)] * 2), files, History(told))
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
    write_lines(replicas["2"] / EVENTS_FILE, [at(led, 900)])
    faults = [
        *(fault(2, "kill", 500), fault(2, "start", 600), fault(2, "", 501) | {"done": ["kill"]}),
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
    moments = [TimelineEntry(NOON + number, "1", f"moment {number}") for number in range(1000)]
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
