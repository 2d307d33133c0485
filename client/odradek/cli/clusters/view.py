"""A cluster's status as text: who leads, who is in sync, and where each replica's log ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from odradek_proto.words import noun

from odradek.cli.clusters.status import ClusterStatus, PartitionStatus
from odradek.cli.terminal.screen import NOTHING, table

LEGEND = """\
LEO/HW of each broker's replica when its leader answered; +n: records behind, and for how long not caught up;
*: leads; (): not in sync; ~: has not fetched from this leader yet; ?: does not answer, its LEO is the leader's guess
WAITS: produces and fetches in the leader's purgatory"""
LEGEND_OF_KNOWN = "; leader knows: the LEO of each follower's last fetch"
LEADER_KNOWS = "leader knows"
SHOWN_BEHIND_MS = 1_000
MOST_INTERNAL = 3  # partitions of internal topics that have rows of their own if they are not well
KAFKA_LISTENERS = ("KAFKA", "PLAINTEXT")  # how listeners for Kafka's clients are called, as a rule


def status_text(status: ClusterStatus, *, every_partition: bool = False) -> str:
    """The whole status: controller, brokers, and per partition LEO and HW of every replica.

    Partitions of internal topics have one line together, unless every partition is wanted; a few that are not well are
    shown beside it.
    """
    blocks = [_heading(status), _brokers(status)]
    internal = [] if every_partition else [each for each in status.partitions if each.internal]
    folded = [each for each in internal if each.fully_replicated]
    if len(internal) - len(folded) > MOST_INTERNAL:
        folded = internal
    shown = [each for each in status.partitions if each not in folded]
    if shown:
        blocks.append(rows := partitions_table(replace(status, partitions=shown)))
        blocks.append(LEGEND + (LEGEND_OF_KNOWN if LEADER_KNOWS in rows else ""))
    if all(each.internal for each in status.partitions):
        blocks.append("no topics yet: odradek topic create NAME")
    for topic in dict.fromkeys(each.topic for each in folded):
        blocks.append(f"{topic}: {_together(topic, folded)}; `odradek cluster status {topic}` shows them")
    blocks += _imbalance(status)
    return "\n\n".join(blocks)


def _together(topic: str, folded: Sequence[PartitionStatus]) -> str:
    of_topic = [each for each in folded if each.topic == topic]
    count, well = len(of_topic), sum(each.fully_replicated for each in of_topic)
    if count == well:
        return f"{count} {noun(count, 'partition')} fully replicated"
    leaderless = sum(each.leaderless for each in of_topic)
    without = f", {leaderless} without a leader" if leaderless else ""
    return f"{count} partitions, {count - well} not fully replicated{without}"


def _imbalance(status: ClusterStatus) -> list[str]:
    """In a cluster that is well otherwise, how many partitions another broker leads than is meant to."""
    if not status.decides or not all(each.fully_replicated for each in status.partitions):
        return []
    others = sum(each.leader_id != each.assigned[0] for each in status.partitions if each.assigned)
    if not others:
        return []
    what = f"{others} of {len(status.partitions)} {noun(len(status.partitions), 'partition')}"
    return [f"{what} not led by the first replica, as after a restart: `odradek topic elect` gives leadership back"]


def _heading(status: ClusterStatus) -> str:
    controller = f"controller {status.controller_id}" if status.controller_id >= 0 else "no controller"
    epoch = f", quorum epoch {status.quorum.leader_epoch}" if status.quorum is not None else ""
    trouble = [partition for partition in status.partitions if not partition.fully_replicated]
    of_all = f"of {len(status.partitions)} {noun(len(status.partitions), 'partition')}"
    clauses = []
    if status.full:
        brokers = f"broker{'s' if len(status.full) > 1 else ''} {', '.join(map(str, status.full))}"
        clauses.append(f"the disk of {brokers} is full: `odradek doctor` says more")
    if trouble:
        clauses.append(f"{len(trouble)} {of_all} not fully replicated")
    elif any(broker.fenced for broker in status.brokers):
        clauses.append("brokers are missing")
    silent = [each.broker_id for each in status.brokers if each.broker_id in status.unreachable and not each.fenced]
    if silent:
        whom = f"broker {silent[0]} does" if len(silent) == 1 else f"brokers {', '.join(map(str, silent))} do"
        clauses.append(f"{whom} not answer")
    unusable = sum(each.leader_id in status.unreachable for each in status.partitions)
    if unusable:
        clauses.append(f"the leaders of {unusable} {of_all} are silent")
    held_up = sum(_waits_for_followers(each) for each in status.partitions)
    if held_up:
        waits = f"{noun(held_up, 'partition')} with acks=all {noun(held_up, 'waits', 'wait')}"
        clauses.append(f"{held_up} {waits} for in-sync followers that are behind")
    if status.replicas_error:
        clauses.append(f"the replicas are not shown: {status.replicas_error}")
    if status.quorum is None:
        clauses.append(status.quorum_error or "the quorum does not answer")
    return f"cluster {status.cluster_id or NOTHING}: {controller}{epoch}; {'; '.join(clauses) or 'healthy'}"


def _waits_for_followers(partition: PartitionStatus) -> bool:
    """Whether produces wait in the purgatory for a member of the ISR that has not caught up for a while."""
    if partition.leader is None or not partition.leader.waiting_produces:
        return False
    behind = (partition.not_caught_up_ms(broker_id) for broker_id in partition.isr if broker_id != partition.leader_id)
    return any(ms is not None and ms >= SHOWN_BEHIND_MS for ms in behind)


def _brokers(status: ClusterStatus) -> str:
    rows = []
    for broker in status.brokers:
        state = "fenced" if broker.fenced else "up"
        if broker.broker_id in status.unreachable:
            why = status.silent.get(broker.broker_id, "does not answer")
            state = f"{why}, {'fenced' if broker.fenced else 'not fenced yet'}"
        elif broker.broker_id in status.full:
            state += ", disk full"
        roles = "controller" if broker.broker_id == status.controller_id else ""
        address = broker.endpoints.get(status.listener) or next(iter(broker.endpoints.values()), "")
        kafka = [each for name, each in sorted(broker.endpoints.items()) if name.startswith(KAFKA_LISTENERS)]
        rows.append((broker.broker_id, address, kafka, state, broker.broker_epoch, roles))
    return table(("BROKER", "ADDRESS", "KAFKA", "STATE", "EPOCH", "ROLE"), rows)


def partitions_table(status: ClusterStatus) -> str:
    """A row per partition, a column per broker; below it what the leader knows of the others, where it differs."""
    broker_ids = [broker.broker_id for broker in status.brokers]
    headings = ["PARTITION", "LEADER", "EPOCH", "ISR", "WAITS", *(f"BROKER {broker_id}" for broker_id in broker_ids)]
    rows: list[list[object]] = []
    for each in status.partitions:
        leader = each.leader
        waits = f"{leader.waiting_produces}p {leader.waiting_fetches}f" if leader is not None else ""
        cells = [replica_cell(each, broker_id) for broker_id in broker_ids]
        who = "none" if each.leaderless else str(each.leader_id)
        rows.append([each.name, who, str(each.leader_epoch), each.isr, waits, *cells])
        known = [known_cell(each, broker_id) for broker_id in broker_ids]
        if any(known):
            rows.append(["", "", "", "", LEADER_KNOWS, *(cell or " " for cell in known)])
    return table(headings, rows)


def known_cell(partition: PartitionStatus, broker_id: int) -> str:
    """The log end offset that the leader knows of a follower, where the follower says another one."""
    replica, known = partition.replicas.get(broker_id), partition.known.get(broker_id)
    if replica is None or known is None or known.log_end_offset in (-1, replica.log_end_offset):
        return ""
    return str(known.log_end_offset)


def replica_cell(partition: PartitionStatus, broker_id: int) -> str:
    """`1040/1038 +2 12s`: where a replica's log and its high watermark end, how far it is behind and for how long."""
    if broker_id not in partition.assigned:
        return ""
    replica, known = partition.replicas.get(broker_id), partition.known.get(broker_id)
    if replica is None and (known is None or known.log_end_offset < 0):
        return "?"
    if replica is not None and replica.role == "offline":
        return "offline"
    text = f"{replica.log_end_offset}/{replica.high_watermark}" if replica is not None else ""
    if replica is None and known is not None:
        text = f"{known.log_end_offset}/?"
    lag, behind_ms = partition.lag(broker_id), partition.not_caught_up_ms(broker_id)
    text += f" +{lag}" if lag else ""
    text += f" {behind_ms / 1000:.0f}s" if lag and behind_ms is not None and behind_ms >= SHOWN_BEHIND_MS else ""
    if broker_id == partition.leader_id:
        text += " *"
    elif partition.known and not partition.follows(broker_id):
        text += " ~"
    return text if broker_id in partition.isr else f"({text})"
