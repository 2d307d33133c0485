"""A fetch session: one stream on which a follower or a consumer reads many partitions.

What is asked and answered is the matter of `requests/fetch_gatherer.py`; here are frames, credit and back-pressure. Per
loop tick everything that is ready goes into one message, and while a message is on its way more piles up for the next
one; that is where the throughput comes from.

What the client has not taken yet is bounded: by the credit that it gives, or, as long as it gives none, by a default,
where naming a partition again says that its last answer was taken; and by what all clients together may leave untaken
(backpressure.py).
"""

from __future__ import annotations

from functools import partial

from odradek_proto.topics import LONGEST_TOPIC_NAME, TopicPartition
from odradek_proto.transport.chance import chance
from odradek_proto.transport.frames import FrameError, pack_frame, split_frame
from odradek_proto.transport.ports import Buffer, Stream, StreamClosed, TimerHandle
from odradek_proto.transport.wakeup import WakeupSignal
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.values import Value

from odradek_broker.core.fetching import PartitionFetch
from odradek_broker.requests.context import RequestContext
from odradek_broker.requests.fetch import FetchedPartition, FetchRequests
from odradek_broker.requests.fetch_answers import PendingFetch
from odradek_broker.requests.fetch_gatherer import FetchGatherer
from odradek_broker.requests.quotas import NO_QUOTAS, Throttle
from odradek_broker.rpc.backpressure import Credit, ResponseBudget, SessionQuota
from odradek_broker.rpc.caller import of_client
from odradek_broker.runtime.duplex import run_duplex

STALLED_MS = 60_000  # a client that takes nothing of an answer for so long is not read by anybody: its room is needed
MAX_HEADER_BYTES = 1024 * 1024  # of one FetchFrame; some twenty thousand partitions
MAX_NAMED = 100_000  # partitions of one session that wait or are ready: a session that names more is ended
MAX_READY = 1_024  # while an answer is on its way and this many partitions are ready, nothing more is read
DEFAULT_PARTITION_BYTES = 1_048_576  # replica.fetch.max.bytes and max.partition.fetch.bytes, Kafka's default


class SessionLimits(Value, frozen=True):
    """Bounds of one session, from the broker's settings."""

    max_answer_bytes: int
    default_credit_bytes: int = 16_777_216  # odradek.stream.credit.bytes
    default_wait_ms: int = 500  # replica.fetch.wait.max.ms and fetch.max.wait.ms
    unsent_bytes: int = 16_777_216  # of the answers of all sessions together


def describe(item: pb.FetchedPartition, asked: PartitionFetch, fetched: FetchedPartition, size: int) -> None:
    """Write an answer into its protobuf form. `size` bytes of batches go with it."""
    decision = fetched.decision
    item.topic, item.partition = fetched.topic_partition
    item.error_code = int(decision.error)
    item.high_watermark = decision.high_watermark
    item.last_stable_offset = decision.last_stable_offset
    item.log_start_offset = decision.log_start_offset
    item.size = size
    item.fetch_offset = asked.fetch_offset
    item.request_leader_epoch = asked.current_leader_epoch
    item.current_leader_id = fetched.leader_id
    item.current_leader_epoch = fetched.leader_epoch
    if fetched.gaps:
        item.gaps = True
    if decision.diverging is not None:
        item.diverging = True
        item.diverging_epoch = decision.diverging.epoch
        item.diverging_end_offset = decision.diverging.offset


def partition_of(tp: TopicPartition, named: pb.FetchPartition) -> PendingFetch:
    """A named partition, to be answered."""
    return PendingFetch(
        tp,
        named.fetch_offset,
        named.current_leader_epoch,
        named.last_fetched_epoch,
        named.log_start_offset,
        named.max_bytes or DEFAULT_PARTITION_BYTES,
        topic_id=named.topic_id,
    )


class FetchSession:
    """The serving side of one fetch stream. `run` lives as long as the stream."""

    def __init__(
        self,
        stream: Stream,
        requests: FetchRequests,
        context: RequestContext,
        *,
        limits: SessionLimits,
        follower: bool = False,
        unsent: ResponseBudget | None = None,
        throttle: Throttle = NO_QUOTAS,
    ) -> None:
        self._stream = stream
        self._clock = requests.clock
        self._context = context
        self._throttle = throttle
        self._delay_ms = 0
        self._limits = limits
        self._wakeup = WakeupSignal()
        self._gatherer = FetchGatherer(requests, context, follower=follower, on_ready=self._wakeup.set)
        self._max_bytes = limits.max_answer_bytes
        self._credit = Credit(limits.default_credit_bytes)
        self._unsent = unsent or ResponseBudget(limits.unsent_bytes)
        self._allowance = SessionQuota(limits.max_answer_bytes, self._unsent, trusted=follower)
        self._sending = False
        self._sent = WakeupSignal()
        self._sending_since_ms = 0
        self._patience: TimerHandle | None = None

    async def run(self, first: bytes | None = None) -> None:
        """Serve until the stream ends; `first` has been received already. Never raises for what the client did."""
        try:
            await run_duplex(self._stream, self._receive(first), self._send_answers())
        finally:
            self._gatherer.close()
            self._allowance.end()
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

    async def _receive(self, first: bytes | None) -> None:
        message = first
        while True:
            if message is None:
                message = await self._stream.recv()
            try:
                if self._throttle.is_on:
                    self._throttle.call(self._context, partial(self.on_message, message))
                else:
                    self.on_message(message)
            except FrameError:  # a malformed request closes the stream
                self._stream.close()
                return
            message = None
            while self._sending and self._gatherer.ready_count > MAX_READY:
                self._sent.clear()
                await self._sent.wait()

    # --- What the client says ---------------------------------------------------------------------------------------

    def on_message(self, message: bytes) -> None:
        """Take one FetchFrame. Raises `FrameError` when it is none."""
        header_bytes, _ = split_frame(message)
        if len(header_bytes) > MAX_HEADER_BYTES:
            raise FrameError(f"a FetchHeader of {len(header_bytes)} bytes; {MAX_HEADER_BYTES} are the most")
        try:
            header = pb.FetchHeader.FromString(header_bytes)
        except Exception as error:  # protobuf raises DecodeError, a plain Exception
            raise FrameError(f"not a FetchHeader: {error}") from error
        node_id = self._context.node_id
        if node_id not in (None, header.replica_id):
            raise FrameError(f"the certificate is that of node {node_id}, the message of {header.replica_id}")
        if header.client_id != self._context.client_id:
            self._context = of_client(self._context, header.client_id)
        gatherer, most = self._gatherer, self._limits.max_answer_bytes
        gatherer.reader.describes_itself(header.replica_id, header.replica_epoch, read_committed=header.read_committed)
        self._max_bytes = max(1, min(header.max_bytes or most, most))  # 1: one batch goes out whatever was asked for
        if header.credit_bytes:
            self._credit.grant(header.credit_bytes)
            self._use_room()
        for forgotten in header.forgotten:
            tp = TopicPartition(forgotten.topic, forgotten.partition)
            gatherer.forget(tp)
            if self._credit.taken(tp):
                self._use_room()
        if header.partitions:
            gatherer.begin(header.min_bytes, header.max_wait_ms or self._limits.default_wait_ms)
        for partition in header.partitions:
            self._name(partition)
        if gatherer.wanted_count > MAX_NAMED:
            raise FrameError(f"a session of {gatherer.wanted_count} partitions; {MAX_NAMED} are the most")

    def _name(self, partition: pb.FetchPartition) -> None:
        if len(partition.topic) > LONGEST_TOPIC_NAME:  # Metadata says so politely; this is nobody who asked it
            raise FrameError(f"a topic name of {len(partition.topic)} characters")
        tp = TopicPartition(partition.topic, partition.partition)
        self._gatherer.name(partition_of(tp, partition))
        if self._credit.taken(tp):
            self._use_room()

    def _use_room(self) -> None:
        """The client has room again: what is ready may have waited for that."""
        if self._gatherer.ready_count:
            self._wakeup.set()

    # --- What it answers --------------------------------------------------------------------------------------------

    async def _send_answers(self) -> None:
        while True:
            await self._wakeup.wait()
            if self._credit.left <= 0:
                continue  # the client has not taken what it has; its next credit wakes us
            trusted = self._allowance.trusted
            if not self._unsent.has_room(trusted=trusted):
                await self._unsent.room(trusted=trusted)
            frame = None
            try:
                frame = self._throttle.call(self._context, self.gather) if self._throttle.is_on else self.gather()
            finally:
                if frame is None:
                    self._unsent.pass_on()
            if frame is None:
                continue
            self._unsent.add(len(frame), trusted=trusted)
            self._sending = True
            self._sending_since_ms = self._clock.now_ms()
            if self._patience is None:
                self._patience = self._clock.call_later(STALLED_MS, self._on_patience)
            try:
                await self._stream.send(frame)
            except StreamClosed:
                return
            finally:
                self._unsent.remove(len(frame), trusted=trusted)
                self._sending = False
                self._sent.set()
            self._allowance.took(len(frame))
            if self._delay_ms:
                await self._throttle.wait(self._delay_ms)

    def _on_patience(self) -> None:
        """For how long has the answer been on its way? One timer for the session: one per answer would cost more."""
        self._patience = None
        if self._sending:
            left_ms = self._sending_since_ms + STALLED_MS - self._clock.now_ms()
            if left_ms <= 0:
                self._stream.close()
            else:
                self._patience = self._clock.call_later(left_ms, self._on_patience)

    def gather(self) -> bytes | None:
        """One answer with everything that is ready now, or None when nothing is, or too little (R-121)."""
        self._delay_ms = 0
        most = min(self._max_bytes, self._allowance.next_bytes)
        gathered = self._gatherer.gather(1 if chance("fetch-answer-small", 0.1) else most, most)
        if not gathered:
            return None
        header = pb.FetchAnswerHeader()
        buffers: list[Buffer] = []
        total = 0
        for each in gathered:
            fetched, size = each.fetched, each.size
            describe(header.partitions.add(), each.asked, fetched, size)
            self._credit.answered(fetched.topic_partition, size)
            buffers.extend(fetched.buffers)
            total += size
        self._credit.spend(total)
        if self._throttle.is_on:
            throttle, context = self._throttle, self._context
            header.throttle_time_ms = self._delay_ms = max(throttle.fetched(context, total), throttle.owed(context))
        return pack_frame(header.SerializeToString(), buffers)
