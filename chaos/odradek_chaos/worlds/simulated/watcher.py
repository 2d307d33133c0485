"""Looks at a broker after every step of it, and tells the invariants what that step changed.

Nothing is gathered that did not change: after a callback of a broker its replicas' offsets and roles are compared with
what they were, a matter of a microsecond, and only what differs is told. Events are read from the broker's event file
as soon as they are written, which is before the broker acts on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.node import Node
from odradek_broker.runtime.hosted import HostedReplica
from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.checks.catalogue import all_invariants
from odradek_chaos.worlds.simulated.checks.invariant import Invariant, Violation
from odradek_chaos.worlds.simulated.checks.seen import METADATA, Everything, QuorumSeen, RemoteSeen, ReplicaSeen
from odradek_chaos.worlds.simulated.timeline import Moment

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.world import World


class Slot:
    """What a replica looked like when it was last told of. Most steps change nothing, and this finds out fast."""

    __slots__ = (
        "_ends",
        "_high_watermark",
        "_leader_epoch",
        "_log_end_offset",
        "_maximal",
        "_role",
        "_state",
        "hosted",
        "partition",
    )

    def __init__(self, hosted: HostedReplica) -> None:
        self.hosted = hosted
        self.partition = str(hosted.topic_partition)
        self._state = hosted.state
        self._log_end_offset = self._high_watermark = self._leader_epoch = -1
        self._role: object = None
        self._maximal: tuple[int, ...] = ()
        self._ends: list[int] = []  # of a leader: how far each follower is known to be

    def has_changed(self) -> bool:
        """Whether it looks different now; remembers how it looks."""
        role, state = self.hosted.role, self._state
        if role is None:
            return False
        same = (
            role is self._role
            and state.log_end_offset == self._log_end_offset
            and state.high_watermark == self._high_watermark
        )
        if isinstance(role, LeaderPartition):
            replicas = role.replicas
            if same and replicas.isr.maximal is self._maximal and role.leader_epoch == self._leader_epoch:
                for remote, end in zip(replicas.remotes, self._ends, strict=False):
                    if remote.log_end_offset != end:
                        break
                else:
                    return False
            self._maximal, self._leader_epoch = replicas.isr.maximal, role.leader_epoch
            self._ends = [remote.log_end_offset for remote in replicas.remotes]
        elif same:
            return False
        self._role, self._log_end_offset, self._high_watermark = role, state.log_end_offset, state.high_watermark
        return True


class Watcher:
    """Holds `Everything` up to date and reports what the invariants say."""

    def __init__(self, world: World) -> None:
        self.now = Everything(damaged=world.damaged)
        self.now.flushes_before_ack = world.plan.settings.odradek_fsync == "before-ack"
        self.invariants = all_invariants()
        self._world = world
        self._slots: dict[int, list[Slot]] = {}
        self._incarnations: dict[int, int] = {}
        self._images: dict[int, MetadataImage] = {}
        told = _overriding(self.invariants, "on_replica")
        self._on_leader = [each for each in told if not each.flushed_only or self.now.flushes_before_ack]
        self._on_follower = [each for each in self._on_leader if not each.leaders_only]
        self._on_quorum = _overriding(self.invariants, "on_quorum")
        self._on_image = _overriding(self.invariants, "on_image")
        self._on_moment = _overriding(self.invariants, "on_moment")
        self._on_acknowledged = _overriding(self.invariants, "on_acknowledged")
        self._on_delivered = _overriding(self.invariants, "on_delivered")

    # --- after every step

    def after_step(self, broker_id: int) -> None:
        """A callback of this broker has run."""
        cluster = self._world.cluster
        node = cluster.nodes.get(broker_id)
        machine = cluster.machines[broker_id]
        if node is None or not machine.is_running:
            return
        if machine.incarnation != self._incarnations.get(broker_id):
            self._begin(broker_id, machine.incarnation)
        for moment in self._world.timeline.new_events_of(broker_id):
            self._tell_moment(moment)
        image = node.feed.image
        if image.offset != self._images[broker_id].offset:
            self._see_image(broker_id, image.copy())  # the living image goes on changing
        if node.quorum is not None:
            self._see_quorum(broker_id, node)
        broker = node.broker
        if broker is not None:
            slots, replicas = self._slots[broker_id], broker.replicas.replicas
            if not _same(slots, replicas):
                slots = self._slots[broker_id] = self._slots_of(broker_id, slots, list(replicas.values()))
            for slot in slots:
                if slot.has_changed():
                    self._see_replica(broker_id, slot.partition, slot.hosted)

    def _slots_of(self, broker_id: int, known: list[Slot], hosted: list[HostedReplica]) -> list[Slot]:
        """Replicas came or went; what went is not a member of anything any more."""
        kept = {slot.hosted: slot for slot in known}
        for gone in kept.keys() - set(hosted):
            self.now.replicas.pop((broker_id, kept[gone].partition), None)
        return [kept.get(each) or Slot(each) for each in hosted]

    def end(self, broker_id: int) -> None:
        """The process is gone: it is no member of anything that runs."""
        for moment in self._world.timeline.new_events_of(broker_id):
            self._tell_moment(moment)
        self._world.board.gone(self._world.loop.now_us, broker_id)
        self._forget(broker_id)

    def _begin(self, broker_id: int, incarnation: int) -> None:
        self._forget(broker_id)
        self._incarnations[broker_id] = incarnation
        self._slots[broker_id] = []
        self._images[broker_id] = MetadataImage()
        self.now.disks[broker_id] = self._world.cluster.machines[broker_id].disk

    def _forget(self, broker_id: int) -> None:
        self._incarnations.pop(broker_id, None)
        self.now.quorum.pop(broker_id, None)
        for key in [key for key in self.now.replicas if key[0] == broker_id]:
            del self.now.replicas[key]

    # --- what changed

    def _see_replica(self, broker_id: int, partition: str, hosted: HostedReplica) -> None:
        if self._is_beyond_repair(broker_id, partition):
            self.now.history(partition).forget(broker_id)
            return
        seen = self._replica(broker_id, partition, hosted)
        before = self.now.replicas.get((broker_id, partition))
        self.now.replicas[broker_id, partition] = seen
        self._world.board.note(self._world.loop.now_us, seen)
        newest = self.now.newest_epochs
        if seen.leader_epoch > newest.get(partition, -1):
            newest[partition] = seen.leader_epoch
        for invariant in self._on_leader if seen.is_leader else self._on_follower:
            self._report(invariant, invariant.on_replica(self.now, seen, before))

    def _is_beyond_repair(self, broker_id: int, partition: str) -> bool:
        """Whether this replica was opened on damaged bytes. One that ran already goes on with what it had read."""
        key = (broker_id, partition)
        if key not in self.now.damaged:
            return False
        if 0 <= self.now.damaged[key] < self._incarnations[broker_id]:
            del self.now.damaged[key]  # the copy was replaced, and this is the new one
            return False
        return key not in self.now.replicas

    def _replica(self, broker_id: int, partition: str, hosted: HostedReplica) -> ReplicaSeen:
        role, state = hosted.role, hosted.state
        assert role is not None
        seen = ReplicaSeen(
            broker_id,
            self._incarnations[broker_id],
            partition,
            role.leader_epoch,
            state.log_end_offset,
            state.high_watermark,
            producers=state.producers,
        )
        if isinstance(role, LeaderPartition):
            seen.is_leader, seen.leader = True, broker_id
            seen.isr, seen.maximal_isr = role.isr, role.maximal_isr
            seen.partition_epoch, seen.min_isr = role.partition_epoch, role.effective_min_isr
            seen.remotes = {
                remote.broker_id: RemoteSeen(remote.log_end_offset, remote.broker_epoch)
                for remote in role.replicas.remotes
            }
        else:
            seen.leader = role.leader
        return seen

    def _see_quorum(self, broker_id: int, node: Node) -> None:
        quorum = node.quorum
        assert quorum is not None
        before = self.now.quorum.get(broker_id)
        epoch, high_watermark, end = quorum.epoch, quorum.high_watermark, quorum.log_end_offset
        is_leader, start = quorum.is_leader, quorum.log_start_offset
        if before is None:
            if epoch == 0:
                return
        elif before[2:] == (epoch, high_watermark, end, is_leader, start):
            return
        if (broker_id, METADATA) in self.now.damaged:
            return
        seen = QuorumSeen(broker_id, self._incarnations[broker_id], epoch, high_watermark, end, is_leader, start)
        self.now.quorum[broker_id] = seen
        if epoch:
            self.now.voter_ends[broker_id] = end
        for invariant in self._on_quorum:
            self._report(invariant, invariant.on_quorum(self.now, seen, before))

    def _see_image(self, broker_id: int, image: MetadataImage) -> None:
        before, self._images[broker_id] = self._images[broker_id], image
        if image.offset <= self.now.image.offset:
            newest = self.now.image
        else:
            newest, self.now.image = self.now.image, image
            for topic in image.topics.values():
                for number, registration in topic.partitions.items():
                    name = f"{topic.name}-{number}"
                    if registration.leader_epoch > self.now.newest_epochs.get(name, -1):
                        self.now.newest_epochs[name] = registration.leader_epoch
        for invariant in self._on_image:
            compared = newest if image is self.now.image else before
            self._report(invariant, invariant.on_image(self.now, broker_id, image, compared))

    def _tell_moment(self, moment: Moment) -> None:
        self._world.reach.on_moment(moment)
        for invariant in self._on_moment:
            self._report(invariant, invariant.on_moment(self.now, moment))

    # --- what clients are told

    def acknowledged(self, partition: str, offset: int) -> None:
        if self._is_damaged(partition):
            return  # nobody looks at the high watermark of a damaged leader
        for invariant in self._on_acknowledged:
            self._report(invariant, invariant.on_acknowledged(self.now, partition, offset))

    def delivered(self, partition: str, offset: int) -> None:
        if self._is_damaged(partition):
            return
        for invariant in self._on_delivered:
            self._report(invariant, invariant.on_delivered(self.now, partition, offset))

    def _is_damaged(self, partition: str) -> bool:
        return any(damaged == partition for _, damaged in self.now.damaged)

    def _report(self, invariant: Invariant, violations: Iterable[Violation]) -> None:
        for broker_id, partition, sentence in violations:
            self._world.report(invariant.name, sentence, broker_id, partition)


def _same(slots: list[Slot], replicas: dict[TopicPartition, HostedReplica]) -> bool:
    """Whether the slots are those of these replicas, in their order."""
    return [slot.hosted for slot in slots] == list(replicas.values())


def _overriding(invariants: list[Invariant], method: str) -> list[Invariant]:
    """Those that have something to say to a kind of change."""
    return [each for each in invariants if getattr(type(each), method) is not getattr(Invariant, method)]
