"""A partition as its leader: appends, the followers' positions, the high watermark, the in-sync replicas.

A `LeaderPartition` lives for one leadership. It is stepped: each method stands for an event and returns the effects, in
order. Rules of this module. Only a follower's fetch moves the leader's state of that follower (R-6). The response to a
fetch is decided before the fetch is recorded, so it carries the earlier offsets (R-24). Events (`Transition`) come
before the action that they announce. Methods that decide the response to a fetch that waited record nothing, so the rim
may call them any number of times (R-122).
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.headers import LOG_APPEND_TIME
from odradek_proto.records import BatchHeader

from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition import append_rules, fencing
from odradek_broker.core.partition.bounds import ClientBounds
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.high_watermark import candidate
from odradek_broker.core.partition.in_sync import InSyncReplicas, LeaderTerm, RemoteReplicaStatus
from odradek_broker.core.partition.isr_proposal import AnswerMeans
from odradek_broker.core.partition.messages import (
    NO_EPOCH,
    NO_OFFSET,
    AdvanceLogStart,
    AppendDecision,
    BrokerView,
    Effect,
    FetchDecision,
    FollowerFetch,
    HighWatermarkAdvanced,
    IsrAnswer,
    IsrChanged,
    IsrProposal,
    PartitionSettings,
    ReplicaLog,
    Transition,
    WriteEpochs,
)
from odradek_broker.core.partition.policy import ReplicaPolicy
from odradek_broker.core.partition.replication_quota import ReplicationQuota


class LeaderPartition:
    """This broker leads the partition in `leader_epoch`.

    Invariants: the high watermark never falls and never passes the log end offset; below it, every counted replica has
    every record.
    """

    def __init__(
        self,
        log: ReplicaLog,
        *,
        broker_id: int,
        registration: PartitionRegistration,
        settings: PartitionSettings,
        policy: ReplicaPolicy,
        brokers: BrokerView,
        now_ms: int,
    ) -> None:
        """`now_ms` is monotonic, as everywhere but for `wall_ms`. Nothing happens before `start`."""
        assert registration.leader == broker_id, (registration, broker_id)
        self.log = log
        self.broker_id = broker_id
        self.policy = policy
        self._term = LeaderTerm(
            log, settings, registration.leader_epoch, registration.partition_epoch, log.log_end_offset
        )
        self.replicas = InSyncReplicas(broker_id, registration, policy, brokers, self._term, now_ms)
        self._next_isr_check_ms = now_ms + settings.replica_lag_time_max_ms // 2
        self._refused: dict[int, int] = {}  # replica -> the leader epoch with which it was last fenced

    @property
    def leader_epoch(self) -> int:
        return self._term.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self._term.partition_epoch

    @property
    def epoch_start_offset(self) -> int:
        """The log end offset when this leadership began (R-101)."""
        return self._term.epoch_start_offset

    @property
    def settings(self) -> PartitionSettings:
        return self._term.settings

    @settings.setter
    def settings(self, settings: PartitionSettings) -> None:
        self._term.settings = settings

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR that the controller has confirmed."""
        return self.replicas.isr.committed

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR plus the replica that a pending proposal would add."""
        return self.replicas.isr.maximal

    @property
    def held_leader(self) -> int:
        """The leader that this replica has last known; the next follower's `previous_leader` (L-1)."""
        return self.broker_id

    @property
    def effective_min_isr(self) -> int:
        return min(self.settings.min_insync_replicas, self.replicas.assigned)

    @property
    def under_min_isr(self) -> bool:
        return len(self.replicas.isr.committed) < self.effective_min_isr

    def produce_outcome(self, required_offset: int) -> ErrorCode | None:
        """The result of a waiting acks=all produce (R-14); None: not yet."""
        if self.log.high_watermark < required_offset:
            return None
        if len(self.replicas.isr.maximal) < self.effective_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # --- Role --------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Take the leadership (R-101): note where the epoch begins, leave the high watermark as it is (R-25)."""
        return self._take_epoch("R-101", now_ms)

    def _take_epoch(self, rule: str, now_ms: int) -> list[Effect]:
        log = self.log
        self._term.epoch_start_offset = log.log_end_offset
        facts = {
            "leader_epoch": self.leader_epoch,
            "partition_epoch": self.partition_epoch,
            "epoch_start_offset": log.log_end_offset,
            "high_watermark": log.high_watermark,
            "isr": self.isr,
        }
        effects: list[Effect] = [Transition("leader_elected", rule, facts)]
        if self.policy.writes_epoch_when_elected and log.epochs.assign(self.leader_epoch, log.log_end_offset):
            effects.append(WriteEpochs(log.epochs.entries))
        self._try_high_watermark(now_ms, effects)
        return effects

    def update(self, registration: PartitionRegistration, now_ms: int) -> list[Effect]:
        """New metadata under which this broker stays leader (R-102, R-53). An older partition epoch is ignored (R-100).

        A larger leader epoch begins a new epoch in place: the known offsets of the followers stay (R-42).
        """
        if registration.partition_epoch < self.partition_epoch or registration.leader_epoch < self.leader_epoch:
            return []
        assert registration.leader == self.broker_id, (registration, self.broker_id)
        before = self.isr
        self._term.partition_epoch = registration.partition_epoch
        effects = self.replicas.on_registration(registration, "R-53", now_ms)
        if registration.leader_epoch > self.leader_epoch:
            self._term.leader_epoch = registration.leader_epoch
            self.replicas.on_new_epoch(self.log.log_end_offset, now_ms)
            effects += self._take_epoch("R-101", now_ms)
        else:
            self._try_high_watermark(now_ms, effects)
        self._announce_isr(before, effects)
        self._expand(now_ms, effects)
        return effects

    # --- Append ------------------------------------------------------------------------------------------------------

    def prepare_append(self, header: BatchHeader, acks: int, now_ms: int, wall_ms: int) -> AppendDecision:
        """Validate one produced batch and assign its offset (R-10, R-11, R-220, R-240). No state changes here.

        `header` is as the client sent it. Possible results: INVALID_REQUIRED_ACKS, NOT_ENOUGH_REPLICAS (acks=-1 only;
        nothing was written, R-15), the errors of R-220 and of the producer's sequence; a duplicate with the original
        offsets, which waits as long as the original did (R-16); or the header to write.
        """
        if (refused := self.refusal_of_acks(acks)) is not None:
            return refused
        refusal = append_rules.refusal_of(header, self.settings, wall_ms)
        if refusal is not None:
            return AppendDecision(refusal.error, refusal.message)
        if header.producer_id >= 0:
            check = self.log.producers.check(header, wall_ms)
            if check.error != ErrorCode.NONE:
                sender = f"producer {header.producer_id} with epoch {header.producer_epoch}"
                return AppendDecision(check.error, f"{sender} sent sequence {header.base_sequence}")
            if check.duplicate is not None:
                first, last = check.duplicate.first_offset, check.duplicate.last_offset
                time_ms = check.duplicate.timestamp if self.settings.log_append_time else append_rules.NO_TIMESTAMP
                return AppendDecision(ErrorCode.NONE, "", None, True, first, last + 1, time_ms)
        base_offset, time_ms = self.log.log_end_offset, append_rules.NO_TIMESTAMP
        stamped = header._replace(base_offset=base_offset, leader_epoch=self.leader_epoch)
        if self.settings.log_append_time:
            time_ms = wall_ms
            stamped = stamped._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=time_ms)
        return AppendDecision(ErrorCode.NONE, "", stamped, False, base_offset, stamped.next_offset, time_ms)

    def refusal_of_acks(self, acks: int) -> AppendDecision | None:
        """Errors that are found before the batch is validated: invalid acks, or too few in-sync replicas for them
        (R-10, R-11). None: no error.
        """
        if acks not in append_rules.ALLOWED_ACKS:
            return AppendDecision(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is none of -1, 0, 1")
        if acks == append_rules.ACKS_ALL and self.under_min_isr:
            text = f"in-sync replicas {list(self.isr)} are fewer than min.insync.replicas={self.effective_min_isr}"
            return AppendDecision(ErrorCode.NOT_ENOUGH_REPLICAS, text)
        return None

    def on_appended(self, headers: Sequence[BatchHeader], now_ms: int) -> list[Effect]:
        """The batches of `prepare_append` were written, in this order (R-12, R-22, R-23).

        A follower that had everything up to now was caught up until now: its fetch waits here instead of being resent
        twice a second, and a waiting fetch counts like a repeated one (R-40, R-263).
        """
        log = self.log
        effects: list[Effect] = []
        before = end = log.log_end_offset
        for header in headers:
            assert header.base_offset == end, (header, end)
            end = header.next_offset
            log.producers.update(header)
        if not self.policy.writes_epoch_when_elected and log.epochs.assign(self.leader_epoch, before):
            effects.append(WriteEpochs(log.epochs.entries))  # L-7: kept for the audit alone, nothing decides by it
        for remote in self.replicas.remotes:
            if remote.log_end_offset == before and remote.last_caught_up_ms < now_ms:
                remote.last_caught_up_ms = now_ms
        log.log_end_offset = end
        self._try_high_watermark(now_ms, effects)
        return effects

    def on_flushed(self, offset: int, now_ms: int) -> list[Effect]:
        """Records below `offset` are on the disk. With odradek.fsync=before-ack only these count for this replica."""
        log = self.log
        log.flushed_offset = max(log.flushed_offset, min(offset, log.log_end_offset))
        effects: list[Effect] = []
        self._try_high_watermark(now_ms, effects)
        return effects

    # --- Fetch -------------------------------------------------------------------------------------------------------

    def read_for_follower(self, fetch: FollowerFetch) -> FetchDecision:
        """The range that a follower may read now; nothing is recorded (R-35 to R-37)."""
        epoch = fetch.current_leader_epoch if self.policy.fences_by_leader_epoch else NO_EPOCH
        if epoch not in (self.leader_epoch, NO_EPOCH):
            return fencing.refuse(self.log, fencing.check_leader_epoch(epoch, self.leader_epoch))
        if fetch.replica_id not in self.replicas.by_id:
            # With an epoch: we may not have seen yet the assignment that the replica acts on.
            unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH
            return fencing.refuse(self.log, unknown)
        last = fetch.last_fetched_epoch if self.policy.checks_divergence_on_fetch else NO_EPOCH
        return fencing.decide_read(self.log, fetch.fetch_offset, last, self.log.log_end_offset)

    def throttled_until_ms(self, quota: ReplicationQuota, replica_id: int, now_ms: int) -> int | None:
        """When this follower may be sent records, if that is not now (KIP-73). Whom acks=all waits for never waits."""
        if replica_id in self.maximal_isr or not quota.covers(self.log.topic_partition):
            return None
        remote = self.replicas.by_id.get(replica_id)
        if remote is not None and self.replicas.holds_back(remote, now_ms):
            return None
        return quota.exceeded_until_ms(now_ms)

    def fetch_by_consumer(
        self, fetch_offset: int, current_leader_epoch: int, last_fetched_epoch: int, read_committed: bool, now_ms: int
    ) -> FetchDecision:
        """The range that a consumer may read: below the high watermark, or the last stable offset with `read_committed`
        (R-37).

        A limit at or below the fetch offset means that there are no records yet; it is not an error.
        """
        epoch = current_leader_epoch if self.policy.fences_by_leader_epoch else NO_EPOCH
        error = fencing.check_leader_epoch(epoch, self.leader_epoch)
        if error != ErrorCode.NONE:
            return fencing.refuse(self.log, error)
        last = last_fetched_epoch if self.policy.checks_divergence_on_fetch else NO_EPOCH
        return fencing.decide_read(self.log, fetch_offset, last, self.log.high_watermark)

    def end_offset_for_epoch(self, current_leader_epoch: int, epoch: int) -> tuple[ErrorCode, EpochEntry]:
        """Answer OffsetsForLeaderEpoch (R-69); undefined is (-1, -1) without an error."""
        error = fencing.check_leader_epoch(current_leader_epoch, self.leader_epoch)
        if error != ErrorCode.NONE:
            return error, EpochEntry(NO_EPOCH, NO_OFFSET)
        end = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        return error, end if self.policy.answers_epoch_of_end else EpochEntry(NO_EPOCH, end.offset)

    def fetch_by_follower(self, fetch: FollowerFetch, now_ms: int) -> tuple[FetchDecision, list[Effect]]:
        """A follower's fetch arrived: decide the read, then record the position, then act on it (R-24, R-35).

        Called once per fetch. When a waiting fetch is answered later, the rim calls `read_for_follower`, which records
        nothing (R-122). A fetch that diverged, is fenced or out of range is no acknowledgement (R-36, R-38). Neither is
        that of a log which begins behind its own end.
        """
        if not NO_OFFSET <= fetch.log_start_offset <= max(fetch.fetch_offset, NO_OFFSET):
            return fencing.refuse(self.log, ErrorCode.INVALID_REQUEST), []
        decision = self.read_for_follower(fetch)
        if decision.error is not ErrorCode.NONE:
            return decision, self._note_fenced(fetch, decision.error)
        if decision.diverging is not None:
            return decision, []
        if not self.replicas.is_current_incarnation(fetch):
            decision = fencing.refuse(self.log, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return decision, self._note_fenced(fetch, decision.error)
        remote = self.replicas.by_id[fetch.replica_id]
        effects: list[Effect] = []
        if fetch.replica_epoch != remote.broker_epoch:
            self.replicas.on_new_broker_epoch(remote)
        changed = remote.record(fetch, self.log.log_end_offset, now_ms)
        if not remote.is_counted:
            self.replicas.expand(remote, effects)
        if changed:
            self._try_high_watermark(now_ms, effects)
        return decision, effects

    def _note_fenced(self, fetch: FollowerFetch, error: ErrorCode) -> list[Effect]:
        """The event of a refused follower, once per replica and epoch: it will retry until its metadata change."""
        if error is ErrorCode.OFFSET_OUT_OF_RANGE or self._refused.get(fetch.replica_id) == fetch.current_leader_epoch:
            return []
        self._refused[fetch.replica_id] = fetch.current_leader_epoch
        facts = {
            "replica": fetch.replica_id,
            "error": error.name,
            "leader_epoch": self.leader_epoch,
            "requested_epoch": fetch.current_leader_epoch,
            "broker_epoch": fetch.replica_epoch,
            "fetch_offset": fetch.fetch_offset,
        }
        return [Transition("fenced", "R-38" if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else "R-110", facts)]

    # --- High watermark and ISR --------------------------------------------------------------------------------------

    def _try_high_watermark(self, now_ms: int, effects: list[Effect]) -> None:
        """Raise the high watermark if it may (R-20 to R-23)."""
        log = self.log
        old = log.high_watermark
        own = log.flushed_offset if self.settings.flush_before_ack else log.log_end_offset
        if own <= old:
            return
        new = candidate(own, old, self.replicas.remotes, lambda remote: self.replicas.holds_back(remote, now_ms))
        if new == old or (self.policy.freezes_under_min_isr and self.under_min_isr):
            return
        log.high_watermark = new
        effects.append(HighWatermarkAdvanced(old, new))

    def on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int) -> list[Effect]:
        """The controller answered an AlterPartition item (R-51, R-52); each proposal is to get exactly one answer."""
        before = self.isr
        effects: list[Effect] = []
        means = self.replicas.on_answer(proposal, answer, now_ms, effects)
        if means is AnswerMeans.COMMITTED:
            self._term.partition_epoch = answer.partition_epoch
            self._try_high_watermark(now_ms, effects)
            self._announce_isr(before, effects)
            self._expand(now_ms, effects)
        elif means is AnswerMeans.TAKEN_BACK:
            self._try_high_watermark(now_ms, effects)  # whom it waited for may have become a stranger
        elif means is AnswerMeans.NOTHING:
            self._expand(now_ms, effects)  # metadata were faster, and whoever waited there waited for this answer, too
        return effects

    def _announce_isr(self, before: tuple[int, ...], effects: list[Effect]) -> None:
        if self.isr != before:
            effects.append(IsrChanged(self.isr))

    def on_brokers_changed(self, now_ms: int) -> list[Effect]:
        """Brokers were fenced, unfenced or registered: the replicas that may join or are waited for may differ (R-20,
        R-47).
        """
        effects: list[Effect] = []
        self._try_high_watermark(now_ms, effects)
        self._expand(now_ms, effects)
        return effects

    def on_time(self, now_ms: int) -> list[Effect]:
        """Look for members that have fallen behind, every half lag time (R-43), and retry a proposal that is due.

        The high watermark may have waited for one that is no member and has fallen behind since (R-20): in Kafka until
        the next append or news of a follower, which may never come.
        """
        effects: list[Effect] = []
        self.replicas.retry(now_ms, effects)
        if now_ms >= self._next_isr_check_ms:
            period_ms = max(1, self.settings.replica_lag_time_max_ms // 2)
            late_ms = (now_ms - self._next_isr_check_ms) % period_ms
            self._next_isr_check_ms = now_ms - late_ms + period_ms  # keeps its rhythm: a late call delays no later one
            self.replicas.shrink(now_ms, effects)
            self._expand(now_ms, effects)
            self._try_high_watermark(now_ms, effects)
        return effects

    def next_deadline_ms(self) -> int | None:
        """When `on_time` wants to be called."""
        retry_at_ms = self.replicas.isr.retry_at_ms
        return self._next_isr_check_ms if retry_at_ms is None else min(retry_at_ms, self._next_isr_check_ms)

    def _expand(self, now_ms: int, effects: list[Effect]) -> None:
        """Try the followers whose fetch waits here, at the end of the log: in Kafka they would soon fetch again (R-45,
        R-263).

        One that is behind must show that it is alive, by a fetch: it may just have been removed for its silence.
        """
        log_end_offset = self.log.log_end_offset
        for remote in self.replicas.remotes:
            if not remote.is_counted and remote.log_end_offset == log_end_offset:
                self.replicas.expand(remote, effects)

    # --- Offsets -----------------------------------------------------------------------------------------------------

    def client_bounds(self) -> ClientBounds:
        """The current bounds for ListOffsets and DeleteRecords."""
        hides = self.policy.hides_offsets_after_election
        return ClientBounds(self.log, self.leader_epoch, self.epoch_start_offset if hides else NO_OFFSET)

    def offset_bound(self, current_leader_epoch: int, *, replica: bool, read_committed: bool) -> tuple[ErrorCode, int]:
        """LATEST of ListOffsets (R-26)."""
        return self.client_bounds().latest(current_leader_epoch, replica=replica)

    def timestamp_bound(
        self, current_leader_epoch: int, found_offset: int, *, replica: bool, read_committed: bool
    ) -> tuple[ErrorCode, int]:
        """Whether a look-up by time may answer with `found_offset` (R-26); -1: nothing visible was found."""
        return self.client_bounds().by_timestamp(current_leader_epoch, found_offset, replica=replica)

    def check_delete_records(self, offset: int) -> tuple[ErrorCode, int]:
        """The new log start offset for DeleteRecords up to `offset`; -1 means the high watermark (R-161)."""
        return self.client_bounds().delete_up_to(offset)

    def low_watermark(self) -> int:
        """The smallest log start offset of this replica and of those on live brokers (R-125); -1: one is unknown."""
        return self.replicas.low_watermark(self.log.log_start_offset)

    def on_log_start_advanced(self, offset: int, now_ms: int) -> list[Effect]:
        """Records below `offset`, which is not above the high watermark, go: retention or DeleteRecords (R-160)."""
        log = self.log
        if offset <= log.log_start_offset:
            return []
        assert offset <= log.high_watermark, (offset, log.high_watermark)
        log.log_start_offset = offset
        log.producers.on_log_start(offset)
        effects: list[Effect] = [AdvanceLogStart(offset)]
        if log.epochs.truncate_from_start(offset):
            effects.append(WriteEpochs(log.epochs.entries))
        return effects

    # --- Followers ---------------------------------------------------------------------------------------------------

    def remote_replicas(self, now_ms: int) -> list[RemoteReplicaStatus]:
        """The state of each follower, by broker id."""
        return self.replicas.statuses(self.log.log_end_offset, self.settings.replica_lag_time_max_ms, now_ms)
