"""A cluster's directory is the cluster: it can be copied and moved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_broker.local.processes import start_time


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
    with pytest.raises(ClusterError, match=f"ODRADEK_KAFKA_PORT={port}: no port for 3 brokers; .* 1 to 65533, or 0"):
        LocalCluster.create(tmp_path / "cluster", brokers=3)
