"""What is left of a cluster, also of a killed process: nothing. And what a killed broker still does: nothing."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from odradek.sync import Producer
from odradek_broker.testing import AsyncCluster, Cluster, ClusterError
from odradek_broker.testing.files import BrokerFiles
from odradek_broker.testing.layout import IDENTITY_FILE, IN_USE_FILE
from odradek_broker.testing.unflushed import Unflushed
from odradek_proto.transport.background import background_loop
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.files import OsFiles
from odradek_proto.transport.lock_holders import LOCK

LIVES = 5
TURNS = 10
SOON_S = 30  # gRPC closes sockets and ends tasks on threads of its own, a little after it was told to
LOOK_AGAIN_MS = 20
NUMBER = re.compile(r"(?<=^Thread)-\d+")
NAME_LOOK_UPS = "asyncio_"  # threads of the loop's own pool, of which there are never more than a few


def one_life() -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders")
        with Producer(cluster.bootstrap) as producer:
            producer.send("orders", "written")
        cluster.kill(cluster.leader_of("orders"))


class Holdings(NamedTuple):
    """What this process has: threads by their names, open descriptors, tasks on the background loop."""

    threads: Counter[str]
    descriptors: int
    tasks: int

    def exceed(self, before: Holdings) -> bool:
        """There may be less than before: what earlier clusters had ends late as well."""
        return not self.threads <= before.threads or self.descriptors > before.descriptors or self.tasks > before.tasks


def what_there_is() -> Holdings:
    names = [NUMBER.sub("", each.name) for each in threading.enumerate()]  # gRPC's poller comes again with another one
    threads = Counter(name for name in names if not name.startswith(NAME_LOOK_UPS))
    tasks = background_loop().call(lambda: len(asyncio.all_tasks()))
    return Holdings(threads, len(os.listdir("/proc/self/fd")), tasks)


def what_stays(before: Holdings) -> Holdings:
    """What there is as soon as it is no more than before, or after a while if it never is."""
    clock, deadline = LoopClock(random.Random()), time.monotonic() + SOON_S
    while (found := what_there_is()).exceed(before) and time.monotonic() < deadline:
        background_loop().run(clock.sleep(LOOK_AGAIN_MS))
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
def test_starts_and_stops_leave_nothing_behind() -> None:
    """After five clusters, each with a killed broker, threads, descriptors and tasks are as after the first."""
    one_life()
    before = what_there_is()
    for _ in range(LIVES):
        one_life()
    after = what_stays(before)
    assert not after.exceed(before), (before, after)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
def test_a_cluster_that_is_dropped_is_closed_with_a_warning() -> None:
    """Nobody can close it any more: its brokers do not go on without their directories."""

    def started() -> Path:
        cluster = Cluster()
        cluster.open()
        return cluster.replicas()["1"].parent

    one_life()
    before = what_there_is()
    with pytest.warns(ResourceWarning, match=r"unclosed cluster .*broker 1 at 127\.0\.0\.1:\d+"):
        directory = started()
    after = what_stays(before)
    assert not after.exceed(before), (before, after)
    assert not directory.exists()


def test_a_cluster_whose_loop_has_ended_can_be_closed() -> None:
    """Its brokers ended with the loop; ports and directory are given back."""

    async def start() -> AsyncCluster:
        cluster = AsyncCluster()
        cluster.opens_late = True  # gRPC cannot be ended without its loop
        await cluster.open()
        return cluster

    cluster = asyncio.run(start())
    directory = cluster.replicas()["1"].parent
    asyncio.run(cluster.close())
    assert not directory.exists()
    with pytest.raises(ClusterError, match="the cluster is not open"):
        cluster.replicas()


def test_a_cluster_that_found_no_port_may_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    with monkeypatch.context() as patched:
        patched.setattr("odradek_broker.testing.layout.IN_PROCESS_PORTS", range(0))
        with pytest.raises(ClusterError, match="no port"):
            cluster.open()
    cluster.open()
    cluster.close()


def test_no_timer_keeps_a_broker_in_memory() -> None:
    """A session of tests has thousands of clusters: neither a client's connection nor a waiting fetch holds one."""

    async def write(bootstrap: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            await producer.send_and_wait("orders", b"written")

    cluster = Cluster()
    cluster.open()
    nodes = [weakref.ref(member.node) for member in cluster._cluster._members.values() if member.node is not None]
    assert len(nodes) == 3
    asyncio.run(write(cluster.kafka_bootstrap))
    cluster.close()
    for _ in range(TURNS):
        background_loop().call(lambda: None)  # connections that were closed are forgotten in a turn of the loop
    gc.collect()
    assert [node() for node in nodes] == [None, None, None]


def test_a_temporary_directory_goes_with_its_cluster() -> None:
    """Nothing stays on the disk."""
    with Cluster(brokers=1) as cluster:
        [directory] = cluster.replicas().values()
        assert directory.exists()
    assert not directory.parent.exists()


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """One of three directories is held by somebody else: the two others are stopped, and can be had again."""
    held = tmp_path / "cluster" / "broker-2"
    held.mkdir(parents=True)
    files = OsFiles()
    lock = files.lock(str(held / LOCK))
    one_life()  # what gRPC starts once and keeps
    before = what_there_is()
    with pytest.raises(ClusterError, match=f"{held} is in use by another cluster or process"):
        Cluster(directory=tmp_path / "cluster").open()
    after = what_stays(before)
    assert not after.exceed(before), (before, after)
    lock.close()
    files.close()
    with Cluster(directory=tmp_path / "cluster") as cluster:
        assert cluster.running == [1, 2, 3]


async def test_what_a_killed_broker_still_writes_goes_nowhere(tmp_path: Path) -> None:
    """Writes, cuts, renames and removals say that all went well, and the disk is as it was; locks are free."""
    (tmp_path / "log").write_bytes(b"as it was")
    files = BrokerFiles(Unflushed(tmp_path))
    log, lock = files.open(f"{tmp_path}/log"), files.lock(f"{tmp_path}/lock")
    written = log.pwritev([b"AS", b"!"], 0)
    files.detach()
    assert (written, log.pwritev([b"late", b"!"], 0)) == (3, 5)
    log.truncate(0)
    log.fsync()
    made = files.open(f"{tmp_path}/made", create=True)
    assert made.pwritev([b"nothing"], 0) == 7
    files.makedirs(f"{tmp_path}/directory")
    files.rename(f"{tmp_path}/log", f"{tmp_path}/renamed")
    files.remove(f"{tmp_path}/log")
    await files.offload(lambda: files.remove_tree(str(tmp_path)))
    files.close()
    for file in (log, made, lock):
        with pytest.raises(OSError) as failure:
            file.size()
        assert failure.value.errno == errno.EBADF
    assert sorted(os.listdir(tmp_path)) == ["lock", "log"]
    assert (tmp_path / "log").read_bytes() == b"AS!it was"
    BrokerFiles(Unflushed(tmp_path)).lock(f"{tmp_path}/lock").close()


# --- directories of clusters whose process was killed ----------------------------------------------------------------

MAKE = (
    "from odradek_broker.testing.layout import ClusterLayout; layout = ClusterLayout(1, None); "
    "print(layout.path, flush=True); "
)


def start(place: Path, then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAKE + then],
        env=os.environ | {"TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_only_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """Not what another process uses, nor a directory of the user's own, whatever its name; and no pipe is opened."""
    with start(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)") as killed:
        abandoned = said(killed)
    assert killed.returncode == -signal.SIGKILL
    assert abandoned.is_dir()
    own = tmp_path / "odradek-own"
    own.mkdir()
    (own / IDENTITY_FILE).write_text("{}")
    os.mkfifo(own / IN_USE_FILE)
    with start(tmp_path, "input()") as living:
        used = said(living)
        with start(tmp_path, "layout.remove_temporary()") as after:
            gone = said(after)
        assert after.returncode == 0
        assert sorted(tmp_path.iterdir()) == sorted([own, used])
        assert not abandoned.exists()
        assert not gone.exists()
        living.communicate("\n")
    assert [each.name for each in tmp_path.iterdir()] == [own.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root can neither make nor remove another user's directory")
def test_what_another_user_has_left_is_not_removed(tmp_path: Path) -> None:
    """Root could."""
    others = tmp_path / "odradek-others"
    others.mkdir()
    (others / IN_USE_FILE).touch()
    os.chown(others, 65_534, 65_534)
    with start(tmp_path, "layout.remove_temporary()") as process:
        said(process)
    assert [each.name for each in tmp_path.iterdir()] == [others.name]
