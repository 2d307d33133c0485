"""A group of KIP-848 in the simulated world: odradek's own consumers, unchanged, that commit, stall and leave.

Each commits after every record, never less than was committed when it took the partition over, and reads what is there
again and again: two that commit for one partition are found out by an offset that falls. Who does not know
what became of a commit ends, and another consumer takes its place: the commit may come late, of a member that is gone.
The first one is a static member.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from odradek import Consumer, OdradekError, TopicPartition

from odradek_chaos.worlds.simulated.checks.groups import GroupHistory
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.run.members import HEARTBEAT_MS, LEAVES, REBALANCE_MS, RETRY_MS, SESSION_MS, STALLS

GROUP = "k"
ONE_ATTEMPT_MS = 1  # default.api.timeout.ms: a commit is not sent again under the same number
STATIC = "c1"


class GroupConsumer:
    """One process, and those that take its place."""

    def __init__(
        self,
        ports: NodePorts,
        history: GroupHistory,
        topic: str,
        bootstrap: str,
        is_restless: Callable[[], bool],
    ) -> None:
        self._ports = ports
        self._history = history
        self._topic = topic
        self._bootstrap = bootstrap
        self._is_restless = is_restless
        self._offsets: dict[TopicPartition, int] = {}  # of what it owns, once it has read what is committed
        self._least: dict[TopicPartition, int] = {}  # of what it owns and has not begun: what was committed before

    @property
    def owned(self) -> list[int]:
        return [tp.partition for tp in self._offsets]

    async def run(self) -> None:
        while True:
            with suppress(
                OdradekError
            ):  # its coordinator is elsewhere, its place is taken, or a commit is not known of
                await self._take_part()
            self._offsets.clear()
            self._least.clear()
            await self._ports.clock.sleep(RETRY_MS)

    async def _take_part(self) -> None:
        clock = self._ports.clock
        async with Consumer(
            self._bootstrap,
            clock=clock,
            network=self._ports.network,
            client_id=self._ports.node,
            group_id=GROUP,
            group_instance_id=self._ports.node if self._ports.node == STATIC else "",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_interval_ms=REBALANCE_MS,
            default_api_timeout_ms=ONE_ATTEMPT_MS,
        ) as consumer:
            consumer.subscribe(self._topic, on_assigned=self._begin, on_revoked=self._forget, on_lost=self._forget)
            while True:
                records = await consumer.poll(HEARTBEAT_MS / 1000, max_records=1)
                for record in records:  # first of all: after a pause of the process it may be another's
                    tp = record.topic_partition
                    least = self._least.pop(tp, -1)
                    self._history.on_processed(self._ports.node, tp.partition, record.offset, least)
                    await self._commit(consumer, tp, record.offset + 1)
                for tp in consumer.assignment():
                    await self._look(consumer, tp)
                drawn = clock.rng.random() if self._is_restless() else 1.0
                if drawn < LEAVES:
                    return
                if drawn < LEAVES + STALLS:
                    await clock.sleep(clock.rng.uniform(0.5, 1.5) * SESSION_MS)

    def _begin(self, partitions: list[TopicPartition]) -> None:
        self._least |= {tp: self._history.offsets.get(tp.partition, -1) for tp in partitions}

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self._offsets.pop(tp, None)
            self._least.pop(tp, None)

    async def _look(self, consumer: Consumer, tp: TopicPartition) -> None:
        least = self._history.offsets.get(tp.partition, -1)
        found = await consumer.committed(tp)
        offset = -1 if found is None else found
        self._history.on_fetched(self._ports.node, tp.partition, offset, least)
        self._offsets.setdefault(tp, offset)

    async def _commit(self, consumer: Consumer, tp: TopicPartition, offset: int) -> None:
        if tp not in self._offsets:
            await self._look(consumer, tp)
        if offset > self._offsets[tp]:  # else the log was cut, or the partition is another's by now
            await consumer.commit({tp: offset})
            self._offsets[tp] = offset
            self._history.on_committed(tp.partition, offset)
