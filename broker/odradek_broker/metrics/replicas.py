"""Replicas on this broker: how many, in what state, and each one's offsets.

Kafka's names and meanings (ReplicaManager, Log, FetcherLagMetrics), and the offsets of each replica under `odradek_`.
What only a leader knows is there where the leader is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric

from odradek_broker.metrics.observed import ObservedBroker
from odradek_broker.metrics.samples import Labels, counter, gauge, gauges, sliced
from odradek_broker.runtime.replicas.replica import Replica

Value = Callable[[Replica], float]
NO_EPOCH = -1
MANAGER = "kafka_server_replicamanager_"


def replica_manager(broker: ObservedBroker) -> Iterator[Metric]:
    """The broker's totals."""
    replica = list(broker.replicas.replicas.values())
    broken = len(broker.replicas.broken)
    leaders = [each.leader for each in replica if each.offline is None and each.leader is not None]
    under_replicated = sum(len(leader.isr) < leader.replicas.assigned for leader in leaders)
    at_min_isr = sum(len(leader.isr) == leader.effective_min_isr for leader in leaders)
    offline = sum(each.offline is not None for each in replica)
    for name, text, value in (
        ("partitioncount", "Replicas on this broker.", len(replica) + broken),
        ("leadercount", "Partitions that this broker leads.", len(leaders)),
        ("offlinereplicacount", "Replicas whose log cannot be used.", offline + broken),
        ("underreplicatedpartitions", "Partitions led here with replicas out of sync.", under_replicated),
        ("underminisrpartitioncount", "Partitions led here that refuse acks=all: too few in-sync replicas.",
         sum(leader.under_min_isr for leader in leaders)),
        ("atminisrpartitioncount", "Partitions led here that would refuse acks=all with one replica less.", at_min_isr),
    ):  # fmt: skip
        yield gauge(MANAGER + name, text, value)
    text = "Leaders that have not answered this broker for about broker.session.timeout.ms."
    yield gauge("odradek_unreachable_leaders", text, len(broker.replicas.probes.unreachable))
    text = "1 while the disk of this broker's logs is full: they can only be read (R-148)."
    yield gauge("odradek_disk_full", text, int(not broker.replicas.has_room))
    counts = broker.replicas.counters
    yield counter(
        f"{MANAGER}isrshrinks_total", "Members that left an ISR, counted by the leader afterwards.", counts.isr_shrinks
    )
    yield counter(
        f"{MANAGER}isrexpands_total",
        "Members that joined an ISR, counted by the leader afterwards.",
        counts.isr_expands,
    )
    text = "Changes of an ISR that the controller refused."
    yield counter(f"{MANAGER}failedisrupdates_total", text, counts.failed_isr_updates)


def quotas(broker: ObservedBroker) -> Iterator[Metric]:
    """Throttled replication (KIP-73)."""
    now_ms = broker.replicas.clock.now_ms()
    for side, quota in (("leader", broker.replicas.leader_quota), ("follower", broker.replicas.follower_quota)):
        text = f"Bytes a second of the replicas in `{side}.replication.throttled.replicas`, in sync or not."
        yield gauge(f"kafka_server_{side}replication_byte_rate", text, quota.rate(now_ms))


def purgatories(broker: ObservedBroker) -> Iterator[Metric]:
    """Requests that wait for something."""
    replica = list(broker.replicas.replicas.values())
    rows: list[tuple[Labels, float]] = [
        ({"delayedoperation": "Produce"}, sum(each.waiting_produces for each in replica)),
        ({"delayedoperation": "Fetch"}, sum(each.waiting_fetches for each in replica)),
    ]
    text = "Requests that wait: acks=all for the high watermark, fetches of a partition for more to read."
    yield gauges("kafka_server_delayedoperationpurgatory_purgatorysize", text, rows)


def logs(broker: ObservedBroker) -> Iterator[Metric]:
    """Each log by itself."""
    for name, text, value in (
        ("kafka_log_log_logendoffset", "The offset that the next record will get.", _log_end_offset),
        ("kafka_log_log_logstartoffset", "The first offset that is kept.", lambda each: each.state.log_start_offset),
        ("kafka_log_log_size", "Bytes of the log's segments.", lambda each: each.log.size_bytes),
        ("kafka_log_log_numlogsegments", "Segments of the log.", lambda each: len(each.log.segments)),
    ):
        yield from _each(name, text, broker, value)


def replicas(broker: ObservedBroker) -> Iterator[Metric]:
    """Each replica by itself; `replica` is the id of the broker that it lies on."""
    own = str(broker.settings.node_id)
    for name, text, value in (
        ("odradek_replica_leo", "Log end offset of the replica on this broker.", _log_end_offset),
        ("odradek_replica_hw", "High watermark as the replica on this broker knows it.",
         lambda each: each.state.high_watermark),
        ("odradek_replica_leader_epoch", "Leader epoch in which the replica on this broker leads or follows.",
         _leader_epoch),
    ):  # fmt: skip
        yield from _each(name, text, broker, value, replica=own)
    text = "Log end offset of a follower as its leader knows it; -1 before its first fetch."
    yield from _rows("odradek_remote_replica_leo", text, _remote_ends(broker))
    text = "Damage in this replica: batches that failed their check, and lost records."
    yield from _each("odradek_replica_damaged_batches", text, broker, lambda each: len(each.trouble.damage))


def in_sync(broker: ObservedBroker) -> Iterator[Metric]:
    """What leaders know of their followers, and followers of their lag."""
    text = "In-sync replicas of a partition led here."
    yield from _rows(
        "odradek_isr_size", text, _of_leaders(broker, lambda each: len(each.leader.isr) if each.leader else 0)
    )
    text = "Assigned replicas of a partition led here."
    yield from _rows("odradek_assigned_replicas", text, _of_leaders(broker, _assigned))
    text = "Offsets between this follower's log end and the last high watermark from its leader."
    yield from _rows("kafka_server_fetcherlagmetrics_consumerlag", text, _lags(broker))


def _log_end_offset(replica: Replica) -> float:
    return replica.state.log_end_offset


def _leader_epoch(replica: Replica) -> float:
    return NO_EPOCH if replica.role is None else replica.role.leader_epoch


def _assigned(replica: Replica) -> float:
    return replica.leader.replicas.assigned if replica.leader is not None else 0


def _labels(replica: Replica) -> dict[str, str]:
    tp = replica.topic_partition
    return {"topic": tp.topic, "partition": str(tp.partition)}


def _each(name: str, text: str, broker: ObservedBroker, value: Value, **more: str) -> Iterator[Metric]:
    replica = list(broker.replicas.replicas.values())
    return _rows(name, text, (({**_labels(each), **more}, value(each)) for each in replica))


def _of_leaders(broker: ObservedBroker, value: Value) -> Iterator[tuple[Labels, float]]:
    for replica in list(broker.replicas.replicas.values()):
        if replica.leader is not None and replica.offline is None:
            yield _labels(replica), value(replica)


def _remote_ends(broker: ObservedBroker) -> Iterator[tuple[Labels, float]]:
    for replica in list(broker.replicas.replicas.values()):
        if replica.leader is not None and replica.offline is None:
            for remote in replica.leader.replicas.remotes:
                yield {**_labels(replica), "replica": str(remote.broker_id)}, remote.log_end_offset


def _lags(broker: ObservedBroker) -> Iterator[tuple[Labels, float]]:
    for replica in list(broker.replicas.replicas.values()):
        if replica.follower is not None and replica.offline is None:
            yield _labels(replica), max(0, replica.leader_high_watermark - replica.state.log_end_offset)


def _rows(name: str, text: str, rows: Iterable[tuple[Labels, float]]) -> Iterator[Metric]:
    return (gauges(name, text, portion) for portion in sliced(rows))
