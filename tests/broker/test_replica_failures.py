"""A replica that fails is that replica's failure; a disk that refuses is the node's (R-86, R-238)."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from odradek import NewTopic
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.context import RequestContext
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.process.node import Node
from odradek_broker.requests.admin import AdminRequests
from odradek_broker.requests.metadata import MetadataRequests
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.storage.errors import AppendOutOfOrder, LogCorrupted, LogDirectoryFailed
from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from tests.broker.replica_world import CALLER, deleted, listed
from tests.broker.sim_brokers import NODE, SimBrokers, alone
from tests.playing import plays

BAD, GOOD = TopicPartition("bad", 0), TopicPartition("good", 0)
CLEAN_SHUTDOWN = f"{LOG_DIRECTORY}/.kafka_cleanshutdown"


def with_topics(story: Callable[[SimBrokers], Coroutine[Any, Any, None]]) -> None:
    """Play it with a broker that has both topics."""
    cluster = SimBrokers(settings=BrokerSettings(log_retention_check_interval_ms=100))

    async def told() -> None:
        cluster.start(NODE)
        await cluster.until_ready()
        await cluster.as_admin(
            lambda admin: admin.create_topics([NewTopic(tp.topic, partitions=1) for tp in (BAD, GOOD)])
        )
        await story(cluster)

    cluster.play(told())


@pytest.mark.parametrize(
    "error", [AppendOutOfOrder("below the end"), LogCorrupted("0.log", 7, 1, "checksum")], ids=["append", "corruption"]
)
@plays(with_topics)
async def test_one_broken_log_leaves_the_others_and_the_node_alone(cluster: SimBrokers, error: Exception) -> None:
    """R-86: that replica answers with a storage error, the other one goes on, and the next start recovers."""
    cluster.replicas.storage_failed(cluster.replica(BAD), error)
    assert cluster.replica(BAD).offline is not None
    await cluster.write(GOOD.topic)
    assert not cluster.nodes[NODE].failed.done()
    cluster.stop(NODE)
    await cluster.machines[NODE].wait()
    assert not cluster.disk_files.exists(CLEAN_SHUTDOWN)


@pytest.mark.parametrize("error", [LogDirectoryFailed("fsync"), OSError(5, "I/O error")], ids=["directory", "system"])
@plays(with_topics)
async def test_a_disk_that_refuses_stops_the_node(cluster: SimBrokers, error: Exception) -> None:
    """R-238: after a failed write or fsync nothing in the directory can be trusted."""
    cluster.replicas.storage_failed(cluster.replica(BAD), error)
    await cluster.loop.sleep(10)
    assert cluster.nodes[NODE].failed.exception() is not None


@plays(with_topics)
async def test_a_node_that_failed_writes_nothing_more(cluster: SimBrokers) -> None:
    """R-238: so what its disk refuses, such as one that became read-only, does not hide why it failed."""
    await cluster.write(GOOD.topic)
    disk = cluster.machines[NODE].disk
    disk.inject("write", times=1_000_000, code=errno.EROFS)
    await cluster.nodes[NODE].kill()
    disk.heal()


@plays(alone)
async def test_a_start_that_is_thrown_away_does_not_clean_up(cluster: SimBrokers) -> None:
    """At whatever moment: that of a process which was killed does nothing more, and cannot wait for anything."""
    machine = cluster.machines[NODE]
    moments: list[int] = []

    async def thrown_away(ports: NodePorts) -> None:
        network = cluster.network_of(NODE, ports)
        node = Node(cluster.settings_of(NODE), clock=ports.clock, files=ports.files, network=network)
        starting: asyncio.Task[None] = asyncio.ensure_future(node.start())
        await cluster.loop.sleep(len(moments))
        if not starting.done():
            moments.append(len(moments))
            coroutine: Any = starting.get_coro()
            coroutine.close()

    before = -1
    while before < len(moments):
        before = len(moments)
        machine.start(thrown_away)
        await machine.wait()
        assert machine.failure is None, machine.failure
    assert len(moments) > 1


@plays(with_topics)
async def test_a_log_that_cannot_be_opened_answers_with_a_storage_error(cluster: SimBrokers) -> None:
    """R-86: clients are not sent away to look for a leader that they have found; the other replica serves."""
    cluster.stop(NODE)
    await cluster.machines[NODE].wait()
    assert cluster.disk_files.exists(CLEAN_SHUTDOWN)
    metadata = cluster.disk_files.open(f"{LOG_DIRECTORY}/bad-0/partition.metadata")
    metadata.truncate(0)
    metadata.pwritev([b"version: nine\n"], 0)
    metadata.close()
    cluster.start(NODE)
    await cluster.until_ready()
    assert cluster.replicas.lookup(BAD) is ErrorCode.KAFKA_STORAGE_ERROR
    await cluster.write(GOOD.topic)
    assert not cluster.nodes[NODE].failed.done()


@plays(with_topics)
async def test_a_look_up_by_time_over_a_damaged_segment_is_a_storage_error(cluster: SimBrokers) -> None:
    """The damage is the answer of that partition alone, and the call does not fail."""
    await cluster.write(BAD.topic)
    await cluster.write(GOOD.topic)
    segment = cluster.disk_files.open(f"{LOG_DIRECTORY}/bad-0/{0:020d}.log")
    segment.pwritev([b"\xff" * 4], 8)  # the batch's length
    segment.close()
    assert await listed(cluster.replicas, cluster.disk_files, 1, tp=BAD) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert await listed(cluster.replicas, cluster.disk_files, 1, tp=GOOD) == (ErrorCode.NONE, 0)


@plays(with_topics)
async def test_a_look_up_by_time_without_the_codec_is_told_so(
    cluster: SimBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such batches are taken and served without a look into them; the other partitions of the call have answers."""
    await cluster.write(BAD.topic, compression_type="zstd")
    await cluster.write(GOOD.topic)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert await listed(cluster.replicas, cluster.disk_files, 1, tp=BAD) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
    assert await listed(cluster.replicas, cluster.disk_files, 1, tp=GOOD) == (ErrorCode.NONE, 0)


@plays(with_topics)
async def test_a_leader_that_was_replaced_during_a_look_up_says_so(cluster: SimBrokers) -> None:
    """What it found belongs to a term that is over."""
    await cluster.write(GOOD.topic)
    asked = asyncio.ensure_future(listed(cluster.replicas, cluster.disk_files, 1, tp=GOOD))
    await asyncio.sleep(0)  # it is in its thread now
    cluster.replica(GOOD).take_role(None)
    assert (await asked)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


@plays(with_topics)
async def test_delete_records_of_an_offline_replica_is_a_storage_error(cluster: SimBrokers) -> None:
    """The log start of a log that cannot be trusted is not moved."""
    await cluster.write(BAD.topic)
    cluster.replica(BAD).take_offline("its log is damaged")
    assert await deleted(cluster.replicas, -1, tp=BAD) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert await deleted(cluster.replicas, -1, tp=GOOD) == (ErrorCode.NONE, 0)


async def test_metadata_answers_when_no_controller_can_create_a_topic() -> None:
    """The topic is unknown for now; everything else in the answer is as good as ever."""

    async def forward(context: RequestContext, method: str, *request: object, at_most_once: bool) -> bytes:
        raise ControllerUnavailable(method)

    caught_up = asyncio.Event()
    caught_up.set()
    requests = MetadataRequests(
        image=MetadataImage,
        controller_id=lambda: -1,
        auto_create=True,
        create_topics=AdminRequests(
            forward=forward,
            feed=MetadataFeed(),
            settings=ControllerSettings(node_id=1, cluster_id="any"),
            describe_own=lambda _: None,
        ).create_with_defaults,
        caught_up=caught_up,
    )
    (topic,) = (await requests.metadata(CALLER, ["orders"], allow_auto_topic_creation=True)).topics
    assert topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
