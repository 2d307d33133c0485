"""Readers that have had enough, disks that are full, and commands that are stopped half-way, on a real broker."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from odradek_broker.local.cluster import LocalCluster

from tests.cli.conftest import Run
from tests.signals import sigint_of_children

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE_S = 120  # of a busy machine
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
    with sigint_of_children():
        writing = subprocess.Popen(
            [sys.executable, "-m", "odradek.cli.main", "chaos", "write", "a.b", "--count", "100000000",
             "--history", str(history), "--json"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ODRADEK_HOME": str(home)},
        )  # fmt: skip
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
    gone, kept = writing, subprocess.PIPE
    with sigint_of_children():
        running = subprocess.Popen(
            [sys.executable, "-m", "odradek.cli.main", *UP, "--data", str(place)],
            text=True,
            env={**os.environ, "ODRADEK_HOME": str(home)},
            stdout=gone if reader_of == "stdout" else kept,
            stderr=gone if reader_of == "stderr" else kept,
        )
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
    with sigint_of_children(signal.SIG_IGN):
        running = subprocess.Popen(
            [sys.executable, "-m", "odradek.cli.main", *UP, "--data", str(place)],
            text=True,
            env={**os.environ, "ODRADEK_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    assert running.stderr is not None
    assert any(line.startswith("Ctrl-C stops it.") for line in running.stderr)
    running.send_signal(signal.SIGINT)
    running.send_signal(number)
    assert running.wait(timeout=PATIENCE_S) == 0
    assert not LocalCluster.load(place).running(1)
    assert (place / "broker-1" / ".kafka_cleanshutdown").exists(), "it was not stopped cleanly"
