"""What must hold at every moment of a run, each invariant a class with a name.

They are looked at every few virtual milliseconds, before and after each fault, and once more at the end. Rules of this
module: an invariant reads and changes nothing; it names the broker, the partition and the numbers; one that was broken
is reported once per broker and partition, since it usually stays broken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from odradek_broker.core.partition.leader import LeaderPartition
from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.cluster import LOG_DIRECTORY, SimCluster
from odradek_chaos.worlds.simulated.committed import CommittedLog
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


class Invariant(Protocol):
    name: ClassVar[str]

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        """The brokers wrote down these events."""
        ...

    def look(self, cluster: SimCluster) -> Iterator[Violation]: ...


class CommittedPrefixImmutable:
    """N3: what was once below a high watermark stays, at its offset, with its epoch and bytes, on whoever has it there.

    The log is compared anew after a truncation and after a restart.
    """

    name = "committed-prefix-immutable"

    def __init__(self) -> None:
        self._logs: dict[str, CommittedLog] = {}
        self._incarnations: dict[int, int] = {}

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        for moment in moments:
            if moment.event in ("truncated", "log_restarted") and moment.partition in self._logs:
                self._logs[moment.partition].forget(moment.broker_id)
        yield from ()

    def look(self, cluster: SimCluster) -> Iterator[Violation]:
        for broker_id, machine in cluster.machines.items():
            if self._incarnations.get(broker_id) != machine.incarnation:
                self._incarnations[broker_id] = machine.incarnation
                for log in self._logs.values():
                    log.forget(broker_id)
            for tp, hosted in cluster.hosted(broker_id).items():
                partition = str(tp)
                known = self._logs.get(partition)
                if known is None:
                    known = self._logs[partition] = CommittedLog(f"{LOG_DIRECTORY}/{partition}")
                problem = known.compare(broker_id, machine.disk, hosted.state.high_watermark)
                if problem is not None:
                    yield broker_id, partition, problem

    def end_offset(self, partition: str) -> int:
        """The highest high watermark that any replica was seen to have."""
        log = self._logs.get(partition)
        return 0 if log is None else log.end_offset


class MetadataCommittedEqual:
    """N11, M-5: the committed metadata records are the same on all nodes."""

    name = "metadata-committed-equal"

    def __init__(self) -> None:
        self._log = CommittedLog(METADATA_DIRECTORY)
        self._incarnations: dict[int, int] = {}

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        yield from ()

    def look(self, cluster: SimCluster) -> Iterator[Violation]:
        for broker_id, node in cluster.running():
            machine = cluster.machines[broker_id]
            if self._incarnations.get(broker_id) != machine.incarnation:
                self._incarnations[broker_id] = machine.incarnation
                self._log.forget(broker_id)
            if node.quorum is not None:
                problem = self._log.compare(broker_id, machine.disk, node.quorum.high_watermark)
                if problem is not None:
                    yield broker_id, METADATA, problem


class HighWatermarkNeverFalls:
    """N5, S-6: the high watermark of a leader never falls within its epoch, and never passes its log end offset."""

    name = "high-watermark-never-falls"

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, int, TopicPartition], int] = {}

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        yield from ()

    def look(self, cluster: SimCluster) -> Iterator[Violation]:
        for broker_id, machine in cluster.machines.items():
            for tp, hosted in cluster.hosted(broker_id).items():
                state, role = hosted.state, hosted.role
                if state.high_watermark > state.log_end_offset:
                    numbers = f"high watermark {state.high_watermark} above log end offset {state.log_end_offset}"
                    yield broker_id, str(tp), numbers
                if not isinstance(role, LeaderPartition):
                    continue
                key = (broker_id, machine.incarnation, role.leader_epoch, tp)
                before = self._seen.get(key, -1)
                if state.high_watermark < before:
                    fell = f"from {before} to {state.high_watermark} in leader epoch {role.leader_epoch}"
                    yield broker_id, str(tp), fell
                self._seen[key] = state.high_watermark


class OneLeaderPerEpoch:
    """N1, S-8: at most one broker leads a partition in a leader epoch, and one node the quorum in a quorum epoch."""

    name = "one-leader-per-epoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[str, int], int] = {}

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        for moment in moments:
            if moment.event == "leader_elected" and moment.partition:
                yield from self._lead(moment.partition, int(moment.facts["leader_epoch"]), moment.broker_id)

    def look(self, cluster: SimCluster) -> Iterator[Violation]:
        for broker_id, node in cluster.running():
            if node.quorum is not None and node.quorum.is_leader:
                yield from self._lead(METADATA, node.quorum.epoch, broker_id)

    def _lead(self, partition: str, epoch: int, broker_id: int) -> Iterator[Violation]:
        other = self._leaders.setdefault((partition, epoch), broker_id)
        if other != broker_id:
            yield broker_id, partition, f"leads in epoch {epoch}, in which broker {other} led"


class EpochsNeverFall:
    """N9, M-1: leader epochs never fall in a node's life, the quorum epoch on its disk never, whatever happens.

    In memory the quorum epoch may be ahead of the disk: nothing is said in an epoch before it is written.
    """

    name = "epochs-never-fall"

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, str], int] = {}
        self._states: dict[int, bytearray] = {}

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        yield from ()

    def look(self, cluster: SimCluster) -> Iterator[Violation]:
        for broker_id, machine in cluster.machines.items():
            inode = machine.disk.find(QUORUM_STATE)
            if isinstance(inode, Inode) and inode.data is not self._states.get(broker_id) and inode.data:
                self._states[broker_id] = inode.data  # the file is replaced whole, never written twice
                yield from self._see((broker_id, 0, METADATA), int(json.loads(inode.data)["leaderEpoch"]))
        for broker_id, node in cluster.running():
            incarnation = cluster.machines[broker_id].incarnation
            if node.quorum is not None and node.quorum.epoch:  # 0: it does not take part yet, or has left
                yield from self._see((broker_id, incarnation, METADATA), node.quorum.epoch)
            for tp, hosted in cluster.hosted(broker_id).items():
                if hosted.role is not None:
                    yield from self._see((broker_id, incarnation, str(tp)), hosted.role.leader_epoch)

    def _see(self, key: tuple[int, int, str], epoch: int) -> Iterator[Violation]:
        before = self._seen.get(key, -1)
        if epoch < before:
            yield key[0], key[2], f"epoch fell from {before} to {epoch}"
        self._seen[key] = epoch


class HighWatermarkOnEveryIsrMember:
    """N4, W-4: every member of the controller's ISR that runs has all that the newest leader calls committed."""

    name = "high-watermark-on-every-isr-member"

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        yield from ()

    def look(self, cluster: SimCluster) -> Iterator[Violation]:
        image = cluster.newest_image()
        for topic in image.topics.values():
            for number, registration in topic.partitions.items():
                tp = TopicPartition(topic.name, number)
                leader = cluster.hosted(registration.leader).get(tp) if registration.leader > 0 else None
                if leader is None or leader.leader is None:
                    continue
                if leader.leader.leader_epoch != registration.leader_epoch:
                    continue
                high_watermark = leader.state.high_watermark
                for member in registration.isr:
                    replica = cluster.hosted(member).get(tp)
                    if replica is not None and replica.state.log_end_offset < high_watermark:
                        sentence = (
                            f"in the ISR {list(registration.isr)} with log end offset {replica.state.log_end_offset}, "
                            f"and leader {registration.leader} has high watermark {high_watermark}"
                        )
                        yield member, str(tp), sentence


class IsrWithinReplicas:
    """W-3, W-6: leader in the ISR, ISR within the replicas, and nobody fenced in it but a last one without a leader."""

    name = "isr-within-replicas"

    def __init__(self) -> None:
        self._offset = -1

    def on_events(self, moments: Sequence[Moment]) -> Iterator[Violation]:
        yield from ()

    def look(self, cluster: SimCluster) -> Iterator[Violation]:
        image = cluster.newest_image()
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
