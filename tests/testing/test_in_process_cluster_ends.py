"""What is left of a cluster: nothing. And what a killed broker still does: nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest
from odradek.sync import Producer
from odradek_broker.testing import Cluster
from odradek_broker.testing.files import BrokerFiles
from odradek_proto.transport.background import background_loop

LIVES = 5
NAME_LOOK_UPS = "asyncio_"  # threads of the loop's own pool, of which there are never more than a few


def one_life() -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders")
        with Producer(cluster.bootstrap) as producer:
            producer.send("orders", "written")
        cluster.kill(cluster.leader_of("orders"))


def what_there_is() -> tuple[list[str], int, int]:
    """Threads, file descriptors, tasks of the background loop."""
    threads = sorted(each.name for each in threading.enumerate() if not each.name.startswith(NAME_LOOK_UPS))
    return threads, len(os.listdir("/proc/self/fd")), background_loop().run(tasks_that_stay())


async def tasks_that_stay() -> int:
    """Not those of gRPC that were cancelled and have not had their turn."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, others = await asyncio.wait(others, timeout=1)
    return len(others)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
def test_starts_and_stops_leave_nothing_behind() -> None:
    """After five clusters, each with a killed broker, threads, descriptors and tasks are as after the first."""
    one_life()
    before = what_there_is()
    for _ in range(LIVES):
        one_life()
    assert what_there_is() == before


def test_a_temporary_directory_goes_with_its_cluster() -> None:
    """Nothing stays on the disk."""
    with Cluster(brokers=1) as cluster:
        [directory] = cluster.replicas().values()
        assert directory.exists()
    assert not directory.parent.exists()


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """One of three directories is held by somebody else: the two others are stopped, and can be had again."""
    with Cluster(brokers=1, directory=tmp_path / "held") as holder:
        [held] = holder.replicas().values()
        (tmp_path / "cluster").mkdir()
        (tmp_path / "cluster" / "broker-2").symlink_to(held)
        before = what_there_is()
        with pytest.raises(Exception, match="another process uses this log directory"):
            Cluster(directory=tmp_path / "cluster").open()
        assert what_there_is() == before


def test_what_a_killed_broker_still_writes_goes_nowhere(tmp_path: Path) -> None:
    """Writes, cuts, renames and removals say that all went well, and the disk is as it was; locks are free."""
    (tmp_path / "log").write_bytes(b"as it was")

    async def story() -> None:
        files = BrokerFiles()
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
        await files.finish()
        for file in (log, made, lock):
            with pytest.raises(OSError) as failure:
                file.size()
            assert failure.value.errno == errno.EBADF
        files.close()

    asyncio.run(story())
    assert sorted(os.listdir(tmp_path)) == ["lock", "log"]
    assert (tmp_path / "log").read_bytes() == b"AS!it was"
    BrokerFiles().lock(f"{tmp_path}/lock").close()
