"""What the cluster says of itself: its quorum, its partitions, its topics' settings.

Asked by single calls with deadlines of their own, so that a cluster without a majority is a finding and not a wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Network
from odradek_proto.v1 import admin_messages
from odradek_proto.v1 import broker_pb2 as pb
from odradek_proto.words import noun

from odradek.cli.checkup import replicas
from odradek.cli.checkup.finding import CheckupFinding, note, problem
from odradek.cli.terminal.screen import first_of

ADMIN = "/odradek.v1.Admin/"
SILENT_VOTER_MS = 5_000  # voters fetch twice a second
MAX_TOPICS_ASKED = 200  # for their settings: a call each
MIN_ISR = "min.insync.replicas"
NO_EFFECT = frozenset({"compression.gzip.level", "compression.lz4.level", "compression.zstd.level"})
OF_COMPACTION = frozenset(
    {"delete.retention.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio", "min.compaction.lag.ms"}
)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """`quorum` is None when no controller answered; `configs` holds the entries of the topics that were asked for.

    `unusable` names the brokers that run and cannot use their replica of a partition, `damaged` those whose copy is,
    and `full` those whose disk has no room.
    """

    metadata: pb.MetadataResponse
    quorum: admin_messages.DescribeQuorumResponse | None
    configs: Mapping[str, Sequence[admin_messages.ConfigEntry]] = field(default_factory=dict)
    unusable: replicas.Unusable = field(default_factory=dict)
    damaged: replicas.Damaged = field(default_factory=dict)
    full: replicas.Full = field(default_factory=dict)


async def ask_cluster(network: Network, address: str, metadata: pb.MetadataResponse, timeout_ms: float) -> ClusterFacts:
    """Ask one broker that answers; it passes the questions on to the controller. Takes at most twice the timeout.

    Every broker is asked for its replicas meanwhile.
    """
    quorum, (unusable, (damaged, full)) = await asyncio.gather(
        _describe_quorum(network, address, timeout_ms), _ask_for_replicas(network, metadata, timeout_ms)
    )
    if quorum is None:
        return ClusterFacts(metadata, None, unusable=unusable, damaged=damaged, full=full)
    names = [topic.topic for topic in metadata.topics][:MAX_TOPICS_ASKED]
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            found = await asyncio.gather(*(_describe_configs(network, address, name, timeout_ms) for name in names))
    except TimeoutError:
        found = []
    return ClusterFacts(metadata, quorum, dict(zip(names, found, strict=False)), unusable, damaged, full)


async def _ask_for_replicas(
    network: Network, metadata: pb.MetadataResponse, timeout_ms: float
) -> tuple[replicas.Unusable, tuple[replicas.Damaged, replicas.Full]]:
    addresses = {
        broker.broker_id: broker.endpoints.get(metadata.listener) or next(iter(broker.endpoints.values()), "")
        for broker in metadata.brokers
        if not broker.fenced
    }
    assigned = {
        TopicPartition(topic.topic, each.partition): [*each.replicas]
        for topic in metadata.topics
        for each in topic.partitions
    }
    return await asyncio.gather(
        replicas.ask_for_unusable(network, addresses, assigned, timeout_ms),
        replicas.ask_for_trouble(network, addresses, timeout_ms),
    )


async def _describe_quorum(
    network: Network, address: str, timeout_ms: float
) -> admin_messages.DescribeQuorumResponse | None:
    kind = admin_messages.DescribeQuorumResponse
    answer = await replicas.answer_of(network, address, ADMIN + "DescribeQuorum", b"", kind, timeout_ms)
    return None if answer is None or answer.error_code else answer


async def _describe_configs(
    network: Network, address: str, topic: str, timeout_ms: float
) -> Sequence[admin_messages.ConfigEntry]:
    asked = admin_messages.DescribeConfigsRequest(resource_type="topic", resource_name=topic).SerializeToString()
    kind = admin_messages.DescribeConfigsResponse
    answer = await replicas.answer_of(network, address, ADMIN + "DescribeConfigs", asked, kind, timeout_ms)
    return () if answer is None else answer.entries


def judge(facts: ClusterFacts) -> list[CheckupFinding]:
    """Findings about full disks and the quorum, then topic by topic."""
    findings = [  # first, since all the rest may follow from it
        problem("disk-full", f"broker {broker}", replicas.says_full(broker, count), replicas.FULL_REMEDY)
        for broker, count in sorted(facts.full.items())
    ]
    findings += _judge_quorum(facts)
    for topic in facts.metadata.topics:
        if topic.error_code == ErrorCode.NONE:
            findings += _judge_damage(topic, facts.damaged)
            findings += _judge_unusable(topic, facts.unusable)
            findings += _judge_topic(topic, facts.configs.get(topic.topic, ()), _holding_up(topic, facts))
    return findings


def _judge_quorum(facts: ClusterFacts) -> list[CheckupFinding]:
    quorum = facts.quorum
    if quorum is None or quorum.leader_id < 0:
        why = "it is busy, an election goes on, or a majority of the voters is down"
        remedy = (
            "look again in a moment; start the controllers that are down, more than half of "
            "controller.quorum.voters must run: until then no leader that dies is replaced"
        )
        if facts.full:
            why, remedy = "a controller whose disk is full takes no part until there is room", replicas.FULL_REMEDY
        says = f"no active controller answers: {why}"
        return [problem("no-controller", facts.metadata.cluster_id, says, remedy)]
    silent = [
        voter.node_id
        for voter in quorum.voters
        if voter.node_id != quorum.leader_id and not 0 <= voter.last_fetch_ms <= SILENT_VOTER_MS
    ]
    if not silent:
        return []
    spare = (len(quorum.voters) - 1) // 2 - len(silent)
    says = (
        f"{noun(len(silent), 'controller')} {first_of(silent)} {noun(len(silent), 'does', 'do')} not follow; "
        f"of all {len(quorum.voters)} {f'{spare} more' if spare > 0 else 'no other'} may fail"
    )
    return [problem("voter-silent", ",".join(map(str, silent)), says, "start them, or look into their logs")]


def _judge_damage(topic: pb.TopicMetadata, damaged: replicas.Damaged) -> list[CheckupFinding]:
    """Copies with a batch that failed its check; none of the others is to blame for what waits for it."""
    leaders = {TopicPartition(topic.topic, each.partition): each.leader_id for each in topic.partitions}
    return [
        problem(
            "replica-damaged", f"{partition}, broker {broker}",
            replicas.says_damaged(broker, partition, where, leads=broker == leader), replicas.DAMAGE_REMEDY,
        )
        for partition, leader in leaders.items()
        for broker, where in sorted(damaged.get(partition, {}).items())
    ]  # fmt: skip


def _holding_up(topic: pb.TopicMetadata, facts: ClusterFacts) -> replicas.Unusable:
    """The brokers that cannot use their replica, and leaders whose copy is damaged: nobody catches up with these."""
    held = dict(facts.unusable)
    for each in topic.partitions:
        partition = TopicPartition(topic.topic, each.partition)
        if each.leader_id in facts.damaged.get(partition, {}):
            held[partition] = [*held.get(partition, ()), each.leader_id]
    return held


def _judge_unusable(topic: pb.TopicMetadata, unusable: replicas.Unusable) -> list[CheckupFinding]:
    """Brokers that run and cannot use a replica: neither a start nor time would help."""
    numbers: dict[tuple[int, bool], list[int]] = {}
    for each in topic.partitions:
        for broker in unusable.get(TopicPartition(topic.topic, each.partition), ()):
            numbers.setdefault((broker, broker == each.leader_id), []).append(each.partition)
    return [
        problem(
            "replica-unusable", f"{topic.topic}, broker {broker}",
            replicas.says(broker, f"{topic.topic}: partitions {first_of(partitions)}", leads=leads), replicas.REMEDY,
        )
        for (broker, leads), partitions in sorted(numbers.items())
    ]  # fmt: skip


def _judge_topic(
    topic: pb.TopicMetadata, entries: Sequence[admin_messages.ConfigEntry], unusable: replicas.Unusable
) -> list[CheckupFinding]:
    findings = []
    leaderless = [each.partition for each in topic.partitions if each.leader_id < 0]
    if leaderless:
        findings.append(
            problem(
                "no-leader", topic.topic, f"{topic.topic}: partitions {first_of(leaderless)} have no leader",
                "start a broker that was in sync last, or is eligible (`odradek topic describe` names them)",
            )
        )  # fmt: skip
    findings += _judge_replicas(topic, _min_isr(entries), unusable)
    ours = sorted(entry.name for entry in entries if entry.source == "topic")
    compacted = any(entry.name == "cleanup.policy" and "compact" in entry.value for entry in entries)
    for names, where in (
        (NO_EFFECT, "in odradek"),
        (frozenset() if compacted else OF_COMPACTION, "without compaction"),
    ):
        if useless := ", ".join(name for name in ours if name in names):
            findings.append(note("topic-setting", topic.topic, f"{topic.topic}: {useless} has no effect {where}"))
    return findings


def _min_isr(entries: Sequence[admin_messages.ConfigEntry]) -> int:
    return next((int(entry.value) for entry in entries if entry.name == MIN_ISR and entry.value.isdecimal()), 0)


def _judge_replicas(topic: pb.TopicMetadata, min_isr: int, unusable: replicas.Unusable) -> list[CheckupFinding]:
    findings = []
    factor = min((len(each.replicas) for each in topic.partitions), default=0)
    if topic.partitions and factor < min_isr:
        has = f"{factor} {noun(factor, 'replica')}"
        findings.append(
            note(
                "min-isr-above-replicas", topic.topic,
                f"{topic.topic}: {has}, so {MIN_ISR}={min_isr} counts as {factor}",
                f"give it {min_isr} replicas, or set {MIN_ISR} lower",
            )
        )  # fmt: skip
    broken = {
        each.partition: unusable.get(TopicPartition(topic.topic, each.partition), ()) for each in topic.partitions
    }
    led = [each for each in topic.partitions if each.leader_id not in broken[each.partition]]  # else nobody catches up
    under = [each.partition for each in led if 0 < len(each.isr) < min(min_isr, len(each.replicas))]
    if under:
        findings.append(
            problem(
                "under-min-isr", topic.topic,
                f"{topic.topic}: partitions {first_of(under)} have fewer in-sync replicas than {MIN_ISR}={min_isr}: "
                "acks=all is refused",
                "bring the missing replicas back: `odradek cluster status` shows which",
            )
        )  # fmt: skip
    behind = {
        each.partition: missing
        for each in led
        if each.leader_id >= 0
        and each.partition not in under
        and (missing := set(each.replicas).difference(each.isr, broken[each.partition]))
    }
    if behind:
        missing_from = sorted(set().union(*behind.values()))
        findings.append(
            problem(
                "under-replicated", topic.topic,
                f"{topic.topic}: partitions {first_of([*behind])} wait for the replicas "
                f"of broker {first_of(missing_from)}",
                "start that broker if it is down; if it runs, `odradek cluster status` shows how far it is behind "
                "(after `odradek chaos slow`, `odradek chaos heal` ends that)",
            )
        )  # fmt: skip
    return findings
