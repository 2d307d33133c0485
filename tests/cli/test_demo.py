"""What the demo concludes, and what its screen shows; and one run of the whole."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from odradek import BrokerDescription, ReplicaDescription
from odradek.cli.clusters.status import ClusterStatus, PartitionStatus
from odradek.cli.main import main
from odradek_audit.inputs.history import ACK, SEND, Event
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.cli.interrupting import listening
from odradek_chaos.demo import auditing, commands
from odradek_chaos.demo.state import AuditOutcome, DemoState
from odradek_chaos.demo.story import Demo
from odradek_chaos.demo.view import DemoView
from odradek_chaos.harness.verify import verify
from rich.console import Console

from tests.cli.conftest import Run

KILLED = re.compile(r"kill -9: broker (\d+)")
VALUE = b"w1/0/0"
HISTORY = [Event(SEND, "orders", 0, VALUE), Event(ACK, "orders", 0, VALUE, offset=0)]
AGREE = AuditOutcome("spark", 0, 1.0, {"compared_records": 1, "replicas": {"1": "", "2": ""}})


def state(records: list[tuple[str, int, int, bytes]], audited: AuditOutcome | None, history: list[Event]) -> DemoState:
    found = DemoState(seed=7, brokers=3)
    found.read_back, found.audited = verify(history, records), audited
    return found


def state_that_survived() -> DemoState:
    return state([("orders", 0, 0, VALUE)], AGREE, HISTORY)


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        (state_that_survived(), 0, "SURVIVED"),
        (state([], AGREE, HISTORY), 3, "lost: 1"),  # whatever the audit says
        (state([("orders", 0, 0, VALUE)], AuditOutcome("spark", 3, 1.0, {"findings": 2, "replicas": {}}), HISTORY), 3,
         "2 findings"),  # although every record could be read
        (state([("orders", 0, 0, VALUE)], None, HISTORY), 1, "INCONCLUSIVE"),
        (state([("orders", 0, 0, VALUE)], AuditOutcome("spark", 1, 1.0, {}, "no Java"), HISTORY), 1, "INCONCLUSIVE"),
        (state([("orders", 0, 0, VALUE)], AuditOutcome("spark", 2, 1.0, {}, "usage"), HISTORY), 1, "INCONCLUSIVE"),
        (state([], AGREE, []), 1, "INCONCLUSIVE"),  # nothing acknowledged proves nothing
    ],
)  # fmt: skip
def test_the_verdict_is_that_of_the_read_back_and_the_audit(found: DemoState, code: int, said: str) -> None:
    """A sound read back and an audit without findings make the good one; without an audit there is none."""
    assert found.exit_code == code
    assert any(said in line for line in (found.verdict()[-1:] if said.isupper() else found.verdict()))
    assert (found.as_json()["verdict"] == "survived") is (code == 0)


def test_the_last_line_names_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both streams end in one place: what else there is to say comes before the verdict."""
    found = state_that_survived()
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
    Console(file=screen, width=80, height=24).print(DemoView(found))
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


AUDIT = """#!{python}
import os, shutil, signal, sys, tempfile
scratch = tempfile.mkdtemp(prefix="odradek-spark-")
def tidy(number, frame):
    shutil.rmtree(scratch)
    open({ended!r}, "w").close()
    sys.exit(130)
def hear(number, frame):
    open({heard!r}, "w").close()
signal.signal(signal.SIGINT, {on_sigint})
print("x" * 1_000_000)  # half of a result: more than a pipe holds
sys.stdout.flush()
with open({begun!r}, "w") as fifo:
    fifo.write(scratch)
while True:
    signal.pause()
"""
Audit = Callable[[str], asyncio.Task[AuditOutcome]]


@pytest.fixture
def audit(tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """Begin an audit that does so on SIGINT, and never ends by itself."""
    for fifo in ("begun", "heard"):
        os.mkfifo(tmp_path / fifo)

    def begin(on_sigint: str) -> asyncio.Task[AuditOutcome]:
        program = tmp_path / "audit"
        names = {name: str(tmp_path / name) for name in ("begun", "heard", "ended")}
        program.write_text(AUDIT.format(python=sys.executable, on_sigint=on_sigint, **names))
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        cluster = LocalCluster.create(tmp_path / "cluster", brokers=1)
        return asyncio.create_task(auditing.audit(cluster, tmp_path / "history.jsonl", auditing.SPARK))

    return begin


async def cancelled_at_work(task: asyncio.Task[AuditOutcome], directory: Path, *, again: bool = False) -> None:
    """Cancel when the audit is in the middle of its work, and again when it has heard of that."""
    assert "odradek-spark-" in await asyncio.to_thread((directory / "begun").read_text)
    task.cancel()
    if again:
        await asyncio.to_thread((directory / "heard").read_text)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_audit_is_let_tidy_up(audit: Audit, tmp_path: Path, places: Path) -> None:
    """It is interrupted and waited for, also with more to say than a pipe holds."""
    await cancelled_at_work(audit("tidy"), tmp_path)
    assert (tmp_path / "ended").exists()
    assert os.listdir(places) == []


@pytest.mark.parametrize("again", [False, True])
async def test_an_audit_that_does_not_end_is_killed_and_its_directories_go(
    audit: Audit, tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """When patience is over, or at once when the demo is told again."""
    monkeypatch.setattr(auditing, "ENDING_S", 600 if again else 0.05)
    await cancelled_at_work(audit("hear"), tmp_path, again=again)
    assert not (tmp_path / "ended").exists()
    assert os.listdir(places) == []


pytestmark = pytest.mark.usefixtures("ctrl_c_interrupts")


@pytest.fixture
def ctrl_c_interrupts() -> Any:
    """As in a terminal, wherever these tests run: also behind `nohup`, which ignores a closed terminal."""
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> list[LocalCluster]:
    """Those whose brokers were started; Ctrl-C comes before each kill and before each end that is waited for."""
    started: list[LocalCluster] = []
    start_all, kill, wait_gone = LocalCluster.start_all, LocalCluster.kill, LocalCluster._wait_gone

    def noted(self: LocalCluster) -> None:
        started.append(self)
        start_all(self)

    def kill_told_again(self: LocalCluster, node_id: int) -> None:
        signal.raise_signal(signal.SIGINT)
        kill(self, node_id)

    def wait_told_again(self: LocalCluster, node_id: int, timeout_s: float) -> bool:
        signal.raise_signal(signal.SIGINT)
        return wait_gone(self, node_id, timeout_s)

    monkeypatch.setattr(LocalCluster, "start_all", noted)
    monkeypatch.setattr(LocalCluster, "kill", kill_told_again)
    monkeypatch.setattr(LocalCluster, "_wait_gone", wait_told_again)
    return started


def nothing_stays(clusters: list[LocalCluster], places: Path) -> bool:
    (cluster,) = clusters
    running = [node_id for node_id in cluster.nodes if cluster.running(node_id)]
    for node_id in running:
        cluster.signal(node_id, signal.SIGKILL)
    return not running and not [*places.iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_told_again_leaves_nothing(
    odradek: Run, monkeypatch: pytest.MonkeyPatch, clusters: list[LocalCluster], places: Path, number: signal.Signals
) -> None:
    """Neither a broker that runs nor a directory, however often it is told."""

    async def begin(self: Demo) -> None:
        self.cluster.start_all()
        signal.raise_signal(number)
        await asyncio.Event().wait()

    monkeypatch.setattr(Demo, "run", begin)
    outcome = odradek("demo", "--seed", "1")
    assert (outcome.code, outcome.out) == (130, "")
    assert nothing_stays(clusters, places)


def test_a_demo_that_is_told_again_waits_for_no_broker(
    odradek: Run, monkeypatch: pytest.MonkeyPatch, clusters: list[LocalCluster], places: Path
) -> None:
    """The second Ctrl-C kills them while the story still waits for something that only their end ends."""

    async def begin(self: Demo) -> None:
        self.cluster.start_all()
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            signal.raise_signal(signal.SIGINT)
            for child in self.cluster._children.values():
                assert child.wait(600) == -signal.SIGKILL

    monkeypatch.setattr(Demo, "run", begin)
    odradek("demo", "--seed", "1", code=130)
    assert nothing_stays(clusters, places)


def test_a_demo_that_is_told_to_end_before_it_begins_starts_nothing(
    odradek: Run, monkeypatch: pytest.MonkeyPatch, clusters: list[LocalCluster], places: Path
) -> None:
    """While its cluster is laid out; the directory goes."""
    create = LocalCluster.create

    def told(*words: Any, **named: Any) -> LocalCluster:
        signal.raise_signal(signal.SIGINT)
        return create(*words, **named)

    monkeypatch.setattr(LocalCluster, "create", told)
    odradek("demo", "--seed", "1", code=130)
    assert clusters == []
    assert [*places.iterdir()] == []


def test_a_cluster_that_is_told_again_leaves_nothing(
    odradek: Run, monkeypatch: pytest.MonkeyPatch, clusters: list[LocalCluster], places: Path
) -> None:
    """The second Ctrl-C ends the waiting for brokers that stop cleanly, and those after it nothing."""

    async def told(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr("odradek_chaos.harness.waiting.wait_until_ready", told)
    odradek("cluster", "up", code=130)
    assert nothing_stays(clusters, places)


def test_what_was_done_when_nobody_listens_any_more_is_an_interruption() -> None:
    """Who is told to end while it tidies up does that to the end, and says so then."""
    done = []

    async def work() -> None:
        done.append("work")

    def told_while_it_tidies_up() -> None:
        with listening() as told:
            told.run(work())
            signal.raise_signal(signal.SIGTERM)
            done.append("tidied")

    with pytest.raises(KeyboardInterrupt):
        told_while_it_tidies_up()
    assert done == ["work", "tidied"]
    with listening() as told:
        told.run(work())
    assert done == ["work", "tidied", "work"]
