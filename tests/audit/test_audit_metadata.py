"""The metadata log, of odradek and of Kafka: each wrong decision is one finding at its record, beside a right one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from odradek_audit.engine.local import audit
from odradek_audit.inputs.metadata_records import (
    BrokerRegistered,
    ConfigChange,
    CorruptMetadataRecord,
    PartitionChange,
    decode_change,
)
from odradek_audit.report import Report
from odradek_proto.records import encode_batch
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import metadata_pb2

from tests.audit.corruption.places import flip_bit
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster
from tests.audit.test_audit_two_passes import same_without

pb: Any = metadata_pb2  # its messages are made when it is imported
METADATA = TopicPartition("__cluster_metadata", 0)
ORDERS = TopicPartition("orders", 0)
TOPIC = bytes(range(16))
Batches = Sequence[Sequence[bytes]]


class Odradek:
    """Values of records as odradek's controllers write them."""

    def register(self, broker: int, life: int, *, fenced: bool = True) -> bytes:
        record = pb.RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=bytes([life]) * 16,
            fenced=fenced,
            endpoints={"PLAINTEXT": "b:9092"},
            rack="r",
            broker_epoch=-1,
        )
        return self._value(register_broker=record)

    def fence(self, broker: int, fenced: bool) -> bytes:
        return self._value(broker_state=pb.BrokerStateRecord(broker_id=broker, broker_epoch=9, fenced=fenced))

    def topic(self) -> bytes:
        return self._value(topic=pb.TopicRecord(name="orders", topic_id=TOPIC))

    def config(self, kind: str, resource: str, name: str, value: str | None) -> bytes:
        record = pb.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
        return self._value(config=record)

    def remove(self) -> bytes:
        return self._value(remove_topic=pb.RemoveTopicRecord(topic_id=TOPIC))

    def partition(self, replicas: Sequence[int], isr: Sequence[int], leader: int, *, number: int = 0) -> bytes:
        record = pb.PartitionRecord(topic_id=TOPIC, replicas=replicas, isr=isr, leader=leader, leader_epoch=4)
        record.partition = number
        return self._value(partition=record)

    def change(
        self,
        *,
        isr: Sequence[int] | None = None,
        leader: int | None = None,
        eligible: Sequence[int] | None = None,
        recovering: bool | None = None,
        replicas: Sequence[int] | None = None,
    ) -> bytes:
        record = pb.PartitionChangeRecord(topic_id=TOPIC, isr=isr, leader=leader, eligible=eligible, replicas=replicas)
        record.bump_leader_epoch, record.isr_changed = leader is not None, isr is not None
        record.eligible_changed, record.replicas_changed = eligible is not None, replicas is not None
        if recovering is not None:
            record.recovering = record.unclean = recovering
        return self._value(partition_change=record)

    def _value(self, **kind: Any) -> bytes:
        return bytes(pb.MetadataRecord(**kind).SerializeToString(deterministic=True))


class Kafka:
    """The same as Apache Kafka 4.1's controllers write them: frame, key, version, and the flexible form of each."""

    def register(self, broker: int, life: int, *, fenced: bool = True) -> bytes:
        endpoints = b"\x02" + _text("PLAINTEXT") + _text("b") + b"\x23\x84\x00\x00" + b"\x00"
        features = b"\x02" + _text("metadata.version") + b"\x00\x01\x00\x19" + b"\x00"
        body = _int(broker) + b"\x00" + bytes([life]) * 16 + bytes(8) + endpoints + features + _text("r")
        return b"\x01\x00\x03" + body + bytes([fenced]) + b"\x00" + _tags({0: b"\x02" + bytes(16)})

    def fence(self, broker: int, fenced: bool) -> bytes:
        return b"\x01\x11\x02" + _int(broker) + bytes(8) + _tags({0: b"\x01" if fenced else b"\xff"})

    def topic(self) -> bytes:
        return b"\x01\x02\x00" + _text("orders") + TOPIC + b"\x00"

    def config(self, kind: str, resource: str, name: str, value: str | None) -> bytes:
        told = b"\x00" if value is None else _text(value)
        kinds = {"topic": b"\x02", "broker": b"\x04", "group": b"\x20"}
        return b"\x01\x04\x00" + kinds[kind] + _text(resource) + _text(name) + told + b"\x00"

    def remove(self) -> bytes:
        return b"\x01\x09\x00" + TOPIC + b"\x00"

    def partition(self, replicas: Sequence[int], isr: Sequence[int], leader: int, *, number: int = 0) -> bytes:
        lists = _ints(replicas) + _ints(isr) + _ints(()) + _ints(())
        body = _int(number) + TOPIC + lists + _int(leader) + _int(4) + _int(0)
        return b"\x01\x03\x02" + body + bytes([len(replicas) + 1]) + bytes(16 * len(replicas)) + b"\x00"

    def change(
        self,
        *,
        isr: Sequence[int] | None = None,
        leader: int | None = None,
        eligible: Sequence[int] | None = None,
        recovering: bool | None = None,
        replicas: Sequence[int] | None = None,
    ) -> bytes:
        tags = {
            0: None if isr is None else _ints(isr),
            1: None if leader is None else _int(leader),
            2: None if replicas is None else _ints(replicas),
            5: None if recovering is None else bytes([recovering]),
            6: None if eligible is None else _ints(eligible),
        }
        return b"\x01\x05\x02" + _int(0) + TOPIC + _tags({tag: data for tag, data in tags.items() if data is not None})


def _int(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _ints(numbers: Sequence[int]) -> bytes:
    return bytes([len(numbers) + 1]) + b"".join(map(_int, numbers))


def _text(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _tags(tags: dict[int, bytes]) -> bytes:
    return bytes([len(tags)]) + b"".join(bytes([tag, len(data)]) + data for tag, data in sorted(tags.items()))


Records = Odradek | Kafka


@pytest.fixture(params=[Odradek, Kafka])
def records(request: pytest.FixtureRequest) -> Records:
    made: Records = request.param()
    return made


def beginning(records: Records) -> list[list[bytes]]:
    """Offsets 0 to 7: three brokers, and orders-0 on all of them, led by 1 in leader epoch 4."""
    brokers = [records.register(broker, broker) for broker in (1, 2, 3)]
    return [
        brokers,
        [records.fence(broker, False) for broker in (1, 2, 3)],
        [records.topic(), records.partition([1, 2, 3], [1, 2, 3], 1)],
    ]


def log_of(batches: Batches, since: int = 0) -> SampleLog:
    """A metadata log with these batches, without those wholly below an offset."""
    log = SampleLog()
    for values in batches:
        log.append(values, epoch=2)
    return log.since(since)


def judged(write_cluster: WriteCluster, batches: Batches) -> Report:
    """The audit of three controllers with this log."""
    return same_without(write_cluster(*[{METADATA: SamplePartition(log_of(batches))}] * 3, clean_shutdown=True))


def told(report: Report) -> list[tuple[str, int]]:
    return [(finding.check, finding.offset) for finding in report.findings]


def test_elections_from_the_isr_or_the_eligible_replicas_or_flagged(
    write_cluster: WriteCluster, records: Records
) -> None:
    """C3: each of these is right; the last one takes a replica from outside and says that it is unclean."""
    report = judged(
        write_cluster,
        [
            *beginning(records),
            [records.change(isr=[1], eligible=[2])],
            [records.change(leader=2, isr=[2], eligible=[])],
            [records.change(leader=3, isr=[3], recovering=True)],
            [records.change(recovering=False)],
        ],
    )
    assert told(report) == []
    assert report.compared_records > 0


def test_an_election_from_outside_is_told(write_cluster: WriteCluster, records: Records) -> None:
    """C3: once, at its record, with partition, leader and ISR."""
    report = judged(
        write_cluster,
        [*beginning(records), [records.change(isr=[1, 2])], [records.change(leader=3, isr=[3], eligible=[])]],
    )
    assert told(report) == [("metadata-election", 9)]
    assert "orders-0 got the leader 3, its ISR was [1, 2]" in report.findings[0].sentence
    assert report.findings[0].evidence == {"decided_for": "orders-0"}


def test_who_leads_when_a_reassignment_completes_is_no_finding(write_cluster: WriteCluster, records: Records) -> None:
    """R-145: the leader that leaves takes the new replica into the ISR, and in the same record that one leads."""
    done = records.change(replicas=[3], isr=[3], leader=3)
    assert told(judged(write_cluster, [*beginning(records), [records.change(isr=[1, 2])], [done]])) == []


def test_a_leader_in_the_epoch_of_another_is_told(write_cluster: WriteCluster) -> None:
    """C1, which Kafka's records cannot say: there every leader that is named raises the epoch."""
    odradek = Odradek()
    silent = pb.PartitionChangeRecord(topic_id=TOPIC, leader=2)
    again = pb.PartitionChangeRecord(topic_id=TOPIC, leader=2, bump_leader_epoch=True)
    for record, expected in ((silent, [("metadata-leader-epoch", 8)]), (again, [])):
        value = pb.MetadataRecord(partition_change=record).SerializeToString()
        assert told(judged(write_cluster, [*beginning(odradek), [value]])) == expected


@pytest.mark.parametrize(
    ("epoch", "clean", "said"),
    [
        (5, True, ""),
        (7, True, "the newest leader epoch that the metadata log gave it is 6"),
        (6, True, "the metadata log says that nobody led in it"),
        (7, False, ""),
    ],
)
def test_records_of_an_epoch_that_nobody_was_given_are_told(
    write_cluster: WriteCluster, records: Records, epoch: int, clean: bool, said: str
) -> None:
    """C2: 1 leads in epoch 4, then 2 in 5, then nobody in 6. After a kill it is a note."""
    metadata = log_of([*beginning(records), [records.change(leader=2)], [records.change(leader=-1)]])
    orders = SampleLog().fill(2, epoch=4).fill(2, epoch=epoch)
    cluster = {METADATA: SamplePartition(metadata), ORDERS: SamplePartition(orders, topic_id=TOPIC)}
    report = audit(write_cluster(*[cluster] * 3, clean_shutdown=clean))
    assert told(report) == ([("metadata-leader-epoch", 8)] if said else [])
    assert all(said in finding.sentence for finding in report.findings)
    assert [note.kind for note in report.notes] == ([] if clean else ["metadata"])


@pytest.mark.parametrize("clean", [True, False])
def test_directories_with_another_topic_id_than_the_metadata_logs(
    write_cluster: WriteCluster, records: Records, clean: bool
) -> None:
    """All replicas alike, so they agree, and their brokers will remove them: one finding for the topic, and nothing of
    leader epochs, which are of another topic. After a kill it is a note; a topic that was removed is nobody's."""
    orders = SamplePartition(SampleLog().fill(2, epoch=4).fill(2, epoch=9))
    metadata = SamplePartition(log_of(beginning(records)))
    cluster = {METADATA: metadata, ORDERS: orders, TopicPartition("orders", 1): orders}
    report = audit(write_cluster(*[cluster] * 3, clean_shutdown=clean))
    assert told(report) == ([("identity-mismatch", -1)] if clean else [])
    sentences = [each.sentence for each in report.findings] + [each.sentence for each in report.notes]
    assert len(sentences) == 1
    assert "orders-0 and 1 other partition: all replicas have the topic id" in sentences[0]
    of_removed = SamplePartition(orders.log, topic_id=TOPIC)
    metadata = SamplePartition(log_of([*beginning(records), [records.remove()]]))
    removed = {METADATA: metadata, ORDERS: of_removed, TopicPartition("orders", 1): of_removed}
    assert audit(write_cluster(*[removed] * 3, clean_shutdown=clean)).findings == []


def test_a_changed_epoch_is_told_once(write_cluster: WriteCluster, records: Records) -> None:
    """What differs between replicas is that, and nothing about elections."""
    orders = SampleLog().fill(4, epoch=4)
    cluster = {METADATA: SamplePartition(log_of(beginning(records))), ORDERS: SamplePartition(orders, topic_id=TOPIC)}
    replicas = write_cluster(*[cluster] * 3, clean_shutdown=True)
    path = replicas["2"] / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    place = data.index(orders.batches[3].data)
    data[place + 12 : place + 16] = (9).to_bytes(4, "big")
    path.write_bytes(data)
    assert told(audit(replicas)) == [("log-matching", 12)]


def test_who_may_not_be_in_an_isr_is_told(write_cluster: WriteCluster, records: Records) -> None:
    """C4: a broker that is fenced, one that nobody registered, one that is no replica; and who is unfenced comes in."""
    start = [*beginning(records), [records.change(isr=[1, 2]), records.fence(3, True)]]  # offsets 8 and 9
    right = [records.fence(3, False)], [records.change(isr=[1, 2, 3])]
    assert told(judged(write_cluster, [*start, *right])) == []
    assert told(judged(write_cluster, [*start, [records.change(isr=[1, 2, 3])]])) == [("metadata-isr", 10)]
    assert told(judged(write_cluster, [*start, [records.change(isr=[1, 2, 4])]])) == [("metadata-isr", 10)]
    assert told(judged(write_cluster, [*start, [records.change(isr=[2])]])) == [("metadata-isr", 10)]


def test_who_registers_anew_leaves_the_isrs(write_cluster: WriteCluster, records: Records) -> None:
    """C4: the same incarnation may stay, and the last member without leading; another one that stays is told."""
    start = beginning(records)
    renewed = records.register(3, 9)
    assert told(judged(write_cluster, [*start, [renewed, records.change(isr=[1, 2])]])) == []
    assert told(judged(write_cluster, [*start, [records.register(3, 3, fenced=False)]])) == []
    alone = [records.change(isr=[3], leader=3)], [records.change(leader=-1), renewed]
    assert told(judged(write_cluster, [*start, *alone])) == []
    report = judged(write_cluster, [*start, [renewed]])
    assert told(report) == [("metadata-isr", 8)]
    assert "kept broker 3, which registered anew, in its ISR [1, 2, 3]" in report.findings[0].sentence
    removed = [records.remove()], [renewed]
    assert told(judged(write_cluster, [*start, *removed])) == []


def test_a_log_that_begins_behind_a_snapshot(write_cluster: WriteCluster, records: Records) -> None:
    """The snapshot says what was before. Without it changes are not judged, and a note says how many."""
    batches = [*beginning(records), [records.change(isr=[1, 2])], [records.change(leader=3, isr=[3])]]
    replicas = write_cluster(*[{METADATA: SamplePartition(log_of(batches, since=8), log_start=8)}] * 3)
    report = audit(replicas)
    assert told(report) == []
    assert [note.sentence for note in report.notes if "2 changes of partitions not judged" in note.sentence]
    values = [value for batch in beginning(records) for value in batch]
    for path in replicas.values():
        snapshot_of(values, path)
    report = audit(replicas)
    assert told(report) == [("metadata-election", 9)]
    assert not report.notes


def snapshot_of(values: Sequence[bytes], replica: Path) -> Path:
    """What `beginning` made, as the state at offset 8."""
    path = replica / "__cluster_metadata-0" / f"{8:020d}-{2:010d}.checkpoint"
    path.write_bytes(encode_batch([(0, None, value, ()) for value in values], base_offset=0, leader_epoch=2))
    return path


def test_a_snapshot_that_says_something_else_than_the_log(write_cluster: WriteCluster, records: Records) -> None:
    """C4: of any replica, at the end of the log or before; one bit of it makes a file that cannot be read."""
    for later in ([], [[records.change(isr=[1, 2])]]):
        log = SamplePartition(log_of([*beginning(records), *later]))
        replicas = write_cluster(*[{METADATA: log}] * 3, clean_shutdown=True)
        values = [value for batch in beginning(records) for value in batch]
        path = snapshot_of(values, replicas["2"])
        assert audit(replicas).findings == []
        snapshot_of([*values, records.change(isr=[1, 3])], replicas["2"])
        (finding,) = audit(replicas).findings
        assert (finding.check, finding.replica, finding.file) == ("metadata-snapshot", "2", path.name)
        assert "ISR [1, 3]" in finding.sentence
        flip_bit(path, -9)
        assert told(audit(replicas)) == [("file-corrupt", -1)]


def test_a_vote_that_cannot_be_read(write_cluster: WriteCluster, records: Records) -> None:
    """A voter that does not know what it has voted could vote twice."""
    replicas = write_cluster(*[{METADATA: SamplePartition(log_of(beginning(records)))}] * 3)
    path = replicas["2"] / "__cluster_metadata-0" / "quorum-state"
    path.write_text('{"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "data_version": 0}')
    assert told(audit(replicas)) == []
    for text in ("", "{", "[]", '{"leaderEpoch": "2"}'):
        path.write_text(text)
        (finding,) = audit(replicas).findings
        assert (finding.check, finding.replica, finding.file) == ("file-corrupt", "2", "quorum-state")


@pytest.mark.parametrize("clean", [True, False])
def test_a_vote_that_is_older_than_the_log(write_cluster: WriteCluster, records: Records, clean: bool) -> None:
    """A node writes its epoch down before it has a record of it: an older one has forgotten a vote. After a kill the
    two may have been copied apart, and it is a note; a newer epoch is that of an election without records."""
    log = SamplePartition(log_of(beginning(records)))
    replicas = write_cluster(*[{METADATA: log}] * 3, clean_shutdown=clean)
    paths = [replicas[name] / "__cluster_metadata-0" / "quorum-state" for name in replicas]
    for path in paths:
        path.write_text('{"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "data_version": 0}')
    assert (audit(replicas).findings, audit(replicas).notes) == ([], [])
    path = paths[1]
    path.write_text('{"leaderId": 1, "leaderEpoch": 1, "votedId": -1, "data_version": 0}')
    report = audit(replicas)
    found = [(each.check, each.replica, each.file, each.epoch) for each in report.findings]
    assert found == ([("metadata-leader-epoch", "2", "quorum-state", 2)] if clean else [])
    assert [note.kind for note in report.notes] == ([] if clean else ["metadata"])
    path.write_text('{"leaderId": 1, "leaderEpoch": 7, "votedId": -1, "data_version": 0}')
    assert audit(replicas).findings == []
    for epoch, notes in ((1002, 0), (1 << 20, 1)):  # elections without a leader, and what looks like a changed bit
        path.write_text(f'{{"leaderId": 1, "leaderEpoch": {epoch}, "votedId": -1, "data_version": 0}}')
        report = audit(replicas)
        assert (report.findings, [note.replica for note in report.notes]) == ([], ["2"] * notes)
    path.unlink()
    assert [note.sentence for note in audit(replicas).notes] == [
        "__cluster_metadata-0: replica 2 has no quorum-state, as others have: it has forgotten its vote"
    ]


def test_one_record_that_is_missing_is_told_once(write_cluster: WriteCluster, records: Records) -> None:
    """Without the record that lets broker 3 take part each ISR with it would be wrong, and without the one that made
    the partition each of its changes: the first is told."""
    changes = [[records.change(isr=isr)] for isr in ([1, 2], [1, 2, 3], [1, 2], [1, 2, 3])]
    registered, _, created = beginning(records)
    two = [records.fence(broker, False) for broker in (1, 2)]
    assert told(judged(write_cluster, [registered, two, created, *changes])) == [("metadata-isr", 6)]
    assert told(judged(write_cluster, [registered, *changes])) == [("metadata-isr", 3)]


def test_a_node_that_never_registered(write_cluster: WriteCluster, records: Records) -> None:
    """A8: its `meta.properties` names a broker that the cluster never had. A controller alone does not register."""
    metadata = SamplePartition(log_of(beginning(records)))
    orders = SamplePartition(SampleLog().fill(4, epoch=4), topic_id=TOPIC)
    replicas = write_cluster(*[{METADATA: metadata, ORDERS: orders}] * 3, {METADATA: metadata}, clean_shutdown=True)
    assert audit(replicas).findings == []
    path = replicas["2"] / "meta.properties"
    path.write_text(path.read_text().replace("node.id=2", "node.id=77"))
    (finding,) = audit(replicas).findings
    assert (finding.check, finding.replica, finding.file) == ("identity-mismatch", "2", "meta.properties")


def test_a_snapshot_inside_of_a_batch_is_not_judged(write_cluster: WriteCluster, records: Records) -> None:
    """Near miss: batches are atomic, so what a part of one has made is no state."""
    log = SamplePartition(log_of([*beginning(records)[:2], [*beginning(records)[2], records.change(isr=[1, 2])]]))
    replicas = write_cluster(*[{METADATA: log}] * 3, clean_shutdown=True)
    snapshot_of([value for batch in beginning(records) for value in batch], replicas["2"])
    assert audit(replicas).findings == []


def test_who_has_an_epoch_that_nobody_was_given_is_wrong_and_not_the_others(
    write_cluster: WriteCluster, records: Records
) -> None:
    """One replica's batches and leader epoch file name epoch 9: the others lack nothing."""
    right, wrong = SampleLog().fill(4, epoch=4), SampleLog().fill(2, epoch=4).fill(2, epoch=9)
    metadata = SamplePartition(log_of(beginning(records)))
    clusters = [
        {METADATA: metadata, ORDERS: SamplePartition(orders, topic_id=TOPIC)} for orders in (right, wrong, right)
    ]
    (finding,) = audit(write_cluster(*clusters, clean_shutdown=True)).findings
    assert (finding.check, finding.replica, finding.offset, finding.epoch) == ("metadata-leader-epoch", "2", 8, 9)


def test_bytes_that_are_no_record_are_a_note(write_cluster: WriteCluster, records: Records) -> None:
    """What was judged stands; from there on nothing is. Any bytes give a change, nothing or `CorruptMetadataRecord`."""
    report = judged(write_cluster, [*beginning(records), [records.change(isr=[1, 2])[:-2]]])
    assert (told(report), report.exit_code) == ([], 1)
    assert "the metadata log was not judged to its end" in report.notes[0].sentence
    chance = random.Random(5)
    sound = [value for batch in beginning(records) for value in batch]
    for _ in range(2000):
        value = bytearray(chance.choice(sound))
        value[chance.randrange(1, len(value))] ^= 1 << chance.randrange(8)
        try:
            decode_change(bytes(value))
        except CorruptMetadataRecord:
            continue


def test_values_are_read_with_every_field() -> None:
    """Both formats give the same change; an unknown kind of record gives none."""
    odradek, kafka = Odradek(), Kafka()
    for made in (odradek, kafka):
        change = decode_change(made.change(isr=[1, 2], leader=-1, eligible=[3], recovering=True))
        assert change == PartitionChange(TOPIC, 0, False, None, (1, 2), (3,), -1, 1, True)
        assert decode_change(made.register(2, 7)) == BrokerRegistered(2, bytes([7]) * 16, True)
        assert decode_change(made.partition([1, 2], [2], 2)) == PartitionChange(
            TOPIC, 0, True, (1, 2), (2,), (), 2, 4, False
        )
        for value in ("compact", None):
            assert decode_change(made.config("topic", "t", "cleanup.policy", value)) == ConfigChange(
                "topic", "t", "cleanup.policy", value
            )
    assert decode_change(kafka.config("group", "g", "a", "b")) is None
    assert decode_change(b"\x01\x0c\x00\x00") is None  # a level of a feature
    assert decode_change(pb.MetadataRecord(no_op=pb.NoOpRecord()).SerializeToString()) is None


def test_files_that_one_replica_lacks_are_noted(write_cluster: WriteCluster, log: SampleLog) -> None:
    """An index that only one broker lacks after a clean stop; not after a kill, nor where nobody has one."""
    replicas = write_cluster(log, log, log, clean_shutdown=True)
    assert not audit(replicas).notes
    index = f"t-0/{0:020d}.index"
    (replicas["2"] / index).unlink()
    report = audit(replicas)
    assert report.exit_code == 0
    assert [(note.kind, note.replica) for note in report.notes] == [("missing-file", "2")]
    (replicas["1"] / index).unlink()
    (replicas["3"] / index).unlink()
    assert not audit(replicas).notes
