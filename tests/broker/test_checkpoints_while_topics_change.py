"""A checkpoint is written in a thread, and the log that it speaks of is deleted, made anew or cut meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from odradek import NewTopic
from odradek_broker.runtime.offloading import finish
from odradek_broker.runtime.replicas import maintenance
from odradek_broker.runtime.replicas.maintenance import Maintenance
from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY
from odradek_proto.formats import decode_offset_checkpoint
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Files

from tests.broker.sim_brokers import NODE, SimBrokers

ORDERS = TopicPartition("orders", 0)
OLD_RECORDS, DELETED, NEW_RECORDS = 120, 100, 60
Result = TypeVar("Result")


class Brokers(SimBrokers):
    """One broker. Once it is `armed`, a checkpoint stops before a step in a thread, until somebody says `go_on`."""

    def __init__(self, duty: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
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

    async def make(self) -> None:
        await self.as_admin(lambda admin: admin.create_topics([NewTopic(ORDERS.topic, partitions=1)]))

    async def delete_records(self) -> None:
        await self.as_admin(lambda admin: admin.delete_records({ORDERS: DELETED}))

    async def until_hosted(self) -> None:
        await self.until(lambda: ORDERS in self.hosted(NODE))

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """What it says; nothing before it is written for the first time."""
        path, disk = f"{LOG_DIRECTORY}/{name}-checkpoint", self.machines[NODE].disk
        return decode_offset_checkpoint(disk.read(path)) if disk.find(path) else {}


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(
    ("duty", "name"),
    [("checkpoint_log_starts", "log-start-offset"), ("checkpoint_high_watermarks", "replication-offset")],
)
def test_a_checkpoint_of_a_deleted_topic_says_nothing_of_the_next_one_of_its_name(
    duty: str, name: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill the new topic begins at 0 with all its records, and commits none by the old one's word (R-235)."""
    brokers = Brokers(duty, step, monkeypatch)

    async def told() -> None:
        brokers.start(NODE)
        await brokers.make()
        await brokers.write(ORDERS.topic, OLD_RECORDS)
        await brokers.delete_records()
        brokers.armed = True
        await brokers.stopped.wait()
        await brokers.as_admin(lambda admin: admin.delete_topics([ORDERS.topic]))
        await brokers.make()
        await brokers.until_hosted()
        brokers.go_on.set()
        await brokers.loop.sleep(1_000)  # and the thread is done
        assert brokers.checkpoint(name).get(ORDERS, 0) == 0
        await brokers.write(ORDERS.topic, NEW_RECORDS)
        await brokers.kill_all()
        brokers.start(NODE)
        await brokers.until_hosted()
        state = brokers.hosted(NODE)[ORDERS].state
        assert (state.log_start_offset, state.log_end_offset) == (0, NEW_RECORDS)

    brokers.play(told())
