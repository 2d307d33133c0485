"""A cluster's directory is the cluster: it can be copied and moved."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import deque
from functools import partial
from pathlib import Path

import pytest
from odradek_broker.local import cluster as cluster_module
from odradek_broker.local import ports, processes
from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_broker.local.processes import IN_PROCESS_PORTS, LISTENING_PORTS, is_free, start_time
from odradek_chaos.harness.starting import start_on_free_ports
from odradek_chaos.harness.waiting import wait_until_ready

from tests.conftest import TEST_PORTS
from tests.waiting import PATIENCE_S

CHOOSES = processes.free_ports  # this very one: tests have another one in its place
IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path

from odradek_broker.local import processes

processes.LISTENING_PORTS, processes.is_free = range(int(sys.argv[1]), int(sys.argv[2])), lambda address: True
processes.LOCKS = Path(sys.argv[3])
print(*processes.free_ports(processes.BLOCK))
"""


def made(directory: Path) -> LocalCluster:
    """A cluster of three with something in each log directory; its first node seems to run."""
    cluster = LocalCluster.create(directory, brokers=3, temporary=True)
    for node in cluster.nodes.values():
        Path(node.log_directory).mkdir()
        (Path(node.log_directory) / "log").write_text("records")
    cluster.nodes[1].pid, cluster.nodes[1].started = os.getpid(), start_time(os.getpid())
    cluster.save()
    return cluster


def test_a_copy_has_logs_of_its_own_and_no_processes(tmp_path: Path) -> None:
    """What is removed with the copy is the copy, and the original runs on."""
    original = made(tmp_path / "original")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    copy = LocalCluster.load(tmp_path / "copy")
    assert set(copy.replicas().values()) == {tmp_path / "copy" / f"broker-{number}" for number in (1, 2, 3)}
    assert not copy.running(1)
    assert not copy.temporary
    copy.remove()
    assert not (tmp_path / "copy").exists()
    assert all((path / "log").read_text() == "records" for path in original.replicas().values())
    assert LocalCluster.load(tmp_path / "original").running(1)


def test_a_moved_cluster_keeps_its_processes(tmp_path: Path) -> None:
    """And so does one that is found by another name."""
    made(tmp_path / "before")
    (tmp_path / "link").symlink_to(tmp_path / "before")
    assert LocalCluster.load(tmp_path / "link").running(1)
    (tmp_path / "before").rename(tmp_path / "after")
    moved = LocalCluster.load(tmp_path / "after")
    assert moved.running(1)
    assert moved.replicas()["1"] == tmp_path / "after" / "broker-1"


@pytest.mark.parametrize("port", ["abc", "-1", "65535", "70000", "9092.5"])
def test_a_first_kafka_port_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    """The sentence names the variable and the range; nothing is bound."""
    monkeypatch.setenv("ODRADEK_KAFKA_PORT", port)
    with pytest.raises(ClusterError, match=f"ODRADEK_KAFKA_PORT={port}: no port for 3 brokers") as refused:
        LocalCluster.create(tmp_path / "cluster", brokers=3, fixed_ports=True)
    assert (refused.value.exit_code, refused.value.hint.partition(",")[0]) == (2, "a number from 1 to 65533")


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The addresses that somebody has, on a machine where nobody names ports for Kafka's clients."""
    addresses: set[str] = set()
    for module in (ports, cluster_module):
        monkeypatch.setattr(module, "is_free", lambda address: address not in addresses)
    monkeypatch.setattr(processes, "LOCKS", tmp_path)
    monkeypatch.setenv("ODRADEK_HOME", str(tmp_path / "home"))  # ports of clusters that are remembered are kept
    monkeypatch.delenv("ODRADEK_KAFKA_PORT")
    return addresses


def test_the_first_cluster_has_kafkas_port_and_the_next_one_the_next_row(tmp_path: Path, taken: set[str]) -> None:
    """Each time the same, also for two that start at once; one that was moved comes back to the first row."""
    first, second = (LocalCluster.create(tmp_path / name, brokers=3, fixed_ports=True) for name in "ab")
    assert first.kafka_bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert first.bootstrap == "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"
    assert second.kafka_bootstrap == "127.0.0.1:9102,127.0.0.1:9103,127.0.0.1:9104"
    listeners = [
        getattr(node, name)
        for cluster in (first, second)
        for node in cluster.nodes.values()
        for name in ports.FIRST_PORTS
    ]
    assert len({*listeners}) == 24
    del first
    stays = LocalCluster.load(tmp_path / "b")
    assert (stays.renew_ports(), stays.kafka_bootstrap) == ([], second.kafka_bootstrap)
    moved = LocalCluster.load((tmp_path / "b").rename(tmp_path / "c"))
    assert (moved.renew_ports(), moved.kafka_bootstrap) == ([], "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094")
    taken.add("127.0.0.1:21093")
    assert moved.renew_ports() == ["127.0.0.1:21093"]
    assert LocalCluster.load(tmp_path / "c").kafka_bootstrap.startswith("127.0.0.1:9112,")


def test_a_port_for_kafkas_clients_that_was_asked_for_is_had_or_refused(
    tmp_path: Path, taken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never another one: whoever names it has written it down elsewhere."""
    monkeypatch.setenv("ODRADEK_KAFKA_PORT", "9500")
    assert LocalCluster.create(tmp_path / "a", brokers=2, fixed_ports=True).kafka_bootstrap.endswith(":9501")
    taken.add("127.0.0.1:9501")
    with pytest.raises(ClusterError, match="ODRADEK_KAFKA_PORT=9500: port 9501 is taken") as refused:
        LocalCluster.create(tmp_path / "b", brokers=2, fixed_ports=True)
    assert "ss -ltnp 'sport = :9501'" in refused.value.hint
    taken.clear()
    monkeypatch.setenv("ODRADEK_KAFKA_PORT", "9600")
    other = LocalCluster.load(tmp_path / "a")
    assert (other.renew_ports(), other.kafka_bootstrap) == ([], "127.0.0.1:9600,127.0.0.1:9601")


def test_no_two_ways_of_choosing_ports_choose_the_same() -> None:
    """A cluster inside of a process holds ports on which nobody listens yet, and the tests' clusters those of brokers
    that are down: to others they look free."""
    rows = [range(first, first + ports.ROW * ports.ROWS) for first in ports.FIRST_PORTS.values()]
    ranges = sorted([*rows, LISTENING_PORTS, IN_PROCESS_PORTS, TEST_PORTS], key=lambda each: each.start)
    assert all(one.stop <= other.start for one, other in itertools.pairwise(ranges)), ranges


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> range:
    """All ports that there are: those of three blocks, on which nobody listens and that nobody has claimed."""
    few = range(LISTENING_PORTS.start, LISTENING_PORTS.start + 3 * processes.BLOCK)
    monkeypatch.setattr(processes, "LISTENING_PORTS", few)
    monkeypatch.setattr(processes, "is_free", lambda address: True)
    monkeypatch.setattr(processes, "LOCKS", tmp_path)
    monkeypatch.setattr(processes, "_claims", {})
    monkeypatch.setattr(processes, "_unused", deque())
    monkeypatch.setattr(processes, "_given", set())
    return few


def test_what_a_choice_leaves_of_its_ports_is_chosen_next(few: range) -> None:
    """A process that has many clusters one after the other runs out of no ports sooner than of all that there are."""
    found = [port for _ in few[::3] for port in CHOOSES(3)]
    assert sorted(found) == list(few)
    with pytest.raises(OSError, match="too few free ports"):
        CHOOSES(1)


def test_ports_of_a_cluster_that_is_removed_are_chosen_again(
    tmp_path: Path, few: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of the original of a copy that is removed, though the copy names them until it starts."""
    monkeypatch.setattr(cluster_module, "free_ports", CHOOSES)
    for number in range(20):
        cluster = LocalCluster.create(tmp_path / f"{number}", brokers=3)
        shutil.copytree(cluster.directory, tmp_path / "copy")
        LocalCluster.load(tmp_path / "copy").remove()
        others = CHOOSES(len(few) - 12)
        assert not {f"127.0.0.1:{port}" for port in others} & {node.kafka for node in cluster.nodes.values()}
        with pytest.raises(OSError, match="too few free ports"):
            CHOOSES(1)
        processes.release_ports(others)
        cluster.remove()


def test_ports_of_a_stopped_cluster_are_claimed_while_somebody_has_it(
    tmp_path: Path, few: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes may be started again on them. They were claimed until the process ended, and a process that has many
    clusters one behind the other and removes none ran out of ports."""
    monkeypatch.setattr(cluster_module, "free_ports", CHOOSES)
    for number in range(20):
        cluster = LocalCluster.create(tmp_path / f"{number}", brokers=3)
        cluster.stop_all()
        others = CHOOSES(len(few) - 12)
        assert not {f"127.0.0.1:{port}" for port in others} & {node.kafka for node in cluster.nodes.values()}
        with pytest.raises(OSError, match="too few free ports"):
            CHOOSES(1)
        processes.release_ports(others)
        del cluster


def test_a_hint_names_the_cluster_that_was_struck(tmp_path: Path) -> None:
    """Without --data it would act on the one that was started last."""
    cluster = LocalCluster.create(tmp_path / "my data", brokers=1)
    with pytest.raises(ClusterError, match="broker 1 does not run") as refused:
        cluster.kill(1)
    assert refused.value.hint == f"`odradek chaos restart --data '{tmp_path}/my data' --broker 1` starts it"


def test_ports_that_were_chosen_are_nobody_elses(tmp_path: Path, few: range) -> None:
    """Another process that chooses, of as few ports as are left, gets none of them, though nobody listens there yet."""
    mine = CHOOSES(2 * processes.BLOCK)
    others = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, str(few.start), str(few.stop), str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    theirs = [int(port) for port in others.stdout.split()]
    assert len(theirs) == processes.BLOCK
    assert not {*mine} & {*theirs}
    with pytest.raises(OSError, match="too few free ports"):
        CHOOSES(2 * processes.BLOCK)


def test_a_port_that_is_taken_before_a_broker_listens_is_replaced(tmp_path: Path) -> None:
    """By a process that knows of no claims, after the choice; what is told names the port."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=2)
    before, told, starts = cluster.bootstrap.split(","), list[str](), []

    def start() -> None:
        starts.append(cluster.bootstrap)
        if not all(map(is_free, cluster.bootstrap.split(","))):
            raise ClusterError("broker 2 ended with exit code 1")

    async def ready() -> None:
        pass

    with socket.create_server(("127.0.0.1", int(before[1].rpartition(":")[2]))):
        asyncio.run(start_on_free_ports(cluster, ready, told.append, start=start))
    assert told == [f"another process has taken {before[1]}: once more, on other ports"]
    assert len(starts) == 2
    assert LocalCluster.load(cluster.directory).bootstrap == starts[-1] != starts[0]


def test_a_start_that_fails_for_another_reason_is_not_repeated(tmp_path: Path) -> None:
    """The ports are free: others would help nobody."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=2)
    starts = []

    async def ready() -> None:
        starts.append(cluster.bootstrap)
        raise ClusterError("broker 2 ended with exit code 1")

    with pytest.raises(ClusterError, match="exit code 1"):
        asyncio.run(start_on_free_ports(cluster, ready, print, start=lambda: None))
    assert len(starts) == 1


def test_a_start_that_fails_leaves_brokers_alone_that_ran_before(tmp_path: Path) -> None:
    """They were killed, and got other ports for those that they were said to have lost to another process."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=2)
    before = cluster.bootstrap

    async def ready() -> None:
        raise ClusterError("broker 2 ended with exit code 1")

    def begin(node_id: int) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(["sleep", "60"])
        cluster.nodes[node_id].pid, cluster.nodes[node_id].started = child.pid, start_time(child.pid)
        return child

    with begin(1) as ran, socket.create_server(("127.0.0.1", int(before.rpartition(":")[2]))):
        begun = []
        with pytest.raises(ClusterError, match="exit code 1"):
            asyncio.run(start_on_free_ports(cluster, ready, print, start=lambda: begun.append(begin(2))))
        assert (ran.poll(), begun[0].wait()) == (None, -signal.SIGKILL)
        ran.kill()
    assert cluster.bootstrap == before


@pytest.mark.slow
@pytest.mark.cluster
def test_real_brokers_come_up_beside_who_took_their_port(tmp_path: Path) -> None:
    """The broker that finds its port taken ends; both are there at other addresses."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=2)
    told: list[str] = []
    address = cluster.nodes[2].replication
    try:
        with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
            ready = partial(wait_until_ready, cluster, timeout_s=PATIENCE_S)
            asyncio.run(start_on_free_ports(cluster, ready, told.append))
            assert all(map(cluster.running, cluster.nodes))
    finally:
        cluster.kill_all()
    assert told == [f"another process has taken {address}: once more, on other ports"]
