"""Invariants of the in-sync replicas, as the controller has them and as leaders believe them to be."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration

from odradek_chaos.worlds.simulated.checks.invariant import Invariant, ReplicaChange, Violations
from odradek_chaos.worlds.simulated.checks.state import ClusterState, ReplicaState


def changed_partitions(image: MetadataImage, before: MetadataImage) -> Iterator[tuple[str, PartitionRegistration]]:
    for topic in image.topics.values():
        known = before.topics.get(topic.name)
        for number, registration in topic.partitions.items():
            if known is None or known.partitions.get(number) is not registration:
                yield f"{topic.name}-{number}", registration


class IsrWithinReplicas(Invariant):
    """Leader in the ISR, ISR within the replicas, and no fenced broker in it except a last one without a leader. An
    eligible replica is a replica outside an ISR that has fewer members than min.insync.replicas requires.

    An empty ISR is one that somebody is remembered beside: an eligible leader replica or the last leader (KIP-966), who
    is forgotten when it has lost its disk (R-140) or some of its records (R-146). Who was never registered counts as
    fenced. As long as nobody leads, nothing is committed either: whether the ISR is enough is asked when it is elected
    from.
    """

    name = "isr-within-replicas"
    rules = "N8, W-3, W-6, R-55, R-139"

    def on_image(self, now: ClusterState, broker_id: int, image: MetadataImage, before: MetadataImage) -> Violations:
        concerns_all = (image.brokers, image.topic_configs, image.broker_configs) != (
            before.brokers,
            before.topic_configs,
            before.broker_configs,
        )
        found = changed_partitions(image, MetadataImage() if concerns_all else before)
        for partition, registration in found:
            isr, replicas = registration.isr, registration.replicas
            remembered = registration.eligible or registration.last_known_eligible
            lost = any(replica in now.lost_disks or (replica, partition) in now.lacking for replica in replicas)
            forgotten = not remembered and not lost
            if (
                (not isr and (registration.leader >= 0 or forgotten))
                or any(member not in replicas for member in isr)
                or len(set(isr)) != len(isr)
            ):
                yield 0, partition, f"ISR {list(isr)} of replicas {list(replicas)}"
            if registration.leader >= 0 and registration.leader not in isr:
                yield 0, partition, f"leader {registration.leader} is not in the ISR {list(isr)}"
            if any(member in isr or member not in replicas for member in registration.eligible):
                yield 0, partition, f"eligible {list(registration.eligible)} beside the ISR {list(isr)}"
            if registration.eligible and registration.leader >= 0:
                enough = min(now.min_isr_of(partition, image), len(replicas))
                if len(isr) >= enough:
                    sentence = f"eligible {list(registration.eligible)} beside the ISR {list(isr)}, where {enough} are"
                    yield 0, partition, f"{sentence} enough to commit"
            fenced = [member for member in isr if member not in image.brokers or image.brokers[member].fenced]
            if fenced and (len(isr) > 1 or registration.leader >= 0):
                yield 0, partition, f"fenced brokers {fenced} in the ISR {list(isr)}, leader {registration.leader}"


class UncleanExclusion(Invariant):
    """A broker that registers anew leaves every ISR in the same moment, unless it is the last member; it may have lost
    data. If its last process ended without a clean shutdown, it is eligible nowhere either.

    Between two checks it may also have rejoined, which takes two changes of the partition. How a process ended is read
    from its disk in that moment, not from the broker.
    """

    name = "unclean-exclusion"
    rules = "N8, S-10, R-141, R-152"

    def on_image(self, now: ClusterState, broker_id: int, image: MetadataImage, before: MetadataImage) -> Violations:
        for member, registration in image.brokers.items():
            known = before.brokers.get(member)
            if known is None or known.incarnation_id == registration.incarnation_id:
                continue
            unclean = known.incarnation_id in now.ended_uncleanly
            for topic in image.topics.values():
                was = before.topics.get(topic.name)
                for number, partition in topic.partitions.items():
                    old = None if was is None else was.partitions.get(number)
                    if old is None or partition.partition_epoch > old.partition_epoch + 1:
                        continue  # it may have left and come back
                    if _stays(member, old, partition):
                        sentence = f"registered anew and is still in the ISR {list(partition.isr)}"
                        yield member, f"{topic.name}-{number}", sentence
                    if unclean and member in partition.eligible:
                        sentence = f"ended uncleanly, registered anew and is still eligible: {list(partition.eligible)}"
                        yield member, f"{topic.name}-{number}", sentence


def _stays(member: int, old: PartitionRegistration, new: PartitionRegistration) -> bool:
    """Whether a member of an ISR is still in it, and not as the last one, which may lead again."""
    if member not in old.isr or member not in new.isr or (old.isr == (member,) and old.leader < 0):
        return False
    return len(new.isr) > 1 or new.leader >= 0


class MaximalIsrSuperset(Invariant):
    """The newest leader waits for every member of the controller's ISR, and, while its own is enough to commit, for
    every other eligible replica. Without a proposal in flight it waits for its own ISR alone, which is the controller's
    of the same partition epoch.

    Its ISR may be older than the controller's, and who has become eligible since was in it.
    """

    name = "maximal-isr-superset"
    rules = "N4, W-5, R-4, R-46"
    looks_at = ReplicaChange.ISR | ReplicaChange.TERM
    leaders_only = True

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if not seen.is_proposing and sorted(seen.maximal_isr) != sorted(seen.isr):
            sentence = f"waits for {list(seen.maximal_isr)} with no proposal on its way, and its ISR is"
            yield seen.broker_id, seen.partition, f"{sentence} {list(seen.isr)}"
        registration = now.registration(seen.partition)
        if registration is not None and now.is_newest(seen):
            yield from self._compare(registration, seen)

    def on_image(self, now: ClusterState, broker_id: int, image: MetadataImage, before: MetadataImage) -> Violations:
        if image is not now.image:
            return
        for partition, registration in changed_partitions(image, before):
            seen = now.replicas.get((registration.leader, partition))
            if seen is not None and seen.is_leader:
                yield from self._compare(registration, seen)

    def _compare(self, registration: PartitionRegistration, seen: ReplicaState) -> Violations:
        if registration.leader != seen.broker_id or registration.leader_epoch != seen.leader_epoch:
            return
        isr, eligible = registration.isr, registration.eligible if len(seen.isr) >= seen.min_isr else ()
        if any(member not in seen.maximal_isr for member in (*isr, *eligible)):
            sentence = f"waits for {list(seen.maximal_isr)}, and the controller's ISR is {list(isr)}"
            yield seen.broker_id, seen.partition, sentence + (f", eligible {list(eligible)}" if eligible else "")
        if seen.partition_epoch == registration.partition_epoch and sorted(seen.isr) != sorted(isr):
            sentence = (
                f"has the ISR {list(seen.isr)} in partition epoch {seen.partition_epoch}, and the controller's is"
            )
            yield seen.broker_id, seen.partition, f"{sentence} {list(isr)}"


class CandidateCompleteness(Invariant):
    """Each running member of the ISR, and each eligible leader replica, has everything that was ever committed: any of
    them may be the next leader.

    Who has not heard of the newest leader epoch is judged when it has, and who found at its start that it lacks records
    when it is unfenced: it has told the controller by then (R-146).
    """

    name = "candidate-completeness"
    rules = "S-1, S-2"
    looks_at = ReplicaChange.HIGH_WATERMARK | ReplicaChange.LOG_END

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if before is None or seen.log_end_offset < before.log_end_offset:
            registration = now.registration(seen.partition)
            if registration is not None:
                yield from self._check(now, seen.partition, registration, seen.broker_id)
        elif seen.is_leader and seen.high_watermark != before.high_watermark:
            registration = now.registration(seen.partition)
            for member in (*registration.isr, *registration.eligible) if registration is not None else ():
                assert registration is not None
                yield from self._check(now, seen.partition, registration, member)

    def on_image(self, now: ClusterState, broker_id: int, image: MetadataImage, before: MetadataImage) -> Violations:
        if image is not now.image:
            return
        for partition, registration in changed_partitions(image, before):
            for member in (*registration.isr, *registration.eligible):
                yield from self._check(now, partition, registration, member)

    def _check(self, now: ClusterState, partition: str, registration: PartitionRegistration, member: int) -> Violations:
        seen, committed = now.replicas.get((member, partition)), now.committed_end(partition)
        if seen is None or seen.leader_epoch < registration.leader_epoch:
            return
        if member not in registration.isr and member not in registration.eligible:
            return
        broker = now.image.brokers.get(member)
        if (member, partition) in now.lacking and (broker is None or broker.fenced):
            return
        if seen.log_end_offset < committed:
            place = f"in the ISR {list(registration.isr)}"
            if member in registration.eligible:
                place = f"eligible beside the ISR {list(registration.isr)}"
            sentence = f"{place} with log end offset {seen.log_end_offset}"
            yield member, partition, f"{sentence}; committed is up to {committed}"


class StrongIsr(Invariant):
    """Below the newest leader's high watermark the logs of the controller's ISR are equal."""

    name = "strong-isr"
    rules = "W-2, G2"
    looks_at = ReplicaChange.HIGH_WATERMARK
    leaders_only = True

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        if not now.is_newest(seen) or seen.high_watermark == 0:
            return
        history, registration = now.history(seen.partition), now.registration(seen.partition)
        mine = history.view(seen.broker_id).at(seen.high_watermark - 1)
        for member in registration.isr if registration is not None else ():
            if mine is None or (member, seen.partition) not in now.replicas or member == seen.broker_id:
                continue
            theirs = history.view(member).at(seen.high_watermark - 1)
            if theirs is not None and theirs[:4] != mine[:4]:
                sentence = (
                    f"has a batch of epoch {theirs.leader_epoch} at offset {theirs.base_offset}, leader "
                    f"{seen.broker_id} one of epoch {mine.leader_epoch}, below its high watermark {seen.high_watermark}"
                )
                yield member, seen.partition, sentence
