"""The fetch session with one broker.

Rules of this module. A message names the partitions that may be fetched now, all of them at once, each with its
position; an answer that comes is kept as bytes until somebody reads it. What is buffered never exceeds the credit that
the broker was given, but for the last answer, and credit goes back as batches are read. A broker that leaves a fetch
unanswered may simply have nothing new, or be frozen: so somebody else is asked now and then who leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from google.protobuf.message import DecodeError
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance
from odradek_proto.transport.deadline import Deadline
from odradek_proto.transport.frames import FrameError, pack_frame, split_frame
from odradek_proto.transport.ports import NetworkError, PeerUnavailable, Stream, StreamClosed
from odradek_proto.transport.wakeup import WakeupSignal
from odradek_proto.v1 import broker_pb2 as pb

from odradek.cluster.cluster import ClusterClient
from odradek.cluster.tasks import Failed, start_task
from odradek.core.fetch_state import NO_EPOCH, FetchState
from odradek.shared.config import ConsumerConfig

FETCH_STREAM = "/odradek.v1.Broker/FetchStream"
OPEN_TIMEOUT_MS = 2_000  # the first time
ANSWER_BYTES = 1024 * 1024  # of one answer: a message of this size costs little more than its bytes
CREDIT_STEP = 4  # credit goes back when a quarter of it is free, or with the next message
MAX_NAMED = 1_500  # partitions in one request, and as many let go: with the longest names, a broker takes no more
SILENCE_MS = 3_000  # after so long without an answer, somebody else is asked who leads

Answered = Callable[[int, pb.FetchedPartition, memoryview], None]


class FetchLink:
    """Reads from one broker, for as long as the consumer lives. The stream is opened when somebody wants to read."""

    def __init__(
        self,
        broker_id: int,
        config: ConsumerConfig,
        cluster: ClusterClient,
        states: Callable[[], Iterable[FetchState]],
        answered: Answered,
        broken: Callable[[int, NetworkError], None],
        failed: Failed,
    ) -> None:
        self.broker_id = broker_id
        self._config = config
        self._cluster = cluster
        self._states = states
        self._answered = answered
        self._broken = broken
        self._failed = failed
        self._wakeup = WakeupSignal()
        self._stream: Stream | None = None
        self._ended: NetworkError | None = None
        self._credit_back = 0
        self._held = 0  # bytes of this broker's answers that are buffered
        self._named: dict[TopicPartition, None] = {}
        self._failures = 0
        self._asked_at_ms: int | None = None  # since when the broker has had nothing to say
        self._silence = Deadline(cluster.clock, self._on_silence)

    def wake(self) -> None:
        """There may be something to ask for."""
        self._wakeup.set()

    def give_back(self, credit: int) -> None:
        """So many bytes of this broker's answers are no longer buffered."""
        self._held -= credit
        self._credit_back += credit
        if self._credit_back * CREDIT_STEP >= self._config.fetch_max_bytes:
            self._wakeup.set()

    async def run(self) -> None:
        clock = self._cluster.clock
        while True:
            while not any(state.may_fetch_from(self.broker_id, clock.now_ms()) for state in self._states()):
                self._wakeup.clear()
                await self._wakeup.wait()
            try:
                await self._live()
            except NetworkError as error:
                self._broken(self.broker_id, error)
                if self._failures:
                    await clock.sleep(self._cluster.search_pause(self._failures))

    async def _live(self) -> None:
        """One stream, from its opening to its end, which is always a `NetworkError`."""
        patience_ms = self._cluster.patience_ms(self._failures, OPEN_TIMEOUT_MS)
        self._failures += 1
        address = self._cluster.view.address_of(self.broker_id)
        if address is None:
            raise PeerUnavailable(f"broker {self.broker_id} is not part of the cluster at the moment")
        stream = await self._cluster.network.open(address, FETCH_STREAM, patience_ms)
        self._stream, self._ended = stream, None
        self._credit_back = max(self._config.fetch_max_bytes - self._held, 1)
        self._named.clear()
        reader = start_task(self._read(stream), self._failed)
        try:
            await self._write(stream)
        finally:
            self._stream = None
            self._asked_at_ms = None
            self._silence.cancel()
            stream.close()
            reader.cancel()

    async def _write(self, stream: Stream) -> None:
        while self._ended is None:
            self._wakeup.clear()
            message = self._next_message()
            if message is not None:
                await stream.send(message)  # what it leaves unsaid is news that rings
            await self._wakeup.wait()
        raise self._ended

    def _next_message(self) -> bytes | None:
        """Name what may be fetched, take back what may not; None when there is nothing to say."""
        now_ms = self._cluster.clock.now_ms()
        wanted: dict[TopicPartition, None] = {}
        to_name: list[FetchState] = []
        for state in self._states():
            if state.outstanding is not None and state.outstanding[0] == self.broker_id:
                wanted[state.name] = None
            elif state.may_fetch_from(self.broker_id, now_ms):
                if len(to_name) == MAX_NAMED:
                    self._wakeup.set()  # the others with the next message
                    continue
                to_name.append(state)
                wanted[state.name] = None
        forgotten = [name for name in self._named if name not in wanted]
        self._named = wanted
        if len(forgotten) > MAX_NAMED:
            self._named = wanted | dict.fromkeys(forgotten[MAX_NAMED:])
            del forgotten[MAX_NAMED:]
            self._wakeup.set()
        if not to_name and not forgotten and self._credit_back * CREDIT_STEP < self._config.fetch_max_bytes:
            return None
        if wanted and self._asked_at_ms is None:
            self._asked_at_ms = now_ms
            self._silence.arm(now_ms + SILENCE_MS)
        return self._message(to_name, forgotten)

    def _message(self, to_name: list[FetchState], forgotten: list[TopicPartition]) -> bytes:
        config = self._config
        little = chance("consumer-fetches-little", 0.1)
        header = pb.FetchHeader(
            replica_id=-1,
            replica_epoch=-1,
            client_id=config.client_id,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=1 if little else min(config.fetch_max_bytes, ANSWER_BYTES),
            read_committed=config.isolation_level == "read_committed",
            credit_bytes=self._credit_back,
        )
        self._credit_back = 0
        for state in to_name:
            self._name(header, state)
        for name in forgotten:
            header.forgotten.add(topic=name.topic, partition=name.partition)
        return pack_frame(header.SerializeToString(), [])

    def _name(self, header: pb.FetchHeader, state: FetchState) -> None:
        state.asked(self.broker_id)
        header.partitions.add(
            topic=state.name.topic,
            partition=state.name.partition,
            fetch_offset=state.fetch_offset,
            current_leader_epoch=state.leader.epoch,
            last_fetched_epoch=NO_EPOCH,
            log_start_offset=-1,
            max_bytes=self._config.max_partition_fetch_bytes,
        )

    async def _read(self, stream: Stream) -> None:
        try:
            while True:
                message = await stream.recv()
                if chance("consumer-redials", 0.005):
                    raise StreamClosed(f"{stream.peer}: lost by chance")
                self._take(message)
                self._failures = 0
        except NetworkError as end:
            self._ended = end
            stream.close()  # a message may wait for room that the broker would never give
            self._wakeup.set()

    def _take(self, message: bytes) -> None:
        self._asked_at_ms = None
        try:
            header_bytes, data = split_frame(message)
            header = pb.FetchAnswerHeader.FromString(header_bytes)
        except (FrameError, DecodeError) as error:
            raise NetworkError(f"its answer cannot be read: {error}") from None
        self._held += len(data)
        at = 0
        for answer in header.partitions:
            self._named.pop(TopicPartition(answer.topic, answer.partition), None)
            self._answered(self.broker_id, answer, data[at : at + answer.size])
            at += answer.size
        self._wakeup.set()

    def _on_silence(self) -> None:
        """For how long has the broker been silent? One timer for the stream: one per message would cost more."""
        if self._asked_at_ms is None:
            return
        now_ms = self._cluster.clock.now_ms()
        if now_ms - self._asked_at_ms >= SILENCE_MS:
            if not self._named:
                self._asked_at_ms = None
                return
            self._asked_at_ms = now_ms
            self._cluster.request_refresh(f"broker {self.broker_id} has had nothing to say for {SILENCE_MS} ms")
        self._silence.arm(self._asked_at_ms + SILENCE_MS)
