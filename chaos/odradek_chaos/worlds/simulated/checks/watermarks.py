"""Invariants of the high watermark: who raises it, who has what lies below it, and what clients are told and given."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.checks.invariant import Invariant, ReplicaChange, Violations
from odradek_chaos.worlds.simulated.checks.state import ClusterState, ReplicaState
from odradek_chaos.worlds.simulated.cluster.timeline import TimelineEvent


class HighWatermarkNeverFalls(Invariant):
    """The high watermark of a leader never falls within its epoch, and never exceeds the replica's log end offset."""

    name = "high-watermark-never-falls"
    rules = "N5, S-6, S-9, R-22"
    looks_at = ReplicaChange.HIGH_WATERMARK | ReplicaChange.LOG_END

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if seen.high_watermark > seen.log_end_offset:
            sentence = f"high watermark {seen.high_watermark} above log end offset {seen.log_end_offset}"
            yield seen.broker_id, seen.partition, sentence
        if before is None or not (seen.is_leader and before.is_leader):
            return
        if before.leader_epoch == seen.leader_epoch and seen.high_watermark < before.high_watermark:
            fell = f"from {before.high_watermark} to {seen.high_watermark} in leader epoch {seen.leader_epoch}"
            yield seen.broker_id, seen.partition, fell


class HighWatermarkHeldUnderMinIsr(Invariant):
    """A leader whose ISR is smaller than min.insync.replicas does not raise the high watermark.

    With two changes of the partition between two looks, the ISR may have been large enough in between.
    """

    name = "high-watermark-held-under-min-isr"
    rules = "R-21"
    looks_at = ReplicaChange.HIGH_WATERMARK
    leaders_only = True

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if not now.holds_under_min_isr or before is None or not before.is_leader:
            return
        if before.leader_epoch != seen.leader_epoch or seen.partition_epoch > before.partition_epoch + 1:
            return
        if len(before.isr) < before.min_isr and len(seen.isr) < seen.min_isr:
            rose = f"from {before.high_watermark} to {seen.high_watermark}"
            sentence = f"high watermark {rose} with the ISR {list(seen.isr)}, and {seen.min_isr} are asked for"
            yield seen.broker_id, seen.partition, sentence


class FollowerHighWatermarkBound(Invariant):
    """A follower's high watermark is never above the highest that a leader had.

    A replica that led at the previous check and follows now may have raised it in between, as a leader, and lost the
    leadership in the same moment: a run of metadata records is applied at once.
    """

    name = "follower-high-watermark-bound"
    rules = "S-9, R-27"
    looks_at = ReplicaChange.HIGH_WATERMARK | ReplicaChange.TERM

    def __init__(self) -> None:
        self._largest: dict[str, int] = {}

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        largest = self._largest.get(seen.partition, 0)
        if seen.is_leader or (before is not None and before.is_leader):
            if seen.high_watermark > largest:
                self._largest[seen.partition] = seen.high_watermark
        elif seen.high_watermark > largest and all(partition != seen.partition for _, partition in now.damaged):
            sentence = f"follows with high watermark {seen.high_watermark}; no leader ever had more than {largest}"
            yield seen.broker_id, seen.partition, sentence


class HighWatermarkOnEveryIsrMember(Invariant):
    """Each running replica in the newest leader's maximal ISR, or in the controller's ISR, has everything below its
    high watermark.

    Replicas that the controller has removed, unknown to the leader, are exempt: a machine that returns with less data
    is no longer a member (R-152), and pending proposals of the leader are refused (R-54). Even then the leader waits
    for the offset that it knows of them.
    """

    name = "high-watermark-on-every-isr-member"
    rules = "N4, W-4, R-20"
    looks_at = ReplicaChange.HIGH_WATERMARK | ReplicaChange.ISR
    leaders_only = True

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if not now.is_newest(seen):
            return
        if before is not None and (before.high_watermark, before.maximal_isr) == (
            seen.high_watermark,
            seen.maximal_isr,
        ):
            return
        registration = now.registration(seen.partition)
        members = set(seen.maximal_isr)
        if registration is not None and registration.leader_epoch == seen.leader_epoch:
            if registration.partition_epoch > seen.partition_epoch:
                has_risen = _has_risen(seen, before)
                members = {each for each in members if has_risen and _is_known_behind(seen, each)}
            members.update(registration.isr)
        for member in sorted(members):
            replica = now.replicas.get((member, seen.partition))
            if replica is not None and replica.log_end_offset < seen.high_watermark:
                sentence = (
                    f"in the ISR {sorted(members)} with log end offset {replica.log_end_offset}, and leader "
                    f"{seen.broker_id} has high watermark {seen.high_watermark}"
                )
                yield member, seen.partition, sentence


def _has_risen(seen: ReplicaState, before: ReplicaState | None) -> bool:
    """Whether a leader has raised its high watermark since the look before."""
    if before is None or not before.is_leader or before.leader_epoch != seen.leader_epoch:
        return False
    return seen.high_watermark > before.high_watermark


def _is_known_behind(seen: ReplicaState, member: int) -> bool:
    """Whether a leader itself knows that a member has not all that is below its high watermark."""
    remote = seen.remotes.get(member)
    return remote is not None and remote.log_end_offset < seen.high_watermark


class DurableOnEveryIsrMember(Invariant):
    """With odradek.fsync=before-ack every running member of the maximal ISR has the committed records on its disk.

    As far as the disk tells the truth: one that lies about its flushes is out of contract.
    """

    name = "durable-on-every-isr-member"
    rules = "N10, R-238"
    looks_at = ReplicaChange.HIGH_WATERMARK
    leaders_only = True
    flushed_only = True

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if not now.is_newest(seen) or seen.high_watermark == 0:
            return
        history = now.history(seen.partition)
        for member in seen.maximal_isr:
            if (member, seen.partition) not in now.replicas or (member, seen.partition) in now.damaged:
                continue
            if now.disks[member].lying:
                continue
            batch = history.view(member).at(seen.high_watermark - 1)
            file = None if batch is None else batch.segment
            if batch is not None and file is not None and not file.is_durable_up_to(batch.end_position):
                sentence = (
                    f"offset {seen.high_watermark - 1} is below the high watermark of leader {seen.broker_id} and not "
                    f"flushed here as it is: the batch ends at {batch.end_position}, flushed were {file.durable_size}"
                )
                yield member, seen.partition, sentence


class TruncateSafe(Invariant):
    """No replica in the ISR, or eligible beside it, drops records that were once committed."""

    name = "truncate-safe"
    rules = "N7, S-7"

    def on_event(self, now: ClusterState, moment: TimelineEvent) -> Violations:
        if moment.event != "truncated" or not moment.partition:
            return
        to, committed = int(moment.facts["to"]), now.committed_end(moment.partition)
        registration = now.registration(moment.partition)
        if registration is None or to >= committed:
            return
        if moment.broker_id in (*registration.isr, *registration.eligible):
            place = f"in the ISR {list(registration.isr)}, eligible {list(registration.eligible)}"
            sentence = f"truncates to {to} while {place}; committed is up to {committed}"
            yield moment.broker_id, moment.partition, sentence


class AcknowledgedBelowHighWatermark(Invariant):
    """A client gets the acknowledgement of an acks=all record only when it is below the high watermark of a leader."""

    name = "acknowledged-below-high-watermark"
    rules = "N10, S-3, R-14"

    def on_acknowledged(self, now: ClusterState, partition: str, offset: int) -> Violations:
        committed = now.committed_end(partition)
        if offset >= committed:
            yield 0, partition, f"offset {offset} was acknowledged, and only offsets below {committed} were committed"


class ReadBelowHighWatermark(Invariant):
    """No reader gets records that were never below a high watermark."""

    name = "read-below-high-watermark"
    rules = "S-11, G3, R-229"

    def on_delivered(self, now: ClusterState, partition: str, offset: int) -> Violations:
        committed = now.committed_end(partition)
        if offset >= committed:
            yield 0, partition, f"offset {offset} was delivered, and only offsets below {committed} were committed"
