"""`metadata-election`, `metadata-leader-epoch`, `metadata-isr`: was each decision in the metadata log one that a
controller may take (C1, C3, C4)?

The log is replayed, from its beginning or from the oldest snapshot that it goes on behind; batches are atomic. What the
records before the log's beginning said, and no snapshot repeats, is not judged, and a note says so. The log that the
replicas agree on is judged once, on the reference replica.

Then the other logs by it (C2): a leader writes only in an epoch that the metadata log has given it, and has that record
on its own disk before. So an epoch that the metadata log does not reach, or in which it names no leader, is a changed
header or a leader that nobody elected. Judged is the log that counts, and only where nothing else was found at the
place: one damage, one finding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from odradek_proto.compression import CodecUnavailable
from odradek_proto.records import CorruptBatch, check_batch, decode_records, iter_batches
from odradek_proto.topics import TopicPartition, topic_id_to_text

from odradek_audit.catalogue import (
    IDENTITY_MISMATCH,
    LOG_MATCHING,
    METADATA_ELECTION,
    METADATA_ISR,
    METADATA_LEADER_EPOCH,
    METADATA_SNAPSHOT,
)
from odradek_audit.checks.unread import report_corrupt
from odradek_audit.findings import Check, Finding, FindingSink, Note
from odradek_audit.inputs.facts import BatchTable, PartitionInputs, ReplicaInputs, SegmentReader
from odradek_audit.inputs.metadata_records import (
    BrokerFencing,
    BrokerRegistered,
    CorruptMetadataRecord,
    MetadataChange,
    PartitionChange,
    TopicNamed,
    TopicRemoved,
    Unregistered,
    decode_change,
)
from odradek_audit.inputs.records import CONTROL_BIT, iter_decoded
from odradek_audit.results import LeaderEpochs, PartitionResult, PartitionSummary, Replayed
from odradek_audit.words import plural

NO_LEADER = -1
QUORUM_STATE = "quorum-state"
ELECTIONS_WITHOUT_LEADER = 1000
"""Epochs that a node may be ahead of its log without a word: each election without a leader raises it by one."""
LARGEST_SNAPSHOT = 256 * 1024 * 1024
Place = tuple[bytes, int]


@dataclass
class _Partition:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    leader: int
    leader_epoch: int
    leaders: dict[int, int] = field(default_factory=dict)
    """Who led in which leader epoch, as far as records told."""


@dataclass
class _Image:
    """What the records so far have made."""

    whole: bool
    """Whether nothing came before the records that were read."""
    topics: dict[bytes, str] = field(default_factory=dict)
    removed: dict[bytes, str] = field(default_factory=dict)
    partitions: dict[Place, _Partition] = field(default_factory=dict)
    incarnations: dict[int, bytes] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    """Who has ever registered."""
    fenced: dict[int, bool] = field(default_factory=dict)
    unknown: int = 0
    """Changes of partitions that nothing before had made."""
    orphans: set[Place] = field(default_factory=set)
    """The partitions of these changes, as far as they were told."""

    def name(self, place: Place) -> str:
        return f"{self.topics.get(place[0], place[0].hex())}-{place[1]}"


def check_metadata(
    partition: PartitionInputs, replica: str, tables: Mapping[str, BatchTable], reader: SegmentReader, sink: FindingSink
) -> Replayed:
    """Replay one replica's metadata log, and compare every replica's snapshots with it on the way. Returns what it says
    of leader epochs, nothing where it was not read to its end."""
    inputs = partition.replicas[replica]
    start = inputs.log_start
    table = tables[replica]
    _check_votes(partition, tables, sink)
    image = _Image(whole=start == 0)
    if start:
        start = _from_snapshot(image, inputs, reader)
    every = _snapshots(partition, reader, sink)
    snapshots = [each for each in every if each.end >= start and not _inside_batch(table, each.end)]
    try:
        for batch in iter_decoded(table, inputs.replica, reader):
            if batch.problem:
                sink.note("metadata", inputs.replica, f"the metadata log is not judged behind a batch: {batch.problem}")
                return Replayed()
            if table.base_offset[batch.row] < start:
                continue
            while snapshots and snapshots[0].end <= table.base_offset[batch.row]:
                _judge_snapshot(image, snapshots.pop(0), sink)
            changes = [(record.offset, decode_change(record.value or b"")) for record in batch.records]
            _Batch(image, inputs.replica, table.epoch[batch.row], sink).apply(changes)
    except OSError as error:
        sink.note("not-compared", inputs.replica, f"the metadata log was not judged: {error}")
        return Replayed()
    except CorruptMetadataRecord as error:
        sink.note("not-compared", inputs.replica, f"the metadata log was not judged to its end: {error}")
        return Replayed()
    for snapshot in snapshots:
        if len(table) and snapshot.end == table.last_offset[-1] + 1:
            _judge_snapshot(image, snapshot, sink)
    if image.unknown:
        sink.note(
            "metadata",
            inputs.replica,
            f"the metadata log begins at offset {inputs.log_start} and no snapshot of replica {inputs.replica} says "
            f"what was before: {plural(image.unknown, 'change')} of partitions not judged",
        )
        return Replayed()
    elected = {
        TopicPartition(topic_id_to_text(topic_id), number): LeaderEpochs(
            known.leader_epoch, known.leaders, known.replicas
        )
        for (topic_id, number), known in image.partitions.items()
    }
    topics = {name: topic_id_to_text(topic_id) for topic_id, name in image.topics.items()}
    removed = {topic_id_to_text(topic_id): name for topic_id, name in image.removed.items()}
    brokers = frozenset() if inputs.log_start else frozenset(image.brokers)
    return Replayed(elected, brokers, topics, removed, not inputs.log_start)


def _check_votes(partition: PartitionInputs, tables: Mapping[str, BatchTable], sink: FindingSink) -> None:
    """C1: a node writes its epoch and its vote to `quorum-state` before it has a record of that epoch, so a file that
    names an older one has forgotten a vote, which may be given twice."""
    written = any(inputs.quorum_epoch is not None for inputs in partition.replicas.values())
    for name, inputs in sorted(partition.replicas.items()):
        newest = max(tables[name].epoch, default=-1)
        if inputs.quorum_epoch is None and written and all(each.file != QUORUM_STATE for each in inputs.problems):
            sink.note(
                "metadata", name, f"replica {name} has no {QUORUM_STATE}, as others have: it has forgotten its vote"
            )
        if inputs.quorum_epoch is None or inputs.quorum_epoch >= newest:
            if newest >= 0 and (inputs.quorum_epoch or 0) - newest > ELECTIONS_WITHOUT_LEADER:
                sink.note(
                    "metadata",
                    name,
                    f"replica {name}: its {QUORUM_STATE} says leader epoch {inputs.quorum_epoch}, and its metadata log "
                    f"ends in epoch {newest}: so many elections without a leader, or the file was changed",
                )
            continue
        said = (
            f"replica {name}: its {QUORUM_STATE} says leader epoch {inputs.quorum_epoch}, and its metadata log has "
            f"records of epoch {newest}: it has forgotten its vote, and may give it again"
        )
        if inputs.clean_shutdown:
            sink.report(METADATA_LEADER_EPOCH, name, said, epoch=newest, file=QUORUM_STATE)
        else:
            sink.note("metadata", name, said)


def _inside_batch(table: BatchTable, offset: int) -> bool:
    """Whether an offset is none at which the state can be compared: batches are atomic."""
    row = bisect_left(table.last_offset, offset)
    return row < len(table) and table.base_offset[row] < offset


def _from_snapshot(image: _Image, inputs: ReplicaInputs, reader: SegmentReader) -> int:
    """Make the image of the oldest snapshot that the log goes on behind; where to go on, the log's start without."""
    usable = [name for name in sorted(inputs.metadata_snapshots) if int(name[:20]) >= inputs.log_start]
    for name in usable:
        with suppress(OSError, CorruptBatch, CodecUnavailable, CorruptMetadataRecord):
            data = reader.read(inputs.replica, name, 0, LARGEST_SNAPSHOT)
            read = _Image(whole=True)
            for change in _changes_of(data):
                _make(read, change)
            vars(image).update(vars(read))
            return int(name[:20])
    return inputs.log_start


@dataclass(frozen=True)
class _Snapshot:
    """A snapshot of everything below `end`."""

    end: int
    replica: str
    name: str
    image: _Image


def _snapshots(partition: PartitionInputs, reader: SegmentReader, sink: FindingSink) -> list[_Snapshot]:
    """All snapshots of all replicas, by their offsets. One that cannot be read is a finding: it has its name only when
    it is complete."""
    found = []
    for replica, inputs in sorted(partition.replicas.items()):
        for name in inputs.metadata_snapshots:
            image = _Image(whole=True)
            try:
                data = reader.read(replica, name, 0, LARGEST_SNAPSHOT)
                if sum(check_batch(data[at : at + header.size]).size for at, header in iter_batches(data)) != len(data):
                    raise CorruptBatch("it ends within a batch", len(data))
                for change in _changes_of(data):
                    _make(image, change)
            except (CorruptBatch, CorruptMetadataRecord) as error:
                report_corrupt(replica, name, error, sink)
            except (OSError, CodecUnavailable) as error:
                sink.note("not-compared", replica, f"replica {replica}: {name} was not read: {error}")
            else:
                found.append(_Snapshot(int(name[:20]), replica, name, image))
    return sorted(found, key=lambda snapshot: snapshot.end)


def _judge_snapshot(image: _Image, snapshot: _Snapshot, sink: FindingSink) -> None:
    """Compare topics, replicas, ISRs, leaders and leader epochs with what the log below its offset has made."""
    if image.unknown or not (image.whole or image.topics):
        return
    for place in sorted({*image.partitions, *snapshot.image.partitions}):
        mine, theirs = (each.partitions.get(place) for each in (image, snapshot.image))
        if mine is None or theirs is None or _said(mine) != _said(theirs):
            name = image.name(place) if mine is not None else snapshot.image.name(place)
            says, log = (_said(each) if each is not None else "nothing" for each in (theirs, mine))
            sink.report(
                METADATA_SNAPSHOT,
                snapshot.replica,
                f"replica {snapshot.replica}: {snapshot.name} says of {name} {says}, and the metadata log below "
                f"offset {snapshot.end} {log}",
                offset=snapshot.end,
                file=snapshot.name,
            )
            return


def _said(partition: _Partition) -> str:
    led = f"leader {partition.leader} in leader epoch {partition.leader_epoch}"
    return f"{led}, ISR {_list(sorted(partition.isr))}, replicas {_list(partition.replicas)}"


def _changes_of(data: bytes) -> Iterator[MetadataChange | None]:
    for position, header in iter_batches(data):
        if not header.attributes & CONTROL_BIT:
            for record in decode_records(data, header, position):
                yield decode_change(record.value or b"")


def _make(image: _Image, change: MetadataChange | None) -> None:
    """Change the image, whether it is right or not."""
    match change:
        case BrokerRegistered(broker, incarnation, fenced):
            image.brokers.add(broker)
            image.incarnations[broker] = incarnation
            image.fenced[broker] = fenced
        case BrokerFencing(broker, fenced):
            image.fenced[broker] = fenced
        case Unregistered(broker):
            image.incarnations.pop(broker, None)
            image.fenced.pop(broker, None)
        case TopicNamed(topic_id, name):
            image.topics[topic_id] = name
        case TopicRemoved(topic_id):
            image.removed[topic_id] = image.topics.pop(topic_id, "")
            for place in [place for place in image.partitions if place[0] == topic_id]:
                del image.partitions[place]
        case PartitionChange():
            _make_partition(image, change)
        case None:
            pass


def _make_partition(image: _Image, change: PartitionChange) -> None:
    place = (change.topic_id, change.partition)
    before = image.partitions.get(place)
    if change.created or before is None:
        if change.created:
            image.partitions[place] = _Partition(
                change.replicas or (),
                change.isr or (),
                change.eligible or (),
                NO_LEADER if change.leader is None else change.leader,
                change.leader_epoch,
            )
            _lead(image.partitions[place])
        return
    image.partitions[place] = _Partition(
        before.replicas if change.replicas is None else change.replicas,
        before.isr if change.isr is None else change.isr,
        before.eligible if change.eligible is None else change.eligible,
        before.leader if change.leader is None else change.leader,
        before.leader_epoch + change.leader_epoch,
        before.leaders,
    )
    _lead(image.partitions[place])


def _lead(partition: _Partition) -> None:
    """Who led once in an epoch has led in it, also when nobody does any more."""
    if partition.leaders.get(partition.leader_epoch, NO_LEADER) == NO_LEADER:
        partition.leaders[partition.leader_epoch] = partition.leader


class _Batch:
    """The decisions of one atomic batch: each is judged by what was before it, brokers also by what is behind."""

    def __init__(self, image: _Image, replica: str, epoch: int, sink: FindingSink) -> None:
        self.image = image
        self.replica = replica
        self.epoch = epoch
        self.sink = sink
        self.renewed: dict[int, int] = {}
        """Brokers that registered with another incarnation, with the record's offset."""
        self.joined: list[tuple[int, Place, int]] = []
        """Record, partition, broker: who came into an ISR."""

    def apply(self, changes: Iterable[tuple[int, MetadataChange | None]]) -> None:
        fenced_before = dict(self.image.fenced)
        for offset, change in changes:
            if isinstance(change, BrokerRegistered):
                known = self.image.incarnations.get(change.broker)
                if known is not None and known != change.incarnation:
                    self.renewed[change.broker] = offset
            if isinstance(change, PartitionChange):
                self._judge(offset, change)
            _make(self.image, change)
        self._judge_members(fenced_before)
        self._judge_renewed()

    def _report(self, check: Check, offset: int, place: Place, said: str) -> None:
        name = self.image.name(place)
        self.sink.report(
            check,
            self.replica,
            f"the metadata log, offset {offset}: {name} {said}",
            offset=offset,
            end_offset=offset + 1,
            epoch=self.epoch,
            decided_for=name,
        )

    def _judge(self, offset: int, change: PartitionChange) -> None:
        place = (change.topic_id, change.partition)
        before = self.image.partitions.get(place)
        if before is None and not change.created:
            self.image.unknown += 1
            if self.image.whole and place not in self.image.orphans:
                self.image.orphans.add(place)
                self._report(METADATA_ISR, offset, place, "was changed, and nothing before had created it")
            return
        if before is None:
            isr: tuple[int, ...] = ()
            replicas = change.replicas or ()
            self._judge_sets(offset, place, change, replicas, change.isr or (), change.leader)
        else:
            isr = before.isr
            replicas = before.replicas if change.replicas is None else change.replicas
            now = before.isr if change.isr is None else change.isr
            self._judge_election(offset, place, before, change)
            leader = before.leader if change.leader is None else change.leader
            self._judge_sets(offset, place, change, replicas, now, leader)
        self.joined += [(offset, place, each) for each in change.isr or () if each in replicas and each not in isr]

    def _judge_election(self, offset: int, place: Place, before: _Partition, change: PartitionChange) -> None:
        leader = change.leader
        grown = change.leader_epoch if not change.created else change.leader_epoch - before.leader_epoch
        if grown < 0 or (leader is not None and leader not in (NO_LEADER, before.leader) and grown < 1):
            now, then = before.leader_epoch + grown, before.leader_epoch
            said = f"got the leader {leader} in leader epoch {now}, and {before.leader} led in leader epoch {then}"
            self._report(METADATA_LEADER_EPOCH, offset, place, said)
        if leader is None or leader in (NO_LEADER, before.leader) or change.recovering:
            return
        # A reassignment that completes with this change: the leader that leaves has just taken the new one in.
        joined = change.isr or () if change.replicas is not None else ()
        if leader not in (*before.isr, *before.eligible, *joined):
            eligible = f", its eligible replicas {_list(before.eligible)}" if before.eligible else ""
            said = f"got the leader {leader}, its ISR was {_list(before.isr)}{eligible}, and nothing says unclean"
            self._report(METADATA_ELECTION, offset, place, said)

    def _judge_sets(
        self,
        offset: int,
        place: Place,
        change: PartitionChange,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        leader: int | None,
    ) -> None:
        if change.leader is None and change.isr is None and change.replicas is None:
            return
        if not set(isr) <= set(replicas) or len(set(isr)) < len(isr):
            self._report(METADATA_ISR, offset, place, f"got the ISR {_list(isr)} of the replicas {_list(replicas)}")
        elif leader not in (None, NO_LEADER, *isr):
            self._report(METADATA_ISR, offset, place, f"has the leader {leader} outside of its ISR {_list(isr)}")

    def _judge_members(self, fenced_before: dict[int, bool]) -> None:
        """Who comes into an ISR is registered and not fenced, before the batch or behind it."""
        for offset, place, broker in self.joined:
            known = broker in fenced_before or broker in self.image.fenced
            if not known and not self.image.whole:
                continue
            if fenced_before.get(broker, True) and self.image.fenced.get(broker, True):
                what = "which is fenced" if known else "which is not registered"
                self._report(METADATA_ISR, offset, place, f"got broker {broker} into its ISR, {what}")
                self.image.fenced[broker] = False  # one record that is missing is told once

    def _judge_renewed(self) -> None:
        """A broker that was dead may have lost what it had: it leaves ISRs that others are in, and leads nothing."""
        for broker, offset in self.renewed.items():
            for place, partition in self.image.partitions.items():
                if broker in partition.isr and (len(partition.isr) > 1 or partition.leader == broker):
                    said = f"kept broker {broker}, which registered anew, in its ISR {_list(partition.isr)}"
                    self._report(METADATA_ISR, offset, place, said)


def _list(brokers: Iterable[int]) -> str:
    return f"[{', '.join(map(str, brokers))}]"


# --- Topic ids of other logs -----------------------------------------------------------------------------------------


def check_topic_ids(
    partitions: Iterable[PartitionInputs], results: Iterable[PartitionResult]
) -> tuple[list[Finding], list[Note]]:
    """A8: a topic has the id in its directories that the metadata log gives it; a broker that finds another one takes
    the directory for one that nobody wants, and removes it. One for each topic; notes where a broker did not stop
    cleanly, which may have been killed before it made a topic anew. Replicas that differ are told by `check_identity`.
    """
    known = {name: topic_id for result in results for name, topic_id in result.replayed.topics.items()}
    wrong: dict[tuple[str, str], list[PartitionInputs]] = {}
    for each in partitions:
        ids = {inputs.topic_id for inputs in each.replicas.values() if inputs.topic_id}
        if each.topic in known and len(ids) == 1 and ids != {known[each.topic]}:
            wrong.setdefault((each.topic, ids.pop()), []).append(each)
    findings: list[Finding] = []
    notes: list[Note] = []
    for (topic, topic_id), found in sorted(wrong.items()):
        more = f" and {plural(len(found) - 1, 'other partition')}" if len(found) > 1 else ""
        said = (
            f"{topic}-{found[0].partition}{more}: all replicas have the topic id {topic_id} (partition.metadata), and "
            f"the metadata log gives the topic {known[topic]}: brokers will remove these directories"
        )
        place = (topic, found[0].partition, min(found[0].replicas))
        if all(inputs.clean_shutdown for each in found for inputs in each.replicas.values()):
            findings.append(
                Finding(
                    IDENTITY_MISMATCH.name, IDENTITY_MISMATCH.severity, *place, sentence=said, file="partition.metadata"
                )
            )
        else:
            notes.append(Note("metadata", *place, said))
    return findings, notes


# --- Leader epochs of other logs --------------------------------------------------------------------------------------


def check_elected(
    partitions: Iterable[PartitionInputs], results: Sequence[PartitionResult]
) -> tuple[list[Finding], list[Note], list[Finding]]:
    """Findings of brokers that stopped cleanly; of others notes, for their metadata log may have been copied first.
    Last the findings that blame other replicas for not having such an epoch, which are wrong then."""
    elected = {place: each for result in results for place, each in result.replayed.elected.items()}
    by_place = {TopicPartition(each.summary.topic, each.summary.partition): each for each in results}
    findings: list[Finding] = []
    notes: list[Note] = []
    wrong: list[Finding] = []
    for inputs in partitions if elected else ():
        place = TopicPartition(inputs.topic, inputs.partition)
        found = by_place.get(place)
        replica = inputs.replicas.get(found.summary.reference_replica) if found is not None else None
        if found is None or replica is None:
            continue
        known = elected.get(TopicPartition(replica.topic_id, inputs.partition))
        for finding in _unelected(found.summary, known) if known is not None else ():
            blaming = [each for each in found.findings if _blames_others(each, finding)]
            if any(_tells(other, finding) for other in found.findings if other not in blaming):
                continue
            if replica.clean_shutdown:
                findings.append(finding)
                wrong += blaming
            else:
                notes.append(Note("metadata", *place, finding.replica, finding.sentence, finding.offset))
    return findings, notes, wrong


def _unelected(summary: PartitionSummary, known: LeaderEpochs) -> Iterable[Finding]:
    name = summary.reference_replica
    epochs = next((each.epochs for each in summary.replicas if each.replica == name), [])
    for epoch, first in epochs:
        if epoch > known.newest_epoch:
            said = f"the newest leader epoch that the metadata log gave it is {known.newest_epoch}"
        elif known.leaders.get(epoch, epoch) == NO_LEADER:
            said = "the metadata log says that nobody led in it"
        else:
            continue
        yield Finding(
            METADATA_LEADER_EPOCH.name,
            METADATA_LEADER_EPOCH.severity,
            topic=summary.topic,
            partition=summary.partition,
            replica=name,
            sentence=f"{summary.topic}-{summary.partition}: replica {name} holds records of leader epoch {epoch} from "
            f"offset {first} on, and {said}",
            offset=first,
            end_offset=first + 1,
            epoch=epoch,
        )


def _blames_others(told: Finding, finding: Finding) -> bool:
    """Whether a replica was compared with the one that has an epoch which nobody was given, and differs in it."""
    same = told.check == LOG_MATCHING.name and told.other_replica == finding.replica
    return same and told.evidence.get("other_epoch") == finding.epoch


def _tells(told: Finding, finding: Finding) -> bool:
    """Whether a finding about the same place was reported already."""
    return told.epoch == finding.epoch or told.offset <= finding.offset < told.end
