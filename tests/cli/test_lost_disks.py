"""A cluster of this machine is brought up again, and brokers that ran before have nothing of it any more (R-217)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.cli.lost_disks import QUORUM_STATE, lost_disks
from odradek_proto.command_line import CommandFailed

from tests.cli.conftest import Run

Lay = Callable[..., LocalCluster]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """A cluster that ran before, in which some brokers have nothing of it."""

    def laid(brokers: int, lost: Collection[int], ran: Callable[[int], bool] = lambda _: True) -> LocalCluster:
        cluster = LocalCluster.create(tmp_path / "c 1", brokers=brokers)
        for node_id, directory in cluster.replicas().items():
            if ran(int(node_id)):
                cluster.log_file(int(node_id)).touch()
            if int(node_id) not in lost:
                state = directory / QUORUM_STATE
                state.parent.mkdir(parents=True)
                state.touch()
        return cluster

    return laid


@pytest.mark.parametrize("brokers", [1, 2, 3])
def test_nothing_is_said_of_brokers_that_have_their_data_or_never_ran(lay: Lay, brokers: int) -> None:
    """A new cluster has no directories yet, and one that is whole has them."""
    whole = lay(brokers, lost=())
    assert lost_disks(whole, whole.nodes) == []
    shutil.rmtree(whole.directory)
    new = lay(brokers, lost=range(1, brokers + 1), ran=lambda _: False)
    assert lost_disks(new, new.nodes) == []


@pytest.mark.parametrize(("brokers", "lost"), [(2, [2]), (3, [1]), (3, [3]), (4, [1, 2]), (5, [2, 4])])
def test_fewer_than_a_majority_is_said_and_goes_on(lay: Lay, brokers: int, lost: list[int]) -> None:
    """Each is named, with its directory, what it means and what comes back."""
    cluster = lay(brokers, lost)
    said = lost_disks(cluster, cluster.nodes)
    assert len(said) == len(lost)
    for node_id, sentence in zip(lost, said, strict=True):
        directory = cluster.nodes[node_id].log_directory
        assert sentence.startswith(f"broker {node_id} has run before, but its data directory {directory} is empty: ")
        assert "it does not count towards the quorum" in sentence
        assert "records that had no other replica are lost" in sentence


def test_an_emptied_directory_and_one_without_its_metadata_count_as_lost(lay: Lay) -> None:
    """What decides is what a voter must not forget, not whether there is a directory."""
    cluster = lay(3, [2])
    (Path(cluster.nodes[2].log_directory) / "orders-0").mkdir(parents=True)
    (said,) = lost_disks(cluster, cluster.nodes)
    assert said.startswith("broker 2 ")


@pytest.mark.parametrize(
    ("brokers", "lost", "copies"),
    [
        (3, [1, 3], "a copy of one"),
        (4, [1, 2, 3], "a copy of one"),
        (5, [1, 2, 3], "a copy of one"),
        (5, [1, 2, 3, 4], "copies of 2"),
    ],
)
def test_a_majority_is_refused_while_somebody_has_data(lay: Lay, brokers: int, lost: list[int], copies: str) -> None:
    """They could elect each other with an empty log, and the others would cut theirs."""
    cluster = lay(brokers, lost)
    with pytest.raises(CommandFailed) as raised:
        lost_disks(cluster, cluster.nodes)
    left = ", ".join(node.log_directory for node_id, node in cluster.nodes.items() if node_id not in lost)
    assert str(raised.value) == (
        f"brokers {', '.join(map(str, lost))} ran before, and nothing of it is in {cluster.directory}: they are a"
        f" majority of the {brokers} voters and would begin anew, without what is in {left}"
    )
    assert raised.value.exit_code == 1
    assert f"put back {copies} of their directories" in raised.value.hint
    assert f"`odradek audit run --data '{cluster.directory}'`" in raised.value.hint


def test_where_nobody_has_anything_the_cluster_begins_anew(lay: Lay) -> None:
    """There is nothing left that could be lost, and it is said."""
    cluster = lay(3, [1, 2, 3])
    (said,) = lost_disks(cluster, cluster.nodes)
    assert said.startswith(f"no broker has anything in {cluster.directory} any more: it begins anew")


def test_only_brokers_that_are_started_are_spoken_of(lay: Lay) -> None:
    """Who restarts broker 1 is told nothing of broker 2, and those that stay down still count."""
    assert lost_disks(lay(3, [2]), [1]) == []


@pytest.mark.parametrize("words", ["cluster up -d", "chaos restart"])
def test_who_starts_brokers_is_told_before_the_first_one_starts(
    odradek: Run, nothing_starts: None, lay: Lay, words: str
) -> None:
    """One lost disk is said, and the brokers start; of two nothing is started."""
    cluster = lay(3, [3])
    told = odradek(*words.split(), "--data", str(cluster.directory), code=0)
    assert "broker 3 has run before, but its data directory " in told.err
    shutil.rmtree(cluster.nodes[2].log_directory)
    refused = odradek(*words.split(), "--data", str(cluster.directory), code=1)
    message, remedy = refused.err.splitlines()
    assert message.startswith("odradek: brokers 2, 3 ran before, and nothing of it is in ")
    assert remedy.startswith("  try: put back a copy of one of their directories")
