"""What proves that a change of leader cost acknowledged records, how much of them, and what does not prove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.inputs.events import EVENTS_FILE, FAULTS_FILE
from odradek_audit.inputs.history import ACK, SEND, Event, History
from odradek_audit.report import Report
from odradek_audit.report.losses import loss_sentences

from tests.audit.sample import SampleLog, SamplePartition, WriteCluster, write_lines

NOON = 1_795_262_400_000
DAY = "2026-11-21 12:00:00"
LOST = [1, 2, 3, 4]


def moved(begin: int = 1) -> SampleLog:
    """Epoch 0 to offset `begin`, epoch 1 behind it: offsets 1 to 4, as epoch 0 had them, are gone."""
    log = SampleLog()
    for offset in range(6):
        log.append([b"a%d" % offset], epoch=int(offset >= begin))
    return log


def written(replicas: Mapping[str, Path], files: Mapping[str, Sequence[dict[str, Any]]], name: str) -> None:
    for replica, lines in files.items():
        write_lines(replicas[replica] / name, lines)


def elected(leader: int, epoch: int, after: int) -> dict[str, Any]:
    told = {"event": "leader_chosen", "topic": "t", "partition": 0, "leader": leader, "leader_epoch": epoch}
    return told | {"wall_ms": NOON + after}


def marked(high_watermark: int, after: int) -> dict[str, Any]:
    return {"event": "progress", "offsets": {"t-0": [9, high_watermark]}, "wall_ms": NOON + after}


def cut(start: int, end: int, after: int = 90) -> dict[str, Any]:
    told = {"event": "truncated", "rule": "R-79", "partition": "t-0", "from": end, "to": start, "leader_epoch": 1}
    return told | {"wall_ms": NOON + after, "last_epoch": 0, "leader": 2}


def fault(broker: int, done: str, after: int) -> dict[str, Any]:
    return {"event": "fault", "broker": broker, "done": done, "wall_ms": NOON + after}


def acknowledged(offsets: Sequence[int] = LOST, after: int = 20) -> History:
    """Values that no log has, at these offsets, one millisecond after the other."""
    sent = [Event(SEND, "t", 0, b"a%d" % offset) for offset in range(6)]
    told = [Event(ACK, "t", 0, b"lost-%d" % at, at, time_ms=NOON + after + at, acks=1) for at in offsets]
    return History([*sent, *told])


def audited(replicas: Mapping[str, Path], files: Mapping[str, Sequence[dict[str, Any]]], history: History) -> Report:
    written(replicas, files, EVENTS_FILE)
    return audit(replicas, history=history)


@pytest.mark.parametrize(
    ("election", "begins", "marks", "cause"),
    [
        ([elected(2, 1, 60)], (1, 1, 1), [], "leader-change"),
        ([elected(2, 1, 24)], (1, 1, 1), [], "leader-change"),
        ([elected(2, 1, 23)], (1, 1, 1), [], "probably-leader-change"),
        ([elected(2, 1, 20)], (1, 1, 1), [], "perhaps-leader-change"),
        ([], (1, 1, 1), [], "probably-leader-change"),
        ([elected(2, 1, 60)], (1, 1, 2), [], "perhaps-leader-change"),
        ([elected(2, 1, 60)], (2, 2, 2), [], "perhaps-leader-change"),
        ([elected(2, 1, 60)], (1, 1, 1), [marked(2, 59)], "below-high-watermark"),
        ([elected(2, 1, 60)], (1, 1, 1), [marked(2, 61)], "leader-change"),
    ],
)
def test_an_epoch_that_began_later_on_every_replica_cost_what_had_been_acknowledged(
    write_cluster: WriteCluster, election: list[dict[str, Any]], begins: tuple[int, ...], marks: Any, cause: str
) -> None:
    """Without the file of the broker that truncated. One replica where it begins later, or an acknowledgement after its
    beginning, leave it open; a high watermark above the first of them, from before it, shows that it was worse."""
    replicas = write_cluster(*map(moved, begins))
    (loss,) = audited(replicas, {"2": [*election, *marks], "3": []}, acknowledged()).losses
    assert loss.cause == cause
    assert ("on every replica leader epoch 1" in loss.story) is (cause != "perhaps-leader-change")


def test_what_led_to_an_epoch_is_told_when_the_truncation_is_missing(write_cluster: WriteCluster) -> None:
    """Freeze, kill, election and where the epoch begins; where the truncation would stand; and no other broker speaks
    for the one whose file is missing."""
    replicas = write_cluster(*[moved()] * 3)

    faults = {"1": [fault(1, "kill", 30)], "2": [fault(2, "pause", 10)], "3": [fault(3, "pause", 12)]}
    written(replicas, faults, FAULTS_FILE)
    began = {"event": "leader_elected", "partition": "t-0", "broker": 2, "leader_epoch": 1, "epoch_start_offset": 1}
    events = {"2": [elected(2, 1, 60), began | {"wall_ms": NOON + 62}, marked(1, 25)], "3": []}
    report = audited(replicas, events, acknowledged())
    (loss,) = report.losses
    assert loss.story.split("; ") == [
        f"brokers 2, 3 were frozen at {DAY}.010 UTC to {DAY}.012 UTC (an injected fault)",
        f"acknowledged at {DAY}.021 UTC to {DAY}.024 UTC",
        f"broker 1 was killed at {DAY}.030 UTC (an injected fault)",
        f"broker 2 was elected from the ISR for leader epoch 1 at {DAY}.060 UTC",
        "on every replica leader epoch 1 of broker 2 begins at offset 1, the first of them, and it began after they "
        "had been acknowledged: its leader did not have them",
        f"the highest high watermark that a broker wrote down before was 1 (broker 2 at {DAY}.025 UTC), and "
        "nothing that was read shows that any of them was replicated (the event file of replica 1 is missing)",
        "no truncation there was written down: the event file of replica 1 is missing",
    ]


def test_an_epoch_without_a_record_cost_what_stood_behind_it(write_cluster: WriteCluster) -> None:
    """Its leader wrote nothing: its epoch stands at the end of the log, in the leader epoch file alone."""
    short = SamplePartition(SampleLog().append([b"a0"]), epochs=[(0, 0), (1, 1)])
    lagging = SamplePartition(SampleLog().append([b"a0"]))
    (loss,) = audited(write_cluster(short, short, lagging), {"2": [elected(2, 1, 60)]}, acknowledged()).losses
    assert loss.cause == "leader-change"
    assert "where all logs end leader epoch 1 of broker 2 begins at offset 1, the first of them" in loss.story


def test_a_high_watermark_from_before_shows_nothing(write_cluster: WriteCluster) -> None:
    replicas = write_cluster(*[moved()] * 3)
    (loss,) = audited(replicas, {"2": [marked(1, 20), elected(2, 1, 60)], "3": []}, acknowledged()).losses
    assert (
        f"was 1 (broker 2 at {DAY}.020 UTC), before they were acknowledged, so it shows nothing of them" in loss.story
    )


def test_a_truncation_that_covers_a_part_is_told_as_a_part(write_cluster: WriteCluster) -> None:
    """How many offsets and which; without a proof of the others it proves nothing of them."""
    replicas = write_cluster(*[moved()] * 3)
    (loss,) = audited(replicas, {"2": [cut(1, 3)], "3": []}, acknowledged()).losses
    assert ", which covers 2 of them, offsets 1 to 2" in loss.story
    assert "no truncation of the other offsets was written down: the event file of replica 1 is missing" in loss.story
    assert loss.cause == "probably-leader-change"
    (loss,) = audited(replicas, {"2": [cut(1, 3), elected(2, 1, 60)], "3": []}, acknowledged()).losses
    assert ", which covers 2 of them, offsets 1 to 2, to follow broker 2, which was elected" in loss.story
    assert loss.cause == "leader-change"
    (loss,) = audited(replicas, {"2": [cut(1, 5)], "3": []}, acknowledged()).losses
    assert "which covers" not in loss.story
    assert "no truncation" not in loss.story


def test_a_client_that_read_an_answer_after_the_kill_is_told(write_cluster: WriteCluster) -> None:
    replicas = write_cluster(*[moved()] * 2)
    for after, said in ((22, True), (24, False), (21, False)):
        written(replicas, {"1": [fault(1, "kill", after)]}, FAULTS_FILE)
        (loss,) = audited(replicas, {"2": [cut(1, 5)]}, acknowledged()).losses
        assert ("may read an answer after the broker that gave it was killed" in loss.story) is said


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ({"1": [marked(1, 22)]}, 1),
        ({"1": [marked(0, 22), marked(1, 59)]}, 1),
        ({"1": [marked(1, 15)]}, -1),  # before any of them was acknowledged
        ({"1": [marked(1, 61)]}, -1),  # in the next epoch
        ({"3": [marked(1, 22)]}, -1),  # a follower's
        ({}, -1),
    ],
)
def test_only_the_leaders_own_figure_shows_that_none_was_replicated(
    write_cluster: WriteCluster, lines: dict[str, list[dict[str, Any]]], shown: int
) -> None:
    """Written down while they were acknowledged, before the next leader. Of how many it is shown, the page says."""
    led = {"event": "leader_elected", "partition": "t-0", "broker": 1, "leader_epoch": 0, "wall_ms": NOON}
    files = {"1": [], "2": [elected(2, 1, 60)], "3": []} | lines
    files["1"] = [led, *files["1"], cut(1, 5)]
    report = audited(write_cluster(*[moved()] * 3), files, acknowledged())
    assert [(loss.cause, loss.high_watermark) for loss in report.losses] == [("leader-change", shown)]
    said = " ".join(loss_sentences(report))
    assert ("no high watermark of them was found" in said) is (shown < 0)


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ([marked(3, 25)], True),
        ([marked(2, 25)], False),  # below the end of the gap
        ([marked(9, 61)], False),  # of the next leader
        ([], False),
    ],
)
def test_a_gap_was_replicated_by_what_was_written_down_before_the_next_leader(
    write_cluster: WriteCluster, marks: list[dict[str, Any]], said: bool
) -> None:
    """Never by the checkpoint at the end, which lies above all that is lost; that the epoch goes on shows it alone."""
    replicas = write_cluster(*[SamplePartition(moved(begin=4).without(2), high_watermark=6)] * 2)
    history = acknowledged([2])
    (loss,) = audited(replicas, {"1": [*marks, elected(2, 1, 60)]}, history).losses
    assert loss.cause == "gap"
    assert "epoch 0 goes on behind them on every replica" in loss.story
    assert (
        f"broker 1 wrote down a high watermark of 3 at {DAY}.025 UTC, before the next change of leader, so its"
        " cluster counted them" in loss.story
    ) is said
    assert "high watermark 6" not in loss.story
    assert loss.story.endswith("; this is damage or a defect, and no change of leader")


def test_an_epoch_is_probable_though_every_event_is_there(write_cluster: WriteCluster) -> None:
    """A leader that lost the end of its log with the power truncates nothing, and clients read answers late."""
    files = {"1": [], "2": [elected(2, 1, 23)]}
    (loss,) = audited(write_cluster(*[moved()] * 2), files, acknowledged()).losses
    assert loss.cause == "probably-leader-change"
    assert f"it began at {DAY}.023 UTC, before the last acknowledgement was read" in loss.story
    assert loss.story.endswith("; no truncation there was written down")


def test_an_acknowledgement_without_a_time_is_not_proven_to_be_older(write_cluster: WriteCluster) -> None:
    """One of four has none: it may have been given at any time."""
    timeless = [Event(ACK, "t", 0, b"lost-4", 4, acks=1)]
    told = [Event(SEND, "t", 0, b"a%d" % offset) for offset in range(6)] + timeless
    told += [Event(ACK, "t", 0, b"lost-%d" % at, at, time_ms=NOON + 20 + at, acks=1) for at in LOST[:3]]
    report = audited(write_cluster(*[moved()] * 3), {"2": [elected(2, 1, 60)], "3": []}, History(told))
    assert [(loss.acknowledged_ms[0], loss.cause) for loss in report.losses] == [(-1, "probably-leader-change")]
