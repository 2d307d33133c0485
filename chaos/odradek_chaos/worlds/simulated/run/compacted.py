"""A compacted topic in a run, beside the one that all other checks look at: what each key has at the end (K-91).

One client writes values and tombstones of a few keys, each key's one after the other, so that the last one that was
acknowledged is known. Cleaners work all the time, in segments of some ten records. At the end a fresh client reads
everything: of each key the newest record is the last acknowledged one, or one that came later and nobody heard of; a
key whose newest record is a tombstone may be gone. What replicas hold is compared by the audit, as in every run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from odradek import Admin, Consumer, Producer
from odradek.administration.descriptions import NewTopic
from odradek.shared.errors import OdradekError
from odradek_audit.catalogue import COMPACTION_MISMATCH
from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.cluster.node import NodePorts, SimNode
from odradek_chaos.worlds.simulated.world.world import STATES, World

KEYS = 9
TOMBSTONES = 0.15  # of the records
PAUSE_MS = 12
RETRY_MS = 50
DELETE_RETENTION_MS = 1_500
CONFIGS = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": "0",
    "min.cleanable.dirty.ratio": "0.05",
    "internal.segment.bytes": "900",
    "delete.retention.ms": f"{DELETE_RETENTION_MS}",
    "file.delete.delay.ms": "200",
}
Start = Callable[[str, Callable[[NodePorts], Coroutine[Any, Any, None]]], SimNode]


class CompactedStates:
    """The topic's writer and its judge."""

    def __init__(self, world: World, start: Start) -> None:
        self._world = world
        self._start = start
        self._machines: list[SimNode] = []
        self._stopping = False
        self._rng = Random()
        self._acknowledged: dict[bytes, tuple[int, bytes | None]] = {}  # of each key the newest: offset and value
        self._unheard: dict[bytes, list[bytes | None]] = {}  # sent since, with no answer or an error
        self._in_sync_ms: dict[int, int] = {}  # when each replica was last seen in the ISR
        self.found = 0  # records of the last read

    def start(self) -> None:
        self._rng = self._world.loop.fork_rng("states")
        self._machines = [self._start("k1", self._write), self._start("k3", self._look_at_isr)]

    async def stop(self) -> None:
        """Returns when nothing is on its way any more."""
        self._stopping = True
        for machine in self._machines:
            await machine.wait()

    async def _write(self, ports: NodePorts) -> None:
        async with Admin(self._world.cluster.bootstrap, clock=ports.clock, network=ports.network) as admin:
            await self._create(admin, ports)
        async with Producer[bytes, bytes | None](
            self._world.cluster.bootstrap,
            clock=ports.clock,
            network=ports.network,
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
        ) as producer:
            number = 0
            while not self._stopping:
                number += 1
                key = b"key %d" % self._rng.randrange(KEYS)
                value = None if self._rng.random() < TOMBSTONES else b"%b is %d" % (key, number)
                await self._write_one(producer, key, value)
                await ports.clock.sleep(PAUSE_MS)

    async def _create(self, admin: Admin, ports: NodePorts) -> None:
        """Before the producer does it, whose topic would not be compacted."""
        while True:
            try:
                await admin.create_topics([NewTopic(STATES, partitions=1, replication_factor=3, configs=CONFIGS)])
                return
            except OdradekError:  # the answer was lost, or nobody leads the quorum for a while
                await ports.clock.sleep(RETRY_MS)
                with contextlib.suppress(OdradekError):
                    if STATES in await admin.list_topics():
                        return

    async def _write_one(self, producer: Producer[bytes, bytes | None], key: bytes, value: bytes | None) -> None:
        self._unheard.setdefault(key, []).append(value)
        try:
            told = await producer.send(STATES, value, key=key, partition=0)
        except OdradekError:
            return
        self._acknowledged[key] = (told.offset, value)
        self._unheard[key].clear()

    async def _look_at_isr(self, ports: NodePorts) -> None:
        """A replica that is behind for longer than `delete.retention.ms` may miss a tombstone, as in Kafka (K-91)."""
        while not self._stopping:
            registration = self._world.cluster.newest_image().partition(TopicPartition(STATES, 0))
            if registration is not None:
                self._judge_absences(registration, ports.clock.now_ms())
            await ports.clock.sleep(PAUSE_MS)

    def _judge_absences(self, registration: PartitionRegistration, now_ms: int) -> None:
        for broker_id in registration.replicas:
            if broker_id in registration.isr:
                self._in_sync_ms[broker_id] = now_ms
            elif now_ms - self._in_sync_ms.setdefault(broker_id, now_ms) >= DELETE_RETENTION_MS:
                self._world.exemptions.tolerate(f"audit-{COMPACTION_MISMATCH.name}", broker_id)

    async def judge(self) -> None:
        """Read everything, and report `compact-last-value` where a key has not what it should."""
        newest: dict[bytes, tuple[int, bytes | None]] = {}

        async def read(ports: NodePorts) -> None:
            last = -1
            async with Consumer[bytes, bytes](
                self._world.cluster.bootstrap,
                STATES,
                auto_offset_reset="earliest",
                clock=ports.clock,
                network=ports.network,
            ) as consumer:
                async for record in consumer.records(until="end"):
                    assert record.key is not None, record
                    if record.offset <= last:
                        self._report(f"offset {record.offset} is read after {last}")
                    last = record.offset
                    newest[record.key] = (record.offset, record.value)
                    self.found += 1

        await self._start("k2", read).wait()
        for key, (offset, value) in sorted(self._acknowledged.items()):
            there = newest.get(key)
            later = self._unheard[key]
            if there is None:
                right = value is None or None in later
            elif there[0] > offset:
                right = there[1] in later
            else:
                right = there == (offset, value)
            if not right:
                self._report(f"{key!r} was acknowledged as {value!r} at {offset}, and is {there} now")

    def _report(self, sentence: str) -> None:
        self._world.findings.report("compact-last-value", sentence, partition=f"{STATES}-0")
