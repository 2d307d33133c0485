"""What must hold at every moment of a run, each invariant a class with a name.

They are looked at every few virtual milliseconds, before and after each fault, and once more at the end. Rules of this
module: an invariant reads and changes nothing; it names the broker, the partition and the numbers; one that was broken
is reported once per broker and partition, since it usually stays broken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.runtime.hosted import HostedReplica
from odradek_broker.runtime.quorum_node import QuorumNode

from odradek_chaos.worlds.simulated.cluster import LOG_DIRECTORY, SimCluster
from odradek_chaos.worlds.simulated.committed import CommittedLog
from odradek_chaos.worlds.simulated.disk import SimDisk
from odradek_chaos.worlds.simulated.inodes import Inode
from odradek_chaos.worlds.simulated.timeline import Moment

METADATA_DIRECTORY = f"{LOG_DIRECTORY}/__cluster_metadata-0"
METADATA = "metadata"
QUORUM_STATE = f"{METADATA_DIRECTORY}/quorum-state"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise. `check` is kebab-case; `broker_id` is 0 when it is nobody's in particular."""

    check: str
    sentence: str
    time_us: int
    broker_id: int = 0
    partition: str = ""

    def __str__(self) -> str:
        where = " ".join(part for part in (f"b{self.broker_id}" if self.broker_id else "", self.partition) if part)
        return f"{self.check} at {self.time_us / 1e6:.6f} s{', ' + where if where else ''}: {self.sentence}"


Violation = tuple[int, str, str]  # broker id, partition, sentence


class Seen(NamedTuple):
    """One running broker at the moment of a look."""

    broker_id: int
    incarnation: int
    disk: SimDisk
    quorum: QuorumNode | None
    replicas: list[tuple[str, HostedReplica]]  # by the partition's name


class Snapshot:
    """What one look sees, gathered once for all invariants."""

    def __init__(self, cluster: SimCluster) -> None:
        self.brokers = [
            Seen(
                broker_id,
                cluster.machines[broker_id].incarnation,
                cluster.machines[broker_id].disk,
                node.quorum,
                [(_name(tp), hosted) for tp, hosted in cluster.hosted(broker_id).items()],
            )
            for broker_id, node in cluster.running()
        ]
        self.image = cluster.newest_image()
        self.disks = [(broker_id, machine.disk) for broker_id, machine in cluster.machines.items()]


_name = lru_cache(maxsize=1024)(str)


class Invariant:
    """One promise; `name` is how it is reported."""

    name: ClassVar[str]

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        """The brokers wrote down these events; comes before `look`."""
        yield from ()

    def look(self, now: Snapshot) -> Iterator[Violation]:
        raise NotImplementedError


class CommittedPrefixImmutable(Invariant):
    """N3: what was once below a high watermark stays, at its offset, with its epoch and bytes, on whoever has it there.

    The log is compared anew after a truncation and after a restart.
    """

    name = "committed-prefix-immutable"

    def __init__(self) -> None:
        self._logs: dict[str, CommittedLog] = {}
        self._incarnations: dict[int, int] = {}

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        for moment in moments:
            if moment.event in ("truncated", "log_restarted", "replica_deleted") and moment.partition in self._logs:
                self._logs[moment.partition].forget(moment.broker_id)
        yield from ()

    def look(self, now: Snapshot) -> Iterator[Violation]:
        for broker in now.brokers:
            broker_id = broker.broker_id
            if self._incarnations.get(broker_id) != broker.incarnation:
                self._incarnations[broker_id] = broker.incarnation
                for log in self._logs.values():
                    log.forget(broker_id)
            for partition, hosted in broker.replicas:
                known = self._logs.get(partition)
                if known is None:
                    known = self._logs[partition] = CommittedLog(f"{LOG_DIRECTORY}/{partition}")
                problem = known.compare(broker_id, broker.disk, hosted.state.high_watermark)
                if problem is not None:
                    yield broker_id, partition, problem


class MetadataCommittedEqual(Invariant):
    """N11, M-5: the committed metadata records are the same on all nodes."""

    name = "metadata-committed-equal"

    def __init__(self) -> None:
        self._log = CommittedLog(METADATA_DIRECTORY)
        self._incarnations: dict[int, int] = {}

    def look(self, now: Snapshot) -> Iterator[Violation]:
        for broker in now.brokers:
            broker_id = broker.broker_id
            if self._incarnations.get(broker_id) != broker.incarnation:
                self._incarnations[broker_id] = broker.incarnation
                self._log.forget(broker_id)
            if broker.quorum is not None:
                problem = self._log.compare(broker_id, broker.disk, broker.quorum.high_watermark)
                if problem is not None:
                    yield broker_id, METADATA, problem


class HighWatermarkNeverFalls(Invariant):
    """N5, S-6: the high watermark of a leader never falls within its epoch, and never passes its log end offset."""

    name = "high-watermark-never-falls"

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, int, str], int] = {}

    def look(self, now: Snapshot) -> Iterator[Violation]:
        for broker in now.brokers:
            for partition, hosted in broker.replicas:
                state, role = hosted.state, hosted.role
                high_watermark = state.high_watermark
                if high_watermark > state.log_end_offset:
                    numbers = f"high watermark {high_watermark} above log end offset {state.log_end_offset}"
                    yield broker.broker_id, partition, numbers
                if not isinstance(role, LeaderPartition):
                    continue
                key = (broker.broker_id, broker.incarnation, role.leader_epoch, partition)
                before = self._seen.get(key, -1)
                if high_watermark < before:
                    fell = f"from {before} to {high_watermark} in leader epoch {role.leader_epoch}"
                    yield broker.broker_id, partition, fell
                self._seen[key] = high_watermark


class OneLeaderPerEpoch(Invariant):
    """N1, S-8: at most one broker leads a partition in a leader epoch, and one node the quorum in a quorum epoch."""

    name = "one-leader-per-epoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[str, int], int] = {}

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        for moment in moments:
            if moment.event == "leader_elected" and moment.partition:
                yield from self._lead(moment.partition, int(moment.facts["leader_epoch"]), moment.broker_id)

    def look(self, now: Snapshot) -> Iterator[Violation]:
        for broker in now.brokers:
            if broker.quorum is not None and broker.quorum.is_leader:
                yield from self._lead(METADATA, broker.quorum.epoch, broker.broker_id)

    def _lead(self, partition: str, epoch: int, broker_id: int) -> Iterator[Violation]:
        other = self._leaders.setdefault((partition, epoch), broker_id)
        if other != broker_id:
            yield broker_id, partition, f"leads in epoch {epoch}, in which broker {other} led"


class EpochsNeverFall(Invariant):
    """N9, M-1: leader epochs never fall in a node's life, the quorum epoch on its disk never, whatever happens.

    In memory the quorum epoch may be ahead of the disk: nothing is said in an epoch before it is written.
    """

    name = "epochs-never-fall"

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, str], int] = {}
        self._fsyncs: dict[int, int] = {}

    def look(self, now: Snapshot) -> Iterator[Violation]:
        for broker_id, disk in now.disks:
            if self._fsyncs.get(broker_id) != disk.fsyncs:  # the state is flushed whenever it is written
                self._fsyncs[broker_id] = disk.fsyncs
                inode = disk.find(QUORUM_STATE)
                if isinstance(inode, Inode) and inode.data:
                    yield from self._see((broker_id, 0, METADATA), int(json.loads(inode.data)["leaderEpoch"]))
        for broker in now.brokers:
            epoch = broker.quorum.epoch if broker.quorum is not None else 0
            if epoch:  # 0: it does not take part yet, or has left
                yield from self._see((broker.broker_id, broker.incarnation, METADATA), epoch)
            for partition, hosted in broker.replicas:
                if hosted.role is not None:
                    key = (broker.broker_id, broker.incarnation, partition)
                    yield from self._see(key, hosted.role.leader_epoch)

    def _see(self, key: tuple[int, int, str], epoch: int) -> Iterator[Violation]:
        before = self._seen.get(key, -1)
        if epoch < before:
            yield key[0], key[2], f"epoch fell from {before} to {epoch}"
        self._seen[key] = epoch


class HighWatermarkOnEveryIsrMember(Invariant):
    """N4, W-4: every member of the controller's ISR that runs has all that the newest leader calls committed."""

    name = "high-watermark-on-every-isr-member"

    def look(self, now: Snapshot) -> Iterator[Violation]:
        ends = {
            (broker.broker_id, partition): hosted for broker in now.brokers for partition, hosted in broker.replicas
        }
        for topic in now.image.topics.values():
            for number, registration in topic.partitions.items():
                partition = f"{topic.name}-{number}"
                leader = ends.get((registration.leader, partition))
                if leader is None or leader.leader is None:
                    continue
                if leader.leader.leader_epoch != registration.leader_epoch:
                    continue
                high_watermark = leader.state.high_watermark
                for member in registration.isr:
                    replica = ends.get((member, partition))
                    if replica is not None and replica.state.log_end_offset < high_watermark:
                        sentence = (
                            f"in the ISR {list(registration.isr)} with log end offset {replica.state.log_end_offset}, "
                            f"and leader {registration.leader} has high watermark {high_watermark}"
                        )
                        yield member, partition, sentence


class IsrWithinReplicas(Invariant):
    """W-3, W-6: leader in the ISR, ISR within the replicas, and nobody fenced in it but a last one without a leader."""

    name = "isr-within-replicas"

    def __init__(self) -> None:
        self._offset = -1

    def look(self, now: Snapshot) -> Iterator[Violation]:
        image = now.image
        if image.offset == self._offset:
            return
        self._offset = image.offset
        for topic in image.topics.values():
            for number, registration in topic.partitions.items():
                isr, shown = registration.isr, f"{topic.name}-{number}"
                if not isr or any(member not in registration.replicas for member in isr) or len(set(isr)) != len(isr):
                    yield 0, shown, f"ISR {list(isr)} of replicas {list(registration.replicas)}"
                if registration.leader >= 0 and registration.leader not in isr:
                    yield 0, shown, f"leader {registration.leader} is not in the ISR {list(isr)}"
                fenced = [member for member in isr if member in image.brokers and image.brokers[member].fenced]
                if fenced and (len(isr) > 1 or registration.leader >= 0):
                    yield 0, shown, f"fenced brokers {fenced} in the ISR {list(isr)}, leader {registration.leader}"


def all_invariants() -> list[Invariant]:
    return [
        CommittedPrefixImmutable(),
        MetadataCommittedEqual(),
        HighWatermarkNeverFalls(),
        OneLeaderPerEpoch(),
        EpochsNeverFall(),
        HighWatermarkOnEveryIsrMember(),
        IsrWithinReplicas(),
    ]
