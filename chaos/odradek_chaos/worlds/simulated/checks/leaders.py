"""Invariants of leaders and epochs: one leader for each, none older accepted, each with all that was committed."""

from __future__ import annotations

import json
from typing import NamedTuple

from odradek_chaos.worlds.simulated.checks.exchanges import VoteGranted
from odradek_chaos.worlds.simulated.checks.invariant import Invariant, ReplicaChange, Violations
from odradek_chaos.worlds.simulated.checks.state import METADATA, ClusterState, QuorumNodeState, ReplicaState
from odradek_chaos.worlds.simulated.cluster.timeline import TimelineEvent
from odradek_chaos.worlds.simulated.disk.inodes import Inode


class OneLeaderPerEpoch(Invariant):
    """At most one broker leads a partition in a leader epoch, and one node the quorum in a quorum epoch, ever."""

    name = "one-leader-per-epoch"
    rules = "N1, N11, S-8, M-2, G1"
    looks_at = ReplicaChange.TERM

    def __init__(self) -> None:
        self._leaders: dict[tuple[str, int], int] = {}

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if seen.is_leader:
            yield from self._lead(seen.partition, seen.leader_epoch, seen.broker_id)

    def on_event(self, now: ClusterState, moment: TimelineEvent) -> Violations:
        if moment.event == "leader_elected" and moment.partition:
            yield from self._lead(moment.partition, int(moment.facts["leader_epoch"]), moment.broker_id)

    def on_quorum(self, now: ClusterState, seen: QuorumNodeState, before: QuorumNodeState | None) -> Violations:
        if seen.is_leader:
            yield from self._lead(METADATA, seen.epoch, seen.broker_id)

    def _lead(self, partition: str, epoch: int, broker_id: int) -> Violations:
        other = self._leaders.setdefault((partition, epoch), broker_id)
        if other != broker_id:
            yield broker_id, partition, f"leads in epoch {epoch}, in which broker {other} led"


class EpochsNeverFall(Invariant):
    """Leader epochs never fall in a node's life; the quorum epoch on its disk never falls at all."""

    name = "epochs-never-fall"
    rules = "N9, M-1"
    looks_at = ReplicaChange.TERM

    def __init__(self) -> None:
        self._on_disk: dict[int, int] = {}

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if before is not None and seen.leader_epoch < before.leader_epoch:
            fell = f"leader epoch fell from {before.leader_epoch} to {seen.leader_epoch}"
            yield seen.broker_id, seen.partition, fell

    def on_quorum(self, now: ClusterState, seen: QuorumNodeState, before: QuorumNodeState | None) -> Violations:
        if before is not None and 0 < seen.epoch < before.epoch:  # 0: it does not take part yet, or has left
            yield seen.broker_id, METADATA, f"quorum epoch fell from {before.epoch} to {seen.epoch}"
        if before is None or seen.epoch != before.epoch:
            epoch = state_on_disk(now, seen.broker_id, durable=False).epoch
            known = self._on_disk.get(seen.broker_id, -1)
            if epoch < known:
                yield seen.broker_id, METADATA, f"quorum-state fell from epoch {known} to {epoch}"
            self._on_disk[seen.broker_id] = max(epoch, known)


class StateOnDisk(NamedTuple):
    """What a node's `quorum-state` says. -1 is what it does not say."""

    epoch: int = -1
    leader_id: int = -1
    voted_id: int = -1


def state_on_disk(now: ClusterState, broker_id: int, *, durable: bool) -> StateOnDisk:
    inode = now.disks[broker_id].find(f"{now.root}/{METADATA}/quorum-state")
    if not isinstance(inode, Inode):
        return StateOnDisk()
    try:
        fields = json.loads(bytes(inode.durable() if durable else inode.data))
        return StateOnDisk(int(fields["leaderEpoch"]), fields.get("leaderId", -1), fields.get("votedId", -1))
    except (ValueError, KeyError):
        return StateOnDisk()


class EpochPersistedBeforeUse(Invariant):
    """A leader of the quorum in an epoch has that epoch flushed on its disk; a voter that grants a vote has the epoch
    and the vote there before it responds.

    When the answer leaves, the voter may have heard of a leader or of a newer epoch, which ends the vote.
    """

    name = "epoch-persisted-before-use"
    rules = "N9, R-207"

    def on_quorum(self, now: ClusterState, seen: QuorumNodeState, before: QuorumNodeState | None) -> Violations:
        if not seen.is_leader or (before is not None and before.is_leader and before.epoch == seen.epoch):
            return
        if now.disks[seen.broker_id].lying or (seen.broker_id, METADATA) in now.damaged:
            return
        epoch = state_on_disk(now, seen.broker_id, durable=True).epoch
        if epoch < seen.epoch:
            yield seen.broker_id, METADATA, f"leads in epoch {seen.epoch} with epoch {epoch} on its disk"

    def on_vote_granted(self, now: ClusterState, granted: VoteGranted) -> Violations:
        voter = granted.broker_id
        if voter not in now.disks or now.disks[voter].lying or (voter, METADATA) in now.damaged:
            return
        state = state_on_disk(now, voter, durable=True)
        has_vote = state.voted_id == granted.candidate_id or state.leader_id >= 0
        if state.epoch < granted.epoch or (state.epoch == granted.epoch and not has_vote):
            sentence = f"grants its vote in epoch {granted.epoch} to {granted.candidate_id}, and on its disk are epoch"
            yield voter, METADATA, f"{sentence} {state.epoch} and a vote for {state.voted_id}"


class LeaderCompleteness(Invariant):
    """A leader that is elected has every record that was ever committed."""

    name = "leader-completeness"
    rules = "N2, S-2"
    looks_at = ReplicaChange.TERM
    leaders_only = True

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        leads_on = before is not None and before.is_leader and before.leader_epoch == seen.leader_epoch
        if leads_on or not now.is_newest(seen):
            return
        history = now.history(seen.partition)
        committed = history.committed_end
        if seen.log_end_offset < committed:
            sentence = f"elected in epoch {seen.leader_epoch} with log end offset {seen.log_end_offset}"
            yield seen.broker_id, seen.partition, f"{sentence}; committed is up to {committed}"
        elif committed:
            batch = history.view(seen.broker_id).at(committed - 1)
            if batch is not None and not history.is_committed(batch):
                sentence = f"elected in epoch {seen.leader_epoch}, and what it has at offset {committed - 1}"
                yield seen.broker_id, seen.partition, f"{sentence} is not what was committed there"


class OlderEpochNeverAccepted(Invariant):
    """A leader moves a follower's position only by a fetch of its own epoch: that follower has followed in it."""

    name = "older-epoch-never-accepted"
    rules = "N12, R-110, R-35"
    looks_at = ReplicaChange.TERM | ReplicaChange.REMOTES

    def __init__(self) -> None:
        self._followed: dict[tuple[str, int, int], None] = {}  # (partition, broker, leader epoch)

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if not seen.is_leader:
            self._followed[seen.partition, seen.broker_id, seen.leader_epoch] = None
            return
        same_term = before is not None and before.is_leader and before.leader_epoch == seen.leader_epoch
        for broker_id, remote in seen.remotes.items():
            known = before.remotes.get(broker_id) if before is not None and same_term else None
            if not same_term or known is None or known.log_end_offset == remote.log_end_offset:
                continue
            if (broker_id, seen.partition) in now.damaged:
                continue  # nobody looks at what it does
            if (seen.partition, broker_id, seen.leader_epoch) not in self._followed:
                sentence = (
                    f"took the position {remote.log_end_offset} of broker {broker_id} in epoch {seen.leader_epoch}, "
                    "in which that broker never followed"
                )
                yield seen.broker_id, seen.partition, sentence


class StaleIncarnationNeverCounts(Invariant):
    """Once a leader knows of a broker's newer incarnation, fetches of an older one have no effect on its state.

    Heard by its metadata (R-38): a newer process may ask before the leader has read of its registration.
    """

    name = "stale-incarnation-never-counts"
    rules = "N15, R-38, KIP-903"
    looks_at = ReplicaChange.REMOTES
    leaders_only = True

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if before is None or not before.is_leader or before.leader_epoch != seen.leader_epoch:
            return
        for broker_id, remote in seen.remotes.items():
            known = before.remotes.get(broker_id)
            if known is None or not 0 <= remote.broker_epoch < known.broker_epoch:
                continue
            if known.broker_epoch <= now.registered_epoch(seen.broker_id, broker_id):
                sentence = (
                    f"took a fetch of broker {broker_id} with broker epoch {remote.broker_epoch} after one with "
                    f"{known.broker_epoch}"
                )
                yield seen.broker_id, seen.partition, sentence
