"""Invariants of what the logs hold: equal where they must be equal, and nothing committed ever changes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from odradek_broker.core.partition.producers import ProducerStates

from odradek_chaos.worlds.simulated.checks.history import LogView
from odradek_chaos.worlds.simulated.checks.invariant import Invariant, ReplicaChange, Violations
from odradek_chaos.worlds.simulated.checks.state import ClusterState, QuorumNodeState, ReplicaState
from odradek_chaos.worlds.simulated.cluster.timeline import TimelineEvent


class LogMatching(Invariant):
    """Offset and leader epoch determine the bytes, on all replicas, above the high watermark as well."""

    name = "log-matching"
    rules = "N6, I-2, I-3, S-8, G4"
    looks_at = ReplicaChange.LOG_END

    def on_event(self, now: ClusterState, moment: TimelineEvent) -> Violations:
        if moment.event in ("truncated", "log_restarted") and moment.partition:
            view = now.history(moment.partition).view(moment.broker_id)
            view.cut(int(moment.facts["to"]) if moment.event == "truncated" else -1)
        yield from ()

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        history = now.history(seen.partition)
        if before is None:
            history.begin(seen.broker_id, now.disks[seen.broker_id])
        problem = history.append(seen.broker_id, now.disks[seen.broker_id], seen.log_end_offset)
        if problem is not None:
            yield seen.broker_id, seen.partition, problem


class CommittedPrefixImmutable(Invariant):
    """What was once below a high watermark stays on its replicas, at its offset, with its epoch and bytes."""

    name = "committed-prefix-immutable"
    rules = "N3, W-1, S-3"
    looks_at = ReplicaChange.HIGH_WATERMARK

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        problem = now.history(seen.partition).commit(seen.broker_id, seen.high_watermark)
        if problem is not None:
            yield seen.broker_id, seen.partition, problem


class ProducerTableEqualsLog(Invariant):
    """A replica's producer state is what a replay of its log gives."""

    name = "producer-table-equals-log"
    rules = "N13, R-243, R-247"
    looks_at = ReplicaChange.LOG_END

    def on_replica(self, now: ClusterState, seen: ReplicaState, before: ReplicaState | None) -> Violations:
        view = now.history(seen.partition).view(seen.broker_id)
        if seen.producers is None or max(view.end_offset, 0) != seen.log_end_offset:
            return
        for producer_id in _producers_of(view, seen.producers, before, seen.log_end_offset):
            replayed = view.producers.get(producer_id)
            entry = seen.producers.get(producer_id)
            remembered = None if entry is None else (entry.producer_epoch, entry.last_sequence)
            if remembered != replayed:
                sentence = (
                    f"producer {producer_id} is remembered with epoch and sequence {remembered}, its log up to "
                    f"{seen.log_end_offset} says {replayed}"
                )
                yield seen.broker_id, seen.partition, sentence


def _producers_of(view: LogView, states: ProducerStates, before: ReplicaState | None, end: int) -> Iterable[int]:
    """Those whose batches came since the look before; when a log was opened or cut, all in it and all remembered.

    What a log that begins later than at 0 has lost in front may be remembered (R-243).
    """
    if before is not None and before.log_end_offset < end:
        new = takewhile(lambda batch: batch.base_offset >= before.log_end_offset, reversed(view.batches))
        return dict.fromkeys(batch.producer_id for batch in new if batch.producer_id >= 0)
    found = dict.fromkeys(view.producers)
    if not view.batches or view.batches[0].base_offset == 0:
        found.update(dict.fromkeys(entry.producer_id for entry in states.entries()))
    return found


class MetadataLogMatching(Invariant):
    """The same for the metadata log: equal offset and quorum epoch mean equal bytes; committed records stay.

    A snapshot from the leader replaces a log: the node knows its new beginning a moment before the disk does. That it
    does is seen by where the log starts, not by the event, which a full disk does not take.
    """

    name = "metadata-committed-equal"
    rules = "N11, M-5, I-2"

    def __init__(self) -> None:
        self._installing: dict[int, int] = {}  # broker to the end of the snapshot that replaces its log

    def on_quorum(self, now: ClusterState, seen: QuorumNodeState, before: QuorumNodeState | None) -> Violations:
        partition = "__cluster_metadata-0"
        history = now.history(partition)
        if before is None:
            self._installing.pop(seen.broker_id, None)
            history.begin(seen.broker_id, now.disks[seen.broker_id])
        elif seen.log_start_offset > before.high_watermark:
            self._installing[seen.broker_id] = seen.log_start_offset  # own snapshots lie below the high watermark
        if seen.broker_id in self._installing:
            begins = history.view(seen.broker_id).first_base(now.disks[seen.broker_id])
            if begins < self._installing[seen.broker_id]:
                return  # the old log still lies there
            del self._installing[seen.broker_id]
            history.forget(seen.broker_id)  # the log goes on where the snapshot ends
        problem = None
        if before is None or before[2:] != seen[2:]:
            problem = history.append(seen.broker_id, now.disks[seen.broker_id], seen.log_end_offset, ahead=True)
        if problem is None:
            problem = history.commit(seen.broker_id, seen.high_watermark)
        if problem is not None:
            yield seen.broker_id, partition, problem
