"""The running part of a producer: it steps the sender, carries out what that says, and keeps links and timers.

Rules of this module. Effects are carried out in their order and without an await. There is one timer, for the
earliest thing that can become due; there is one link per broker, made when something is first to be sent to it.
Records of a topic get into batches in the order of the calls, whatever a call waits for: between the end of one wait
and the beginning of the next, or the batch, there is no await.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from odradek_proto.records import RecordToWrite
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.deadline import Deadline
from odradek_proto.v1 import broker_pb2 as pb

from odradek.cluster.cluster import ClusterClient
from odradek.cluster.tasks import failure_of, log_outages, start_task, was_cancelled
from odradek.core.batches import ProducerBatch, SendQueue
from odradek.core.cluster_view import NO_LEADER
from odradek.core.outages import Outages
from odradek.core.partitioner import StickyChoice
from odradek.core.sender import STALL_MS, BatchCompleted, DropStream, Effect, RefreshMetadata, Sender
from odradek.producing.delivery import AllDelivered, FailedDeliveries
from odradek.producing.link import ProduceLink
from odradek.shared.config import ProducerConfig
from odradek.shared.errors import BootstrapError, BufferFull, OdradekError, RequestTimeout, broker_error

INIT_PRODUCER_ID = "/odradek.v1.Broker/InitProducerId"
SOON_MS = 10  # after an answer it is looked whether an outage is over, once for all answers that come together


class Route:
    """The queues of one topic, by partition, and where records without a key go."""

    __slots__ = ("available", "partitions", "queues", "sticky")

    def __init__(self, queues: dict[int, SendQueue], sticky: StickyChoice) -> None:
        self.queues = queues
        self.partitions = sorted(queues)
        self.sticky = sticky
        self.available = self.partitions

    def refresh_leaders(self) -> None:
        """Leaders changed: records without a key go where somebody takes them."""
        led = [partition for partition in self.partitions if self.queues[partition].leader_id != NO_LEADER]
        self.available = led or self.partitions
        if self.sticky.current not in self.available:
            self.sticky.move_on(self.available)


class ProduceEngine:
    """What runs between start and close of a producer."""

    def __init__(self, config: ProducerConfig, cluster: ClusterClient) -> None:
        self.sender = Sender(config, cluster.clock.rng)
        self.failed = FailedDeliveries()
        self.fatal: OdradekError | None = None
        self.routes: dict[str, Route] = {}  # of the topics whose records can be taken at once
        self._known_routes: dict[str, Route] = {}
        self._config = config
        self._cluster = cluster
        self._clock = cluster.clock
        self._links: dict[int, ProduceLink] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}  # of the links
        self._id_task: asyncio.Task[None] | None = None
        self._deadline = Deadline(cluster.clock, self._on_time)
        self._taking = True
        self._topic_waiters: dict[str, Turns] = {}  # those who wait for a topic's partitions
        self.buffer_waiters = Turns()  # those who wait for room; who comes later waits behind them
        self._flushing = 0
        self._outages = Outages("nothing is acknowledged")
        cluster.listeners.append(self._on_metadata)
        cluster.failure_listeners.append(self._fail)
        self._see_to_producer_id()

    async def end(self, error: OdradekError) -> None:
        """Give up what is left, with this error, and stop."""
        self._fail(error)
        self._deadline.cancel()
        tasks = [*self._tasks.values(), *([self._id_task] if self._id_task else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def stop_taking(self) -> None:
        """Records that come from now on have no way to a batch."""
        self._taking = False
        self.routes.clear()

    def _fail(self, error: OdradekError) -> None:
        """Nothing goes on from here: whoever waits is told now, and who comes later at once."""
        self.fatal = self.fatal or error
        self.stop_taking()
        self.carry_out(self.sender.fail_all(error))

    # --- records in ------------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> Route:
        """The way to a topic; asks the cluster when it is not known yet. Raises `UnknownTopic`, `BootstrapError`.

        Returns in the order of the calls. While anybody waits the topic has no entry in `routes`: a record that comes
        then waits behind the others, even if the topic is known by now.
        """
        longest_ms = self._config.max_block_ms
        timeout_ms = min(self._config.unknown_topic_timeout_ms, longest_ms)
        self.routes.pop(topic, None)
        waiters = self._topic_waiters.setdefault(topic, Turns())
        try:
            with waiters.next() as turn:
                partitions = await self._cluster.partitions_of(topic, timeout_ms, longest_ms)
                while not turn.is_first:  # the others have their own timeouts
                    await turn.until(lambda: True)
                    partitions = await self._cluster.partitions_of(topic, timeout_ms, longest_ms)
        finally:
            if not waiters:
                self._topic_waiters.pop(topic, None)
        if self.fatal is not None:
            raise self.fatal
        route = self._known_route(topic, partitions)
        if self._taking and not waiters:
            self.routes[topic] = route
        return route

    def _known_route(self, topic: str, partitions: list[int]) -> Route:
        route = self._known_routes.get(topic)
        if route is None or route.partitions != partitions:
            sticky = StickyChoice(self._config.batch_size, self._clock.rng) if route is None else route.sticky
            names = {partition: TopicPartition(topic, partition) for partition in partitions}
            queues = {partition: self.sender.queues.of(name, self._cluster.view) for partition, name in names.items()}
            route = self._known_routes[topic] = Route(queues, sticky)
            route.refresh_leaders()
        return route

    def open(self, queue: SendQueue, record: RecordToWrite, size: int) -> ProducerBatch:
        """Open a batch with a record, and see that it, and the full one before it, get on their way."""
        now_ms = self._clock.now_ms()
        batch = self.sender.open(queue, record, size, now_ms)
        linger_ms = self._config.linger_ms
        if not linger_ms or batch.closed or len(queue.waiting) > 1:
            self.wake(queue.leader_id)
        if linger_ms and not batch.closed:
            self._deadline.arm(now_ms + max(round(linger_ms), 1))
        elif not self._deadline.is_armed:
            self._rearm(now_ms)
        return batch

    async def wait_for_room(self, size: int, since_ms: int) -> None:
        """Return when `size` bytes fit into buffer.memory. Raises `BufferFull` max.block.ms after the call began."""
        left_ms = since_ms + self._config.max_block_ms - self._clock.now_ms()
        try:
            with self.buffer_waiters.next() as turn:
                self._hurry()
                async with asyncio.timeout(left_ms / 1000):
                    await turn.until(lambda: self.fatal is not None or self.has_room(size))
        except TimeoutError:
            raise BufferFull(
                f"no room for {size} bytes within {self._config.max_block_ms} ms: {self.sender.buffered_bytes} of "
                f"{self._config.buffer_memory} bytes wait for acknowledgement",
                hint="records come faster than the cluster takes them: slow down, or raise buffer_memory",
            ) from None
        finally:
            self._hurry()

    def has_room(self, size: int) -> bool:
        return self.sender.buffered_bytes + size <= self._config.buffer_memory

    async def flush(self, timeout: float | None) -> None:
        """Return when all that is unfinished now is done. Raises `RequestTimeout`."""
        await self._begin_anew_what_was_cancelled()
        waiting = AllDelivered(self.sender.queues.unfinished())
        self._flushing += 1
        self._hurry()
        try:
            async with asyncio.timeout(timeout):
                await waiting.wait()
        except TimeoutError:
            raise RequestTimeout(f"{waiting.left} batches were not acknowledged within {timeout} s") from None
        finally:
            self._flushing -= 1
            self._hurry()

    async def _begin_anew_what_was_cancelled(self) -> None:
        await self._cluster.begin_anew_if_cancelled()
        if await was_cancelled(self._id_task):
            self._see_to_producer_id()
        for broker_id, task in [*self._tasks.items()]:
            if await was_cancelled(task):
                self.wake(broker_id)

    def _hurry(self) -> None:
        self.sender.hurry = self._flushing > 0 or bool(self.buffer_waiters)
        if self.sender.hurry:
            self._wake_all()

    # --- effects ---------------------------------------------------------------------------------------------------

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Do what the sender says."""
        troubled = False
        for effect in effects:
            if isinstance(effect, BatchCompleted):
                self._tell(effect.batch)
                if self._outages:
                    self._deadline.arm(self._clock.now_ms() + SOON_MS)
            else:
                troubled = True
                if isinstance(effect, RefreshMetadata):
                    self._cluster.request_refresh(effect.reason)
                elif isinstance(effect, DropStream) and effect.broker_id in self._links:
                    self._links[effect.broker_id].drop()
        self.buffer_waiters.look()
        self._see_to_producer_id()
        if troubled:
            self._rearm(self._clock.now_ms())

    def _tell(self, batch: ProducerBatch) -> None:
        waiters, batch.waiters = batch.waiters, []
        if batch.error is None:
            for index, waiter in waiters:
                if not waiter.done():
                    waiter.set_result(batch.metadata(index))
            return
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(batch.error)
        if batch.unclaimed:
            self.failed.add(batch)

    def wake(self, broker_id: int) -> None:
        """There may be something to send to a broker; without a leader, somebody has to find one."""
        link = self._links.get(broker_id)
        if link is None or (self._tasks[broker_id].cancelled() and self.fatal is None):
            if broker_id == NO_LEADER:
                self._cluster.request_refresh("records wait for a partition without a leader")
                return
            link = self._links[broker_id] = ProduceLink(
                broker_id,
                self.sender,
                self._cluster,
                acks=self._config.acks,
                carry_out=self.carry_out,
                failed=self._fail,
            )
            self._tasks[broker_id] = start_task(link.run(), self._fail)
        link.wake()

    def _wake_all(self) -> None:
        for broker_id in self.sender.queues.leaders_in_use():
            self.wake(broker_id)

    def _on_metadata(self) -> None:
        self.carry_out(self.sender.on_leaders(self._cluster.view, self._clock.now_ms()))
        for topic, route in [*self._known_routes.items()]:
            if self._cluster.view.partitions_of(topic) != route.partitions:
                del self._known_routes[topic]  # it has grown; the next record finds the way anew
                self.routes.pop(topic, None)
            else:
                route.refresh_leaders()
        self._wake_all()

    # --- time ------------------------------------------------------------------------------------------------------

    def _rearm(self, now_ms: int) -> None:
        self._deadline.arm(self.sender.next_deadline_ms(now_ms))

    def _on_time(self) -> None:
        try:
            now_ms = self._clock.now_ms()
            self.carry_out(self.sender.on_time(now_ms))
            self._wake_all()
            self._log_outages(now_ms)
            self._rearm(now_ms)
        except Exception as error:  # nobody else would hear of it
            self._fail(failure_of(error))

    def _log_outages(self, now_ms: int) -> None:
        queues, sequences = self.sender.queues, self.sender.sequences
        held_up = queues.held_up(now_ms, STALL_MS, sequences.refusal if sequences.needs_producer_id else None)
        if held_up or self._outages:
            log_outages(self._outages.look(held_up, now_ms, queues.unsettled()))

    # --- producer id -----------------------------------------------------------------------------------------------

    def _see_to_producer_id(self) -> None:
        is_asking = self._id_task is not None and not self._id_task.done()
        if self.sender.sequences.needs_producer_id and self.fatal is None and not is_asking:
            self._id_task = start_task(self._obtain_producer_id(), self._fail)

    async def _obtain_producer_id(self) -> None:
        """Ask until somebody gives one. Only an error that cannot be retried ends the producer."""
        sequences = self.sender.sequences
        request = pb.InitProducerIdRequest(producer_id=sequences.producer_id, producer_epoch=sequences.producer_epoch)
        failures = 0
        while sequences.needs_producer_id:
            try:
                answer = await self._cluster.ask_any(
                    INIT_PRODUCER_ID, request, pb.InitProducerIdResponse, self._config.request_timeout_ms
                )
                if not answer.error_code:
                    sequences.on_producer_id(answer.producer_id, answer.producer_epoch)
                    break
                error: OdradekError = broker_error(answer.error_code, answer.error_message, where="InitProducerId")
            except BootstrapError as failure:
                error = failure
            if not error.retriable:
                self._fail(error)
                return
            sequences.refusal = error
            failures += 1
            await self._clock.sleep(self._cluster.search_pause(failures))
        self._wake_all()


class Turns(deque["Turn"]):
    """A queue of callers. A deque, since every record asks whether anybody waits."""

    def next(self) -> Turn:
        """The place of a new caller, behind all others: to be used with `with`."""
        return Turn(self)

    def look(self) -> None:
        """What the first one waits for may have come."""
        if self:
            self[0].event.set()


class Turn:
    """The place of one caller in a queue. Whoever leaves it, for whatever reason, has the next one look."""

    __slots__ = ("_queue", "event")

    def __init__(self, queue: Turns) -> None:
        self._queue = queue
        self.event = asyncio.Event()

    @property
    def is_first(self) -> bool:
        return self._queue[0] is self

    async def until(self, ready: Callable[[], bool]) -> None:
        """Return when all who came before have left and `ready` is true; does not suspend if that is so already."""
        while not self.is_first or not ready():
            self.event.clear()
            await self.event.wait()

    def __enter__(self) -> Self:
        self._queue.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.remove(self)
        self._queue.look()
