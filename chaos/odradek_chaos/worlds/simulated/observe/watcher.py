"""Looks at a broker after every step of it, and tells the invariants what that step changed.

Nothing is gathered that did not change: after a callback of a broker its replicas' offsets and roles are compared with
what they were, a matter of a microsecond, and only what differs is told. Events are read from the broker's event file
as soon as they are written, which is before the broker acts on them.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Concatenate, ParamSpec

from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.process.node import Node
from odradek_broker.runtime.quorum.node import QuorumStatus
from odradek_broker.runtime.replicas.replica import Replica
from odradek_proto.formats import CLEAN_SHUTDOWN

from odradek_chaos.worlds.simulated.checks.catalogue import all_invariants
from odradek_chaos.worlds.simulated.checks.exchanges import (
    AnsweredRequest,
    EndOffsetReceived,
    EndOffsetSent,
    PartitionAltered,
    VoteGranted,
)
from odradek_chaos.worlds.simulated.checks.invariant import Invariant, ReplicaChange, Violation, Violations, changes_of
from odradek_chaos.worlds.simulated.checks.state import (
    METADATA,
    ClusterState,
    QuorumNodeState,
    RemoteState,
    ReplicaState,
)
from odradek_chaos.worlds.simulated.cluster.timeline import EventTail, TimelineEvent
from odradek_chaos.worlds.simulated.observe.coordinators import CoordinatorWatch
from odradek_chaos.worlds.simulated.observe.coverage import BranchCoverage
from odradek_chaos.worlds.simulated.world.administered import is_administered
from odradek_chaos.worlds.simulated.world.world import STATES, World

POSITION_OF = attrgetter("log_end_offset", "broker_epoch")

P = ParamSpec("P")
HOOKS = [name for name in vars(Invariant) if name.startswith("on_")]
DAMAGE_FOUND = ("corruption_found", "log_lacks_records", "replica_failed", "replica_offline")


class ReplicaCursor:
    """What a replica looked like when it was last told of."""

    __slots__ = (
        "high_watermark",
        "hosted",
        "key",
        "leader",
        "leader_epoch",
        "log_end_offset",
        "maximal",
        "positions",
        "role",
        "state",
    )

    def __init__(self, broker_id: int, hosted: Replica) -> None:
        self.hosted = hosted
        self.state = hosted.state
        self.key = (broker_id, str(hosted.topic_partition))
        self.role: LeaderPartition | FollowerPartition | None = None
        self.leader: LeaderPartition | None = None  # the role, when it leads
        self.log_end_offset = self.high_watermark = self.leader_epoch = -1
        self.maximal: tuple[int, ...] = ()
        self.positions: list[object] = []  # of a leader: how far each follower is known to be, and since which life

    def remember(self) -> None:
        """This is how it looks now."""
        role, state = self.hosted.role, self.state
        self.role, self.log_end_offset, self.high_watermark = role, state.log_end_offset, state.high_watermark
        self.leader = None
        if isinstance(role, LeaderPartition):
            self.leader = role
            self.maximal, self.leader_epoch = role.replicas.isr.maximal, role.leader_epoch
            self.positions = list(map(POSITION_OF, role.replicas.remotes))


class BrokerCursor:
    """What is remembered of one incarnation of a broker, so that a step that changed nothing costs next to nothing."""

    __slots__ = ("coordinators", "hosted", "image", "incarnation", "node", "quorum_status", "slots", "tail")

    def __init__(self, node: Node, incarnation: int, coordinators: CoordinatorWatch) -> None:
        self.node = node
        self.coordinators = coordinators
        self.incarnation = incarnation
        self.image = MetadataImage()
        self.quorum_status: QuorumStatus | None = None  # of its quorum node
        self.tail: EventTail | None = None  # of its event file
        self.hosted: list[Replica] = []
        self.slots: list[ReplicaCursor] = []


class Watcher:
    """Holds the world's `ClusterState` up to date and reports what the invariants say."""

    def __init__(self, world: World) -> None:
        self.now = world.state
        self.invariants = all_invariants()
        self._coverage = BranchCoverage(world.state, world.buggify.reached)
        self._world = world
        self._cursors: dict[int, BrokerCursor] = {}  # of the brokers that run
        told = _overriding(self.invariants, "on_replica")
        told = [each for each in told if not each.flushed_only or self.now.flushes_before_ack]
        # who is asked of each set of changes
        self._asked = [
            [each for each in told if each.is_asked(ReplicaChange(bits))] for bits in range(ReplicaChange.ANYTHING + 1)
        ]
        self._hooks = {
            hook: [(each, getattr(each, hook)) for each in _overriding(self.invariants, hook)] for hook in HOOKS
        }

    # --- after every step

    def after_step(self, broker_id: int) -> None:
        """A callback of this broker has run."""
        cursor = self._cursors.get(broker_id)
        if cursor is None:
            cursor = self._begin(broker_id)
            if cursor is None:
                return
        tail = cursor.tail
        if tail is None or len(tail.inode.data) != tail.read:
            for moment in self._world.timeline.new_events_of(broker_id):
                self._on_event(moment)
            cursor.tail = self._world.timeline.tails.get(broker_id)
        node = cursor.node
        image = node.feed.image
        if image.offset != cursor.image.offset:
            self._see_image(broker_id, cursor, image.copy())  # the living image goes on changing
        quorum = node.quorum
        if quorum is not None:
            standing = quorum.quorum_status
            if standing != cursor.quorum_status:
                self._see_quorum(broker_id, cursor, standing)
        broker = node.broker
        if broker is not None:
            hosted = list(broker.replicas.replicas.values())
            if hosted != cursor.hosted:
                self._see_replicas(broker_id, cursor, hosted)
            for slot in cursor.slots:
                state, role = slot.state, slot.hosted.role
                if (
                    role is slot.role
                    and state.log_end_offset == slot.log_end_offset
                    and state.high_watermark == slot.high_watermark
                ):
                    leader = slot.leader
                    if leader is None:
                        continue
                    replicas = leader.replicas
                    if (
                        replicas.isr.maximal is slot.maximal
                        and leader.leader_epoch == slot.leader_epoch
                        and list(map(POSITION_OF, replicas.remotes)) == slot.positions
                    ):
                        continue
                elif role is None:
                    continue
                slot.remember()
                self._see_replica(cursor, slot)
            if broker.groups.partitions:
                cursor.coordinators.after_step(broker.groups)

    def _see_replicas(self, broker_id: int, cursor: BrokerCursor, hosted: list[Replica]) -> None:
        """Replicas came or went; what went is not a member of anything any more."""
        kept = {slot.hosted: slot for slot in cursor.slots}
        for slot in cursor.slots:
            if slot.hosted not in hosted:
                self.now.replicas.pop(slot.key, None)
        cursor.hosted = hosted
        looked_at = [each for each in hosted if not _is_aside(each.topic_partition.topic)]
        cursor.slots = [kept.get(each) or ReplicaCursor(broker_id, each) for each in looked_at]

    def end(self, broker_id: int) -> None:
        """The process is gone: it is no member of anything that runs."""
        for moment in self._world.timeline.new_events_of(broker_id):
            self._on_event(moment)
        self._world.board.gone(self._world.loop.now_us, broker_id)
        self._see_how_it_ended(broker_id)
        self._forget(broker_id)

    def _see_how_it_ended(self, broker_id: int) -> None:
        """A process removes the clean shutdown file as it starts, and writes it as the very last it does."""
        cluster = self._world.cluster
        node = cluster.nodes.get(broker_id)
        if node is None or node.broker is None:
            return  # it did not come so far as to register
        if cluster.machines[broker_id].disk.find(f"{self.now.root}/{CLEAN_SHUTDOWN}") is None:
            self.now.ended_uncleanly[node.broker.session.incarnation_id] = None

    def _begin(self, broker_id: int) -> BrokerCursor | None:
        """A process runs that was not looked at yet; None when it has no node yet, or is gone already."""
        cluster = self._world.cluster
        machine, node = cluster.machines[broker_id], cluster.nodes.get(broker_id)
        if node is None or not machine.is_running:
            return None
        self._forget(broker_id)
        self.now.disks[broker_id] = machine.disk
        cursor = self._cursors[broker_id] = BrokerCursor(
            node, machine.incarnation, CoordinatorWatch(self._world, broker_id)
        )
        return cursor

    def _forget(self, broker_id: int) -> None:
        self._cursors.pop(broker_id, None)
        self.now.quorum.pop(broker_id, None)
        self.now.images.pop(broker_id, None)
        for key in [key for key in self.now.replicas if key[0] == broker_id]:
            del self.now.replicas[key]

    # --- what changed

    def _see_replica(self, cursor: BrokerCursor, slot: ReplicaCursor) -> None:
        now, key = self.now, slot.key
        broker_id, partition = key
        if now.damaged and self._is_beyond_repair(broker_id, partition):
            now.history(partition).forget(broker_id)
            return
        before = now.replicas.get(key)
        seen = now.replicas[key] = _replica(key, cursor.incarnation, slot)
        self._world.board.note(self._world.loop.now_us, seen)
        newest = now.newest_epochs
        if seen.leader_epoch > newest.get(partition, -1):
            newest[partition] = seen.leader_epoch
        for invariant in self._asked[changes_of(seen, before)]:
            for violation in invariant.on_replica(now, seen, before):
                self._report(invariant, violation)

    def _is_beyond_repair(self, broker_id: int, partition: str) -> bool:
        """Whether this replica was opened on damaged bytes. One that ran already goes on with what it had read."""
        key = (broker_id, partition)
        if key not in self.now.damaged:
            return False
        if 0 <= self.now.damaged[key] < self._cursors[broker_id].incarnation:
            del self.now.damaged[key]  # the copy was replaced, and this is the new one
            return False
        return key not in self.now.replicas

    def _see_quorum(self, broker_id: int, cursor: BrokerCursor, standing: QuorumStatus) -> None:
        before = self.now.quorum.get(broker_id)
        if (before is None and standing.epoch == 0) or (broker_id, METADATA) in self.now.damaged:
            return
        cursor.quorum_status = standing
        seen = QuorumNodeState(
            broker_id,
            cursor.incarnation,
            standing.epoch,
            standing.high_watermark,
            standing.log_end_offset,
            standing.leads,
            standing.log_start_offset,
        )
        self.now.quorum[broker_id] = seen
        if standing.epoch and broker_id in self._world.cluster.shape.voters:
            self.now.voter_ends[broker_id] = standing.log_end_offset
        self._ask(Invariant.on_quorum, seen, before)

    def _see_image(self, broker_id: int, cursor: BrokerCursor, image: MetadataImage) -> None:
        before, cursor.image = cursor.image, image
        self.now.images[broker_id] = image
        if image.offset <= self.now.image.offset:
            newest = self.now.image
        else:
            newest, self.now.image = self.now.image, image
            for topic in image.topics.values():
                for number, registration in topic.partitions.items():
                    name = f"{topic.name}-{number}"
                    if registration.leader_epoch > self.now.newest_epochs.get(name, -1):
                        self.now.newest_epochs[name] = registration.leader_epoch
        self._ask(Invariant.on_image, broker_id, image, newest if image is self.now.image else before)

    def _on_event(self, moment: TimelineEvent) -> None:
        self._coverage.on_event(moment)
        if _is_aside(moment.partition.rpartition("-")[0]):
            return
        if moment.event in DAMAGE_FOUND:
            self.now.lacking[moment.broker_id, moment.partition] = None
        self._ask(Invariant.on_event, moment)

    # --- what clients are told

    def acknowledged(self, partition: str, offset: int) -> None:
        if self._is_damaged(partition):
            return  # nobody looks at the high watermark of a damaged leader
        self._ask(Invariant.on_acknowledged, partition, offset)

    def delivered(self, partition: str, offset: int) -> None:
        if self._is_damaged(partition):
            return
        self._ask(Invariant.on_delivered, partition, offset)

    # --- what goes over the wire

    def answered(self, answered: AnsweredRequest) -> None:
        self._ask(Invariant.on_answered, answered)

    def vote_granted(self, granted: VoteGranted) -> None:
        self._ask(Invariant.on_vote_granted, granted)

    def partition_altered(self, altered: PartitionAltered) -> None:
        self._ask(Invariant.on_partition_altered, altered)

    def end_told(self, told: EndOffsetSent) -> None:
        if self.now.damaged and self._is_damaged(told.partition):
            return
        self._ask(Invariant.on_end_told, told)

    def end_heard(self, heard: EndOffsetReceived) -> None:
        if self.now.damaged and self._is_damaged(heard.partition):
            return
        self._ask(Invariant.on_end_heard, heard)

    def _is_damaged(self, partition: str) -> bool:
        return any(damaged == partition for _, damaged in self.now.damaged)

    def _ask(
        self,
        hook: Callable[Concatenate[Invariant, ClusterState, P], Violations],
        *seen: P.args,
        **more: P.kwargs,
    ) -> None:
        """Ask those invariants that have something to say to this kind of change."""
        for invariant, ask in self._hooks[hook.__name__]:
            for violation in ask(self.now, *seen, **more):
                self._report(invariant, violation)

    def _report(self, invariant: Invariant, violation: Violation) -> None:
        broker_id, partition, sentence = violation
        self._world.findings.report(invariant.name, sentence, broker_id, partition)


def _is_aside(topic: str) -> bool:
    """Cleaners change its bytes, each replica's at another time; or its logs lose their heads, and it goes."""
    return topic == STATES or is_administered(topic)


def _replica(key: tuple[int, str], incarnation: int, slot: ReplicaCursor) -> ReplicaState:
    """What there is to see of a replica that was looked at just now."""
    broker_id, partition = key
    role, leader, end, high_watermark = slot.role, slot.leader, slot.log_end_offset, slot.high_watermark
    assert role is not None
    if leader is None:
        assert isinstance(role, FollowerPartition), role
        if slot.state.damaged_at is not None:  # it counts on nothing from there on, and fetches it anew
            high_watermark = min(high_watermark, slot.state.damaged_at)
        seen = ReplicaState(broker_id, incarnation, partition, role.leader_epoch, end, high_watermark)
        seen.leader = role.leader
    else:
        seen = ReplicaState(
            broker_id,
            incarnation,
            partition,
            leader.leader_epoch,
            end,
            high_watermark,
            True,
            broker_id,
            leader.isr,
            slot.maximal,
            leader.replicas.isr.pending is not None,
            leader.partition_epoch,
            leader.effective_min_isr,
            {each.broker_id: RemoteState(each.log_end_offset, each.broker_epoch) for each in leader.replicas.remotes},
        )
    seen.producers = slot.state.producers
    return seen


def _overriding(invariants: list[Invariant], method: str) -> list[Invariant]:
    """Those that have something to say to a kind of change."""
    return [each for each in invariants if getattr(type(each), method) is not getattr(Invariant, method)]
