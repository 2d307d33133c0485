"""Commands that go on until somebody has had enough, a broker that is frozen meanwhile, readers that are gone, and
disks that are full, on real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek import Admin, NewTopic
from odradek.cli.clusters.current import remember
from odradek_audit.inputs.history import ACK, SEND, History, read_events
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.waiting import wait_until_ready

from tests.cli.conftest import Run
from tests.signals import Handler, sigint_of_children
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # each is a process or two, beside three brokers

PATIENCE_S = 120
UNNOTICED = {  # nobody who is frozen, or merely busy, is missed before the end
    "broker.session.timeout.ms": "300000",
    "controller.quorum.fetch.timeout.ms": "300000",
}
NEVER_BEGINS = """
import signal, sys

if "odradek_broker" in sys.orig_argv:
    signal.pause()
"""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers and a topic for all tests of this module: each leaves them as it found them, but for records."""
    made = LocalCluster.create(tmp_path_factory.mktemp("brokers") / "cluster", brokers=3, settings=UNNOTICED)
    try:
        made.start_all()
        asyncio.run(wait_until_ready(made, timeout_s=PATIENCE_S))
        asyncio.run(create_topic(made.bootstrap))
        yield made
    finally:
        made.kill_all()


async def create_topic(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", 3, 3)])


@pytest.fixture
def cluster(brokers: LocalCluster, home: Path) -> LocalCluster:
    """The brokers, all there, as the cluster that was started last."""
    remember(brokers.directory)
    asyncio.run(wait_until_ready(brokers, timeout_s=PATIENCE_S))
    return brokers


@contextlib.contextmanager
def started(
    home: Path,
    *words: str,
    terminal: str = "",
    on_sigint: Handler = signal.default_int_handler,
    stdin: int | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
) -> Iterator[subprocess.Popen[str]]:
    """A command as a process that hears Ctrl-C, as one in a terminal does; it is gone at the end."""
    environment = {**os.environ, "ODRADEK_HOME": str(home), "TERM": terminal}
    command = [sys.executable, "-m", "odradek.cli.main", *words]
    with sigint_of_children(on_sigint):
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, text=True, env=environment)
    with process:
        try:
            yield process
        finally:
            process.kill()


def interrupt(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ctrl-C; what it still says."""
    process.send_signal(signal.SIGINT)
    return ended(process)


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The last words of a process that was interrupted."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    return out, err


def test_an_endless_produce_can_be_interrupted(cluster: LocalCluster, odradek: Run, home: Path) -> None:
    """It says how many records were acknowledged, and those that were are there."""
    before = records_written(odradek)
    with producing_without_end(odradek, home) as producing:
        out, err = interrupt(producing)
    assert "Traceback" not in err
    counted = json.loads(out)
    assert counted["records"] >= 2000
    assert (counted["failed"], counted["unknown"], counted["interrupted"]) == (0, 0, True)
    assert counted["records"] == records_written(odradek) - before


def leaders_ends(status: str) -> list[int]:
    """Where the logs end; of a leader that did not answer in time there is none."""
    return [replica["log_end_offset"] for each in json.loads(status)["partitions"] for replica in each["replicas"]
            if replica["broker"] == each["leader"]]  # fmt: skip


def test_a_produce_that_waits_for_a_line_can_be_interrupted(cluster: LocalCluster, home: Path) -> None:
    """At once, with its summary: the thread that waits for standard input keeps Python from nothing."""
    reading, writing = os.pipe()
    with started(home, "produce", "orders", stdin=reading) as producing:
        os.close(reading)
        os.write(writing, b"one\ntwo\nhalf a li")
        said(producing, "2 records acknowledged")  # its first news, after five seconds
        _, err = interrupt(producing)
    os.close(writing)
    (summary,) = [line for line in err.splitlines() if "records acknowledged, " not in line]  # news of a later moment
    assert summary.startswith("2 records, 6 B in ")


STOPS = pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
WAITS = "records are on their way, for --timeout at most; a second Ctrl-C does not wait for them"


def records_written(odradek: Run) -> int:
    """How many are in the logs, once every leader has told."""
    ends = until(lambda: leaders_ends(odradek("cluster", "status", "--json").out), lambda ends: len(ends) == 3)
    return sum(ends)


@contextlib.contextmanager
def producing_without_end(odradek: Run, home: Path) -> Iterator[subprocess.Popen[str]]:
    """A produce that has begun, and takes a batch in every turn of its loop: some of its records are always open."""
    with started(home, "produce", "orders", "--count", "0", "--json") as producing:
        odradek("consume", "orders", "-o", "end", "-c", "2000", code=0)
        yield producing


def said(process: subprocess.Popen[str], wanted: str) -> str:
    """What a process says on standard error up to the line that has this in it."""
    assert process.stderr is not None
    seen = ""
    while wanted not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    return seen


@contextlib.contextmanager
def all_frozen(cluster: LocalCluster) -> Iterator[None]:
    """Brokers that acknowledge nothing, and are missed by nobody."""
    for broker in cluster.nodes:
        cluster.pause(broker)
    try:
        yield
    finally:
        for broker in cluster.nodes:
            cluster.resume(broker)


@STOPS
def test_an_interrupted_produce_waits_for_what_it_has_taken(
    cluster: LocalCluster, odradek: Run, home: Path, number: signal.Signals
) -> None:
    """However long that takes: here the brokers are frozen until it has said for how many records it waits."""
    before = records_written(odradek)
    with producing_without_end(odradek, home) as producing:
        with all_frozen(cluster):
            producing.send_signal(number)
            said(producing, WAITS)
        out, _ = ended(producing)
    counted = json.loads(out)
    assert (counted["interrupted"], counted["failed"], counted["unknown"]) == (True, 0, 0)
    assert counted["records"] == records_written(odradek) - before > 0


def test_a_second_ctrl_c_ends_a_produce_at_once(cluster: LocalCluster, odradek: Run, home: Path) -> None:
    """With code 1, and the number of records of which nobody can say whether they are written."""
    with producing_without_end(odradek, home) as producing:
        with all_frozen(cluster):
            producing.send_signal(signal.SIGINT)
            said(producing, WAITS)
            producing.send_signal(signal.SIGINT)
            out, err = producing.communicate(timeout=PATIENCE_S)
        assert producing.returncode == 1, err
    assert "Traceback" not in err
    counted = json.loads(out)
    assert counted["interrupted"]
    assert counted["unknown"] > 0


@pytest.mark.parametrize("times", [1, 2])
def test_the_ledger_of_a_workload_that_is_told_to_end_is_whole(
    cluster: LocalCluster, odradek: Run, home: Path, tmp_path: Path, times: int
) -> None:
    """Once told, it waits for its records; told again, it does not; the ledger has what was sent in any case."""
    history = tmp_path / "history.jsonl"
    words = ("chaos", "write", "orders", "--count", "100000000", "--history", str(history), "--json")
    with started(home, *words) as writing:
        odradek("consume", "orders", "-o", "end", "-c", "2000", code=0)
        with all_frozen(cluster):
            writing.send_signal(signal.SIGTERM)
            said(writing, WAITS)
            if times == 2:
                writing.send_signal(signal.SIGTERM)
                assert writing.wait(timeout=PATIENCE_S) in (1, 130)
        out, err = writing.communicate(timeout=PATIENCE_S)
    facts, counted = json.loads(out), Counter(event.type for event in read_events(history))
    assert facts["interrupted"]
    assert facts["sent"] == counted[SEND] > 0
    assert facts["acknowledged"] == counted[ACK]
    assert writing.returncode == (130 if facts["sent"] == facts["acknowledged"] else 1), err
    assert times == 2 or facts["sent"] == facts["acknowledged"]


@pytest.mark.parametrize(
    ("acks", "said_of_it"), [("all", "acknowledged in"), ("1", "acknowledged in"), ("0", "acks=0")]
)
def test_a_workload_writes_down_what_was_promised(
    cluster: LocalCluster, odradek: Run, tmp_path: Path, acks: str, said_of_it: str
) -> None:
    """Each record with the acks that it went with; only those of acks=all are owed to anybody."""
    words = ["chaos", "write", "orders", "--count", "300", "--acks", acks, "--history", str(tmp_path / "history")]
    outcome = odradek(*words, code=0)
    assert said_of_it in outcome.out
    events = [*read_events(tmp_path / "history")]
    assert Counter(event.type for event in events) == {SEND: 300, ACK: 300}
    assert {str(event.acks) for event in events} == {acks}
    history = History(events)
    owed = [each for partition in range(3) for each in history.of("orders", partition).acknowledged]
    assert len(owed) == (300 if acks == "all" else 0)


def test_a_record_that_is_too_large_is_counted_out(cluster: LocalCluster, odradek: Run, tmp_path: Path) -> None:
    """Its number is named, what the command can do about it, and how many were written before it."""
    (lines := tmp_path / "lines").write_bytes(b"one\n" + b"x" * 1_100_000 + b"\nthree\n")
    outcome = odradek("produce", "orders", "--file", str(lines), "--json", code=1)
    counted = json.loads(outcome.out)
    assert counted["records"] == 1
    assert counted["ended_by"].startswith("record number 2 is too large: a record of 11000")
    assert json.loads(outcome.err)["error"]["message"].startswith("record number 2 is too large: a record of 11000")
    assert "Producer(max_request_size=...)" in outcome.err
    (lines := tmp_path / "json").write_bytes(b'{"value": "one"}\n{\n')
    outcome = odradek("produce", "orders", "--file", str(lines), "--input", "json", "--json")
    counted = json.loads(outcome.out)
    assert (outcome.code, counted["records"], counted["errors"]) == (1, 1, {})
    assert counted["ended_by"].startswith("input line 2 is no record: ")
    assert counted["ended_by"] in outcome.err
    outcome = odradek("produce", "orders", "--count", "3", "--json")
    assert (outcome.code, json.loads(outcome.out)["ended_by"]) == (0, None)


def test_a_produce_ends_when_nobody_acknowledges_any_more(cluster: LocalCluster, odradek: Run, home: Path) -> None:
    """With code 1 soon after the first record was given up; it takes no more of a source without end."""
    words = ("produce", "orders", "--count", "0", "--rate", "100", "--timeout", "6", "--json")
    with started(home, *words) as producing:
        odradek("consume", "orders", "-o", "end", "-c", "40", code=0)
        with all_frozen(cluster):
            out, err = producing.communicate(timeout=PATIENCE_S)
    assert producing.returncode == 1, err
    counted = json.loads(out)
    assert counted["records"] >= 20
    assert counted["failed"] >= 1
    assert "no record was acknowledged any more: " in err
    assert counted["ended_by"].startswith("no record was acknowledged any more: ")


def test_a_produce_that_is_held_up_says_by_what(odradek: Run, odradek_process: Run, place: Path, home: Path) -> None:
    """Once, with what to try, while the records wait for a broker that is gone."""
    odradek_process("cluster", "up", "-d", "-n", "1", "--timeout", "90", "--data", str(place), code=0)
    odradek("topic", "create", "orders", "-r", "1", code=0)
    words = ("produce", "orders", "--count", "0", "--rate", "100", "--timeout", str(PATIENCE_S))
    with started(home, *words) as producing:
        odradek("consume", "orders", "-o", "beginning", "-c", "20", code=0)
        cluster = LocalCluster.load(place)
        cluster.kill(1)
        news = said(producing, f"held up: broker 1 at {cluster.bootstrap}: connection refused")
        assert news.splitlines()[-1].endswith("connection refused; waiting")


def test_a_consumer_goes_on_when_its_only_broker_was_away(
    odradek: Run, odradek_process: Run, place: Path, home: Path
) -> None:
    """It says what it waits for, reads on after the restart, and ends on Ctrl-C as before."""
    odradek_process("cluster", "up", "-d", "-n", "1", "--timeout", "90", "--data", str(place), code=0)
    odradek("topic", "create", "orders", "-r", "1", "-p", "1", code=0)
    odradek("produce", "orders", "--count", "1", code=0)
    with started(home, "consume", "orders", "-o", "beginning") as consuming:
        assert consuming.stdout is not None
        assert consuming.stderr is not None
        assert consuming.stdout.readline().startswith("0 ")
        LocalCluster.load(place).kill(1)
        assert consuming.stderr.readline().startswith("held up: orders-0: ")
        odradek("chaos", "restart", "--broker", "1", "--wait", code=0)
        odradek("produce", "orders", "--count", "2", code=0)
        assert [consuming.stdout.readline().split()[0] for _ in range(2)] == ["0", "1"]
        interrupt(consuming)


@pytest.mark.parametrize("options", [(), ("-d",)])
def test_a_start_that_is_interrupted_leaves_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """It ends with code 130, for there is no cluster; its brokers and its temporary data are gone."""
    (places := tmp_path / "places").mkdir()
    monkeypatch.setenv("TMPDIR", str(places))
    (tmp_path / "sitecustomize.py").write_text(NEVER_BEGINS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with started(home, "cluster", "up", "--timeout", str(PATIENCE_S), *options) as starting:
        assert starting.stderr is not None
        assert "starting 3 brokers" in starting.stderr.readline()
        out, err = interrupt(starting)
    assert (out, err.splitlines()[-1]) == ("", "stopped; it had no topics, and its directory is removed")
    assert not list(places.iterdir())
    assert str(places) not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not (home / "current").exists()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_watched_status_moves_no_cursor_that_is_not_there(
    cluster: LocalCluster, home: Path, is_terminal: bool
) -> None:
    """On a dumb terminal, and in a pipe, one block comes after the other."""
    reading, writing = pty.openpty() if is_terminal else os.pipe()
    with started(home, "cluster", "status", "--watch", terminal="dumb", stdout=writing) as watching:
        os.close(writing)
        seen = ""
        while seen.count("; healthy") < 2:
            assert select.select([reading], [], [], PATIENCE_S)[0], seen
            seen += os.read(reading, 4096).decode()
            assert watching.poll() is None, seen
        watching.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # so a terminal ends, when nobody is at its other end
            while rest := os.read(reading, 4096):  # who is not read from cannot say its last
                seen += rest.decode()
        ended(watching)
    os.close(reading)
    assert "\x1b" not in seen
    assert seen.count("PARTITION") >= 1


def test_a_frozen_broker_is_named_and_only_a_frozen_one_is_thawed(cluster: LocalCluster, odradek: Run) -> None:
    """Before anybody has missed it; afterwards all is healthy again, and there is nobody left to be thawed."""
    odradek("chaos", "pause", "--broker", "1", code=0)
    until(
        lambda: odradek("cluster", "status").out.splitlines(),
        lambda status: status and "broker 1 does not answer" in status[0],
    )
    assert "thawed broker 1" in odradek("chaos", "resume", "--broker", "1").err
    again = odradek("chaos", "resume", "--broker", "1", "--json")
    assert (again.code, json.loads(again.out)) == (0, [])
    assert "broker 1 was not frozen" in again.err


UP = ("cluster", "up", "-n", "1", "--timeout", "90")


def test_detached_brokers_stay_when_nobody_reads(shell: Run, place: Path) -> None:
    """`cluster up -d` ends quietly when its reader has had enough, and its brokers run."""
    outcome = shell(f"odradek cluster up -d -n 1 --timeout 90 --data {place} 2>&1 | head -1")
    assert (outcome.code, outcome.out.split()[:2]) == (0, ["starting", "1"])
    assert LocalCluster.load(place).running(1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_detached_brokers_stay_on_a_full_disk(shell: Run, place: Path) -> None:
    """Where they are cannot be printed: that is an error, which says that they run."""
    outcome = shell(f"odradek cluster up -d -n 1 --timeout 90 --data {place} >/dev/full", code=1)
    assert "the brokers run, but that could not be printed: No space left on device" in outcome.err
    assert "Traceback" not in outcome.err
    assert LocalCluster.load(place).running(1)


def test_what_was_done_is_said_when_the_rest_is_not(odradek: Run, shell: Run, home: Path, place: Path) -> None:
    """Pipes that close, topics of which one cannot be made, a workload that is interrupted."""
    shell(f"odradek cluster up -d -n 1 --timeout 90 --data {place}", code=0)
    partly = odradek("topic", "create", "a.b", "a_b", "c", code=1)
    assert "a.b created" in partly.err.splitlines()[0]
    assert partly.err.splitlines()[1] == "not tried: c"
    assert "collides with 'a.b'" in partly.err.splitlines()[2]
    refused = odradek("topic", "elect", "nope-0").out.splitlines()[1]
    assert refused.split()[:2] == ["nope-0", "UNKNOWN_TOPIC_OR_PARTITION:"]

    odradek("produce", "a.b", "--count", "20000", code=0)
    for words in ("topic list | true", "consume a.b -o beginning | head -1", "cluster status --watch | head -3"):
        outcome = shell(f"odradek {words}")
        assert (outcome.code, outcome.err) == (0, ""), words

    history = home / "history.jsonl"
    os.mkfifo(history)  # read from here: some records were sent when something comes
    command = ("chaos", "write", "a.b", "--count", "100000000", "--history", str(history), "--json")
    with started(home, *command, stderr=None) as writing:
        arriving = os.open(history, os.O_RDONLY | os.O_NONBLOCK)  # whether or not the writer gets so far
        assert select.select([arriving], [], [], PATIENCE_S)[0], "the writer wrote nothing"
        os.set_blocking(arriving, True)
        with open(arriving, encoding="utf-8") as told:
            first = told.readline()
            writing.send_signal(signal.SIGINT)
            events = [json.loads(line) for line in (first, *told)]
        facts = json.loads(writing.communicate(timeout=PATIENCE_S)[0])
    assert writing.returncode == 130
    assert facts["history"] == str(history)
    assert facts["acknowledged"] == sum(event["type"] == "ack" for event in events)
    assert facts["sent"] == sum(event["type"] == "send" for event in events) > 0


@pytest.mark.parametrize("reader_of", ["stdout", "stderr"])
def test_a_cluster_in_the_foreground_outlives_its_reader(home: Path, place: Path, reader_of: str) -> None:
    """Nobody reads what it prints, and it runs until it is told to stop; who still reads is told at once."""
    reading, writing = os.pipe()
    os.close(reading)
    gone = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, reader_of: writing}
    with started(home, *UP, "--data", str(place), stdout=gone["stdout"], stderr=gone["stderr"]) as running:
        os.close(writing)
        told, last = (running.stderr, "Ctrl-C stops it.") if reader_of == "stdout" else (running.stdout, "export ")
        assert told is not None
        assert any(line.startswith(last) for line in told), f"it ended with {running.wait()}"
        cluster = LocalCluster.load(place)
        assert cluster.running(1)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=PATIENCE_S) == 0
    assert not cluster.running(1)
    assert (place / "broker-1" / ".kafka_cleanshutdown").exists(), "it was not stopped cleanly"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["terminated", "hung up"])
def test_a_cluster_that_a_script_started_in_the_background_stops_when_it_is_told(
    home: Path, place: Path, number: signal.Signals
) -> None:
    """Such a process ignores Ctrl-C, by the custom of shells; what else ends a command ends it cleanly."""
    with started(home, *UP, "--data", str(place), on_sigint=signal.SIG_IGN) as running:
        said(running, "Ctrl-C stops it.")
        running.send_signal(signal.SIGINT)
        running.send_signal(number)
        assert running.wait(timeout=PATIENCE_S) == 0
    assert not LocalCluster.load(place).running(1)
    assert (place / "broker-1" / ".kafka_cleanshutdown").exists(), "it was not stopped cleanly"
