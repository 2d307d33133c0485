"""The work of `odradek produce`: send, keep count, show how it goes, sum up."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from odradek_proto.command_line import CommandFailed

from odradek import BufferFull, Delivery, DeliveryTimeout, OdradekError, Producer, RecordTooLarge, RequestTimeout
from odradek.cli.records.measures import LOOK_EVERY_S, SendingNotices, percentiles_ms, rates, tell
from odradek.cli.records.outgoing import Outgoing, Portion
from odradek.cli.terminal.screen import Screen
from odradek.cli.terminal.stopping import say_what_is_waited_for, told_in_vain, told_to_stop
from odradek.core.batches import ProducerBatch
from odradek.producing.delivery import LoopYield, batch_of
from odradek.producing.producer import appending

FAILED_PATIENCE_S = 3.0  # when the source failed: a bad line does not make the good ones before it unknown
RATE_STEP_S = 0.005  # with --rate: how far ahead of its time a record may go
TOO_LARGE = (
    "send smaller records; larger ones need a program with Producer(max_request_size=...), "
    "and max.message.bytes of the topic raised"
)


@dataclass
class SendStatistics:
    """The count of one run. Latencies are milliseconds from handing a record over to its acknowledgement.

    `ended_by` is the error that ended it before its source did; the record that it is about was not taken.
    """

    started: float = field(default_factory=time.monotonic)
    taken: int = 0
    acknowledged: int = 0
    failed: int = 0
    maybe_written: int = 0  # of those that failed
    interrupted: bool = False
    bytes: int = 0
    latencies_ms: array[float] = field(default_factory=lambda: array("f"))
    errors: Counter[str] = field(default_factory=Counter)
    ended_by: str | None = None

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.started, 1e-9)

    @property
    def unknown(self) -> int:
        """Records that were taken, and of which nobody has said what became of them."""
        return self.taken - self.acknowledged - self.failed

    def summary(self) -> dict[str, Any]:
        """Ready for JSON. Latencies are None when nothing was acknowledged."""
        seconds = self.seconds
        return {
            "records": self.acknowledged,
            "bytes": self.bytes,
            "failed": self.failed,
            "unknown": self.unknown,
            "interrupted": self.interrupted,
            "seconds": round(seconds, 3),
            "records_per_second": round(self.acknowledged / seconds, 1),
            "bytes_per_second": round(self.bytes / seconds, 1),
            **percentiles_ms(self.latencies_ms),
            "errors": dict(self.errors),
            "ended_by": self.ended_by,
        }


@dataclass(slots=True)
class InFlightBatch:
    """Records of one batch: one of their deliveries, when each was handed over (seconds), and the bytes of all."""

    delivery: Delivery
    since: array[float] = field(default_factory=lambda: array("d"))
    bytes: int = 0


class Sending:
    """Sends records from a source and follows each of them until it is acknowledged or has failed.

    Ctrl-C, SIGTERM and SIGHUP make it take no more, and wait for what it has taken until that is acknowledged or given
    up; the second one ends the waiting. A record counts as taken once the producer has it.
    """

    def __init__(self, producer: Producer[Any, Any], topic: str, screen: Screen, *, rate: float = 0) -> None:
        self._producer = producer
        self._topic = topic
        self._screen = screen
        self._rate = rate
        self._on_way: dict[ProducerBatch, InFlightBatch] = {}
        self._more = asyncio.Event()
        self._ended = False
        self._working: asyncio.Task[None] | None = None
        self._between_records = False
        self._given_up = False
        self._acknowledged_at = 0.0
        self._hopeless: DeliveryTimeout | None = None
        self.sent = SendStatistics()

    async def run(self, source: AsyncIterator[Portion], total: int = 0) -> None:
        """Send everything, or what was taken when it was told to stop: then `sent.interrupted` is true.

        When this fails, what is on its way is waited for a moment.
        """
        following = asyncio.create_task(self._follow())
        sent = self.sent
        sent.started = time.monotonic()  # to find the topic's partitions is no part of the rate
        news = asyncio.create_task(
            tell(self._screen, self._topic, total, lambda: (sent.acknowledged, "acknowledged"), self._pace)
        )
        trouble = asyncio.create_task(self._show_trouble())
        self._working = asyncio.create_task(self._work(source, following))
        try:
            with told_to_stop(self._stop):
                await self._working
        except asyncio.CancelledError:
            if not self._given_up:
                raise
        finally:
            with told_in_vain() if self._given_up else nullcontext():
                with suppress(RequestTimeout, TimeoutError):
                    async with asyncio.timeout(0 if self._given_up else FAILED_PATIENCE_S):
                        await self._end(following, FAILED_PATIENCE_S)
                self._count_done()
                for task in (others := (news, trouble, following)):
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)

    async def _work(self, source: AsyncIterator[Portion], following: asyncio.Task[None]) -> None:
        try:
            await self._take(source)
        except asyncio.CancelledError:
            if not self.sent.interrupted or self._given_up:
                raise
        except BufferFull:  # the record in hand, which was not taken, makes the others no less awaited
            if not self.sent.interrupted:
                raise
        await self._end(following, None)

    async def _take(self, source: AsyncIterator[Portion]) -> None:
        """Hand over portion after portion, until there are no more or it is told to stop."""
        if self.sent.interrupted:
            return
        self._between_records = True
        async for portion in source:
            await self._take_portion(portion)
            await LoopYield()
            if not self._goes_on():
                return
        self._between_records = False

    async def _take_portion(self, portion: Portion) -> None:
        """Hand over the records of a portion: a call for each, and a coroutine only for one that has to wait.

        Nobody else runs in between, so what others may have changed is looked at after a wait.
        """
        topic, append, sent, rate, now = (
            self._topic,
            appending(self._producer),
            self.sent,
            self._rate,
            time.perf_counter,
        )
        last: ProducerBatch | None = None
        for record in portion:
            key, value, headers, partition, timestamp = record
            if rate:
                await self._keep_pace()
            batch = append(topic, value, key, partition, headers, timestamp)
            has_waited = batch is None
            if batch is None:
                batch = await self._enqueue(record)
            if batch is not last:
                last, those = batch, self._on_its_way(batch)
            those.since.append(now())
            those.bytes += len(value or b"") + len(key or b"")
            sent.taken += 1
            if (rate or has_waited) and not self._goes_on():
                return

    def _goes_on(self) -> bool:
        """Whether more is taken. Raises `CommandFailed` when there is no hope for it."""
        if self._hopeless is not None and not self.sent.interrupted:
            raise CommandFailed(
                f"no record was acknowledged any more: {self._hopeless.message}", hint=self._hopeless.hint
            )
        return not self.sent.interrupted

    async def _enqueue(self, record: Outgoing) -> ProducerBatch:
        """Hand over a record that cannot be taken at once: there is no room, or an error to be told."""
        key, value, headers, partition, timestamp = record
        self._between_records = False
        try:
            delivery = await self._producer.enqueue(
                self._topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp
            )
        except RecordTooLarge as error:
            number = self.sent.taken + 1
            raise CommandFailed(f"record number {number} is too large: {error.message}", hint=TOO_LARGE) from error
        self._between_records = True
        return batch_of(delivery)

    def _on_its_way(self, batch: ProducerBatch) -> InFlightBatch:
        """The records of a batch, of which this is perhaps the first."""
        those = self._on_way.get(batch)
        if those is None:
            those = self._on_way[batch] = InFlightBatch(Delivery(batch, 0))
            self._more.set()
        return those

    def _stop(self) -> None:
        """Take no more. A record that is being handed over is not cancelled: nobody could say whether it was taken."""
        assert self._working is not None
        if self.sent.interrupted:
            self._given_up = True
            self._working.cancel()
            return
        self.sent.interrupted = True
        if self._between_records:
            self._working.cancel()
        if self.sent.unknown:
            say_what_is_waited_for(self.sent.unknown, self._screen)

    async def _end(self, following: asyncio.Task[None], patience_s: float | None) -> None:
        """Wait for what is on its way, and until it is counted. Raises `RequestTimeout` after `patience_s`."""
        self._ended = True
        self._more.set()
        await self._producer.flush(patience_s)
        await following

    def _count(self, those: InFlightBatch) -> None:
        """They are acknowledged, or have failed."""
        sent, error = self.sent, those.delivery.exception()
        if error is not None:
            sent.failed += len(those.since)
            sent.errors[error.message] += len(those.since)
            if error.maybe_written:
                sent.maybe_written += len(those.since)
            if isinstance(error, DeliveryTimeout):
                self._look_for_hope(error, those.since[-1])
        else:
            sent.acknowledged += len(those.since)
            sent.bytes += those.bytes
            now = self._acknowledged_at = time.perf_counter()
            sent.latencies_ms.extend([(now - since) * 1000 for since in those.since])

    def _look_for_hope(self, error: DeliveryTimeout, since: float) -> None:
        """A record was given up. Nothing more is taken when none at all was acknowledged since it was handed over.

        All that are on their way are looked at once, not for each of the thousands that are given up together.
        """
        if self._hopeless is not None or since <= self._acknowledged_at:
            return
        if any(each.delivery.done() and each.delivery.exception() is None for each in self._on_way.values()):
            self._acknowledged_at = time.perf_counter()  # another partition goes on; it is counted later
        else:
            self._hopeless = error

    def _count_done(self) -> None:
        """Of those that nobody waits for any more, the ones that are acknowledged or have failed by now."""
        for those in self._on_way.values():
            if those.delivery.done():
                self._count(those)
        self._on_way.clear()

    async def _keep_pace(self) -> None:
        due = self.sent.started + self.sent.taken / self._rate
        ahead = due - time.monotonic()
        if ahead > RATE_STEP_S:
            await asyncio.sleep(ahead)

    async def _follow(self) -> None:
        """Await batches in the order of sending; done ones are taken without a pause."""
        on_way = self._on_way
        while True:
            while on_way:
                batch, those = next(iter(on_way.items()))
                if not those.delivery.done():
                    with suppress(OdradekError):  # counted below
                        await those.delivery
                del on_way[batch]
                self._count(those)
            if self._ended:
                return
            self._more.clear()
            await self._more.wait()

    def _pace(self) -> str:
        return rates(self.sent.acknowledged, self.sent.bytes, self.sent.seconds)

    async def _show_trouble(self) -> None:
        """Until cancelled: what holds records up, for people who want to know."""
        notices = SendingNotices(self._screen)
        while self._screen.for_people:
            notices.look(self._producer.held_up_by, time.monotonic())
            await asyncio.sleep(LOOK_EVERY_S)
