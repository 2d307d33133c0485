"""What the demo concludes, and what its screen shows; and one run of the whole."""

from __future__ import annotations

import contextlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from odradek import BrokerDescription, ReplicaDescription
from odradek.cli.clusters.status import ClusterStatus, PartitionStatus
from odradek.cli.main import main
from odradek_audit.inputs.history import ACK, SEND, Event
from odradek_chaos.demo import commands
from odradek_chaos.demo.state import Audited, DemoState
from odradek_chaos.demo.view import View
from odradek_chaos.harness.verify import verify
from rich.console import Console

from tests.cli.conftest import Run

KILLED = re.compile(r"kill -9: broker (\d+)")
VALUE = b"w1/0/0"
HISTORY = [Event(SEND, "orders", 0, VALUE), Event(ACK, "orders", 0, VALUE, offset=0)]
AGREE = Audited("spark", 0, 1.0, {"compared_records": 1, "replicas": {"1": "", "2": ""}})


def state(records: list[tuple[str, int, int, bytes]], audited: Audited | None) -> DemoState:
    found = DemoState(seed=7, brokers=3)
    found.read_back, found.audited = verify(HISTORY, records), audited
    return found


def test_all_that_was_acknowledged_is_there() -> None:
    """A sound read back and an audit without findings make the good verdict, code 0."""
    found = state([("orders", 0, 0, VALUE)], AGREE)
    assert found.exit_code == 0
    assert "SURVIVED" in found.verdict()[-1]
    assert found.as_json()["verdict"] == "survived"


def test_a_lost_record_is_damage_whatever_the_audit_says() -> None:
    """An acknowledged record that is not read back is named, code 3."""
    found = state([], AGREE)
    assert found.exit_code == 3
    assert any("lost: 1" in line for line in found.verdict())


def test_findings_of_the_audit_are_damage() -> None:
    """Replicas that disagree are damage even when every record could be read."""
    found = state([("orders", 0, 0, VALUE)], Audited("spark", 3, 1.0, {"findings": 2, "replicas": {}}))
    assert found.exit_code == 3
    assert any("2 findings" in line for line in found.verdict())


@pytest.mark.parametrize(
    "audited", [None, Audited("spark", 1, 1.0, {}, "no Java"), Audited("spark", 2, 1.0, {}, "usage")]
)
def test_without_an_audit_there_is_no_good_verdict(audited: Audited | None) -> None:
    """An audit that was not done, or concluded nothing, leaves the demo inconclusive, code 1."""
    found = state([("orders", 0, 0, VALUE)], audited)
    assert found.exit_code == 1
    assert "INCONCLUSIVE" in found.verdict()[-1]


def test_nothing_acknowledged_proves_nothing() -> None:
    """Without a single acknowledged record the verdict is inconclusive."""
    found = DemoState(seed=7, brokers=3)
    found.read_back, found.audited = verify([], []), AGREE
    assert found.exit_code == 1


def test_the_last_line_names_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both streams end in one place: what else there is to say comes before the verdict."""
    found = state([("orders", 0, 0, VALUE)], AGREE)
    found.report = "/tmp/report.html"
    monkeypatch.setattr(commands, "_play", lambda *_, **__: "the directory is /tmp/demo")
    monkeypatch.setattr("odradek_chaos.demo.state.DemoState", lambda *_: found)
    terminal = io.StringIO()
    with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
        assert main(["demo"]) == 0
    report, directory, *verdict = terminal.getvalue().splitlines()
    assert report == "the audit's report: /tmp/report.html"
    assert directory == "the directory is /tmp/demo"
    assert verdict == found.verdict()
    assert "(seed 7, " in verdict[-1]


def test_the_screen_shows_leaders_ends_and_the_dead() -> None:
    """Who leads, LEO and HW of each replica, who is dead, and what happened last, on a terminal of the usual size."""
    found = DemoState(seed=7, brokers=2, step="kill", doing="kill -9 of broker 2")
    brokers = [BrokerDescription(number, {"GRPC": f"h:{number}"}, "", False, number) for number in (1, 2)]
    leader = ReplicaDescription(1, "orders", 0, "leader", 1, 4, 0, 0, 42, 40, 100, (1,), (), ())
    partition = PartitionStatus("orders", 0, 1, 4, (1,), (1, 2), {1: leader})
    found.status = ClusterStatus("id", 1, None, "", brokers, [partition], {})
    found.dead.add(2)
    found.tell("kill -9: broker 2", bad=True)
    found.status = replace(found.status, partitions=[replace(partition, partition=number) for number in range(6)])
    for number in range(19):
        found.tell(f"happening {number}")
    found.tell(f"happening 19, {'which is told at length, ' * 4}to its end")
    screen = io.StringIO()
    Console(file=screen, width=80, height=24).print(View(found))
    text = screen.getvalue()
    for wanted in (
        "orders-5",
        "42/40 *",
        "broker 2 dead",
        "gone",
        "happening 19",
        "to its end",
        ">kill",
        "kill -9 of broker 2",
    ):
        assert wanted in text, wanted
    assert (len(text.splitlines()), max(map(len, text.splitlines()))) == (24, 80)


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_survives_on_real_processes(odradek_process: Run, place: Path) -> None:
    """The whole story: three processes, a killed leader, a read back, an audit of thousands of records.

    The death is noticed by a connection that breaks or is refused, long before a session would be over.
    """
    outcome = odradek_process("demo", "--seed", "3", "--json", "--data", str(place), code=0)
    facts = json.loads(outcome.out)
    assert facts["verdict"] == "survived"
    assert facts["acknowledged"] == facts["read"] > 1000
    told = [json.loads(line) for file in place.glob("*/odradek-events.jsonl") for line in file.read_text().splitlines()]
    (target,) = {words.group(1) for each in facts["happenings"] if (words := KILLED.match(each["text"]))}
    reasons = {
        each["reason"] for each in told if each["event"] == "broker_fencing" and str(each["broker_id"]) == target
    }
    assert reasons
    assert reasons <= {"dial refused", "stream gone"}
    assert facts["longest_silence_ms"] > 0
    assert facts["audit"]["compared_records"] >= facts["acknowledged"]
