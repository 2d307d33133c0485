"""The end of a run: what a fresh client reads, the ledger, the replicas and their disks must agree.

Nothing happens any more when this is judged: writers have ended, faults are over, replicas are at rest.
"""

from __future__ import annotations

from odradek_audit.catalogue import GROUP_OFFSET_BEYOND
from odradek_audit.engine.local import audit_disk
from odradek_audit.inputs.history import ACK, DELIVER, History
from odradek_proto.topics import TopicPartition

from odradek_chaos.harness.verify import verify
from odradek_chaos.worlds.simulated.checks.at_rest import logs_at_rest
from odradek_chaos.worlds.simulated.checks.committed_groups import OFFSETS
from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY
from odradek_chaos.worlds.simulated.observe.views import ClusterDisk
from odradek_chaos.worlds.simulated.run.kafka_writer import KAFKA_WRITER
from odradek_chaos.worlds.simulated.run.load import ClusterLoad, Record
from odradek_chaos.worlds.simulated.run.members import GROUP
from odradek_chaos.worlds.simulated.run.result import SeedResult
from odradek_chaos.worlds.simulated.world.administered import wrong_in
from odradek_chaos.worlds.simulated.world.waiting import until, within
from odradek_chaos.worlds.simulated.world.world import World

REACH_END_MS = 30_000  # L5


async def gather_evidence(world: World, load: ClusterLoad, result: SeedResult) -> None:
    """A fresh client reads everything; then ledger, read, replicas and disks are judged."""
    await within(world, load.stop_writers(), REACH_END_MS, "the writers did not end")
    records: list[Record] = []

    async def read() -> None:
        records.extend(await load.read_everything())

    if not world.expectations.recovers:
        world.exemptions.tolerate("stuck")  # nobody replaces a damaged copy, and no reader is given one
    await within(world, read(), REACH_END_MS, "the last read did not end")
    result.read = len(records)
    _judge_read(world, load, records)
    load.consumers.judge((partition, offset) for _, partition, offset, _ in records)
    if world.plan.compaction:
        await within(world, load.states.judge(), REACH_END_MS, "the last read of the compacted topic did not end")
    await _judge_administered(world, load)
    ends = _ends(records)
    try:
        await until(world, lambda: all(load.positions.get(p, 0) >= end for p, end in ends.items()), REACH_END_MS)
    except TimeoutError:
        world.findings.report("reader-behind", f"the reader is at {load.positions}, the partitions end at {ends}")
    try:
        await until(world, lambda: not _differing_ends(world), REACH_END_MS)
    except TimeoutError:
        world.findings.report("not-converged", _differing_ends(world))
    for check, (broker_id, partition, sentence) in logs_at_rest(world.state):
        world.findings.report(check, sentence, broker_id, partition)
    _judge_disks(world, load, result)


def _judge_read(world: World, load: ClusterLoad, records: list[Record]) -> None:
    verdict = verify(load.ledger.events, _in_order(load, records))
    for anomaly, found in sorted(verdict.anomalies.items()):
        if anomaly != "phantom" and world.plan.options.acks != "all":
            continue  # nothing else is owed (B.2): such a producer is not idempotent either
        world.findings.report(anomaly, f"{found.count} times: {found.examples[0]}")
    there = {(partition, offset): value for _, partition, offset, value in records}
    for event in load.ledger.events:
        if event.type == DELIVER and there.get((event.partition, event.offset), event.value) != event.value:
            sentence = f"offset {event.offset} was delivered as {event.value!r} and is another record now"
            world.findings.report("inconsistent-read", sentence, partition=f"{event.topic}-{event.partition}")


def _in_order(load: ClusterLoad, records: list[Record]) -> list[Record]:
    """Without those to which Kafka's writer got no answer: it is not idempotent, so that a request that lay on a link
    is carried out whenever it arrives, behind later ones that another leader took meanwhile."""
    told = {(each.topic, each.partition, each.value) for each in load.ledger.events if each.type == ACK}
    name = KAFKA_WRITER.encode()
    return [each for each in records if not each[3].startswith(name) or (each[0], each[1], each[3]) in told]


async def _judge_administered(world: World, load: ClusterLoad) -> None:
    """What administrators were told of the topics that they made, against a full read of those that begins afterwards.

    A producer of theirs may still wait for the last acknowledgements of faults that are over.
    """
    owed = world.administered.owed()
    for sentence in world.administered.missing(world.cluster.newest_image()):
        world.findings.report("administered-topics", sentence)
    partitions = [TopicPartition(name, number) for name, topic in owed.items() for number in range(topic.partitions)]
    told = {tp: dict(owed[tp.topic].partition(tp.partition).acknowledged) for tp in partitions}
    found: dict[TopicPartition, list[tuple[int, bytes]]] = {tp: [] for tp in partitions}

    async def read() -> None:
        for record in await load.read_to_the_end(partitions):
            found[TopicPartition(record[0], record[1])].append(record[2:])

    if partitions:
        await within(world, read(), REACH_END_MS, "the last read of the administered topics did not end")
    lives = world.cluster.incarnations
    for tp, records in found.items():
        for sentence in wrong_in(owed[tp.topic], tp.partition, records, told[tp], lives):
            world.findings.report("administered-topics", sentence, partition=str(tp))


def _ends(records: list[Record]) -> dict[int, int]:
    ends: dict[int, int] = {}
    for _, partition, offset, _ in records:
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return ends


def _differing_ends(world: World) -> str:
    """Where replicas at rest differ in log end offset or high watermark; empty when nowhere (G5)."""
    image = world.cluster.newest_image()
    offsets = image.topics.get(OFFSETS)
    groups = [TopicPartition(OFFSETS, number) for number in (offsets.partitions if offsets is not None else ())]
    for tp in (*world.partitions, *groups):
        states = {
            broker_id: (hosted[tp].state.log_end_offset, hosted[tp].state.high_watermark)
            for broker_id in world.cluster.machines
            if tp in (hosted := world.cluster.hosted(broker_id))
        }
        registration = image.partition(tp)
        replicas = registration.replicas if registration is not None else ()
        if sorted(states) != sorted(replicas) or len(set(states.values())) > 1:
            return f"{tp}: log end offset and high watermark by broker are {states}"
    return ""


def _judge_disks(world: World, load: ClusterLoad, result: SeedResult) -> None:
    """The audit over the simulated disks, through the same code that reads real directories."""
    disk = ClusterDisk({machine.name: machine.disk for machine in world.cluster.machines.values()})
    replicas = {name: f"/{name}{LOG_DIRECTORY}" for name in disk.machines}
    history = History(load.ledger.events) if world.plan.options.acks == "all" else None
    brokers = {machine.name: broker_id for broker_id, machine in world.cluster.machines.items()}
    report = audit_disk(disk, replicas, history=history, settled=True)
    result.compared = report.compared_records
    for finding in report.findings:
        if finding.check == GROUP_OFFSET_BEYOND.name and finding.evidence["group"] == GROUP:
            continue  # its members count, and read nothing
        partition = f"{finding.topic}-{finding.partition}"
        compared = [brokers[name] for name in (*finding.replicas, finding.other_replica) if name in brokers]
        damaged = [each for each in compared if (each, partition) in world.exemptions.damaged]
        whose = (*damaged, *compared, 0)[0]
        world.findings.report(f"audit-{finding.check}", f"{finding.replica}: {finding.sentence}", whose, partition)
