"""The in-sync replicas of a leader: its followers' states, the ISR, and the proposals that change it (A5).

`InSyncReplicas` belongs to one leader, and shares its `LeaderTerm`: the log that it leads, its settings, its epochs.
Rules of this module. A replica is proposed only if this broker's metadata allow it to join (R-47), and if it has
everything that an earlier leader may have committed (R-45). The leader never removes itself (R-43). Only a fetch shows
where a follower's log ends; nothing else is an acknowledgement. Times are monotonic milliseconds of the leader's own
clock. A follower that keeps fetching up to the leader's end as of the previous fetch counts as caught up, although new
records keep it from ever reaching the very end (R-41).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek_proto.values import Value

from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.isr_proposal import AnswerMeans, IsrState
from odradek_broker.core.partition.messages import (
    NO_EPOCH,
    NO_OFFSET,
    BrokerView,
    Effect,
    FollowerFetch,
    IsrAnswer,
    IsrMember,
    IsrProposal,
    PartitionSettings,
    ProposeIsr,
    ReplicaLog,
    Transition,
)
from odradek_broker.core.partition.policy import ReplicaPolicy

NEVER_MS = -(1 << 62)  # further back than any lag: a replica of which nothing is known is not caught up


class RemoteReplicaStatus(Value, frozen=True):
    """One follower as `cluster status` shows it. `lag_ms` is 0 at the end of the log, None when it was never there."""

    broker_id: int
    log_end_offset: int  # NO_OFFSET: no fetch in this leader epoch yet
    log_start_offset: int
    lag_ms: int | None
    caught_up: bool
    in_sync: bool  # a member of the committed ISR


class RemoteReplica:
    """A leader's state of one follower: how far its log reaches, and when it last had everything (R-5, R-6)."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "is_counted",
        "last_caught_up_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.is_counted = False
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_EPOCH
        self.last_fetch_leader_log_end_offset = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = NEVER_MS

    def on_leader_elected(self, in_isr: bool, now_ms: int) -> None:
        """A new leader knows nothing but the ISR, and gives its members the time of one lag (R-42)."""
        self.log_end_offset = self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_EPOCH
        self.last_fetch_leader_log_end_offset = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = now_ms if in_isr else NEVER_MS

    def on_new_epoch_of_same_leader(self, in_isr: bool, leader_log_end_offset: int, now_ms: int) -> None:
        """A leader that stays keeps the known offsets of the members, and restarts the times (R-42).

        A replica that is not a member has to fetch in the new epoch before it becomes one: it may have been removed and
        added again, with an empty log, before this leader learned of either.
        """
        if not in_isr:
            self.log_end_offset = self.log_start_offset = NO_OFFSET
        self.last_fetch_leader_log_end_offset = leader_log_end_offset
        self.last_fetch_ms = self.last_caught_up_ms = now_ms if in_isr else NEVER_MS

    def record(self, fetch: FollowerFetch, leader_log_end_offset: int, now_ms: int) -> bool:
        """Take in a fetch that was found in order (R-38, R-41). Returns whether the log end offset changed.

        `leader_log_end_offset` is the leader's, from before the read.
        """
        offset = fetch.fetch_offset
        if offset >= leader_log_end_offset:
            if self.last_caught_up_ms < now_ms:
                self.last_caught_up_ms = now_ms
        elif offset >= self.last_fetch_leader_log_end_offset and self.last_caught_up_ms < self.last_fetch_ms:
            self.last_caught_up_ms = self.last_fetch_ms
        if self.last_fetch_leader_log_end_offset < leader_log_end_offset:
            self.last_fetch_leader_log_end_offset = leader_log_end_offset
        self.last_fetch_ms = now_ms
        self.log_start_offset = fetch.log_start_offset
        self.broker_epoch = fetch.replica_epoch
        if self.log_end_offset == offset:
            return False
        self.log_end_offset = offset
        return True

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """At the leader's log end offset, or there not longer ago than the lag time; the bound counts as in (R-40)."""
        return self.log_end_offset == leader_log_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms

    def lag_ms(self, leader_log_end_offset: int, now_ms: int) -> int | None:
        """How long ago this replica had everything; 0 when it has it now, None when it never did."""
        if self.log_end_offset == leader_log_end_offset:
            return 0
        return None if self.last_caught_up_ms == NEVER_MS else now_ms - self.last_caught_up_ms


@dataclass(slots=True)
class LeaderTerm:
    """The log of a leader, its settings and its epochs; only the leader changes them."""

    log: ReplicaLog
    settings: PartitionSettings
    leader_epoch: int
    partition_epoch: int
    epoch_start_offset: int  # the log end offset when the leadership began


class InSyncReplicas:
    """The followers of one partition. `remotes` and `by_id` hold the same objects; `isr` is the set and its change."""

    def __init__(
        self,
        broker_id: int,
        registration: PartitionRegistration,
        policy: ReplicaPolicy,
        brokers: BrokerView,
        term: LeaderTerm,
        now_ms: int,
    ) -> None:
        self._broker_id = broker_id
        self._policy = policy
        self._brokers = brokers
        self._term = term
        self.assigned = len(registration.replicas)  # the replication factor
        self.isr = IsrState(registration.isr)
        self.by_id: dict[int, RemoteReplica] = {}
        self.remotes: list[RemoteReplica] = []
        self._assign(registration, now_ms)

    def _assign(self, registration: PartitionRegistration, now_ms: int) -> None:
        """Keep the state of replicas that stay; a new one starts unknown (R-42)."""
        known, self.by_id = self.by_id, {}
        for broker_id in registration.replicas:
            if broker_id == self._broker_id:
                continue
            remote = known.get(broker_id)
            if remote is None:
                remote = RemoteReplica(broker_id)
                remote.on_leader_elected(broker_id in registration.isr, now_ms)
            self.by_id[broker_id] = remote
        self.remotes = list(self.by_id.values())
        self.assigned = len(registration.replicas)
        self._mark_counted()

    def _mark_counted(self) -> None:
        counted = self.isr.maximal if self._policy.counts_maximal_isr else self.isr.committed
        for remote in self.remotes:
            remote.is_counted = remote.broker_id in counted

    def on_registration(self, registration: PartitionRegistration, rule: str, now_ms: int) -> list[Effect]:
        """Metadata define the replicas and the ISR; that ends a pending change (R-53).

        Unlike Kafka, only metadata newer than the proposal end it. The same metadata again are no news: the proposal is
        still in flight, and if it were forgotten and then applied, its new member would count for the controller and
        not for the high watermark.
        """
        effects: list[Effect] = []
        pending = self.isr.pending
        if pending is None or registration.partition_epoch > pending.partition_epoch:
            self._commit(registration.isr, registration.partition_epoch, rule, effects)
        self._assign(registration, now_ms)
        return effects

    def on_new_epoch(self, log_end_offset: int, now_ms: int) -> None:
        """The same broker leads on, in a new leader epoch (R-42)."""
        for remote in self.remotes:
            remote.on_new_epoch_of_same_leader(remote.broker_id in self.isr.committed, log_end_offset, now_ms)

    def _commit(self, isr: Sequence[int], partition_epoch: int, rule: str, effects: list[Effect]) -> None:
        before = self.isr.committed
        if self.isr.commit(isr):
            facts = {"from": before, "to": tuple(isr), "partition_epoch": partition_epoch}
            effects.append(Transition("isr_changed", rule, facts))
        self._mark_counted()

    # --- Judging a follower ----------------------------------------------------------------------------------------

    def is_current_incarnation(self, fetch: FollowerFetch) -> bool:
        """False for a fetch that a process sent before the one that our metadata know (R-38, KIP-903)."""
        if fetch.replica_epoch == NO_EPOCH:
            return True
        broker = self._brokers.broker(fetch.replica_id)
        return broker is None or fetch.replica_epoch >= broker.broker_epoch

    def is_eligible(self, remote: RemoteReplica) -> bool:
        """May this replica be in the ISR (R-47)? Its last fetch must come from the process that is registered."""
        broker = self._brokers.broker(remote.broker_id)
        return broker is not None and broker.active and remote.broker_epoch in (broker.broker_epoch, NO_EPOCH)

    def on_new_broker_epoch(self, remote: RemoteReplica) -> None:
        """A new process fetches: that the previous one had caught up does not apply to it (KIP-903).

        Its disk may be empty, and the high watermark would wait for the whole log to be copied (R-20), as it does in
        Kafka until the lag time has passed. A new leader knows no process of its members yet, and gives them the time
        of one lag (R-42).
        """
        if self._policy.counts_only_eligible and (remote.broker_epoch != NO_EPOCH or not remote.is_counted):
            remote.last_caught_up_ms = NEVER_MS

    def holds_back(self, remote: RemoteReplica, now_ms: int) -> bool:
        """Whether the high watermark waits for a replica that is not a member (R-20): it is about to become one.

        Without the second test a fenced replica would hold it back for a whole lag time (KAFKA-15021).
        """
        term = self._term
        lag_time_max_ms = term.settings.replica_lag_time_max_ms
        if not remote.is_caught_up(term.log.log_end_offset, now_ms, lag_time_max_ms):
            return False
        return not self._policy.counts_only_eligible or self.is_eligible(remote)

    # --- Changing the ISR ------------------------------------------------------------------------------------------

    def expand(self, remote: RemoteReplica, effects: list[Effect]) -> None:
        """Propose a replica that qualifies for the ISR (R-45), however long it lagged.

        It must reach the start of the leader's epoch, since a new leader's high watermark may be below what the
        previous leader had committed (R-25).
        """
        needed = self._term.log.high_watermark
        if self._policy.expands_from_epoch_start:
            needed = max(needed, self._term.epoch_start_offset)
        if remote.log_end_offset < needed or not self.isr.may_propose or not self.is_eligible(remote):
            return
        facts = {"added": remote.broker_id, "log_end_offset": remote.log_end_offset, "needed": needed}
        self._propose((*self.isr.committed, remote.broker_id), "R-45", facts, effects)

    def shrink(self, now_ms: int, effects: list[Effect]) -> None:
        """Propose the ISR without all that have fallen behind, in one request (R-43)."""
        if not self.isr.may_propose:
            return
        log_end_offset = self._term.log.log_end_offset
        lag_time_max_ms = self._term.settings.replica_lag_time_max_ms
        behind: dict[int, object] = {}
        for broker_id in self.isr.committed:
            if broker_id == self._broker_id:
                continue
            remote = self.by_id.get(broker_id)
            if remote is None or not remote.is_caught_up(log_end_offset, now_ms, lag_time_max_ms):
                behind[broker_id] = None if remote is None else remote.log_end_offset
        if behind:
            facts = {"removed": tuple(behind), "their_ends": tuple(behind.values()), "log_end_offset": log_end_offset}
            stay = tuple(broker_id for broker_id in self.isr.committed if broker_id not in behind)
            self._propose(stay, "R-43", facts, effects)

    def _propose(
        self,
        isr: tuple[int, ...],
        rule: str,
        facts: Mapping[str, object],
        effects: list[Effect],
    ) -> None:
        term = self._term
        members = tuple(IsrMember(broker_id, self._member_epoch(broker_id)) for broker_id in isr)
        epochs = (term.leader_epoch, term.partition_epoch)
        proposal = IsrProposal(term.log.topic_id, term.log.topic_partition, *epochs, members)
        facts = {
            "from": self.isr.committed,
            "to": isr,
            "leader_epoch": epochs[0],
            "partition_epoch": epochs[1],
            **facts,
        }
        self.isr.propose(proposal)
        self._mark_counted()
        effects += [Transition("isr_proposed", rule, facts), ProposeIsr(proposal)]

    def _member_epoch(self, broker_id: int) -> int:
        """The broker epoch that a proposal names for a member (R-49)."""
        if broker_id != self._broker_id:
            remote = self.by_id.get(broker_id)
            return NO_EPOCH if remote is None else remote.broker_epoch
        broker = self._brokers.broker(broker_id)
        return NO_EPOCH if broker is None else broker.broker_epoch

    def on_answer(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int, effects: list[Effect]) -> AnswerMeans:
        """Process the controller's response and return its meaning (R-51)."""
        means = self.isr.judge(proposal, answer, self._term.leader_epoch, self._term.partition_epoch, now_ms)
        if means is AnswerMeans.COMMITTED:
            self._commit(answer.isr, answer.partition_epoch, "R-51", effects)
            return means
        if means is AnswerMeans.NOTHING:
            return means
        self._mark_counted()
        rule = "R-52" if means is AnswerMeans.WAIT_FOR_METADATA else "R-51"
        facts = {"error": answer.error.name, "means": means.name.lower(), "isr": self.isr.committed}
        effects.append(Transition("isr_refused", rule, facts))
        return means

    def retry(self, now_ms: int, effects: list[Effect]) -> None:
        """Send the pending proposal again when its time has come (R-50, R-51)."""
        proposal = self.isr.take_retry(now_ms)
        if proposal is not None:
            effects.append(ProposeIsr(proposal))

    # --- Views -----------------------------------------------------------------------------------------------------

    def low_watermark(self, own_log_start_offset: int) -> int:
        """The smallest log start offset of the leader and of replicas on live brokers (R-125); -1: one is unknown."""
        lowest = own_log_start_offset
        for remote in self.remotes:
            broker = self._brokers.broker(remote.broker_id)
            if broker is not None and not broker.fenced:
                lowest = min(lowest, remote.log_start_offset)
        return max(lowest, NO_OFFSET)

    def statuses(self, log_end_offset: int, lag_time_max_ms: int, now_ms: int) -> list[RemoteReplicaStatus]:
        """The state of each follower, by broker id."""
        return [
            RemoteReplicaStatus(
                broker_id=remote.broker_id,
                log_end_offset=remote.log_end_offset,
                log_start_offset=remote.log_start_offset,
                lag_ms=remote.lag_ms(log_end_offset, now_ms),
                caught_up=remote.is_caught_up(log_end_offset, now_ms, lag_time_max_ms),
                in_sync=remote.broker_id in self.isr.committed,
            )
            for remote in sorted(self.remotes, key=lambda each: each.broker_id)
        ]
