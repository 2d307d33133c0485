"""A replica that fails is that replica's failure; a disk that refuses is the node's (R-86, R-238)."""

from __future__ import annotations

import asyncio
import errno
import random
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import pytest
from odradek import Admin, Producer
from odradek.administration.descriptions import NewTopic
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.context import RequestContext
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.process.node import Node
from odradek_broker.requests.admin import AdminRequests
from odradek_broker.requests.metadata import MetadataRequests
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.errors import AppendOutOfOrder, LogCorrupted, LogDirectoryFailed
from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY, SimCluster
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from tests.broker.replica_world import CALLER, deleted, listed
from tests.playing import plays

BAD, GOOD = TopicPartition("bad", 0), TopicPartition("good", 0)
NODE = 1
CLEAN_SHUTDOWN = f"{LOG_DIRECTORY}/.kafka_cleanshutdown"


class Story:
    """One broker, two topics, and a client that comes and goes."""

    def __init__(self) -> None:
        self.loop = SimLoop(seed=3)
        settings = BrokerSettings(log_retention_check_interval_ms=100)
        self.cluster = SimCluster(self.loop, brokers=1, settings=settings)
        self.machine = self.cluster.machines[NODE]

    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.loop.run(self._told(story), limit_s=60)
        self.loop.close()

    async def _told(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await story()
        if self.machine.is_running:
            self.machine.kill()
        await self.loop.sleep(10)

    @property
    def replicas(self) -> ReplicaManager:
        broker = self.cluster.nodes[NODE].broker
        assert broker is not None
        return broker.replicas

    @property
    def files(self) -> SimFiles:
        return SimFiles(self.machine.disk, self.loop, random.Random(1))

    def replica(self, tp: TopicPartition) -> Replica:
        return self.replicas.replicas[tp]

    async def start(self) -> None:
        self.cluster.start(NODE)
        self.cluster.nodes.pop(NODE, None)
        await self.until(lambda: self.cluster.hosted(NODE) is not None and self._ready())

    def _ready(self) -> bool:
        node = self.cluster.nodes.get(NODE)
        return node is not None and node.broker is not None and not node.broker.session.fenced

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.loop.sleep(5)

    async def stop(self) -> None:
        self.cluster.stop(NODE)
        await self.machine.wait()

    async def as_client(self, name: str, program: Callable[[NodePorts], Coroutine[Any, Any, None]]) -> None:
        await self.cluster.run_client(name, program)

    async def create_topics(self) -> None:
        async def program(ports: NodePorts) -> None:
            async with Admin(self.cluster.bootstrap, clock=ports.clock, network=ports.network) as admin:
                await admin.create_topics([NewTopic(tp.topic, partitions=1) for tp in (BAD, GOOD)])

        await self.as_client("admin", program)

    async def write(self, tp: TopicPartition, compression: Literal["none", "zstd"] = "none") -> None:
        async def program(ports: NodePorts) -> None:
            async with Producer[bytes, bytes](
                self.cluster.bootstrap, clock=ports.clock, network=ports.network, compression_type=compression
            ) as producer:
                await asyncio.wait_for(producer.send(tp.topic, b"still served"), 5)

        await self.as_client("writer", program)


def with_topics(story: Callable[[Story], Coroutine[Any, Any, None]]) -> None:
    """Play it with a broker that has both topics."""
    played = Story()

    async def told() -> None:
        await played.start()
        await played.create_topics()
        await story(played)

    played.run(told)


@pytest.mark.parametrize(
    "error", [AppendOutOfOrder("below the end"), LogCorrupted("0.log", 7, 1, "checksum")], ids=["append", "corruption"]
)
@plays(with_topics)
async def test_one_broken_log_leaves_the_others_and_the_node_alone(story: Story, error: Exception) -> None:
    """R-86: that replica answers with a storage error, the other one goes on, and the next start recovers."""
    story.replicas.storage_failed(story.replica(BAD), error)
    assert story.replica(BAD).offline is not None
    await story.write(GOOD)
    assert not story.cluster.nodes[NODE].failed.done()
    await story.stop()
    assert not story.files.exists(CLEAN_SHUTDOWN)


@pytest.mark.parametrize("error", [LogDirectoryFailed("fsync"), OSError(5, "I/O error")], ids=["directory", "system"])
@plays(with_topics)
async def test_a_disk_that_refuses_stops_the_node(story: Story, error: Exception) -> None:
    """R-238: after a failed write or fsync nothing in the directory can be trusted."""
    story.replicas.storage_failed(story.replica(BAD), error)
    await story.loop.sleep(10)
    assert story.cluster.nodes[NODE].failed.exception() is not None


@plays(with_topics)
async def test_a_node_that_failed_writes_nothing_more(story: Story) -> None:
    """R-238: so what its disk refuses, such as one that became read-only, does not hide why it failed."""
    await story.write(GOOD)
    disk = story.machine.disk
    disk.inject("write", times=1_000_000, code=errno.EROFS)
    await story.cluster.nodes[NODE].kill()
    disk.heal()


def test_a_start_that_is_thrown_away_does_not_clean_up() -> None:
    """At whatever moment: that of a process which was killed does nothing more, and cannot wait for anything."""
    story = Story()
    cluster, machine = story.cluster, story.machine
    moments: list[int] = []

    async def thrown_away(ports: NodePorts) -> None:
        network = cluster.network_of(NODE, ports)
        node = Node(cluster.settings_of(NODE), clock=ports.clock, files=ports.files, network=network)
        starting: asyncio.Task[None] = asyncio.ensure_future(node.start())
        await story.loop.sleep(len(moments))
        if not starting.done():
            moments.append(len(moments))
            coroutine: Any = starting.get_coro()
            coroutine.close()

    async def told() -> None:
        before = -1
        while before < len(moments):
            before = len(moments)
            machine.start(thrown_away)
            await machine.wait()
            assert machine.failure is None, machine.failure

    story.run(told)
    assert len(moments) > 1


@plays(with_topics)
async def test_a_log_that_cannot_be_opened_answers_with_a_storage_error(story: Story) -> None:
    """R-86: clients are not sent away to look for a leader that they have found; the other replica serves."""
    await story.stop()
    assert story.files.exists(CLEAN_SHUTDOWN)
    metadata = story.files.open(f"{LOG_DIRECTORY}/bad-0/partition.metadata")
    metadata.truncate(0)
    metadata.pwritev([b"version: nine\n"], 0)
    metadata.close()
    await story.start()
    assert story.replicas.lookup(BAD) is ErrorCode.KAFKA_STORAGE_ERROR
    await story.write(GOOD)
    assert not story.cluster.nodes[NODE].failed.done()


@plays(with_topics)
async def test_a_look_up_by_time_over_a_damaged_segment_is_a_storage_error(story: Story) -> None:
    """The damage is the answer of that partition alone, and the call does not fail."""
    await story.write(BAD)
    await story.write(GOOD)
    segment = story.files.open(f"{LOG_DIRECTORY}/bad-0/{0:020d}.log")
    segment.pwritev([b"\xff" * 4], 8)  # the batch's length
    segment.close()
    assert await listed(story.replicas, story.files, 1, tp=BAD) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert await listed(story.replicas, story.files, 1, tp=GOOD) == (ErrorCode.NONE, 0)


@plays(with_topics)
async def test_a_look_up_by_time_without_the_codec_is_told_so(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such batches are taken and served without a look into them; the other partitions of the call have answers."""
    await story.write(BAD, "zstd")
    await story.write(GOOD)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert await listed(story.replicas, story.files, 1, tp=BAD) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
    assert await listed(story.replicas, story.files, 1, tp=GOOD) == (ErrorCode.NONE, 0)


@plays(with_topics)
async def test_a_leader_that_was_replaced_during_a_look_up_says_so(story: Story) -> None:
    """What it found belongs to a term that is over."""
    await story.write(GOOD)
    asked = asyncio.ensure_future(listed(story.replicas, story.files, 1, tp=GOOD))
    await asyncio.sleep(0)  # it is in its thread now
    story.replica(GOOD).take_role(None)
    assert (await asked)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


@plays(with_topics)
async def test_delete_records_of_an_offline_replica_is_a_storage_error(story: Story) -> None:
    """The log start of a log that cannot be trusted is not moved."""
    await story.write(BAD)
    story.replica(BAD).take_offline("its log is damaged")
    assert await deleted(story.replicas, -1, tp=BAD) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert await deleted(story.replicas, -1, tp=GOOD) == (ErrorCode.NONE, 0)


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
            forward=forward, feed=MetadataFeed(), describe_own=lambda _: None
        ).create_with_defaults,
        caught_up=caught_up,
    )
    (topic,) = (await requests.metadata(CALLER, ["orders"], allow_auto_topic_creation=True)).topics
    assert topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
