"""A checkpoint is written in a thread, and the log that it speaks of is deleted, made anew or cut meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from odradek import Admin, Producer
from odradek.administration.descriptions import NewTopic
from odradek_broker.runtime.offloading import finish
from odradek_broker.runtime.replicas import maintenance
from odradek_broker.runtime.replicas.maintenance import Maintenance
from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY, SimCluster
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.formats import decode_offset_checkpoint
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Files

NODE = 1
ORDERS = TopicPartition("orders", 0)
OLD_RECORDS, DELETED, NEW_RECORDS = 120, 100, 60
Result = TypeVar("Result")


class Story:
    """One broker. Once it is `armed`, a checkpoint stops before a step in a thread, until somebody says `go_on`."""

    def __init__(self, duty: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = SimLoop(seed=11)
        self.cluster = SimCluster(self.loop, brokers=1)
        self.machine = self.cluster.machines[NODE]
        self.armed = False
        self.stopped, self.go_on = asyncio.Event(), asyncio.Event()
        self._step = step
        self._steps = 0
        self._tasks: list[object] = []
        real = getattr(Maintenance, duty)

        async def watched(duties: Maintenance) -> None:
            self._tasks.append(asyncio.current_task())
            self._steps = 0
            await real(duties)
            self._tasks.pop()

        monkeypatch.setattr(Maintenance, duty, watched)
        monkeypatch.setattr(maintenance, "finish", self._finish)

    async def _finish(self, files: Files, function: Callable[[], Result]) -> Result:
        if self.armed and asyncio.current_task() in self._tasks:
            self._steps += 1
            if self._steps == self._step:
                self.armed = False
                self.stopped.set()
                await self.go_on.wait()
        return await finish(files, function)

    def run(self, told: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def to_the_end() -> None:
            try:
                await told()
            finally:
                await self.kill()

        self.loop.run(to_the_end(), limit_s=600)
        self.loop.close()

    async def kill(self) -> None:
        self.machine.kill()
        await self.loop.sleep(10)

    async def as_client(self, program: Callable[[NodePorts], Coroutine[Any, Any, None]]) -> None:
        await self.cluster.run_client("client", program)

    async def make(self, ports: NodePorts) -> None:
        async with self._admin(ports) as admin:
            await admin.create_topics([NewTopic(ORDERS.topic, partitions=1)])

    async def remove(self, ports: NodePorts) -> None:
        async with self._admin(ports) as admin:
            await admin.delete_topics([ORDERS.topic])

    async def delete_records(self, ports: NodePorts) -> None:
        async with self._admin(ports) as admin:
            await admin.delete_records({ORDERS: DELETED})

    async def fill(self, ports: NodePorts, count: int) -> None:
        async with Producer[bytes, bytes](self.cluster.bootstrap, clock=ports.clock, network=ports.network) as producer:
            for _ in range(count):
                await producer.send(ORDERS.topic, b"0123456789")

    def _admin(self, ports: NodePorts) -> Admin:
        return Admin(self.cluster.bootstrap, clock=ports.clock, network=ports.network)

    async def until_hosted(self) -> None:
        while ORDERS not in self.cluster.hosted(NODE):
            await self.loop.sleep(50)

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """What it says; nothing before it is written for the first time."""
        path = f"{LOG_DIRECTORY}/{name}-checkpoint"
        return decode_offset_checkpoint(self.machine.disk.read(path)) if self.machine.disk.find(path) else {}


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(
    ("duty", "name"),
    [("checkpoint_log_starts", "log-start-offset"), ("checkpoint_high_watermarks", "replication-offset")],
)
def test_a_checkpoint_of_a_deleted_topic_says_nothing_of_the_next_one_of_its_name(
    duty: str, name: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill the new topic begins at 0 with all its records, and commits none by the old one's word (R-235)."""
    story = Story(duty, step, monkeypatch)

    async def told() -> None:
        story.cluster.start(NODE)
        await story.as_client(story.make)
        await story.as_client(lambda ports: story.fill(ports, OLD_RECORDS))
        await story.as_client(story.delete_records)
        story.armed = True
        await story.stopped.wait()
        await story.as_client(story.remove)
        await story.as_client(story.make)
        await story.until_hosted()
        story.go_on.set()
        await story.loop.sleep(1_000)  # and the thread is done
        assert story.checkpoint(name).get(ORDERS, 0) == 0
        await story.as_client(lambda ports: story.fill(ports, NEW_RECORDS))
        await story.kill()
        story.cluster.start(NODE)
        await story.until_hosted()
        state = story.cluster.hosted(NODE)[ORDERS].state
        assert (state.log_start_offset, state.log_end_offset) == (0, NEW_RECORDS)

    story.run(told)
