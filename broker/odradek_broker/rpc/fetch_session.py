"""A fetch session: one stream on which a follower or a consumer reads many partitions.

The client names a partition with its position; it is answered once, as soon as there is something to say, and then
rests until it is named again. What waits costs nothing: no task, no timer, only an entry in the replica's list of
waiters. Per loop tick everything that is ready goes into one message, and while a message is on its way more piles up
for the next one; that is where the throughput comes from.

Three rules. A position is recorded when it is named and never a second time (R-122). The limit of a read is captured
once (R-229). What the client has not taken yet is bounded: by the credit that it gives, or, as long
as it gives none, by a default, where naming a partition again says that its last answer was taken; and by what all
clients together may leave untaken (unsent.py). Who asks for fetch.min.bytes waits for them, but not for an error, a
divergence or a changed role (R-121).
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import LONGEST_TOPIC_NAME, TopicPartition
from odradek_proto.transport.bell import Bell
from odradek_proto.transport.chance import chance
from odradek_proto.transport.frames import FrameError, pack_frame, split_frame
from odradek_proto.transport.ports import Buffer, Clock, Files, Stream, StreamClosed, TimerHandle
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.values import Value

from odradek_broker.core.partition.messages import FetchDecision
from odradek_broker.requests.context import Lookup
from odradek_broker.requests.fetch import FetchedPartition, FetchPartition
from odradek_broker.requests.fetch_answers import PartitionAnswers, is_refusal, named_leader
from odradek_broker.requests.fetch_requests import Reader, Wanted
from odradek_broker.requests.min_bytes import FetchMinBytes
from odradek_broker.rpc.backpressure import ResponseBudget, SessionQuota
from odradek_broker.rpc.credit import Credit
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.duplex import converse
from odradek_broker.runtime.replicas.replica import Replica

STALLED_MS = 60_000  # a client that takes nothing of an answer for so long is not read by anybody: its room is needed
MAX_HEADER_BYTES = 1024 * 1024  # of one FetchFrame; some twenty thousand partitions
MAX_NAMED = 100_000  # partitions of one session that wait or are ready: a session that names more is ended
MAX_READY = 1_024  # while an answer is on its way and this many partitions are ready, nothing more is read
MAX_ANSWERED = 1_024  # partitions in one answer: headers are memory, too
DEFAULT_PARTITION_BYTES = 1_048_576  # replica.fetch.max.bytes and max.partition.fetch.bytes, Kafka's default


class SessionLimits(Value, frozen=True):
    """Bounds of one session, from the broker's settings."""

    max_answer_bytes: int
    default_credit_bytes: int = 16_777_216  # odradek.stream.credit.bytes
    default_wait_ms: int = 500  # replica.fetch.wait.max.ms and fetch.max.wait.ms
    unsent_bytes: int = 16_777_216  # of the answers of all sessions together


def describe(item: pb.FetchedPartition, asked: FetchPartition | Wanted, fetched: FetchedPartition) -> None:
    """Write an answer into its protobuf form."""
    decision = fetched.decision
    item.topic, item.partition = fetched.topic_partition
    item.error_code = int(decision.error)
    item.high_watermark = decision.high_watermark
    item.last_stable_offset = decision.last_stable_offset
    item.log_start_offset = decision.log_start_offset
    item.size = sum(map(len, fetched.buffers))
    item.fetch_offset = asked.fetch_offset
    item.request_leader_epoch = asked.current_leader_epoch
    item.current_leader_id = fetched.leader_id
    item.current_leader_epoch = fetched.leader_epoch
    if decision.diverging is not None:
        item.diverging = True
        item.diverging_epoch = decision.diverging.epoch
        item.diverging_end_offset = decision.diverging.offset


class FetchSession:
    """The serving side of one fetch stream. `run` lives as long as the stream."""

    def __init__(
        self,
        stream: Stream,
        *,
        clock: Clock,
        files: Files,
        lookup: Lookup,
        limits: SessionLimits,
        follower: bool = False,
        unsent: ResponseBudget | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._counters = counters or Counters()
        self._times = self._counters.request("FetchFollower" if follower else "FetchConsumer")
        self._follower = follower
        self._stream = stream
        self._clock = clock
        self._lookup = lookup
        self._limits = limits
        self._wanted: dict[TopicPartition, Wanted] = {}
        self._ready: dict[TopicPartition, None] = {}
        self._told: dict[TopicPartition, tuple[int, int, int]] = {}  # high watermark, log start, epoch that it knows
        self._reader = Reader(follower=follower)
        self._max_wait_ms = limits.default_wait_ms
        self._answers = PartitionAnswers(files, self._reader, self._ready_again)
        self._minimum = FetchMinBytes(self._answers, follower=follower)
        self._max_bytes = limits.max_answer_bytes
        self._credit = Credit(limits.default_credit_bytes)
        self._unsent = unsent or ResponseBudget(limits.unsent_bytes)
        self._allowance = SessionQuota(limits.max_answer_bytes, trusted=follower)
        self._sending = False
        self._sent = Bell()
        self._wakeup = Bell()
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0
        self._sending_since_ms = 0
        self._patience: TimerHandle | None = None

    async def run(self, first: bytes | None = None) -> None:
        """Serve until the stream ends; `first` has been received already. Never raises for what the client did."""
        try:
            await converse(self._stream, self._receive(first), self._send_answers())
        finally:
            self._release()

    async def _receive(self, first: bytes | None) -> None:
        message = first
        while True:
            if message is None:
                message = await self._stream.recv()
            try:
                self.on_message(message)
            except FrameError:  # not ours to answer: whoever speaks so is not spoken to
                self._stream.close()
                return
            message = None
            while self._sending and len(self._ready) > MAX_READY:
                self._sent.silence()
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
        self._reader.describes_itself(header.replica_id, header.replica_epoch, read_committed=header.read_committed)
        self._max_wait_ms = header.max_wait_ms or self._limits.default_wait_ms
        most = self._limits.max_answer_bytes
        self._max_bytes = max(1, min(header.max_bytes or most, most))  # 1: one batch goes out whatever was asked for
        if header.credit_bytes:
            self._credit.grant(header.credit_bytes)
            self._use_room()
        for forgotten in header.forgotten:
            self._forget(TopicPartition(forgotten.topic, forgotten.partition))
        if header.partitions:
            self._minimum.asked(header.min_bytes, self._max_wait_ms, self._clock.now_ms())
        for partition in header.partitions:
            self._name(partition)
        if len(self._wanted) > MAX_NAMED:
            raise FrameError(f"a session of {len(self._wanted)} partitions; {MAX_NAMED} are the most")

    def _name(self, partition: pb.FetchPartition) -> None:
        if len(partition.topic) > LONGEST_TOPIC_NAME:  # Metadata says so politely; this is nobody who asked it
            raise FrameError(f"a topic name of {len(partition.topic)} characters")
        tp = TopicPartition(partition.topic, partition.partition)
        self._forget(tp, keep_told=True)
        wanted = Wanted(
            tp,
            partition.fetch_offset,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
            partition.max_bytes or DEFAULT_PARTITION_BYTES,
        )
        if self._counters.timer is not None:
            wanted.named_at = self._counters.timer()
        self._wanted[tp] = wanted
        if self._credit.taken(tp):
            self._use_room()
        replica = self._lookup(tp, partition.topic_id)
        if isinstance(replica, ErrorCode):
            self._counters.gone.fetches += 1
            wanted.decision = FetchDecision(replica, -1, -1, -1)
            self._make_ready(wanted)
            return
        wanted.replica = replica
        replica.traffic.fetches += 1
        told = self._told.get(tp)
        if told is not None and told[2] == partition.current_leader_epoch:  # of an earlier term it took none
            wanted.told_high_watermark, wanted.told_log_start = told[:2]
        decision = self._reader.ask(replica, wanted)
        wanted.role = replica.role
        if is_refusal(decision) or decision.limit > wanted.fetch_offset:
            wanted.decision = decision
            self._make_ready(wanted)
        else:
            # This very fetch may have moved the high watermark: it is news for this client, too.
            self._keep_waiting(replica, wanted)

    def _forget(self, tp: TopicPartition, *, keep_told: bool = False) -> None:
        wanted = self._wanted.pop(tp, None)
        self._answers.forget(tp)  # a read may go on for what has been refused meanwhile
        if wanted is not None:
            self._ready.pop(tp, None)
            self._minimum.forget(tp)
            if not self._ready and not self._minimum.holds:
                self._minimum.rest()
            if wanted.replica is not None:
                wanted.replica.waiters.remove(self)
        if not keep_told:
            self._told.pop(tp, None)
            if self._credit.taken(tp):
                self._use_room()

    def _use_room(self) -> None:
        """The client has room again: what is ready may have waited for that."""
        if self._ready:
            self._wakeup.ring()

    # --- What wakes it ----------------------------------------------------------------------------------------------

    def wake(self, replica: Replica) -> None:
        """Called by the replica: there may be more to read, or its role changed."""
        wanted = self._wanted.get(replica.topic_partition)
        if wanted is not None and wanted.replica is replica:
            self._make_ready(wanted)

    def note_high_watermark(self, replica: Replica) -> None:
        """Called by the replica: a follower that waits for data will hear of the new high watermark in time."""
        wanted = self._wanted.get(replica.topic_partition)
        if wanted is not None and wanted.replica is replica:
            state = replica.state
            self._wait_for_news(wanted, state.high_watermark, state.log_start_offset)

    def _ready_again(self, tp: TopicPartition) -> None:
        wanted = self._wanted.get(tp)
        if wanted is not None:
            self._make_ready(wanted)

    def _make_ready(self, wanted: Wanted) -> None:
        self._ready[wanted.topic_partition] = None
        self._wakeup.ring()

    def _wait_for_news(self, wanted: Wanted, high_watermark: int, log_start_offset: int) -> None:
        """A changed high watermark or log start is told with the next data, or when the wait ends (R-127, R-261)."""
        if (high_watermark, log_start_offset) == (wanted.told_high_watermark, wanted.told_log_start):
            return
        if wanted.deadline_ms is None:
            wait_ms = 0 if chance("fetch-wait-ends-early", 0.1) else self._max_wait_ms
            wanted.deadline_ms = self._clock.now_ms() + wait_ms
            self._arm_timer(wanted.deadline_ms)

    def _arm_timer(self, deadline_ms: int) -> None:
        if self._timer is not None and self._timer_at_ms <= deadline_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        self._timer = self._clock.call_later(max(0, deadline_ms - self._clock.now_ms()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        next_deadline: int | None = None
        for wanted in self._wanted.values():
            if wanted.deadline_ms is None:
                continue
            if wanted.deadline_ms <= now_ms:
                self._make_ready(wanted)
            elif next_deadline is None or wanted.deadline_ms < next_deadline:
                next_deadline = wanted.deadline_ms
        bytes_by_ms = self._minimum.deadline_ms
        if bytes_by_ms is not None:
            if bytes_by_ms <= now_ms:
                self._wakeup.ring()
            else:
                next_deadline = bytes_by_ms if next_deadline is None else min(next_deadline, bytes_by_ms)
        if next_deadline is not None:
            self._arm_timer(next_deadline)

    # --- What it answers --------------------------------------------------------------------------------------------

    async def _send_answers(self) -> None:
        while True:
            await self._wakeup.wait()
            if self._credit.left <= 0:
                continue  # the client has not taken what it has; its next credit wakes us
            proven = self._allowance.proven
            if not self._unsent.has_room(proven=proven):
                await self._unsent.room(proven=proven)
            frame = None
            try:
                frame = self.gather()
            finally:
                if frame is None:
                    self._unsent.pass_on()
            if frame is None:
                continue
            self._unsent.add(len(frame), proven=proven)
            self._sending = True
            self._sending_since_ms = self._clock.now_ms()
            if self._patience is None:
                self._patience = self._clock.call_later(STALLED_MS, self._on_patience)
            try:
                await self._stream.send(frame)
            except StreamClosed:
                return
            finally:
                self._unsent.remove(len(frame), proven=proven)
                self._sending = False
                self._sent.ring()
            self._allowance.took(len(frame))

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
        if not self._ready and not self._minimum.holds:
            return None
        now_ms = self._clock.now_ms()
        if not self._minimum.is_met(self._wanted, self._ready, self, now_ms):
            deadline_ms = self._minimum.deadline_ms
            assert deadline_ms is not None, "what is held back has a deadline"
            self._arm_timer(deadline_ms)
            return None
        header = pb.FetchAnswerHeader()
        buffers: list[Buffer] = []
        budget = min(self._max_bytes, self._allowance.next_bytes)
        if chance("fetch-answer-small", 0.1):
            budget = 1
        total = 0
        while self._ready:
            tp = next(iter(self._ready))
            if total >= budget or len(header.partitions) >= MAX_ANSWERED or self._leaves_the_rest(header):
                self._wakeup.ring()
                break
            del self._ready[tp]
            wanted = self._wanted[tp]
            total += self._answer(wanted, header, buffers, budget - total, now_ms, first=not buffers)
        if not self._ready:
            self._minimum.rest()
        if not header.partitions:
            return None
        self._credit.spend(sum(map(len, buffers)))  # `total` also holds what did not fit and was not sent
        return pack_frame(header.SerializeToString(), buffers)

    def _leaves_the_rest(self, header: pb.FetchAnswerHeader) -> bool:
        return bool(header.partitions) and chance("fetch-answer-partial", 0.1)

    def _answer(
        self,
        wanted: Wanted,
        header: pb.FetchAnswerHeader,
        buffers: list[Buffer],
        budget: int,
        now_ms: int,
        *,
        first: bool,
    ) -> int:
        """Add one partition's answer; returns its bytes. A partition with nothing to say goes back to waiting."""
        tp, replica = wanted.topic_partition, wanted.replica
        decision, data = self._answers.find(
            wanted, budget, min(self._max_bytes, self._allowance.next_bytes), first=first
        )
        if data is None:
            return 0  # a thread reads; the partition is ready again when it has
        size = sum(map(len, data))
        refused = is_refusal(decision)
        if not size and not refused and replica is not None and not self._has_news(wanted, decision, now_ms):
            wanted.decision = None
            if decision.limit > wanted.fetch_offset and not first:
                self._ready = {tp: None, **self._ready}  # its first batch did not fit: first in the next answer
                self._wakeup.ring()
                return budget
            self._keep_waiting(replica, wanted)
            return 0
        self._wanted.pop(tp, None)
        if replica is not None:
            replica.waiters.remove(self)
            if refused:  # a follower takes nothing from a refusal
                self._told.pop(tp, None)
            else:
                self._told[tp] = (decision.high_watermark, decision.log_start_offset, wanted.current_leader_epoch)
        self._credit.answered(tp, size)
        self._count(wanted, decision, size)
        told = FetchedPartition(tp, decision, *named_leader(wanted, decision), data)
        describe(header.partitions.add(), wanted, told)
        buffers.extend(data)
        return size

    def _count(self, wanted: Wanted, decision: FetchDecision, size: int) -> None:
        traffic = self._counters.gone if wanted.replica is None else wanted.replica.traffic
        if self._follower:
            traffic.replication_bytes_out += size
        else:
            traffic.bytes_out += size
        if decision.error is not ErrorCode.NONE:
            traffic.failed_fetches += 1
        timer = self._counters.timer
        if timer is not None:
            self._times.observe(timer() - wanted.named_at)

    def _has_news(self, wanted: Wanted, decision: FetchDecision, now_ms: int) -> bool:
        if wanted.deadline_ms is None or now_ms < wanted.deadline_ms:
            return False
        wanted.deadline_ms = None
        told = (wanted.told_high_watermark, wanted.told_log_start)
        return told != (decision.high_watermark, decision.log_start_offset)

    def _keep_waiting(self, replica: Replica, wanted: Wanted) -> None:
        replica.waiters.add(self, follower=self._follower)
        self._wait_for_news(wanted, replica.state.high_watermark, replica.state.log_start_offset)

    def _release(self) -> None:
        self._answers.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        for wanted in self._wanted.values():
            if wanted.replica is not None:
                wanted.replica.waiters.remove(self)
        self._wanted.clear()
        self._ready.clear()
