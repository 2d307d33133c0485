"""A cluster's status as text: who leads, who is in sync, and where each replica's log ends."""

from __future__ import annotations

from odradek.cli.clusters.status import ClusterStatus, PartitionStatus
from odradek.cli.terminal.screen import NOTHING, table

KAFKA_LISTENERS = ("KAFKA", "PLAINTEXT")  # how listeners for Kafka's clients are called, as a rule


def status_text(status: ClusterStatus) -> str:
    """The whole status: controller, brokers, and per partition LEO and HW of every replica."""
    blocks = [_heading(status), _brokers(status)]
    if status.partitions:
        blocks.append(partitions_table(status))
        blocks.append("LEO/HW of each broker's replica; +n: records behind the leader; *: leads; (): not in sync")
    else:
        blocks.append("no topics yet: odradek topic create NAME")
    return "\n\n".join(blocks)


def _heading(status: ClusterStatus) -> str:
    controller = f"controller {status.controller_id}" if status.controller_id >= 0 else "no controller"
    epoch = f", quorum epoch {status.quorum.leader_epoch}" if status.quorum is not None else ""
    trouble = [partition for partition in status.partitions if partition.leaderless or partition.under_replicated]
    health = f"{len(trouble)} of {len(status.partitions)} partitions not fully replicated" if trouble else "healthy"
    if any(broker.fenced for broker in status.brokers) and not trouble:
        health = "brokers are missing"
    silent = [each.broker_id for each in status.brokers if each.broker_id in status.unreachable and not each.fenced]
    if silent:
        whom = f"broker {silent[0]} does" if len(silent) == 1 else f"brokers {', '.join(map(str, silent))} do"
        health = f"{'' if health == 'healthy' else health + '; '}{whom} not answer"
    if status.quorum is None:
        health = f"{health}; {status.quorum_error or 'the quorum does not answer'}"
    return f"cluster {status.cluster_id or NOTHING}: {controller}{epoch}; {health}"


def _brokers(status: ClusterStatus) -> str:
    rows = []
    for broker in status.brokers:
        state = "fenced" if broker.fenced else "up"
        if broker.broker_id in status.unreachable:
            state += ", does not answer"
        roles = "controller" if broker.broker_id == status.controller_id else ""
        address = broker.endpoints.get(status.listener) or next(iter(broker.endpoints.values()), "")
        kafka = [each for name, each in sorted(broker.endpoints.items()) if name.startswith(KAFKA_LISTENERS)]
        rows.append((broker.broker_id, address, kafka, state, broker.broker_epoch, roles))
    return table(("BROKER", "ADDRESS", "KAFKA", "STATE", "EPOCH", "ROLE"), rows)


def partitions_table(status: ClusterStatus) -> str:
    """A row per partition, a column per broker."""
    broker_ids = [broker.broker_id for broker in status.brokers]
    headings = ["PARTITION", "LEADER", "EPOCH", "ISR", *(f"BROKER {broker_id}" for broker_id in broker_ids)]
    rows = [
        [
            partition.name,
            "none" if partition.leaderless else str(partition.leader_id),
            partition.leader_epoch,
            partition.isr,
            *(replica_cell(partition, broker_id) for broker_id in broker_ids),
        ]
        for partition in status.partitions
    ]
    return table(headings, rows)


def replica_cell(partition: PartitionStatus, broker_id: int) -> str:
    """`1042/1040 +2`: where a replica's log and its high watermark end, and how far it is behind."""
    if broker_id not in partition.assigned:
        return ""
    replica = partition.replicas.get(broker_id)
    if replica is None:
        return "?"
    if replica.role == "offline":
        return "offline"
    lag = partition.lag(broker_id)
    text = f"{replica.log_end_offset}/{replica.high_watermark}" + (f" +{lag}" if lag else "")
    if broker_id == partition.leader_id:
        text += " *"
    return text if broker_id in partition.isr else f"({text})"
