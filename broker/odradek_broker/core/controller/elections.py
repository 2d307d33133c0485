"""The leader of a partition, its ISR, and when an epoch rises (R-130 to R-141, R-145, R-56).

`change_partition` is the one place that makes a `PartitionChangeRecord`. Its rules:

- the order of the replica list decides between candidates, never the order of the ISR (R-132);
- a clean election keeps the ISR, an unclean one makes the leader its only member, to recover (R-133);
- without eligible leader replicas the ISR never becomes empty: the last member stays, without leading (R-135);
- with them it does, and the eligible replicas are recorded beside it: those that left an ISR that was below
  min.insync.replicas by then, since the high watermark does not rise there (R-21), unless their broker returned from an
  unclean stop (R-139, R-141). Once the ISR has enough members again, by whatever change, no other replica is eligible:
  the ISR may commit without them;
- with neither of the two left, the last leader is elected as soon as it is active, marked as unclean: no replica can
  have more, unless its machine lost unflushed data (R-140);
- a broker that returned with another disk is empty: it is neither eligible, nor the last member that is waited for, nor
  the last known leader;
- a reassignment is complete as soon as every replica of its target is in the ISR, whatever the change was made for: the
  removing replicas leave, and another one leads if the leader is among them (R-145);
- the leader epoch rises when the leader changes, also to none, or the replica set loses a member; never when the ISR
  alone changes (R-56). The partition epoch rises with every record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

from odradek_proto.v1.metadata_messages import PartitionChangeRecord
from odradek_proto.values import Value, replace

from odradek_broker.core.metadata.image import NO_LEADER, PartitionRegistration


class ElectionKind(Enum):
    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


class EligibleReplicas(Value, frozen=True):
    """Eligible leader replicas, in the order of their ids, and the last known leader of an empty ISR (KIP-966).

    `last_known` holds one broker at most, as Kafka does where it may elect it ("balanced" unclean recovery).
    """

    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


class Reassignment(Value, frozen=True):
    """Replicas on their way in and out (KIP-455); both empty: none."""

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class PartitionTarget(Value, frozen=True):
    """The desired state of a partition. None keeps the current value."""

    acceptable: Callable[[int], bool]
    election: ElectionKind = ElectionKind.ONLINE
    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    recovering: bool | None = None
    elr_enable: bool = False
    min_insync_replicas: int = 1
    unclean_shutdown: Collection[int] = ()  # brokers that came back without a clean shutdown
    lost: Collection[int] = ()  # those of them that came back with an empty disk: they are waited for no more
    reassignment: Reassignment | None = None
    unclean: bool = False  # `isr` holds who was not in sync: whoever leads now leads by an unclean election


class Elected(Value, frozen=True):
    leader: int
    unclean: bool = False


class PartitionMembers(Value, frozen=True):
    """The members of a partition: the part of a registration that a change decides as a whole."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    reassignment: Reassignment

    def completed(self) -> PartitionMembers:
        """Without the removing replicas, once all others are in sync (R-145); else as it is."""
        ongoing = self.reassignment
        if ongoing == Reassignment():
            return self
        target = tuple(replica for replica in self.replicas if replica not in ongoing.removing)
        if not target or not set(target) <= set(self.isr):
            return self
        isr = tuple(replica for replica in self.isr if replica not in ongoing.removing)
        return PartitionMembers(target, isr, Reassignment())


def change_partition(
    topic_id: bytes, partition: int, current: PartitionRegistration, target: PartitionTarget
) -> PartitionChangeRecord | None:
    """The record that takes a partition to its target, with an election; None when nothing changes."""
    members = PartitionMembers(
        current.replicas if target.replicas is None else target.replicas,
        current.isr if target.isr is None else target.isr,
        Reassignment(current.adding, current.removing) if target.reassignment is None else target.reassignment,
    ).completed()
    isr = members.isr
    eligible = _eligible(current, target, members.replicas, isr)
    elected = _elect(current, target, members.replicas, isr, eligible)
    leader, recovering = elected.leader, current.recovering if target.recovering is None else target.recovering
    if elected.unclean and leader != current.leader:
        isr, recovering, eligible = (leader,), True, EligibleReplicas()
    elif leader in eligible.eligible:
        isr = (leader,)
    elif not isr and not target.elr_enable:
        isr = tuple(i for i in current.isr if i in members.replicas and i not in target.lost)
    # An election can make an ISR that completes: of the one replica that is the whole target.
    members = PartitionMembers(members.replicas, isr, members.reassignment).completed()
    eligible = _without(eligible, target, members, leader)
    unclean = elected.unclean or target.unclean
    return _record(topic_id, partition, current, members, leader, recovering, eligible, unclean)


def _elect(
    current: PartitionRegistration,
    target: PartitionTarget,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    eligible: EligibleReplicas,
) -> Elected:
    """R-131 and R-132."""

    def valid(replica: int) -> bool:
        return (replica in isr or (not isr and replica in eligible.eligible)) and target.acceptable(replica)

    if target.election is ElectionKind.PREFERRED:
        candidates = (replicas[0], current.leader, *replicas)
    else:
        candidates = (current.leader, *replicas)
    for candidate in candidates:
        if valid(candidate):
            return Elected(candidate)
    if target.election is ElectionKind.PREFERRED:
        return Elected(NO_LEADER)  # never an unclean one
    # Nobody has more than the last known leader, but who is eligible is waited for. Unlike Kafka's, an unclean election
    # waits for nobody and still prefers it: it comes before replicas that may have been behind for long.
    uncleanly = () if eligible.eligible else eligible.last_known
    if target.election is ElectionKind.UNCLEAN:
        uncleanly = (*eligible.last_known, *replicas)
    for candidate in uncleanly:
        if target.acceptable(candidate):
            return Elected(candidate, unclean=True)
    return Elected(NO_LEADER)


def _eligible(
    current: PartitionRegistration, target: PartitionTarget, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> EligibleReplicas:
    """R-139: replicas that may lead although they left the ISR, because it has become smaller than min.insync.replicas.

    An empty ISR keeps them even where eligible leader replicas are off by now: no other replica could ever lead again.
    """
    if not target.elr_enable and current.isr:
        return EligibleReplicas()
    if len(isr) >= min(target.min_insync_replicas, len(replicas)):
        return EligibleReplicas()
    before = sorted({*current.eligible, *current.isr} & set(replicas))
    eligible = tuple(i for i in before if i not in isr and i not in target.unclean_shutdown)
    last_known = tuple(i for i in _last_known_leader(current, replicas) if i not in target.lost)
    return EligibleReplicas(eligible, () if isr else last_known)


def _last_known_leader(current: PartitionRegistration, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """The leader when the ISR became empty (R-140). If there was none, the last member (R-135)."""
    if current.leader in replicas:
        return (current.leader,)
    known = current.isr if len(current.isr) == 1 else current.last_known_eligible
    return tuple(i for i in known if i in replicas)


def _without(
    eligible: EligibleReplicas, target: PartitionTarget, members: PartitionMembers, leader: int
) -> EligibleReplicas:
    """The replicas still needed beside the ISR that an election has made.

    Unlike Kafka, they are judged by the ISR after the election, too: the leader of a lowered min.insync.replicas may
    commit alone, and replicas that were eligible beside it lack those records.
    """
    if len(members.isr) >= min(target.min_insync_replicas, len(members.replicas)):
        return EligibleReplicas()
    return EligibleReplicas(
        tuple(i for i in eligible.eligible if i in members.replicas and i not in members.isr),
        tuple(i for i in eligible.last_known if i in members.replicas) if leader == NO_LEADER else (),
    )


def _record(
    topic_id: bytes,
    partition: int,
    current: PartitionRegistration,
    members: PartitionMembers,
    leader: int,
    recovering: bool,
    eligible: EligibleReplicas,
    unclean: bool,
) -> PartitionChangeRecord | None:
    ongoing = members.reassignment
    changed: dict[str, object] = {}
    if members.replicas != current.replicas:
        changed |= {"replicas": members.replicas, "replicas_changed": True}
    if ongoing != Reassignment(current.adding, current.removing):
        changed |= {"adding_replicas": ongoing.adding, "removing_replicas": ongoing.removing}
        changed["reassignment_changed"] = True
    if members.isr != current.isr:
        changed |= {"isr": members.isr, "isr_changed": True}
    if leader != current.leader:
        changed |= {"leader": leader, "unclean": unclean}
    if leader != current.leader or not set(current.replicas) <= set(members.replicas):
        changed["bump_leader_epoch"] = True
    if recovering != current.recovering:
        changed["recovering"] = recovering
    if (eligible.eligible, eligible.last_known) != (current.eligible, current.last_known_eligible):
        changed |= {"eligible": eligible.eligible, "last_known_eligible": eligible.last_known, "eligible_changed": True}
    return replace(PartitionChangeRecord(topic_id=topic_id, partition=partition), **changed) if changed else None
