"""Writers of unique records, and what they were told.

A value says who wrote it and as which one to its partition (`w1/2/417`), so that a reader can tell what was
lost, duplicated or reordered. The ledger writes each event down before the act that it speaks of (`send`) or as soon
as it is known (`ack`, `error`), in the format of `odradek_audit.inputs.history`.

The same code runs in every world: it knows only the client and the clock port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from odradek import Producer
from odradek.producing.delivery import Delivery
from odradek.shared.errors import OdradekError
from odradek_audit.inputs.history import ACK, DELIVER, ERROR, SEND, Event, encode_event
from odradek_proto.transport.ports import Clock

Acks = str | int


@dataclass(slots=True)
class PartitionProgress:
    """When a partition's acknowledgements came, and how long it kept its writers waiting. Ms of the ledger's clock.

    It is silent from its first record on until it acknowledges one, and from each acknowledgement to the next. What
    follows the last one counts only while something waits, or until it was given up.
    """

    since_ms: int  # its first record was handed over, or its last acknowledgement came
    acknowledged: int = 0
    last_ack_ms: int | None = None
    longest_silence_ms: int = 0

    def on_ack(self, now_ms: int) -> None:
        self.on_wait(now_ms)
        self.since_ms = self.last_ack_ms = now_ms
        self.acknowledged += 1

    def on_wait(self, now_ms: int) -> None:
        """Until now somebody has waited."""
        self.longest_silence_ms = max(self.longest_silence_ms, now_ms - self.since_ms)


class Ledger:
    """The history of a run: kept in memory, and written to `path` line by line when one is given.

    What is written to a file has the time of the wall clock, so that it can be laid beside what the brokers wrote.
    """

    def __init__(self, clock: Clock, path: Path | None = None, *, keep: bool = True) -> None:
        self.events: list[Event] = []
        self.progress: dict[tuple[str, int], PartitionProgress] = {}
        self.in_flight: dict[tuple[str, int], int] = {}
        self.acknowledged = 0
        self.failed = 0
        self.certainly_not_written = 0  # of those that failed
        self.on_ack: Callable[[str, int, int], None] | None = None  # told (topic, partition, offset)
        self._of_clients: dict[tuple[str, str, int], int] = {}  # what each client has in flight
        self._clock = clock
        self._time_ms = clock.now_ms if path is None else clock.wall_ms
        self._keep = keep
        self._file: TextIO | None = path.open("w", encoding="utf-8", buffering=1 << 16) if path is not None else None

    @property
    def unacknowledged(self) -> int:
        """Records that were sent and of which nothing is known yet."""
        return sum(self.in_flight.values())

    def send(self, topic: str, partition: int, value: bytes, client: str, acks: Acks) -> None:
        now_ms, key, mine = self._clock.now_ms(), (topic, partition), (client, topic, partition)
        if key not in self.progress:
            self.progress[key] = PartitionProgress(now_ms)
        self.in_flight[key] = self.in_flight.get(key, 0) + 1
        self._of_clients[mine] = self._of_clients.get(mine, 0) + 1
        self._add(Event(SEND, topic, partition, value, client=client, acks=acks, time_ms=self._time_ms()))

    def ack(self, topic: str, partition: int, value: bytes, client: str, acks: Acks, offset: int) -> None:
        now_ms = self._clock.now_ms()
        self._landed(topic, partition, client)
        self.acknowledged += 1
        self.progress[topic, partition].on_ack(now_ms)
        if self.on_ack is not None:
            self.on_ack(topic, partition, offset)
        self._add(Event(ACK, topic, partition, value, offset=offset, client=client, acks=acks, time_ms=self._time_ms()))

    def error(self, topic: str, partition: int, value: bytes, client: str, *, definite: bool) -> None:
        now_ms = self._clock.now_ms()
        self._landed(topic, partition, client)
        self.failed += 1
        self.certainly_not_written += definite
        self.progress[topic, partition].on_wait(now_ms)
        self._add(Event(ERROR, topic, partition, value, client=client, definite=definite, time_ms=self._time_ms()))

    def deliver(self, topic: str, partition: int, value: bytes, client: str, offset: int, *, isolation: str) -> None:
        """A consumer was given a record; `isolation` is its isolation level."""
        at_ms = self._time_ms()
        self._add(
            Event(DELIVER, topic, partition, value, offset=offset, client=client, isolation=isolation, time_ms=at_ms)
        )

    def gone(self, client: str) -> None:
        """A client has died: nobody waits for what it had in flight, and nobody will be told of it."""
        for mine in [each for each in self._of_clients if each[0] == client]:
            self.in_flight[mine[1:]] -= self._of_clients.pop(mine)

    def forget_silence(self) -> None:
        """Begin to measure silences anew."""
        for progress in self.progress.values():
            progress.longest_silence_ms = 0

    def silences_ms(self, now_ms: int) -> dict[tuple[str, int], int]:
        """The longest silence of each partition since `forget_silence`, the one that lasts now included."""
        return {
            key: max(progress.longest_silence_ms, now_ms - progress.since_ms if self.in_flight[key] else 0)
            for key, progress in self.progress.items()
        }

    def longest_silence_ms(self) -> int:
        """The longest of any partition since `forget_silence`, or the one that lasts now; 0 without any record."""
        return max(self.silences_ms(self._clock.now_ms()).values(), default=0)

    def fresh(self, count: int) -> Callable[[], list[bool]]:
        """Tells of each partition whether `count` of its acknowledgements are of records sent after this moment."""
        wanted = {key: each.acknowledged + self.in_flight[key] + count for key, each in self.progress.items()}
        return lambda: [self.progress[key].acknowledged >= number for key, number in wanted.items()]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _landed(self, topic: str, partition: int, client: str) -> None:
        """A record is in flight no more; those of a dead client were none already."""
        mine = (client, topic, partition)
        if mine in self._of_clients:
            self._of_clients[mine] -= 1
            self.in_flight[topic, partition] -= 1

    def _add(self, event: Event) -> None:
        if self._keep:
            self.events.append(event)
        if self._file is not None:
            self._file.write(encode_event(event) + "\n")


@dataclass(slots=True)
class Pace:
    """`rate` records a second over all partitions; what could not be written in its time is not made up for later."""

    clock: Clock
    rate: float
    _due_ms: float = 0

    def __call__(self) -> float:
        """How long, in ms, the partition that has just written waits for its next turn."""
        now_ms = self.clock.now_ms()
        self._due_ms = max(self._due_ms, now_ms) + 1000 / self.rate
        return self._due_ms - now_ms


@dataclass(slots=True)
class WorkloadWriter:
    """One client that writes unique records to all partitions of a topic in turn.

    At most `in_flight` records of each partition wait for their acknowledgement: a partition without a leader does
    not keep the others from being written to.
    """

    producer: Producer[bytes, bytes]
    ledger: Ledger
    clock: Clock
    topic: str
    partitions: int
    name: str
    acks: Acks = "all"
    in_flight: int = 100
    pause_ms: Callable[[], float] | None = None  # until the next record of a partition; without it, at once
    payload: bytes = b""  # appended to each value; begins with a space
    limit: int | None = None  # of records to all partitions; without it, until `stop`
    on_error: Callable[[OdradekError], None] | None = None
    on_send: Callable[[str, int], None] | None = None  # told (writer, partition) before each record
    sent: dict[int, int] = field(default_factory=dict)
    _stopping: bool = False
    _waiting: int = 0  # records that were handed over and have no outcome yet
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Write until `stop` or the limit; returns when nothing is on its way any more."""
        await asyncio.gather(*(self._write(partition) for partition in range(self.partitions)))
        await self.settle()

    def stop(self) -> None:
        self._stopping = True

    async def write_one(self, partition: int, room: asyncio.Semaphore | None = None) -> bool:
        """Hand one record to the producer; what it is told comes later. False: it certainly was not written."""
        number = self.sent.get(partition, 0)
        self.sent[partition] = number + 1
        value = f"{self.name}/{partition}/{number}".encode() + self.payload
        if self.on_send is not None:
            self.on_send(self.name, partition)
        self.ledger.send(self.topic, partition, value, self.name, self.acks)
        try:
            delivery = await self.producer.enqueue(self.topic, value, partition=partition)
        except OdradekError as error:  # never left: certainly not written
            self._failed(partition, value, error, definite=True)
            return False
        self._waiting += 1
        delivery.add_done_callback(partial(self._told, partition, value, room))
        return True

    async def settle(self) -> None:
        """Returns when every record that was handed over has its outcome."""
        while self._waiting:
            self._settled.clear()
            await self._settled.wait()

    async def _write(self, partition: int) -> None:
        room = asyncio.Semaphore(self.in_flight)
        while True:
            await room.acquire()
            if self._stopping or (self.limit is not None and sum(self.sent.values()) >= self.limit):
                break
            if not await self.write_one(partition, room):
                room.release()
                await self.clock.sleep(10)
            elif self.pause_ms is not None:
                await self.clock.sleep(self.pause_ms())

    def _told(self, partition: int, value: bytes, room: asyncio.Semaphore | None, delivery: Delivery) -> None:
        try:
            error = delivery.exception()
            if error is not None:
                self._failed(partition, value, error, definite=False)
            else:
                offset = delivery.result().offset
                self.ledger.ack(self.topic, partition, value, self.name, self.acks, offset)
        finally:
            if room is not None:
                room.release()
            self._waiting -= 1
            if not self._waiting:
                self._settled.set()

    def _failed(self, partition: int, value: bytes, error: OdradekError, *, definite: bool) -> None:
        self.ledger.error(self.topic, partition, value, self.name, definite=definite)
        if self.on_error is not None:
            self.on_error(error)
