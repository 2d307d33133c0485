"""One replica that this broker hosts: the core's role, the log on disk, and the waiting requests.

This is where effects are carried out. Rules of this module: effects are carried out in order, synchronously, with no
await in between; waiting requests are woken after the step is over, never inside it (R-126); a storage error takes the
replica offline with its reason, and the others continue (R-86).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from odradek_proto.errors import ErrorCode
from odradek_proto.records import (
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchHeader,
    CorruptBatch,
    check_batch,
    stamped_header,
    stamped_prefix,
)
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.chance import chance, reached
from odradek_proto.transport.deadline import Deadline
from odradek_proto.transport.ports import Buffer, Clock
from odradek_proto.v1.controller_messages import ReplicaReport

from odradek_broker.core.controller.damaged import nobody_is_waited_for
from odradek_broker.core.metadata.image import NO_LEADER, PartitionRegistration
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import (
    AdvanceLogStart,
    AppendBatches,
    AppendDecision,
    Effect,
    FetchDecision,
    FollowerFetch,
    HighWatermarkAdvanced,
    IsrAnswer,
    IsrChanged,
    IsrProposal,
    PartitionFailed,
    ProposeIsr,
    ReplicaLog,
    RequestReady,
    RestartLog,
    Transition,
    Truncate,
    WriteEpochs,
)
from odradek_broker.core.partition.roles import credible_end
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.replicas.not_leader import fetch_refusal, not_leader
from odradek_broker.runtime.replicas.purgatory import (
    CONSUMER_FETCH,
    DELETE,
    FOLLOWER_FETCH,
    PRODUCE,
    AnswerCallback,
    AwaitedBatch,
    DelayedDelete,
    DelayedFetch,
    ProduceAnswer,
    Purgatory,
    PurgatoryKey,
)
from odradek_broker.runtime.replicas.storage_errors import StorageErrorReporter
from odradek_broker.runtime.replicas.truncation_losses import TruncationLosses
from odradek_broker.storage.errors import DiskFull, LogCorrupted, StorageError
from odradek_broker.storage.log import Log

ACKS_ALL = -1
UNKNOWN = -1  # where a log ends that cannot be read


class ReplicaServices(Protocol):
    """The services that a hosted replica needs from its broker."""

    clock: Clock
    events: EventLog
    counters: Counters
    purgatory: Purgatory  # of the whole broker

    def propose_isr(self, replica: Replica, proposal: IsrProposal) -> None: ...

    def request_ready(self, replica: Replica) -> None: ...

    def after_append(self, replica: Replica) -> None:
        """Bytes were appended: the flusher may have work."""
        ...

    def may_acknowledge_alone(self) -> bool:
        """Whether a leader that is its whole ISR may answer acks=all (R-112: not while its session is gone)."""
        ...

    def storage_failed(self, replica: Replica, error: Exception) -> None: ...

    def allow_gaps(self, replica: Replica) -> None:
        """Make it known for good that offsets may be missing in this log. Raises `StorageError`."""
        ...


class Replica:
    """One replica on this broker. `role` changes with each leader epoch; the log stays."""

    def __init__(self, log: Log, services: ReplicaServices) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.state: ReplicaLog = log.state
        self.registration: PartitionRegistration | None = None
        self.role: LeaderPartition | FollowerPartition | None = None
        self.offline: str | None = None
        self.counters = services.counters
        self.traffic = services.counters.traffic(log.topic_partition.topic)
        self.promised: int | None = None  # the log had records below it once, and has not got them all back
        self.leader_high_watermark = 0  # as a follower: what the leader last said
        self._losses = TruncationLosses()
        self._services = services
        self.purgatory = services.purgatory
        self.produces = PurgatoryKey(self.topic_partition, PRODUCE)
        self.deletes = PurgatoryKey(self.topic_partition, DELETE)
        self.follower_fetches = PurgatoryKey(self.topic_partition, FOLLOWER_FETCH)
        self.consumer_fetches = PurgatoryKey(self.topic_partition, CONSUMER_FETCH)
        self.trouble = StorageErrorReporter(log.topic_partition, services.counters, services.events)
        self._isr_retry = Deadline(services.clock, self._retry_isr)
        self._run: memoryview = memoryview(b"")  # the bytes that an AppendBatches effect speaks of
        self._look_into_purgatory = False

    @property
    def leader(self) -> LeaderPartition | None:
        role = self.role
        return role if isinstance(role, LeaderPartition) else None

    @property
    def follower(self) -> FollowerPartition | None:
        role = self.role
        return role if isinstance(role, FollowerPartition) else None

    @property
    def waiting_produces(self) -> int:
        """Produce requests with acks=all that wait for the high watermark."""
        return self.purgatory.count(self.produces)

    @property
    def waiting_fetches(self) -> int:
        """Followers and consumers that wait for more to read."""
        return self.purgatory.count(self.follower_fetches) + self.purgatory.count(self.consumer_fetches)

    # --- Roles ------------------------------------------------------------------------------------------------------

    def take_role(self, role: LeaderPartition | FollowerPartition | None) -> None:
        """Enter a new term: requests that wait on the old one are answered (R-103, R-105), then the new role starts."""
        before, self.role = self.role, role
        if isinstance(before, LeaderPartition):
            state = self.state
            self._losses.leadership_ended(before.epoch_start_offset, state.log_end_offset, state.high_watermark)
        self._fail_writes(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if role is not None and self.offline is None:
            self.carry_out(role.start(self._services.clock.now_ms()))
        self._look_at_fetches()

    def update_registration(self, registration: PartitionRegistration) -> None:
        """The same term with another ISR, partition epoch or replica list (R-102).

        Also the next leader epoch of the same leader: requests that wait for the high watermark continue to wait, and
        followers that wait with the old epoch get an error (R-101, R-36).
        """
        known, self.registration = self.registration, registration
        if self.role is not None and self.offline is None:
            self.carry_out(self.role.update(registration, self._services.clock.now_ms()))
            self._complete_deletes()  # a replica that was removed is not waited for any more
        if known is None or known.leader_epoch < registration.leader_epoch:
            self._look_at_fetches()

    def take_offline(self, reason: str) -> None:
        """Stop serving: the disk under this replica cannot be trusted any more."""
        if self.offline is None:
            self.offline = reason
            self._fail_writes(ErrorCode.KAFKA_STORAGE_ERROR)
            self._look_at_fetches()

    def _fail_writes(self, error: ErrorCode) -> None:
        """Answer the requests that wait for events that this replica will not see any more."""
        self.purgatory.fail_all(self.produces, error)
        self.purgatory.fail_all(self.deletes, error)

    def _look_at_fetches(self) -> None:
        """The role or its epoch changed, or the disk failed: waiting reads are decided again (R-121)."""
        self.purgatory.complete(self.follower_fetches)
        self.purgatory.complete(self.consumer_fetches)

    # --- Produce ----------------------------------------------------------------------------------------------------

    def produce(self, batch: memoryview, acks: int, timeout_ms: int, answer: AnswerCallback) -> None:
        """Append one batch as leader; `answer` is called once, now or later. acks=0 answers only an error."""
        leader = self.leader
        if self.offline is not None:
            self._refuse(answer, ProduceAnswer(ErrorCode.KAFKA_STORAGE_ERROR, self.offline))
            return
        if leader is None:
            self._refuse(answer, not_leader(self.topic_partition, self.registration))
            return
        clock = self._services.clock
        now_ms = clock.now_ms()
        try:
            header = check_batch(batch)
            if header.size != len(batch):
                raise CorruptBatch("a produce item holds exactly one batch", position=header.size)
        except CorruptBatch as error:
            if (refused := leader.refusal_of_acks(acks)) is not None:  # comes first; costs sound batches nothing
                self._refuse(answer, ProduceAnswer(refused.error, refused.message))
                return
            self.counters.damaged_batches["produce"] += 1
            self._refuse(answer, ProduceAnswer(ErrorCode.CORRUPT_MESSAGE, f"{self.topic_partition}: {error}"))
            return
        decision = leader.prepare_append(header, acks, now_ms, clock.wall_ms())
        if decision.error is not ErrorCode.NONE:
            self._refuse(
                answer, ProduceAnswer(decision.error, decision.message, log_start_offset=self.state.log_start_offset)
            )
            return
        if decision.header is not None and not self._append_as_leader(leader, decision.header, batch, now_ms):
            self._refuse(answer, ProduceAnswer(ErrorCode.KAFKA_STORAGE_ERROR, self.offline or "the disk is full"))
            return
        if decision.duplicate:
            reached("duplicate-answered")
        if chance("produce-times-out-early", 0.01):
            timeout_ms = 1
        self._answer_when_due(leader, decision, acks, now_ms + timeout_ms, answer)

    def _refuse(self, answer: AnswerCallback, told: ProduceAnswer) -> None:
        self.traffic.failed_produces += 1
        answer(told)

    def _append_as_leader(self, leader: LeaderPartition, header: BatchHeader, batch: memoryview, now_ms: int) -> bool:
        if header.timestamp_type_log_append:
            rest = batch[HEADER_SIZE:]
            header, prefix = stamped_header(header, rest)
        else:
            rest = batch[PREFIX_SIZE:]
            prefix = stamped_prefix(header.base_offset, header.length, header.leader_epoch)
        try:
            self.log.append((header,), (prefix, rest), self._services.clock.wall_ms())
        except DiskFull as error:  # nothing was written: the producer may try again when there is room
            self.trouble.full(error)
            return False
        except StorageError as error:
            self._services.storage_failed(self, error)
            return False
        if self.trouble.is_full:
            self.trouble.room_again()
        traffic = self.traffic
        traffic.messages_in += header.record_count
        traffic.bytes_in += len(batch)
        effects = leader.on_appended((header,), now_ms)
        self.purgatory.complete(self.follower_fetches)
        if effects:
            self.carry_out(effects)
        self._services.after_append(self)
        return True

    def _answer_when_due(
        self, leader: LeaderPartition, decision: AppendDecision, acks: int, deadline_ms: int, answer: AnswerCallback
    ) -> None:
        if acks == 0:
            return
        if acks == ACKS_ALL:
            outcome = leader.produce_outcome(decision.required_offset) if self._may_acknowledge(leader) else None
            if outcome is None:
                end = decision.required_offset
                delayed = AwaitedBatch(leader, decision, self._outcome, answer, required=end, deadline_ms=deadline_ms)
                self.purgatory.register(delayed, self.produces)
                return
        else:
            outcome = ErrorCode.NONE
            if decision.required_offset > self._losses.acknowledged_to:
                self._losses.acknowledged_to = decision.required_offset
        answer(self._outcome(outcome, decision))

    def _may_acknowledge(self, leader: LeaderPartition) -> bool:
        """A leader that is its whole ISR checks its session; one without any other replica cannot be replaced."""
        if len(leader.maximal_isr) > 1 or (self.registration is not None and len(self.registration.replicas) == 1):
            return True
        return self._services.may_acknowledge_alone()

    def complete_produces(self) -> None:
        """Answer the waiting acks=all requests whose condition holds now (R-14, R-124)."""
        leader = self.leader
        if leader is not None and self.purgatory.is_watched(self.produces) and self._may_acknowledge(leader):
            self.purgatory.complete(self.produces, self.state.high_watermark)

    def _outcome(self, error: ErrorCode, decision: AppendDecision) -> ProduceAnswer:
        if error is not ErrorCode.NONE:
            self.traffic.failed_produces += 1
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return not_leader(self.topic_partition, self.registration)
        start, time_ms = self.state.log_start_offset, decision.log_append_time_ms
        return ProduceAnswer(error, "", decision.base_offset, start, time_ms)

    def delete_records(self, offset: int, timeout_ms: int, answer: Callable[[ErrorCode], None]) -> DelayedDelete | None:
        """Cut the beginning of the log as leader (R-160), then wait until all replicas on live brokers have (R-125).

        `answer` is called once, now or later; what is returned waits, and may be cancelled.
        """
        leader = self.leader
        if self.offline is not None:
            answer(ErrorCode.KAFKA_STORAGE_ERROR)
            return None
        if leader is None:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return None
        error, start = leader.check_delete_records(offset)
        if error is ErrorCode.NONE and start > self.state.log_start_offset:
            self.on_log_start_advanced(start)
            if self.offline is not None:
                error = ErrorCode.KAFKA_STORAGE_ERROR
        if error is not ErrorCode.NONE or leader.low_watermark() >= start:
            answer(error)
            return None
        deadline_ms = self._services.clock.now_ms() + max(timeout_ms, 0)
        delayed = DelayedDelete(answer, required=start, deadline_ms=deadline_ms)
        self.purgatory.register(delayed, self.deletes)
        return delayed

    # --- Fetch ------------------------------------------------------------------------------------------------------

    def fetch_as_follower(self, fetch: FollowerFetch) -> FetchDecision:
        """A follower named its position: that is an acknowledgement (R-6), and may move the high watermark."""
        leader = self.leader
        if leader is None or self.offline is not None:
            return self.refusal(fetch.current_leader_epoch)
        decision, effects = leader.fetch_by_follower(fetch, self._services.clock.now_ms())
        if self.purgatory.is_watched(self.deletes):
            self._complete_deletes()
        if effects:
            self.carry_out(effects)
        return decision

    def reread_for_follower(self, fetch: FollowerFetch) -> FetchDecision:
        """The same question again when a fetch that waited completes; nothing is recorded (R-122)."""
        leader = self.leader
        if leader is None or self.offline is not None:
            return self.refusal(fetch.current_leader_epoch)
        return leader.read_for_follower(fetch)

    def fetch_as_consumer(
        self, fetch_offset: int, current_leader_epoch: int, last_fetched_epoch: int, read_committed: bool
    ) -> FetchDecision:
        if self.role is None or self.offline is not None:
            return self.refusal(current_leader_epoch)
        return self.role.fetch_by_consumer(
            fetch_offset, current_leader_epoch, last_fetched_epoch, read_committed, self._services.clock.now_ms()
        )

    def fetch_at_follower(
        self, fetch_offset: int, current_leader_epoch: int, last_fetched_epoch: int
    ) -> FetchDecision | None:
        """The range that a consumer that knows of followers may read here (R-269); None if this replica is not one."""
        follower = self.follower
        if follower is None or self.offline is not None:
            return None
        return follower.read_for_consumer(fetch_offset, current_leader_epoch, last_fetched_epoch)

    def refusal(self, current_leader_epoch: int) -> FetchDecision:
        """The error of this replica, which does not lead or whose disk failed, for a request with this epoch."""
        return fetch_refusal(self.state, self.registration, current_leader_epoch, offline=self.offline is not None)

    def storage_failed(self, error: Exception) -> None:
        """The disk refused while this replica was read."""
        self._services.storage_failed(self, error)

    # --- Damage -----------------------------------------------------------------------------------------------------

    def corrupted(self, error: LogCorrupted) -> None:
        """A batch failed its check while it was read: another replica should lead (R-146)."""
        known = self.state.damaged_at
        self.state.damaged_at = error.offset if known is None else min(known, error.offset)
        self.trouble.corrupted(error)

    def lacks(self, promised: int) -> None:
        """The log ended here once, and was found to end below it."""
        self.promised = promised
        self.trouble.lacking(self.state.log_end_offset, promised)

    def report(self) -> ReplicaReport | None:
        """The report to the controller about this copy, if any (R-146)."""
        state, registration = self.state, self.registration
        if state.damaged_at is not None and state.damaged_at < state.log_start_offset:
            self._mended()
        damaged = self.offline is not None or self.promised is not None or state.damaged_at is not None
        if registration is None or not (damaged or nobody_is_waited_for(registration)):
            return None
        last_epoch, end = credible_end(state, registration)
        return ReplicaReport(
            topic_id=state.topic_id,
            partition=self.topic_partition.partition,
            leader_epoch=registration.leader_epoch,
            last_epoch=last_epoch,
            log_end_offset=UNKNOWN if self.offline is not None else end,
            damaged=damaged,
        )

    def has_promised(self, broker_id: int) -> bool:
        """Whether a log that lacked records has them by now, or its cluster relies on this copy anyway.

        In an ISR it has everything that the leader has. A leader was elected although it lacks them: no live replica
        had more.
        """
        registration = self.registration
        if self.promised is None or registration is None or registration.leader == NO_LEADER:
            return False
        in_sync = broker_id in registration.isr
        return in_sync or registration.leader == broker_id or self.state.log_end_offset >= self.promised

    def promise_kept(self) -> None:
        facts = {
            "partition": str(self.topic_partition),
            "log_end_offset": self.state.log_end_offset,
            "promised": self.promised,
            "led_here": self.leader is not None,
        }
        self._services.events.write("replica_mended", "R-146", facts)
        self.promised = None
        self._mended()

    def _mended(self) -> None:
        self.state.damaged_at = None
        if self.promised is None:
            self.trouble.mended()

    # --- What others report -----------------------------------------------------------------------------------------

    def on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        leader = self.leader
        if leader is not None and self.offline is None:
            self.carry_out(leader.on_isr_answer(proposal, answer, self._services.clock.now_ms()))
            self._retry_isr_when_due(leader)

    def on_brokers_changed(self) -> None:
        """Or the role has new settings: a lower min.insync.replicas may let the high watermark rise (R-21)."""
        leader = self.leader
        if leader is not None and self.offline is None:
            self.carry_out(leader.on_brokers_changed(self._services.clock.now_ms()))
            self._complete_deletes()

    def _complete_deletes(self) -> None:
        """Answer the DeleteRecords requests for which all live replicas have moved their log start offsets (R-125)."""
        leader = self.leader
        if leader is not None:
            self.purgatory.complete(self.deletes, leader.low_watermark())

    def on_time(self) -> None:
        leader = self.leader
        if leader is not None and self.offline is None:
            self.carry_out(leader.on_time(self._services.clock.now_ms()))

    def _retry_isr_when_due(self, leader: LeaderPartition) -> None:
        """A proposal that must be retried does not wait for the next ISR check (R-50)."""
        if leader.replicas.isr.retry_at_ms is not None and not self._isr_retry.is_armed:
            self._isr_retry.arm(leader.next_deadline_ms())

    def _retry_isr(self) -> None:
        """An offline replica proposes nothing, and its deadline would stay in the past."""
        self.on_time()
        if self.leader is not None and self.offline is None:
            self._retry_isr_when_due(self.leader)

    def on_flushed(self, offset: int) -> None:
        """Everything below `offset` is on the disk now."""
        self.state.flushed_offset = max(self.state.flushed_offset, min(offset, self.state.log_end_offset))
        if self.role is not None and self.offline is None:
            self.carry_out(self.role.on_flushed(offset, self._services.clock.now_ms()))

    def on_log_start_advanced(self, offset: int) -> None:
        """Retention or DeleteRecords moved the start of the log (R-160, R-163).

        Followers that wait for data get it when their wait ends.
        """
        if self.role is not None and self.offline is None:
            self.carry_out(self.role.on_log_start_advanced(offset, self._services.clock.now_ms()))
            self._note_offsets()

    def _note_offsets(self) -> None:
        """The high watermark or the log start moved: waiting followers get it when their wait ends (R-127)."""
        if not self.purgatory.is_watched(self.follower_fetches):
            return
        state, now_ms = self.state, self._services.clock.now_ms()
        for request in self.purgatory.waiting(self.follower_fetches):
            if request.deadline_ms is None and isinstance(request, DelayedFetch):
                deadline_ms = request.fetch.news_deadline_ms(state.high_watermark, state.log_start_offset, now_ms)
                if deadline_ms is not None:
                    self.purgatory.set_deadline(request, deadline_ms)

    def follow_gaps(self) -> None:
        """The leader's log was compacted: responses may have gaps, and the next recovery must not truncate there."""
        try:
            self._services.allow_gaps(self)
        except StorageError as error:
            self._services.storage_failed(self, error)

    # --- Effects ----------------------------------------------------------------------------------------------------

    def append_run(self, run: memoryview, step: Callable[[], Sequence[Effect]]) -> None:
        """Carry out the effects of a fetch answer whose batches are `run`."""
        self._run = run
        try:
            self.carry_out(step())
        finally:
            self._run = memoryview(b"")

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """Carry out the core's effects, in order; then wake the requests that waited for them."""
        try:
            self._carry_out(effects)
        except StorageError as error:
            self._services.storage_failed(self, error)
        if self._look_into_purgatory:
            self._look_into_purgatory = False
            self.complete_produces()
            self.purgatory.complete(self.consumer_fetches)
            self._note_offsets()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        now_ms = self._services.clock.now_ms
        for effect in effects:
            kind = type(effect)
            if kind is HighWatermarkAdvanced or kind is IsrChanged:
                self._look_into_purgatory = True
            elif isinstance(effect, AppendBatches):
                self._append_as_follower(effect.headers)
            elif isinstance(effect, WriteEpochs):
                self.log.write_epochs(effect.entries)
            elif isinstance(effect, Transition):
                facts = {"partition": str(self.topic_partition), **effect.facts}
                self._services.events.write(effect.event, effect.rule, facts)
                self.counters.failed_isr_updates += effect.event == "isr_refused"
            elif isinstance(effect, ProposeIsr):
                self._services.propose_isr(self, effect.proposal)
            elif isinstance(effect, RequestReady):
                self._services.request_ready(self)
            elif isinstance(effect, Truncate):
                follower = self.follower
                assert follower is not None, f"{self.topic_partition}: only a follower truncates"
                log_end_offset = self.log.truncate(effect.offset)
                self._count_truncation(effect, log_end_offset)
                was_damaged = self.state.damaged_at is not None
                self._carry_out(follower.on_truncated(log_end_offset, now_ms()))
                if was_damaged and self.state.damaged_at is None:
                    self._mended()
            elif isinstance(effect, RestartLog):
                follower = self.follower
                assert follower is not None, f"{self.topic_partition}: only a follower restarts its log"
                self.log.restart_at(effect.offset)
                self.counters.truncations.restarts += 1
                self._carry_out(follower.on_restarted(effect.offset, now_ms()))
                self._mended()
            elif isinstance(effect, AdvanceLogStart):
                self.log.advance_log_start(effect.offset)
            else:  # it fetches no more until new metadata comes; the transition before this effect said why
                assert isinstance(effect, PartitionFailed), effect

    def _append_as_follower(self, headers: Sequence[BatchHeader]) -> None:
        follower = self.follower
        assert follower is not None, f"{self.topic_partition}: AppendBatches is an order to a follower"
        buffers: list[Buffer] = [self._run]
        try:
            self.log.append(headers, buffers, self._services.clock.wall_ms())
        except DiskFull as error:  # nothing was written: back off and fetch it again
            self.trouble.full(error)
            self._carry_out(follower.on_corrupt_answer(self._services.clock.now_ms()))
            return
        if self.trouble.is_full:
            self.trouble.room_again()
        self.traffic.replication_bytes_in += len(self._run)
        self._carry_out(follower.on_appended(headers, self._services.clock.now_ms()))
        self._services.after_append(self)

    def _count_truncation(self, order: Truncate, log_end_offset: int) -> None:
        """Called between the cut and the core's hearing of it: the state is still the one from before."""
        counts, state = self.counters.truncations, self.state
        counts.by_rule[order.rule] = counts.by_rule.get(order.rule, 0) + 1
        lost = self._losses.truncated(state.log_end_offset, log_end_offset, state.high_watermark)
        counts.acknowledged += lost.acknowledged
        counts.unacknowledged += lost.unacknowledged
        counts.unknown += lost.unknown

    def close(self) -> None:
        """Stop timers; the log is closed by its directory. There are no waiting requests any more: there is no role."""
        for key in (self.produces, self.deletes, self.follower_fetches, self.consumer_fetches):
            self.purgatory.fail_all(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._isr_retry.cancel()
