"""One walk through the whole command on real processes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from odradek.sync import Producer
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.command_line import TIMED_OUT

from tests.cli.conftest import Run
from tests.waiting import until

CALM = ("-X", "controller.quorum.fetch.timeout.ms=20000")  # no controller is replaced for a pause: no order is repeated
RECORDS = 600
pytestmark = pytest.mark.cluster


def test_a_walk_from_up_to_down(odradek: Run, odradek_process: Run, place: Path, home: Path) -> None:
    """up, create, produce, consume, status, kill the leader, consume again, restart, down: each does what it says.

    What is written while the leader is killed is there once and in order. Brokers are children of the commands that
    start them; what only asks runs in this process, for its start is most of what it costs.
    """
    up = odradek_process("cluster", "up", "-d", "--timeout", "90", "--data", str(place), "--json", *CALM,
                         "-X", "min.insync.replicas=2")  # fmt: skip
    assert up.code == 0, up
    started = json.loads(up.out)
    assert len(started["brokers"]) == 3
    assert (home / "current").read_text().strip() == str(place)

    odradek("topic", "create", "orders", "-p", "3", code=0)
    again = odradek("topic", "create", "orders", code=1)
    assert "TOPIC_ALREADY_EXISTS" in again.err

    produced = odradek_process("produce", "orders", "-K", ":", "--json", text="a:1\nb:2\nc:3\n", code=0)
    assert json.loads(produced.out)["records"] == 3
    read = odradek("consume", "orders", "-o", "beginning", "-e", "-J")
    assert sorted((row["key"], row["value"]) for row in map(json.loads, read.out.splitlines())) == [
        ("a", "1"), ("b", "2"), ("c", "3"),
    ]  # fmt: skip

    until(lambda: odradek("cluster", "health"), lambda health: health.code == 0)
    before = json.loads(odradek("cluster", "status", "--json").out)
    assert [broker["fenced"] for broker in before["brokers"]] == [False] * 3
    leader = before["partitions"][0]["leader"]

    with Producer(started["bootstrap"]) as producer:  # raises at its end what was not acknowledged
        for number in range(RECORDS):
            producer.enqueue("orders", str(number), key="w", partition=0)
            if number == RECORDS // 2:
                killed = odradek("chaos", "kill", "--leader", "orders-0", "--json")
    written = odradek("consume", "orders", "-o", "beginning", "-e", "-p", "0", "-f", "%k %v\n").out.splitlines()
    assert [line for line in written if line.startswith("w ")] == [f"w {number}" for number in range(RECORDS)]
    assert json.loads(killed.out)[0]["broker"] == leader
    assert not LocalCluster.load(place).running(leader)
    more = odradek("produce", "orders", "--count", "30", "--json")
    assert json.loads(more.out)["records"] == 30, more
    whole = odradek("consume", "orders", "-o", "beginning", "-e", "-f", "%p/%o\n")
    assert len(set(whole.out.splitlines())) == 33 + RECORDS
    sick = odradek("cluster", "health", "--json", code=3)
    assert any(f"broker {leader}" in problem for problem in json.loads(sick.out)["problems"])

    back = odradek_process("chaos", "restart", "--wait", "--json")
    assert [row["broker"] for row in json.loads(back.out)] == [leader]
    logs = [str(place / f"broker-{number}") for number in (1, 2, 3)]
    until(lambda: odradek("log", "verify", *logs), lambda verified: verified.code == 0)  # they are written to meanwhile

    wrong = odradek("consume", "ordrs", "-e", "-o", "beginning", code=1)
    assert "did you mean 'orders'?" in wrong.err
    deleted = odradek("topic", "delete", "orders", "--yes", "--json", code=0)
    assert [row["topic"] for row in json.loads(deleted.out)] == ["orders"]
    until(lambda: odradek("topic", "list", "-q"), lambda listed: listed == (0, "", ""))  # whoever is asked has heard it

    down = odradek("cluster", "down", "--json")
    assert json.loads(down.out)["killed"] == []
    cluster = LocalCluster.load(place)
    assert not any(cluster.running(number) for number in cluster.nodes)
    odradek("topic", "list", code=4)


def test_a_pid_of_somebody_else_is_left_alone(place: Path) -> None:
    """A recorded process whose start time is another one counts as gone, and gets no signal."""
    cluster = LocalCluster.create(place, brokers=1)
    cluster.nodes[1].pid, cluster.nodes[1].started = os.getpid(), "1"
    cluster.save()
    found = LocalCluster.load(place)
    assert not found.running(1)
    assert found.stop_all() == []
    found.kill_all()


@pytest.mark.slow
def test_the_cluster_before_is_the_default_again(
    odradek: Run, odradek_process: Run, place: Path, tmp_path: Path, home: Path
) -> None:
    """A second cluster says how the first is named from now on; when it goes down the first is meant again."""
    second = tmp_path / "second one"
    odradek_process("cluster", "up", "-d", "-n", "1", "--timeout", "90", "--data", str(place), code=0)
    try:
        up = odradek_process("cluster", "up", "-d", "-n", "1", "--timeout", "90", "--data", str(second))
        assert f"The cluster in {place} runs on and is the default no longer:" in up.err
        assert f"-b {LocalCluster.load(place).bootstrap} names it," in up.err
        assert f"`odradek cluster stop --data {place}` stops it." in up.err
        assert (home / "current").read_text().splitlines() == [str(second), str(place)]
        down = odradek("cluster", "down")
        assert (down.code, f"the cluster in {place} is the default again" in down.err) == (0, True)
    finally:
        LocalCluster.load(second).kill_all()
    described = odradek("cluster", "describe", "--json")
    assert [row["address"] for row in json.loads(described.out)] == [LocalCluster.load(place).bootstrap]
    odradek("cluster", "down", code=0)
    assert not (home / "current").exists()


@pytest.mark.slow
def test_a_stopped_cluster_is_found_again_before_an_empty_one_is_made(
    odradek: Run, odradek_process: Run, places: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """Killed or stopped, `cluster up` is the way back to its records; only `down` removes them, and only when told."""
    monkeypatch.setenv("TMPDIR", str(places))
    up = ("cluster", "up", "-d", "-n", "1", "--timeout", "90", "--json")
    first = json.loads(odradek_process(*up).out)
    cluster = LocalCluster.load(Path(first["directory"]))
    try:
        odradek_process("produce", "-q", "orders", "--create", text="hello\n", code=0)
        cluster.kill_all()
        assert "`odradek cluster up`" in odradek("topic", "list").err
        again = odradek_process(*up)
        assert "found a stopped cluster with topic orders; --new starts an empty one instead" in again.err
        assert {key: json.loads(again.out)[key] for key in ("directory", "bootstrap", "kafka_bootstrap")} == {
            key: first[key] for key in ("directory", "bootstrap", "kafka_bootstrap")
        }
        assert odradek("consume", "orders", "-o", "beginning", "-e").out == "hello\n"
        refused = odradek("cluster", "down")
        assert (refused.code, "topic orders cannot be undone" in refused.err) == (2, True)
        odradek("cluster", "status", code=0)
        odradek("cluster", "stop", code=0)
        odradek("cluster", "up", "-d", "-n", "3", code=2)
        (row,) = json.loads(odradek("cluster", "list", "--json").out)
        assert (row["directory"], row["state"], row["topics"]) == (first["directory"], "stopped", ["orders"])
        assert row["kafka_bootstrap"] == first["kafka_bootstrap"]
        odradek("cluster", "down", "--yes", code=0)
        assert [*places.iterdir()] == []
        assert odradek("cluster", "list", "--json").out == "[]\n"
    finally:
        if LocalCluster.exists(cluster.directory):
            LocalCluster.load(cluster.directory).kill_all()


@pytest.mark.slow
def test_the_one_that_was_named_is_waited_for(odradek: Run, odradek_process: Run, place: Path) -> None:
    """A broker that was killed before is no reason to fail: it is named, with the command that starts it.

    How long the others are waited for is said by `--timeout`.
    """
    odradek_process("cluster", "up", "-d", "--timeout", "90", "--data", str(place), code=0)
    for number in ("2", "3"):
        odradek("chaos", "kill", "--broker", number, code=0)
    restarted = odradek_process("chaos", "restart", "--broker", "2", "--wait", "--timeout", "90", code=0)
    started, down = restarted.err.splitlines()
    assert started.startswith("started broker 2 (pid ")
    assert down == "broker 3 is down since before; `odradek chaos restart --broker 3` starts it"
    cluster = LocalCluster.load(place)
    assert (cluster.running(2), cluster.running(3)) == (True, False)
    too_soon = odradek_process("chaos", "restart", "--wait", "--timeout", "0.001", code=TIMED_OUT)
    assert "the brokers are not ready after 0.001 s" in too_soon.err
    assert LocalCluster.load(place).running(3)
