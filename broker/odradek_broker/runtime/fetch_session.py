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

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import LONGEST_TOPIC_NAME, TopicPartition
from odradek_proto.transport.chance import chance
from odradek_proto.transport.frames import FrameError, pack_frame, split_frame
from odradek_proto.transport.ports import Buffer, Clock, Files, Stream, StreamClosed, TimerHandle
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.values import Value

from odradek_broker.core.partition.messages import FetchDecision, FollowerFetch
from odradek_broker.runtime.cold_reads import ColdReads
from odradek_broker.runtime.conversation import converse
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.fetch_minimum import MinimumBytes
from odradek_broker.runtime.hosted import HostedReplica
from odradek_broker.runtime.unsent import Allowance, UnsentAnswers
from odradek_broker.storage.errors import LogCorrupted

CONSUMER = -1
STALLED_MS = 60_000  # a client that takes nothing of an answer for so long is not read by anybody: its room is needed
MAX_HEADER_BYTES = 1024 * 1024  # of one FetchFrame; some twenty thousand partitions
MAX_NAMED = 100_000  # partitions of one session that wait or are ready: a session that names more is ended
MAX_READY = 1_024  # while an answer is on its way and this many partitions are ready, nothing more is read
MAX_ANSWERED = 1_024  # partitions in one answer: headers are memory, too
DEFAULT_PARTITION_BYTES = 1_048_576  # replica.fetch.max.bytes and max.partition.fetch.bytes, Kafka's default

Lookup = Callable[[TopicPartition, bytes], HostedReplica | ErrorCode]


@dataclass(slots=True)
class _Wanted:
    """One named partition that has not been answered yet."""

    topic_partition: TopicPartition
    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    hosted: HostedReplica | None = None
    role: object = None  # of the replica when it was asked
    reread: bool = False  # the disk has been asked twice
    decision: FetchDecision | None = None  # to be told as it is: an error, a divergence, or the first look at the data
    deadline_ms: int | None = None
    told_high_watermark: int = -1
    told_log_start: int = -1
    named_at: float = 0.0  # seconds of the counters' timer, if there is one


class SessionLimits(Value, frozen=True):
    """Bounds of one session, from the broker's settings."""

    max_answer_bytes: int
    default_credit_bytes: int = 16_777_216  # odradek.stream.credit.bytes
    default_wait_ms: int = 500  # replica.fetch.wait.max.ms and fetch.max.wait.ms
    unsent_bytes: int = 16_777_216  # of the answers of all sessions together


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
        unsent: UnsentAnswers | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._counters = counters or Counters()
        self._times = self._counters.request("FetchFollower" if follower else "FetchConsumer")
        self._follower = follower
        self._stream = stream
        self._clock = clock
        self._lookup = lookup
        self._limits = limits
        self._wanted: dict[TopicPartition, _Wanted] = {}
        self._ready: dict[TopicPartition, None] = {}
        self._told: dict[TopicPartition, tuple[int, int, int]] = {}  # high watermark, log start, epoch that it knows
        self._replica_id = CONSUMER
        self._replica_epoch = -1
        self._read_committed = False
        self._max_wait_ms = limits.default_wait_ms
        self._minimum = MinimumBytes()
        self._max_bytes = limits.max_answer_bytes
        self._credit = limits.default_credit_bytes
        self._credited = False  # whether the client counts for itself
        self._untaken: dict[TopicPartition, int] = {}  # bytes of a partition's last answer, until it is named again
        self._unsent = unsent or UnsentAnswers(limits.unsent_bytes)
        self._allowance = Allowance(limits.max_answer_bytes, trusted=follower)
        self._sending = False
        self._sent = asyncio.Event()
        self._files = files
        self._cold = ColdReads(files, self._ready_again)
        self._wakeup = asyncio.Event()
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0

    async def run(self) -> None:
        """Serve until the stream ends. Never raises for what the client did."""
        try:
            await converse(self._stream, self._receive(), self._send_answers())
        finally:
            self._release()

    async def _receive(self) -> None:
        while True:
            message = await self._stream.recv()
            try:
                self.on_message(message)
            except FrameError:  # not ours to answer: whoever speaks so is not spoken to
                self._stream.close()
                return
            while self._sending and len(self._ready) > MAX_READY:
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
        self._replica_id = header.replica_id if self._follower else CONSUMER
        self._replica_epoch = header.replica_epoch
        self._read_committed = header.read_committed
        self._max_wait_ms = header.max_wait_ms or self._limits.default_wait_ms
        self._max_bytes = min(header.max_bytes or self._limits.max_answer_bytes, self._limits.max_answer_bytes)
        if header.credit_bytes:
            if not self._credited:  # from now on the client says what it has room for
                self._credited, self._credit = True, 0
                self._untaken.clear()
            self._take_back(header.credit_bytes)
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
        wanted = _Wanted(
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
        untaken = self._untaken.pop(tp, 0)
        if untaken:  # whoever names a partition again has taken its last answer
            self._take_back(untaken)
        hosted = self._lookup(tp, partition.topic_id)
        if isinstance(hosted, ErrorCode):
            self._counters.gone.fetches += 1
            wanted.decision = FetchDecision(hosted, -1, -1, -1)
            self._make_ready(wanted)
            return
        wanted.hosted = hosted
        hosted.traffic.fetches += 1
        told = self._told.get(tp)
        if told is not None and told[2] == partition.current_leader_epoch:  # of an earlier term it took none
            wanted.told_high_watermark, wanted.told_log_start = told[:2]
        decision = self._ask(hosted, wanted)
        wanted.role = hosted.role
        says_no = decision.error is not ErrorCode.NONE or decision.diverging is not None
        if says_no or decision.limit > wanted.fetch_offset:
            wanted.decision = decision
            self._make_ready(wanted)
        else:
            # This very fetch may have moved the high watermark: it is news for this client, too.
            self._keep_waiting(hosted, wanted)

    def _ask(self, hosted: HostedReplica, wanted: _Wanted) -> FetchDecision:
        if self._follower:
            return hosted.fetch_as_follower(self._fetch_of(wanted))
        return hosted.fetch_as_consumer(
            wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch, self._read_committed
        )

    def _fetch_of(self, wanted: _Wanted) -> FollowerFetch:
        return FollowerFetch(
            self._replica_id,
            self._replica_epoch,
            wanted.fetch_offset,
            wanted.current_leader_epoch,
            wanted.last_fetched_epoch,
            wanted.log_start_offset,
        )

    def _forget(self, tp: TopicPartition, *, keep_told: bool = False) -> None:
        wanted = self._wanted.pop(tp, None)
        self._ready.pop(tp, None)
        if not self._ready:
            self._minimum.rest()
        self._cold.end(tp)
        if not keep_told:
            self._told.pop(tp, None)
            untaken = self._untaken.pop(tp, 0)
            if untaken:
                self._take_back(untaken)
        if wanted is not None and wanted.hosted is not None:
            wanted.hosted.stop_waiting(self)

    def _take_back(self, credit: int) -> None:
        """The client has room again: what is ready may have waited for that."""
        self._credit += credit
        if self._ready:
            self._wakeup.set()

    # --- What wakes it ----------------------------------------------------------------------------------------------

    def wake(self, hosted: HostedReplica) -> None:
        """Called by the replica: there may be more to read, or its role changed."""
        wanted = self._wanted.get(hosted.topic_partition)
        if wanted is not None and wanted.hosted is hosted:
            self._make_ready(wanted)

    def note_high_watermark(self, hosted: HostedReplica) -> None:
        """Called by the replica: a follower that waits for data will hear of the new high watermark in time."""
        wanted = self._wanted.get(hosted.topic_partition)
        if wanted is not None and wanted.hosted is hosted:
            state = hosted.state
            self._wait_for_news(wanted, state.high_watermark, state.log_start_offset)

    def _ready_again(self, tp: TopicPartition) -> None:
        wanted = self._wanted.get(tp)
        if wanted is not None:
            self._make_ready(wanted)

    def _make_ready(self, wanted: _Wanted) -> None:
        self._ready[wanted.topic_partition] = None
        self._wakeup.set()

    def _wait_for_news(self, wanted: _Wanted, high_watermark: int, log_start_offset: int) -> None:
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
                self._wakeup.set()
            else:
                next_deadline = bytes_by_ms if next_deadline is None else min(next_deadline, bytes_by_ms)
        if next_deadline is not None:
            self._arm_timer(next_deadline)

    # --- What it answers --------------------------------------------------------------------------------------------

    async def _send_answers(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            if self._credit <= 0:
                continue  # the client has not taken what it has; its next credit wakes us
            await self._unsent.room(proven=self._allowance.proven)
            frame = self.gather()
            if frame is None:
                self._unsent.pass_on()
                continue
            self._unsent.add(len(frame))
            self._sending = True
            patience = self._clock.call_later(STALLED_MS, self._stream.close)
            try:
                await self._stream.send(frame)
            except StreamClosed:
                return
            finally:
                patience.cancel()
                self._unsent.remove(len(frame))
                self._sending = False
                self._sent.set()
            self._allowance.took(len(frame))

    def last_answer(self) -> bytes:
        """The client's patience is at its end: whatever is ready, enough or not; empty when nothing is."""
        self._minimum.wanted = 1
        return self.gather() or b""

    def gather(self) -> bytes | None:
        """One answer with everything that is ready now, or None when nothing is, or too little (R-121)."""
        if not self._ready or not self._is_enough():
            return None
        header = pb.FetchAnswerHeader()
        buffers: list[Buffer] = []
        budget = min(self._max_bytes, self._allowance.next_bytes)
        if chance("fetch-answer-small", 0.1):
            budget = 1
        total = 0
        now_ms = self._clock.now_ms()
        while self._ready:
            tp = next(iter(self._ready))
            if total >= budget or len(header.partitions) >= MAX_ANSWERED or self._leaves_the_rest(header):
                self._wakeup.set()
                break
            del self._ready[tp]
            wanted = self._wanted[tp]
            total += self._answer(wanted, header, buffers, budget - total, now_ms, first=not buffers)
        if not self._ready:
            self._minimum.rest()
        if not header.partitions:
            return None
        self._credit -= sum(map(len, buffers))  # `total` also holds what did not fit and was not sent
        return pack_frame(header.SerializeToString(), buffers)

    def _is_enough(self) -> bool:
        """Whether what is ready is to be told now. If not, more data or the end of the wait will ask again."""
        minimum, now_ms = self._minimum, self._clock.now_ms()
        if minimum.is_over(now_ms):
            return True
        found = 0
        for tp in self._ready:
            wanted = self._wanted[tp]
            size = self._readable_bytes(wanted, now_ms)
            if size is None:
                return True
            found += size
            if found >= minimum.wanted:
                return True
            wanted.decision = None  # when it is told, it is looked at again
            if wanted.hosted is not None:
                wanted.hosted.wait_for_data(self, follower=self._follower)
        if found:
            self._arm_timer(minimum.begin(now_ms))
        return not found

    def _readable_bytes(self, wanted: _Wanted, now_ms: int) -> int | None:
        """Bytes that could be told of one partition; None when there is more to say than data.

        What is not in memory counts as enough: it is as a rule much, and to look for it costs as much as to read it.
        """
        hosted, decision = wanted.hosted, wanted.decision
        if hosted is None or hosted.role is not wanted.role or not hosted.log.is_hot(wanted.fetch_offset):
            return None
        if self._cold.get(wanted.topic_partition) is not None:
            return None
        if wanted.deadline_ms is not None and wanted.deadline_ms <= now_ms:
            return None  # a changed high watermark is due
        if decision is None or decision.error is ErrorCode.NONE:
            decision = self._look_again(hosted, wanted)
        if decision.error is not ErrorCode.NONE or decision.diverging is not None:
            return None
        return sum(map(len, hosted.log.read(wanted.fetch_offset, wanted.max_bytes, decision.limit)))

    def _leaves_the_rest(self, header: pb.FetchAnswerHeader) -> bool:
        return bool(header.partitions) and chance("fetch-answer-partial", 0.1)

    def _answer(
        self,
        wanted: _Wanted,
        header: pb.FetchAnswerHeader,
        buffers: list[Buffer],
        budget: int,
        now_ms: int,
        *,
        first: bool,
    ) -> int:
        """Add one partition's answer; returns its bytes. A partition with nothing to say goes back to waiting."""
        hosted = wanted.hosted
        decision = wanted.decision
        if decision is None or self._is_stale(hosted, wanted, decision):
            assert hosted is not None
            decision = self._look_again(hosted, wanted)
        data: list[Buffer] = []
        size = 0
        if decision.error is ErrorCode.NONE and decision.diverging is None and hosted is not None:
            if decision.limit > wanted.fetch_offset:
                try:
                    found = self._read(hosted, wanted, decision, budget, first=first)
                except LogCorrupted as error:
                    found, decision = [], self._corrupted(hosted, error)
                if found is None:
                    return 0  # a thread reads; the partition is ready again when it has
                data, size = found, sum(map(len, found))
            if not size and decision.error is ErrorCode.NONE and not self._has_news(wanted, decision, now_ms):
                wanted.decision = None
                if decision.limit > wanted.fetch_offset and not first:
                    self._make_ready(wanted)  # its first batch did not fit any more: first in the next answer
                    return budget
                self._keep_waiting(hosted, wanted)
                return 0
        self._wanted.pop(wanted.topic_partition, None)
        if hosted is not None:
            hosted.stop_waiting(self)
            if decision.error is ErrorCode.NONE and decision.diverging is None:
                told = (decision.high_watermark, decision.log_start_offset, wanted.current_leader_epoch)
                self._told[wanted.topic_partition] = told
            else:  # a follower takes nothing from a refusal
                self._told.pop(wanted.topic_partition, None)
        if size and not self._credited:
            self._untaken[wanted.topic_partition] = size
        self._count(wanted, decision, size)
        self._describe(header.partitions.add(), wanted, decision, size)
        buffers.extend(data)
        return size

    def _count(self, wanted: _Wanted, decision: FetchDecision, size: int) -> None:
        traffic = self._counters.gone if wanted.hosted is None else wanted.hosted.traffic
        if self._follower:
            traffic.replication_bytes_out += size
        else:
            traffic.bytes_out += size
        if decision.error is not ErrorCode.NONE:
            traffic.failed_fetches += 1
        timer = self._counters.timer
        if timer is not None:
            self._times.observe(timer() - wanted.named_at)

    def _read(
        self, hosted: HostedReplica, wanted: _Wanted, decision: FetchDecision, budget: int, *, first: bool
    ) -> list[Buffer] | None:
        """Bytes from memory, or those that a thread has found; None while it reads. Raises `LogCorrupted`."""
        tp, offset = wanted.topic_partition, wanted.fetch_offset
        cold = self._cold.get(tp)
        if cold is None:
            if hosted.log.is_hot(offset):
                limit_bytes = min(wanted.max_bytes, budget)
                return hosted.log.read(offset, limit_bytes, decision.limit, at_least_one=first)
            self._cold.begin(
                hosted, offset, min(wanted.max_bytes, self._max_bytes, self._allowance.next_bytes), decision.limit
            )
            return None
        if not cold.done:
            return None
        if isinstance(cold.found, LogCorrupted):
            self._cold.end(tp)
            raise cold.found
        if cold.found and not first and sum(map(len, cold.found)) > budget:
            return []  # it goes first in the next answer
        self._cold.end(tp)
        if cold.role is not hosted.role or (not cold.found and not wanted.reread):
            wanted.decision, wanted.reread = None, True  # segments changed under the reader, or the role: look again
            self._make_ready(wanted)
            return None
        return cold.found or []

    def _is_stale(self, hosted: HostedReplica | None, wanted: _Wanted, decision: FetchDecision) -> bool:
        """Whether a permission to read was given by a role that is over, or for what has been deleted since."""
        if hosted is None or decision.error is not ErrorCode.NONE or decision.diverging is not None:
            return False
        return hosted.role is not wanted.role or wanted.fetch_offset < hosted.state.log_start_offset

    def _look_again(self, hosted: HostedReplica, wanted: _Wanted) -> FetchDecision:
        """What a fetch that waited would be told now; its position is not recorded again (R-121, R-122)."""
        if self._follower:
            return hosted.look_as_follower(self._fetch_of(wanted))
        return hosted.fetch_as_consumer(
            wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch, self._read_committed
        )

    def _has_news(self, wanted: _Wanted, decision: FetchDecision, now_ms: int) -> bool:
        if wanted.deadline_ms is None or now_ms < wanted.deadline_ms:
            return False
        wanted.deadline_ms = None
        told = (wanted.told_high_watermark, wanted.told_log_start)
        return told != (decision.high_watermark, decision.log_start_offset)

    def _keep_waiting(self, hosted: HostedReplica, wanted: _Wanted) -> None:
        hosted.wait_for_data(self, follower=self._follower)
        self._wait_for_news(wanted, hosted.state.high_watermark, hosted.state.log_start_offset)

    def _corrupted(self, hosted: HostedReplica, error: LogCorrupted) -> FetchDecision:
        """A batch that fails its check is never served (G7)."""
        hosted.report_corruption(error)
        state = hosted.state
        return FetchDecision(
            ErrorCode.CORRUPT_MESSAGE, state.high_watermark, state.high_watermark, state.log_start_offset
        )

    def _describe(self, item: pb.FetchedPartition, wanted: _Wanted, decision: FetchDecision, size: int) -> None:
        item.topic = wanted.topic_partition.topic
        item.partition = wanted.topic_partition.partition
        item.error_code = int(decision.error)
        item.high_watermark = decision.high_watermark
        item.last_stable_offset = decision.last_stable_offset
        item.log_start_offset = decision.log_start_offset
        item.size = size
        item.fetch_offset = wanted.fetch_offset
        item.request_leader_epoch = wanted.current_leader_epoch
        item.current_leader_id = -1
        item.current_leader_epoch = -1
        if decision.diverging is not None:
            item.diverging = True
            item.diverging_epoch = decision.diverging.epoch
            item.diverging_end_offset = decision.diverging.offset
        registration = wanted.hosted.registration if wanted.hosted is not None else None
        if decision.error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH) and registration:
            item.current_leader_id = registration.leader
            item.current_leader_epoch = registration.leader_epoch

    def _release(self) -> None:
        self._cold.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for wanted in self._wanted.values():
            if wanted.hosted is not None:
                wanted.hosted.stop_waiting(self)
        self._wanted.clear()
        self._ready.clear()
