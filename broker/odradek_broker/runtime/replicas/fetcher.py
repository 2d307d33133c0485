"""A fetcher: the stream on which this broker follows all partitions that one other broker leads.

Each partition's `FollowerPartition` decides its requests and the meaning of responses; the fetcher only gathers the
partitions' pending requests into one message, splits responses into their batches, checks them, and passes them on. The
stream is reopened when it breaks, after a short back-off; partitions leave when their leader changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from google.protobuf.message import DecodeError
from odradek_proto.errors import ErrorCode
from odradek_proto.headers import LENGTH_END
from odradek_proto.records import BatchHeader, CorruptBatch, check_batch
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance
from odradek_proto.transport.deadline import Deadline
from odradek_proto.transport.frames import FrameError, pack_frame, split_frame
from odradek_proto.transport.ports import CallRejected, NetworkError, Stream
from odradek_proto.transport.wakeup import WakeupSignal
from odradek_proto.v1 import broker_pb2 as pb

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.messages import EpochRequest, FetchAnswer, FollowerFetchRequest, OffsetsRequest
from odradek_broker.core.partition.replication_quota import ReplicationQuota
from odradek_broker.runtime.duplex import run_duplex
from odradek_broker.runtime.replicas.fetch_delay import FetchDelay
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.runtime.services import NodeServices

FETCH_STREAM = "/odradek.v1.Replication/FetchStream"
LIST_OFFSETS = "/odradek.v1.Replication/ListOffsets"
OFFSETS_FOR_LEADER_EPOCH = "/odradek.v1.Replication/OffsetsForLeaderEpoch"
FIRST_BACKOFF_MS = 50  # as the channels' own reconnect back-off (design: a restarted peer is found at once)
MAX_BACKOFF_MS = 1_000
CALL_TIMEOUT_MS = 30_000  # replica.socket.timeout.ms, Kafka's default
OPEN_TIMEOUT_MS = 2_000
MAX_NAMED = 2_000  # partitions in one request: 600 KB with the longest topic names; a leader takes 1 MiB
CREDIT_BYTES = 16_777_216  # what the leader may send beyond what was taken: two answers of the largest size


def check_run(run: memoryview, *, compacted: bool) -> list[BatchHeader]:
    """The headers of the batches in a run, each checked whole. Of a `compacted` log records may be missing.

    Raises `CorruptBatch`.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(run)
    while position < end:
        header = check_batch(run, position, compacted=compacted)
        headers.append(header)
        position += header.length + LENGTH_END
    return headers


class Fetcher:
    """Follows one leader broker. Used from the event loop only."""

    def __init__(
        self,
        settings: BrokerSettings,
        services: NodeServices,
        *,
        leader_id: int,
        address: Callable[[], str | None],
        broker_epoch: Callable[[], int],
        delay: FetchDelay,
        quota: ReplicationQuota,
    ) -> None:
        self.leader_id = leader_id
        self._address = address
        self._broker_id = settings.node_id
        self._broker_epoch = broker_epoch
        self._clock = services.clock
        self._network = services.network
        self._max_wait_ms = settings.replica_fetch_wait_max_ms
        self._max_bytes = settings.replica_fetch_response_max_bytes
        self._most_throttled = max(1, self._max_bytes // settings.replica_fetch_max_bytes)  # one response of Kafka's
        self._min_bytes = settings.replica_fetch_min_bytes
        self._spawn = services.spawn
        self._delay = delay
        self._quota = quota
        self._partitions: dict[TopicPartition, Replica] = {}
        self._ready: dict[TopicPartition, None] = {}
        self._forgotten: dict[TopicPartition, None] = {}
        self._throttled: dict[TopicPartition, None] = {}  # fetches under way that count for the quota
        self._line: dict[TopicPartition, None] = {}  # partitions that the quota holds back, in the order of their turns
        self._credit_due = 0  # bytes to be granted with the next message
        self._heard = False  # anything has come from the leader since the last look
        self._wakeup = WakeupSignal()
        self._news = WakeupSignal()
        self._deadline = Deadline(services.clock, self._on_time)
        self._task: asyncio.Task[None] | None = None
        self._calls: dict[asyncio.Task[None], None] = {}  # in the order of their beginning

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, replica: Replica) -> None:
        """Follow this partition; its role is a `FollowerPartition` of this leader."""
        self._partitions[replica.topic_partition] = replica
        self._forgotten.pop(replica.topic_partition, None)
        self.request_ready(replica)
        self._news.set()
        if self._task is None:
            self._task = self._spawn(self._run())

    def remove(self, tp: TopicPartition) -> None:
        """Stop following it; what is still under way for it is dropped when it arrives (R-80)."""
        if self._partitions.pop(tp, None) is not None:
            self._ready.pop(tp, None)
            self._line.pop(tp, None)
            self._has_answered(tp)
            self._forgotten[tp] = None
            self._wakeup.set()

    def request_ready(self, replica: Replica) -> None:
        """The partition may have something to ask."""
        self._ready[replica.topic_partition] = None
        self._wakeup.set()

    def address_changed(self) -> None:
        """Another broker registered, or was fenced or unfenced: a stream that could not be opened may be had now."""
        self._news.set()

    @property
    def has_address(self) -> bool:
        """Whether the leader is registered, and not fenced."""
        return self._address() is not None

    def take_heard(self) -> bool:
        """Whether anything has come from the leader since the last call."""
        heard, self._heard = self._heard, False
        return heard

    async def probe(self, timeout_ms: float) -> bool:
        """Whether the leader answers a question, one about no partition; a refusal is an answer, too."""
        address = self._address()
        if address is None:
            return False
        question = pb.OffsetsForLeaderEpochRequest(replica_id=self._broker_id).SerializeToString()
        try:
            await self._network.call(address, OFFSETS_FOR_LEADER_EPOCH, question, timeout_ms)
        except CallRejected:
            return True
        except NetworkError:
            return False
        return True

    async def stop(self) -> None:
        tasks = [task for task in (self._task, *self._calls) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._deadline.cancel()
        self._task = None

    # --- The stream -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff_ms = FIRST_BACKOFF_MS
        while True:
            self._news.clear()  # what arrives from here on ends the next pause
            address = self._address()
            if address is not None and self._partitions:
                try:
                    stream = await self._network.open(address, FETCH_STREAM, OPEN_TIMEOUT_MS)
                except NetworkError:
                    pass
                else:
                    backoff_ms = FIRST_BACKOFF_MS
                    await self._follow(stream)
            await self._pause(backoff_ms * (0.5 + self._clock.rng.random()))
            backoff_ms = min(2 * backoff_ms, MAX_BACKOFF_MS)

    async def _pause(self, delay_ms: float) -> None:
        """Wait for the back-off, or for news of an address."""
        timer = self._clock.call_later(delay_ms, self._news.set)
        try:
            await self._news.wait()
        finally:
            timer.cancel()

    async def _follow(self, stream: Stream) -> None:
        self._forgotten.clear()
        self._throttled.clear()
        self._credit_due = CREDIT_BYTES
        for tp in self._partitions:
            self._ready[tp] = None
        self._wakeup.set()
        try:
            await run_duplex(stream, self._receive(stream), self._send_requests(stream))
        finally:
            stream.close()
            now_ms = self._clock.now_ms()
            for replica in list(self._partitions.values()):
                follower = replica.follower
                if follower is not None and follower.leader == self.leader_id:
                    replica.carry_out(follower.on_transport_error(now_ms))

    async def _receive(self, stream: Stream) -> None:
        while True:
            message = await stream.recv()
            self._heard = True
            if chance("fetcher-redials", 0.003):
                return  # and this answer is lost
            try:
                self.on_answers(message)
            except FrameError:  # a leader that speaks so is asked anew, after a back-off
                return

    async def _send_requests(self, stream: Stream) -> None:
        while True:
            await self._wakeup.wait()
            if self._delay.delay_ms:
                await self._delay.wait()
            header = self._gather()
            if header is None:
                continue
            try:
                await stream.send(pack_frame(header.SerializeToString(), ()))
            except NetworkError:
                stream.close()
                return

    def _gather(self) -> pb.FetchHeader | None:
        """Everything that the partitions want to ask now; questions other than a fetch go as calls of their own."""
        now_ms = self._clock.now_ms()
        header = pb.FetchHeader(
            replica_id=self._broker_id,
            replica_epoch=self._broker_epoch(),
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            credit_bytes=self._credit_due,
        )
        ready, self._ready = self._ready, {}
        for tp in ready:
            named = len(header.partitions)
            if named >= MAX_NAMED or (named and chance("fetch-request-partial", 0.1)):
                self._ready[tp] = None  # with the next message
                self._wakeup.set()
                continue
            replica = self._partitions.get(tp)
            follower = replica.follower if replica is not None else None
            if replica is None or follower is None or replica.offline is not None:
                continue
            throttled = follower.counts_for(self._quota)
            if throttled and self._is_throttled(tp, now_ms):
                continue
            request = follower.next_request(now_ms)
            if isinstance(request, FollowerFetchRequest):
                if throttled:
                    self._throttled[tp] = None
                    self._line.pop(tp, None)
                header.partitions.append(_to_wire(request))
            elif isinstance(request, EpochRequest):
                self._call(self._ask_epoch(replica, request))
            elif isinstance(request, OffsetsRequest):
                self._call(self._ask_offsets(replica, request))
            else:
                self._deadline.arm(follower.next_deadline_ms())
        for tp in list(self._forgotten)[: MAX_NAMED - len(header.partitions)]:
            header.forgotten.append(pb.ForgottenPartition(topic=tp.topic, partition=tp.partition))
            del self._forgotten[tp]
        if self._forgotten:
            self._wakeup.set()
        if not (header.partitions or header.forgotten or self._credit_due):
            return None
        self._credit_due = 0
        return header

    def _is_throttled(self, tp: TopicPartition, now_ms: int) -> bool:
        """Whether the follower's quota leaves a fetch no room now: what is under way already counts as used up."""
        exceeded_until_ms = self._quota.exceeded_until_ms(now_ms)
        if exceeded_until_ms is not None:
            self._deadline.arm(exceeded_until_ms)
        elif tp in self._throttled or len(self._throttled) < self._most_throttled:
            return False
        self._line[tp] = None
        return True

    def _has_answered(self, tp: TopicPartition) -> None:
        """Nothing is under way for this partition any more: those in line may fetch."""
        if tp in self._throttled:
            del self._throttled[tp]
            self._call_line()

    def _call_line(self) -> None:
        self._ready.update(self._line)
        self._line.clear()
        self._wakeup.set()

    def _on_time(self) -> None:
        self._call_line()  # first, else the same partitions would use the quota up each time
        for tp in self._partitions:
            self._ready[tp] = None

    # --- Answers ----------------------------------------------------------------------------------------------------

    def on_answers(self, message: bytes) -> None:
        """Take one FetchAnswerFrame. Raises `FrameError` when it is none."""
        header_bytes, batches = split_frame(message)
        try:
            header = pb.FetchAnswerHeader.FromString(header_bytes)
        except Exception as error:  # protobuf raises DecodeError, a plain Exception
            raise FrameError(f"not a FetchAnswerHeader: {error}") from error
        self._credit_due += len(batches)
        self._wakeup.set()
        position = 0
        for item in header.partitions:
            run = batches[position : position + item.size]
            position += item.size
            tp = TopicPartition(item.topic, item.partition)
            self._has_answered(tp)
            replica = self._partitions.get(tp)
            if replica is not None:
                self._on_answer(replica, item, run)

    def _on_answer(self, replica: Replica, item: pb.FetchedPartition, run: memoryview) -> None:
        follower = replica.follower
        if follower is None or follower.leader != self.leader_id or replica.offline is not None:
            return
        if item.request_leader_epoch not in (follower.leader_epoch, -1):
            return  # of an earlier term: the same broker may lead again with another log
        now_ms = self._clock.now_ms()
        try:
            headers = check_run(run, compacted=item.gaps)
        except CorruptBatch:
            replica.counters.damaged_batches["replication"] += 1
            replica.carry_out(follower.on_corrupt_answer(now_ms))
            self.request_ready(replica)  # after a while, which somebody has to wait for
            return
        if item.gaps and not replica.state.gaps:
            replica.follow_gaps()
        if not item.error_code:
            replica.leader_high_watermark = item.high_watermark
        answer = FetchAnswer(
            item.fetch_offset,
            ErrorCode.from_number(item.error_code),
            item.high_watermark,
            item.log_start_offset,
            headers,
            EpochEntry(item.diverging_epoch, item.diverging_end_offset) if item.diverging else None,
        )
        self._quota.record(replica.topic_partition, len(run), now_ms)
        replica.append_run(run, lambda: follower.on_fetch_answer(answer, now_ms))
        self.request_ready(replica)

    # --- Questions beside the stream --------------------------------------------------------------------------------

    def _call(self, question: Coroutine[object, object, None]) -> None:
        task = self._spawn(question)
        self._calls[task] = None
        task.add_done_callback(lambda done: self._calls.pop(done, None))

    async def _ask_epoch(self, replica: Replica, request: EpochRequest) -> None:
        """OffsetsForLeaderEpoch (R-73); an answer for a role that is over is dropped (R-74)."""
        follower = replica.follower
        tp = request.topic_partition
        message = pb.OffsetsForLeaderEpochRequest(replica_id=self._broker_id)
        message.partitions.add(
            topic=tp.topic,
            partition=tp.partition,
            current_leader_epoch=request.current_leader_epoch,
            leader_epoch=request.leader_epoch,
        )
        answer: pb.EpochEndOffset | None = None
        try:
            data = await self._network.call(
                self._address() or "", OFFSETS_FOR_LEADER_EPOCH, message.SerializeToString(), CALL_TIMEOUT_MS
            )
            answers = pb.OffsetsForLeaderEpochResponse.FromString(data).partitions
            answer = answers[0] if answers else None
        except (NetworkError, DecodeError):
            pass
        if follower is None or replica.follower is not follower:
            return
        now_ms = self._clock.now_ms()
        if answer is None:
            replica.carry_out(follower.on_transport_error(now_ms))
        else:
            end = EpochEntry(answer.leader_epoch, answer.end_offset)
            replica.carry_out(follower.on_epoch_answer(request, ErrorCode.from_number(answer.error_code), end, now_ms))
        self.request_ready(replica)

    async def _ask_offsets(self, replica: Replica, request: OffsetsRequest) -> None:
        """The leader's log end and log start (R-84)."""
        follower = replica.follower
        tp = request.topic_partition
        message = pb.ListOffsetsRequest(replica_id=self._broker_id)
        for timestamp_ms in (-1, -2):
            message.partitions.add(
                topic=tp.topic,
                partition=tp.partition,
                current_leader_epoch=request.current_leader_epoch,
                timestamp_ms=timestamp_ms,
            )
        listed: list[pb.ListedOffset] = []
        try:
            data = await self._network.call(
                self._address() or "", LIST_OFFSETS, message.SerializeToString(), CALL_TIMEOUT_MS
            )
            listed = list(pb.ListOffsetsResponse.FromString(data).partitions)
        except (NetworkError, DecodeError):
            pass
        if follower is None or replica.follower is not follower:
            return
        now_ms = self._clock.now_ms()
        if len(listed) != 2:
            replica.carry_out(follower.on_transport_error(now_ms))
        else:
            latest, earliest = listed
            error = ErrorCode.from_number(latest.error_code or earliest.error_code)
            replica.carry_out(follower.on_offsets_answer(request, error, earliest.offset, latest.offset, now_ms))
        self.request_ready(replica)


def _to_wire(request: FollowerFetchRequest) -> pb.FetchPartition:
    return pb.FetchPartition(
        topic=request.topic_partition.topic,
        partition=request.topic_partition.partition,
        fetch_offset=request.fetch_offset,
        current_leader_epoch=request.current_leader_epoch,
        last_fetched_epoch=request.last_fetched_epoch,
        log_start_offset=request.log_start_offset,
        max_bytes=request.max_bytes,
        topic_id=request.topic_id,
    )
