"""`odradek audit live`: replicas of a running cluster, compared over Kafka's wire protocol."""

from __future__ import annotations

import errno
import json
import random
import re
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from odradek_audit.cli.commands import app
from odradek_audit.findings import Finding, FindingSink, Severity
from odradek_audit.live import wire
from odradek_audit.live.compacted import compare_compacted
from odradek_audit.live.metrics import metrics_of
from odradek_audit.live.partition import (
    PartitionComparison,
    ReplicaStream,
    ReplicaUnreadable,
    compare,
    judge_epochs,
    judge_memory,
)
from odradek_audit.live.run import LiveProgress, LiveRequest, audit_cluster
from odradek_audit.live.security import BadSettings, LiveSecurity, security_from
from odradek_audit.live.tails import Tail, look_again
from odradek_audit.live.wire import AnswerReader, Connection, Fetched, WireError
from odradek_audit.report import Report
from odradek_broker.testing import Cluster
from odradek_proto.errors import ErrorCode
from odradek_proto.records import ControlType
from odradek_proto.topics import TopicPartition
from typer.testing import CliRunner

from tests.audit.corruption import plant
from tests.audit.sample import SampleBatch, SampleLog, SamplePartition
from tests.audit.test_audit_compaction import CLEANED, DAMAGED, LATER, WHOLE, WRITTEN, but, log_of
from tests.kafka.raw import FETCH, Raw, header, string
from tests.waiting import until

runner = CliRunner()
RECORDS = 3000


# --- A cluster --------------------------------------------------------------------------------------------------------


def produce(bootstrap: str, topic: str, first: int, count: int, codecs: Sequence[str] = ("none",)) -> None:
    """Records one behind the other, in small batches of these codecs."""
    from confluent_kafka import Producer

    for number, codec in enumerate(codecs):
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.size": 2000, "linger.ms": 1}
        producer = Producer({**settings, "enable.idempotence": True})
        for each in range(first + count * number // len(codecs), first + count * (number + 1) // len(codecs)):
            producer.produce(topic, f"record {each} ".encode() * 5, partition=0)
        assert producer.flush(60) == 0


def live(bootstrap: str, topic: str, *options: str) -> tuple[int, dict[str, Any]]:
    """The command's exit code and its document."""
    result = runner.invoke(app, ["live", "-b", bootstrap, "--topics", topic, "--quota", "0", "--json", *options])
    assert result.exit_code in (0, 1, 3), result.output
    return result.exit_code, json.loads(result.stdout)


def replicated(bootstrap: str, topic: str, records: int) -> None:
    """Return once both followers know that so many records are committed: they hear of it with their next fetch."""
    addresses = (each.rpartition(":") for each in bootstrap.split(","))
    asked = LiveRequest([(host, int(port)) for host, _, port in addresses], [topic])
    until(lambda: audit_cluster(asked, lambda _: None)[0].compared_records, lambda seen: seen == 2 * records)


@contextmanager
def stopped(cluster: Cluster, broker: int, topic: str) -> Iterator[Path]:
    """A broker's log directory while it does not run; in sync again afterwards."""
    cluster.stop(broker)
    try:
        yield cluster.replicas()[str(broker)]
    finally:
        cluster.start(broker)
        cluster.wait_until_in_sync(topic)


def test_followers_of_a_running_cluster_are_compared(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str, tmp_path: Path
) -> None:
    """All records on all followers; then what is new alone; then damage in a follower's segment, with replica and
    offset; and a broker that does not run makes it inconclusive."""
    produce(kafka_bootstrap, odradek_topic, 0, RECORDS, ("none", "gzip", "snappy", "lz4", "zstd"))
    replicated(kafka_bootstrap, odradek_topic, RECORDS)
    digests = ("--digests", str(tmp_path / "digests.json"))
    code, first = live(kafka_bootstrap, odradek_topic, *digests, "--out", str(tmp_path / "out"))
    assert (code, first["findings"]) == (0, 0), first
    assert first["compared_records"] == 2 * RECORDS
    assert (tmp_path / "out" / "report.html").exists()
    told = runner.invoke(app, ["live", "-b", kafka_bootstrap, "--topics", odradek_topic, "--quota", "0"])
    assert told.stdout.endswith(
        f"The replicas agree. Compared with the leaders': {2 * RECORDS:,} copies of records in "
        f"{first['compared_batches']} copies of batches; leaders' own are not counted.\n"
    )
    assert live(kafka_bootstrap, odradek_topic, *digests)[1]["compared_records"] < 2 * 1024 + 200

    produce(kafka_bootstrap, odradek_topic, RECORDS, 500)
    replicated(kafka_bootstrap, odradek_topic, RECORDS + 500)
    code, second = live(kafka_bootstrap, odradek_topic, *digests)
    assert code == 0
    assert 1000 <= second["compared_records"] < 1000 + 2 * 1024 + 200
    code, again = live(kafka_bootstrap, odradek_topic, *digests, "--from-start")
    assert (code, again["compared_records"]) == (0, 2 * (RECORDS + 500))

    leader = odradek_cluster.leader_of(odradek_topic)
    follower = next(broker for broker in odradek_cluster.brokers if broker != leader)
    partition = TopicPartition(odradek_topic, 0)
    with stopped(odradek_cluster, follower, odradek_topic) as directory:
        planted = plant("change-record", directory, partition, random.Random(4))
    code, damaged = live(kafka_bootstrap, odradek_topic)
    assert code == 3
    (finding,) = damaged["finding_list"]
    assert (finding["check"], finding["replica"]) == ("log-matching", str(follower))
    assert finding["offset"] <= planted.offset < finding["end_offset"]

    odradek_cluster.kill(follower)
    code, without = live(kafka_bootstrap, odradek_topic)
    assert (code, without["findings"]) == (1, 0)
    assert f"broker {follower}" in without["inconclusive"][0] or "cannot be reached" in without["inconclusive"][0]
    odradek_cluster.heal()


def test_the_same_damage_on_all_replicas_is_found_after_changes_of_leader(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str
) -> None:
    """Whoever finds its own copy damaged truncates, and the last leader cannot send what the others lack: their high
    watermarks stay at the damaged batch, and below it all replicas agree."""
    produce(kafka_bootstrap, odradek_topic, 0, RECORDS)
    replicated(kafka_bootstrap, odradek_topic, RECORDS)
    directories = odradek_cluster.replicas()
    for broker in odradek_cluster.brokers:
        odradek_cluster.stop(broker)
    planted = {
        plant("flip-byte", path, TopicPartition(odradek_topic, 0), random.Random(4)).offset
        for path in directories.values()
    }
    (damaged,) = planted
    for broker in odradek_cluster.brokers:
        odradek_cluster.start(broker)

    def audited() -> tuple[int, list[tuple[str, int]]]:
        code, document = live(kafka_bootstrap, odradek_topic)
        return code, [(each["check"], each["offset"]) for each in document["finding_list"]]

    def ends_when_audited() -> list[int]:
        audited()
        return log_ends(odradek_cluster, odradek_topic)

    until(ends_when_audited, lambda ends: ends == [damaged, damaged, RECORDS])
    until(audited, lambda said: said == (3, [("batch-unreadable", damaged)]))


def log_ends(cluster: Cluster, topic: str) -> list[int]:
    """Of all replicas, the shortest first."""
    found = []
    for address in cluster.kafka_addresses.values():
        host, _, port = address.rpartition(":")
        connection = Connection(host, int(port), 30.0, lambda size: None)
        found.append(wire.log_bound(connection, topic, 0, wire.LATEST)[1])
        connection.close()
    return sorted(found)


def test_a_compacted_topic_is_read_again_when_its_logs_have_changed(
    odradek_cluster: Cluster, kafka_bootstrap: str, tmp_path: Path
) -> None:
    """Cleaners change its bytes, so it has no digests: sizes tell whether anybody was there."""
    from confluent_kafka import Producer

    odradek_cluster.create_topic("keys", configs={"cleanup.policy": "compact"})

    def written(first: int, end: int) -> None:
        producer = Producer({"bootstrap.servers": kafka_bootstrap, "linger.ms": 1})
        for number in range(first, end):
            producer.produce("keys", b"value", key=f"key {number}")
        assert producer.flush(60) == 0
        replicated(kafka_bootstrap, "keys", end)

    def read(*options: str) -> tuple[int, int]:
        code, document = live(kafka_bootstrap, "keys", "--digests", str(tmp_path / "digests.json"), *options)
        return code, document["compared_records"]

    written(0, 100)
    assert [read(), read(), read("--from-start")] == [(0, 200), (0, 0), (0, 200)]
    written(100, 101)
    assert [read(), read()] == [(0, 202), (0, 0)]
    with stuck(odradek_cluster.kafka_addresses[2], 50):
        assert [read(), read("--from-start"), read()] == [(1, 0), (1, 100), (1, 0)]
    assert read() == (0, 0)


@contextmanager
def stuck(address: str, mark: int) -> Iterator[None]:
    """A broker knows nothing above an offset to be committed, and nobody waits for it to hear more."""

    def low(connection: Connection, *asked: Any) -> Fetched:
        told = fetch(connection, *asked)
        return told._replace(high_watermark=min(told.high_watermark, mark)) if connection.address == address else told

    fetch = wire.fetch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "fetch", low)
        patch.setattr("odradek_audit.live.run.LAG_S", 0.0)
        yield


def test_a_high_watermark_that_stays_low_makes_it_inconclusive(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str
) -> None:
    """It says what lies above, where the other ones are compared. It said that all agree when none differed below."""
    produce(kafka_bootstrap, odradek_topic, 0, 300)
    replicated(kafka_bootstrap, odradek_topic, 300)
    leader = odradek_cluster.leader_of(odradek_topic)
    follower = next(broker for broker in odradek_cluster.brokers if broker != leader)
    with stuck(odradek_cluster.kafka_addresses[follower], 0):
        code, document = live(kafka_bootstrap, odradek_topic)
        told = runner.invoke(app, ["live", "-b", kafka_bootstrap, "--topics", odradek_topic, "--quota", "0"])
    reason = (
        f"{odradek_topic}-0: not compared on all replicas: 300 offsets from 0 on: high watermarks stay below 300, "
        f"where the longest log ended: replica {follower} 0"
    )
    assert (code, document["inconclusive"], document["compared_records"]) == (1, [reason], 300)
    (partition,) = document["partitions"]
    assert (partition["compared_to"], partition["above_bound"]) == (0, 300)
    assert [each["log_end"] for each in partition["replicas"]] == [300, 300, 300]
    assert told.exit_code == 1
    assert told.stdout.endswith(
        f"\nNot compared on all replicas: 300 offsets above the smallest high watermarks ({odradek_topic}-0 300).\n"
    )
    assert live(kafka_bootstrap, odradek_topic)[0] == 0


def test_an_old_fetch_is_sent_to_the_leader(odradek_cluster: Cluster, odradek_topic: str) -> None:
    """Before version 11, which brought the rack, a consumer knows leaders alone, as in Kafka."""
    leader = odradek_cluster.leader_of(odradek_topic)
    follower = next(broker for broker in odradek_cluster.brokers if broker != leader)
    errors = {}
    for version, rack in ((10, b""), (11, b"\0\0")):
        with Raw(odradek_cluster.kafka_addresses[follower]) as connection:
            name = string(odradek_topic.encode())
            asked = struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1)
            asked += struct.pack(">i", 1) + name + struct.pack(">iiiqqi", 1, 0, -1, 0, -1, 1000) + bytes(4) + rack
            answer = connection.ask(header(FETCH, version, 7) + asked)
        assert answer is not None
        behind = 4 + 4 + 2 + 4 + 4 + len(name) + 4 + 4  # correlation, throttle, error, session, topics, partitions
        errors[version] = int.from_bytes(answer[behind : behind + 2], "big", signed=True)
    assert errors == {10: ErrorCode.NOT_LEADER_OR_FOLLOWER, 11: ErrorCode.NONE}


def test_a_cluster_of_this_machine_is_named_as_for_other_commands(
    odradek_cluster: Cluster, odradek_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By nothing, where it was started last, or by addresses for gRPC; without any cluster nothing is guessed."""
    produce(odradek_cluster.kafka_bootstrap, odradek_topic, 0, 100)
    replicated(odradek_cluster.kafka_bootstrap, odradek_topic, 100)
    monkeypatch.setenv("ODRADEK_HOME", str(tmp_path))
    arguments = ["live", "--topics", odradek_topic, "--quota", "0"]
    assert runner.invoke(app, arguments).exit_code == 4
    (tmp_path / "current").write_text(f"{tmp_path}\n")
    assert f"{tmp_path / 'cluster.json'} says no listeners" in runner.invoke(app, arguments).output
    addresses = zip(odradek_cluster.bootstrap.split(","), odradek_cluster.kafka_bootstrap.split(","), strict=True)
    nodes = [{"grpc": grpc, "kafka": kafka} for grpc, kafka in addresses]
    (tmp_path / "cluster.json").write_text(json.dumps({"nodes": nodes}))
    assert runner.invoke(app, arguments).exit_code == 0
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", odradek_cluster.bootstrap)
    assert runner.invoke(app, arguments).exit_code == 0
    (tmp_path / "current").unlink()
    assert "speaks gRPC" in runner.invoke(app, arguments).output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-b", "nowhere"], "-b HOST:PORT"),
        (["-b", "127.0.0.1:1", "--topics", " ,"], "names no topic"),
        (["-b", "127.0.0.1:1", "--from-start"], "--digests FILE"),
    ],
)
def test_wrong_usage_is_said(options: list[str], said: str) -> None:
    result = runner.invoke(app, ["live", *options])
    assert result.exit_code == 2
    assert said in result.output


def test_a_file_that_may_not_be_read_is_named_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not about a place to write to."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "digests"))

    monkeypatch.setattr("odradek_audit.live.run.audit_cluster", refuse)
    result = runner.invoke(app, ["live", "-b", "127.0.0.1:1", "--digests", str(tmp_path / "digests")])
    said = f"odradek: {tmp_path / 'digests'} Permission denied\n  try: name a file that you may read\n"
    assert (result.exit_code, result.output) == (1, said)


def test_a_cluster_that_does_not_answer_ends_it(free_port_of_nobody: str) -> None:
    """Exit code 4, with the address and why."""
    result = runner.invoke(app, ["live", "-b", free_port_of_nobody])
    assert result.exit_code == 4
    assert f"{free_port_of_nobody} cannot be reached" in result.output


@pytest.fixture
def free_port_of_nobody() -> Iterator[str]:
    """An address that is taken and where nobody listens."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_digests_of_another_cluster_are_refused(kafka_bootstrap: str, odradek_topic: str, tmp_path: Path) -> None:
    """And a file that is none of ours; neither is overwritten."""
    file = tmp_path / "digests.json"
    for text, said in (
        ('{"version": 1, "cluster_id": "other", "partitions": {}}', "is of cluster other"),
        ("[]", "is no file of digests"),
        ('{"version": 9}', "has version 9"),
    ):
        file.write_text(text)
        result = runner.invoke(app, ["live", "-b", kafka_bootstrap, "--topics", odradek_topic, "--digests", str(file)])
        assert (result.exit_code, file.read_text()) == (2, text), result.output
        assert said in result.output


# --- Two logs ---------------------------------------------------------------------------------------------------------


@dataclass
class Copy:
    """A replica as its broker serves it: whole batches from the one that holds an offset on, some at a time."""

    batches: list[SampleBatch]
    mark: int
    start: int = 0
    ends: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def fetch(self, offset: int, max_bytes: int) -> tuple[int, int, int, bytes]:
        if offset < self.start:
            return ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, b""
        held = [each.data for each in self.batches if each.last_offset >= offset and each.base_offset >= self.start]
        return ErrorCode.NONE, self.mark, self.start, b"".join(held[:3])

    def high_watermark(self, offset: int) -> tuple[int, int]:
        if not self.start <= offset <= self.latest()[1]:
            return ErrorCode.OFFSET_OUT_OF_RANGE, -1
        return ErrorCode.NONE, self.mark

    def earliest(self) -> tuple[int, int]:
        return ErrorCode.NONE, self.start

    def latest(self) -> tuple[int, int]:
        return ErrorCode.NONE, max((each.last_offset + 1 for each in self.batches), default=self.start)

    def epoch_end(self, epoch: int) -> tuple[int, int, int]:
        known = [self.batches[0].epoch]
        for batch in self.batches:
            if batch.epoch > epoch:
                return self.ends.get(epoch, (ErrorCode.NONE, known[-1], batch.base_offset))
            known.append(batch.epoch)
        return self.ends.get(epoch, (ErrorCode.NONE, known[-1], self.mark))


def copy(log: SampleLog, **changes: Any) -> Copy:
    return Copy(list(log.batches), **{"mark": log.next_offset, **changes})


def compared(leader: Copy, *others: Copy, compacted: bool = False) -> tuple[PartitionComparison, FindingSink]:
    sink = FindingSink("t", 0)
    streams = [ReplicaStream(str(number), each) for number, each in enumerate((leader, *others), start=1)]
    result = (compare_compacted if compacted else compare)(streams[0], streams[1:], leader.start, sink)
    judge_epochs(streams[0], result, sink)
    return result, sink


def told(sink: FindingSink) -> list[tuple[str, str, int]]:
    return [(finding.check, finding.replica, finding.offset) for finding in sink.findings]


def changed(copied: Copy, row: int, position: int) -> Copy:
    """With one bit of one batch turned."""
    batch = copied.batches[row]
    data = bytearray(batch.data)
    data[position] ^= 1
    copied.batches[row] = replace(batch, data=bytes(data))
    return copied


def test_equal_logs_are_silent_below_their_high_watermarks(log: SampleLog) -> None:
    """A follower that lags, one whose log begins later, and tails that differ above the bound."""
    other = SampleLog(list(log.up_to(200).batches), 200).fill(10, epoch=9)
    result, sink = compared(copy(log), copy(log, start=40), copy(other, mark=200))
    assert told(sink) == []
    assert (result.start, result.end, result.records) == (40, 200, 220 + 160)
    assert result.log_ends == {"1": 260, "2": 260, "3": 240}


def test_a_low_high_watermark_hides_no_damage_of_the_others(log: SampleLog) -> None:
    """The leader's log is read up to the leader's own, and that of each other one up to its own."""
    low = copy(log.up_to(100), mark=100)
    assert told(compared(copy(log), low, changed(copy(log), 40, 90))[1]) == [("crc-mismatch", "3", 160)]
    assert told(compared(copy(log), low, copy(log.without(40)))[1]) == [("log-matching", "3", 160)]
    assert told(compared(changed(copy(log), 40, 90), low)[1]) == [("crc-mismatch", "1", 160)]


# --- What lies above --------------------------------------------------------------------------------------------------


@dataclass
class Later:
    """A replica that tells other numbers from one look to the next, the last of them again and again."""

    marks: list[int]
    ends: list[int]
    start: int = 0

    def fetch(self, offset: int, max_bytes: int) -> tuple[int, int, int, bytes]:
        raise NotImplementedError

    def epoch_end(self, epoch: int) -> tuple[int, int, int]:
        raise NotImplementedError

    def earliest(self) -> tuple[int, int]:
        return ErrorCode.NONE, self.start

    def latest(self) -> tuple[int, int]:
        return ErrorCode.NONE, self.ends[0]

    def high_watermark(self, offset: int) -> tuple[int, int]:
        if not self.start <= offset <= self.ends[0]:
            return ErrorCode.OFFSET_OUT_OF_RANGE, -1
        told = ErrorCode.NONE, self.marks[0]
        del self.marks[: len(self.marks) > 1], self.ends[: len(self.ends) > 1]
        return told


class Gone(Later):
    """Its broker has died."""

    def latest(self) -> tuple[int, int]:
        raise WireError("it hung up")

    def high_watermark(self, offset: int) -> tuple[int, int]:
        raise WireError("it hung up")


@pytest.mark.parametrize(
    ("why", "leader", "follower", "committed", "stays"),
    [
        ("it hears of it two rounds later", Later([260], [260]), Later([200, 200, 260], [260]), 260, False),
        ("it is behind, and reads on", Later([260], [260]), Later([200, 230, 260], [200, 230, 260]), 260, False),
        ("it never hears of it", Later([260], [260]), Later([200], [260]), 260, True),
        ("it cannot read on", Later([260], [260]), Later([200], [200]), 260, True),
        ("its log is cut below what it knew", Later([260], [260]), Later([100], [100]), 260, True),
        ("retention took what was there", Later([300], [300]), Later([300], [300], start=280), 260, False),
        ("nobody else had it when the leader changed", Later([240], [240]), Later([200, 240], [240]), 200, False),
        ("what was committed is gone everywhere", Later([240], [240]), Later([200, 240], [240]), 260, True),
        ("its broker dies", Later([260], [260]), Gone([200], [200]), 260, True),
        ("the leader's broker dies, and comes back later", Gone([], []), Later([260], [260]), 200, False),
    ],
)
def test_what_lay_above_is_reached_or_was_not_compared(
    why: str, leader: Later, follower: Later, committed: int, stays: bool
) -> None:
    """Of three looks; `committed` is the highest high watermark of the first one, and 260 the longest log's end."""
    tail = Tail(TopicPartition("t", 0), 200, 260, committed, {"1": leader, "2": follower}, {"2": 200})
    (waiting, _) = looked_at([tail], 3)
    assert bool(waiting) is stays, why
    if stays:
        reason = "could not be asked again: replica 2 (it hung up)"
        if not isinstance(follower, Gone):
            mark = max(200, *follower.marks)
            reason = f"high watermarks stay below 260, where the longest log ended: replica 2 {mark}"
        assert sentence(tail) == f"t-0: not compared on all replicas: 60 offsets from 200 on: {reason}"


def looked_at(tails: Sequence[Tail], ends: int, costs: int = 0) -> tuple[list[Tail], list[Tail]]:
    """Those that wait, and those that were looked at, until a clock shows `ends`: a pause costs 1, a look `costs`."""
    waiting, seen, now = {tail.place: tail for tail in tails}, [], [0]

    def pass_by(time: int) -> None:
        now[0] += time

    def shown(tail: Tail) -> None:
        seen.append(tail)
        pass_by(costs)

    look_again(waiting, lambda: now[0] >= ends, lambda: pass_by(1), shown, lambda _: None)
    return [*waiting.values()], seen


def sentence(tail: Tail) -> str:
    tail.into(sink := FindingSink(tail.place.topic, tail.place.partition))
    return sink.notes[0].sentence


def low(partition: int, follower: Later, third: Later | None = None) -> Tail:
    """Of a follower that stays at 200, and perhaps another one."""
    copies = {"1": Later([260], [260]), "2": follower} | ({"3": third} if third is not None else {})
    behind = {name: 200 for name in copies if name != "1"}
    return Tail(TopicPartition("t", partition), 200, 260, 260, copies, behind)


def test_no_look_begins_when_the_time_is_over() -> None:
    """Each partition is looked at once; a second round may end in the midst of many."""
    tails = [low(number, Later([200], [260])) for number in range(4)]
    waiting, seen = looked_at(tails, 6, 1)
    assert (waiting, seen) == (tails, [*tails, tails[0]])
    assert looked_at(tails, 2, 1) == (tails, tails)


def test_a_broker_that_timed_out_is_asked_no_more() -> None:
    """Each time costs as long as all looks together. One that hangs up may be back at the next look."""

    @dataclass
    class Silent(Later):
        asked: int = 0

        def latest(self) -> tuple[int, int]:
            self.asked += 1
            raise WireError("it does not answer") from TimeoutError()

    silent, gone = Silent([200], [260]), Gone([200], [260])
    tails = [low(0, silent, Later([200], [260])), low(1, silent, gone)]
    assert looked_at(tails, 3)[0] == tails
    assert silent.asked == 1
    assert [sentence(tail).partition(" on: ")[2] for tail in tails] == [
        "high watermarks stay below 260, where the longest log ended: replica 3 200; "
        "could not be asked again: replica 2 (it does not answer)",
        "could not be asked again: replica 2 (it does not answer), replica 3 (it hung up)",
    ]


def errors_of(bootstrap: str, topic: str) -> list[int]:
    """What each broker says of a topic in its metadata, 0 for nothing wrong."""
    found = []
    for host, _, port in (address.rpartition(":") for address in bootstrap.split(",")):
        connection = Connection(host, int(port), 30.0, lambda size: None)
        found.append(wire.metadata(connection, [topic]).errors.get(topic, 0))
        connection.close()
    return found


@pytest.mark.parametrize("how", ["its topic is deleted", "its replica is moved away", "nobody says", "interrupted"])
def test_what_changes_after_a_comparison_is_not_taken_for_a_replica_that_lags(
    odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str, how: str
) -> None:
    """Metadata are asked for once more before the verdict; Ctrl-C leaves what was compared."""
    from confluent_kafka.admin import AdminClient

    produce(kafka_bootstrap, odradek_topic, 0, 300)
    replicated(kafka_bootstrap, odradek_topic, 300)
    leader = odradek_cluster.leader_of(odradek_topic)
    follower = next(broker for broker in odradek_cluster.brokers if broker != leader)
    was = wire.metadata
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    host, _, port = kafka_bootstrap.split(",")[0].rpartition(":")

    def afterwards(connection: Connection, topics: Sequence[str] | None) -> wire.ClusterMetadata:
        known = was(connection, topics)
        if how == "its replica is moved away":
            (state,) = known.partitions
            return known._replace(partitions=[state._replace(replicas=(leader,))])
        if how == "nobody says":
            return known._replace(partitions=[], errors={odradek_topic: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
        return known

    with stuck(odradek_cluster.kafka_addresses[follower], 0), pytest.MonkeyPatch.context() as patch:
        if how == "its topic is deleted":
            patch.setattr("odradek_audit.live.run.LAG_S", float("inf"))  # that is said at once

        def progress(shown: LiveProgress) -> None:
            if shown.done == shown.total:
                if how == "its topic is deleted":
                    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
                    admin.delete_topics([odradek_topic])[odradek_topic].result(60)
                    until(lambda: errors_of(kafka_bootstrap, odradek_topic), lambda seen: seen == unknown)
                patch.setattr(wire, "metadata", afterwards)
                if how == "interrupted":
                    raise KeyboardInterrupt

        report, _ = audit_cluster(LiveRequest([(host, int(port))], [odradek_topic]), lambda _: None, progress)
    (partition,) = report.partitions
    assert partition.above_bound == 300
    gone = f"the topic {odradek_topic} was deleted during the audit: what was not compared by then does not count"
    assert [each.sentence for each in report.notes if each.kind == "deleted"] == [gone] * ("deleted" in how)
    low = f"{odradek_topic}-0: not compared on all replicas: 300 offsets from 0 on: high watermarks stay below 300"
    stays = [each.partition(", where")[0] for each in report.inconclusive]
    said = "interrupted before all high watermarks had been looked at again"
    assert stays == {"nobody says": [low], "interrupted": [said, low]}.get(how, [])


def test_each_difference_is_told_at_its_batch(log: SampleLog) -> None:
    """A batch that is missing, a bit of a value, of the epoch and of the base offset; nothing behind it."""
    assert told(compared(copy(log), copy(log.without(20)))[1]) == [("log-matching", "2", 80)]
    assert told(compared(copy(log), changed(copy(log), 20, 90))[1]) == [("crc-mismatch", "2", 80)]
    assert told(compared(changed(copy(log), 20, 90), copy(log))[1]) == [("crc-mismatch", "1", 80)]
    assert told(compared(copy(log), changed(copy(log), 20, 15))[1]) == [("log-matching", "2", 80)]
    assert told(compared(copy(log), changed(copy(log), 20, 7))[1])[0] == ("log-matching", "2", 80)


def test_what_all_replicas_lack_is_told_of_the_leader(log: SampleLog) -> None:
    """A gap, and an epoch that falls; of a compacted log only CRCs are judged."""
    gap = copy(log.without(20))
    assert told(compared(gap, Copy(gap.batches, gap.mark))[1]) == [("offset-gap", "1", 80)]
    assert told(compared(gap, copy(log), compacted=True)[1]) == []
    assert told(compared(gap, changed(copy(log), 30, 90), compacted=True)[1]) == [("crc-mismatch", "2", 120)]
    high = copy(log)
    changed(high, 5, 15)
    assert ("epoch-not-monotonic", "1", 24) in told(compared(high, Copy(high.batches, high.mark))[1])


def test_a_leader_that_ends_an_epoch_elsewhere_is_told(log: SampleLog) -> None:
    """Its batches say where epoch 1 begins; a follower would cut by what it says."""
    assert told(compared(copy(log, ends={0: (0, 0, 60)}), copy(log))[1]) == []
    assert told(compared(copy(log, ends={0: (0, 0, 56)}), copy(log))[1]) == [("epoch-cache-mismatch", "1", 60)]


def test_what_was_there_before_is_missed(log: SampleLog) -> None:
    """The leader's log ends below what was compared, or a block of it is another one now."""
    long = SampleLog().fill(1100, epoch=2)
    before, _ = compared(copy(long), copy(long))
    assert sorted(before.blocks) == [0, 1, 2, 3]
    leader = ReplicaStream("1", copy(long, ends={2: (0, 2, 4000)}))
    sink = FindingSink("t", 0)
    judge_memory(leader, 2, 4000, before.blocks, before, sink)
    assert told(sink) == []
    judge_memory(leader, 2, 4400, before.blocks, before, sink)
    assert told(sink) == [("delivered-lost", "1", 4000)]
    other = SampleLog().fill(1100, epoch=2, name="other")
    now, _ = compared(copy(other), copy(other))
    sink = FindingSink("t", 0)
    judge_memory(leader, 2, 4000, {2: before.blocks[2]}, now, sink)
    assert told(sink) == [("log-matching", "1", 2048)]


def test_a_difference_that_is_gone_when_it_is_read_again_is_none(log: SampleLog) -> None:
    """A truncation was under way."""

    class Healing(Copy):
        def fetch(self, offset: int, max_bytes: int) -> tuple[int, int, int, bytes]:
            answer = super().fetch(offset, max_bytes)
            self.batches = list(log.batches)
            return answer

    healing = Healing([*log.batches[:1], *SampleLog(next_offset=4).fill(2, epoch=0, name="x").batches], 260)
    assert told(compared(copy(log), healing)[1]) == []


@pytest.mark.parametrize("damaged", [1, 2])
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("start", [0, 40])
def test_a_replica_whose_first_batch_is_refused_is_found(
    log: SampleLog, damaged: int, compacted: bool, start: int
) -> None:
    """Its broker names no high watermark then: nothing was compared, and the replicas were said to agree. Also where
    its log begins later than what is asked for first."""

    class Refusing(Copy):
        def fetch(self, offset: int, max_bytes: int) -> tuple[int, int, int, bytes]:
            return (ErrorCode.OFFSET_OUT_OF_RANGE if offset < start else ErrorCode.CORRUPT_MESSAGE), -1, -1, b""

    copies = [copy(log), copy(log), copy(log)]
    copies[damaged - 1] = Refusing(list(log.batches), 260, start)
    streams = [ReplicaStream(str(number), each) for number, each in enumerate(copies, start=1)]
    sink = FindingSink("t", 0)
    with pytest.raises(ReplicaUnreadable, match=f"replica {damaged} cannot be read behind offset {start}"):
        (compare_compacted if compacted else compare)(streams[0], streams[1:], 0, sink)
    assert told(sink) == [("batch-unreadable", str(damaged), start)]


def test_any_bytes_are_an_answer_or_an_error() -> None:
    """A stranger's lengths are never believed."""
    chance = random.Random(3)
    for _ in range(500):
        answer = AnswerReader(chance.randbytes(chance.randrange(40)))
        try:
            answer.array(lambda answer=answer: (answer.string(), answer.blob(), answer.number(8)))  # type: ignore[misc]
        except WireError:
            continue
    with pytest.raises(WireError, match="claims 2147483647 entries"):
        AnswerReader(b"\x7f\xff\xff\xff" + bytes(8)).array(lambda: None)


# --- Two logs of a compacted topic ------------------------------------------------------------------------------------


def of(sample: SamplePartition, high_watermark: int = len(WRITTEN)) -> Copy:
    return copy(sample.log, mark=high_watermark)


@pytest.mark.parametrize("others", [(CLEANED, CLEANED), (CLEANED, LATER), (LATER, WHOLE), (LATER, LATER)])
@pytest.mark.parametrize("leader", [WHOLE, CLEANED, LATER])
def test_replicas_that_were_cleaned_apart_agree(leader: SamplePartition, others: tuple[SamplePartition, ...]) -> None:
    """Superseded records, and tombstones whose time is over; counted are copies of records that the leader has."""
    result, sink = compared(of(leader), *map(of, others), compacted=True)
    assert (told(sink), sink.notes) == ([], [])
    kept = {batch.base_offset for batch in leader.log.batches}
    assert result.records == sum(each.base_offset in kept for other in others for each in other.log.batches)


@pytest.mark.parametrize(("damaged", "offset", "said"), DAMAGED)
def test_what_a_cleaner_must_keep_is_missed(damaged: SamplePartition, offset: int, said: str) -> None:
    """The same damage as in directories, on a follower and on the leader."""
    for place, logs in enumerate([(damaged, WHOLE, CLEANED), (WHOLE, CLEANED, damaged)]):
        _, sink = compared(*map(of, logs), compacted=True)
        assert told(sink) == [("compaction-mismatch", "13"[place], offset)]
        assert said in sink.findings[0].sentence


def test_a_key_that_was_written_again_behind_the_mark_may_be_gone_below_it() -> None:
    """One replica's cleaner knows of it and the other does not. Without the newer record it is missed."""
    short = of(log_of(WRITTEN[:5]), 5)
    assert told(compared(of(but(0, 1, 3)), short, compacted=True)[1]) == []
    assert told(compared(of(but(0, 1, 3, 6)), short, compacted=True)[1]) == [("compaction-mismatch", "1", 3)]


def test_a_tombstone_that_is_gone_again_may_have_taken_what_was_below_the_mark() -> None:
    """It stands behind the mark, and on one replica alone: the others have cleaned it and the value below away. Without
    it that replica holds what most have deleted."""
    assert told(compared(of(LATER), of(LATER, 4), of(WHOLE), compacted=True)[1]) == []
    assert told(compared(of(LATER), of(LATER, 4), of(but(4)), compacted=True)[1]) == [("compaction-mismatch", "3", 1)]


def test_a_replica_with_a_broken_batch_is_not_asked_for_its_keys() -> None:
    """The batch is the finding; which keys it held nobody knows."""
    _, sink = compared(of(WHOLE), changed(of(CLEANED), 3, 66), compacted=True)
    assert told(sink) == [("crc-mismatch", "2", 5)]
    assert [note.kind for note in sink.notes] == ["not-compared"]


def test_what_was_cleaned_while_it_was_read_is_no_difference() -> None:
    """A value that was deleted, on a replica whose cleaner takes it before it is read a second time."""

    class Cleaning(Copy):
        def fetch(self, offset: int, max_bytes: int) -> tuple[int, int, int, bytes]:
            answer = super().fetch(offset, max_bytes)
            if offset > 3:
                self.batches = list(LATER.log.batches)
            return answer

    stale = but(0, 4)
    assert told(compared(of(WHOLE), of(stale), compacted=True)[1]) == [("compaction-mismatch", "2", 1)]
    assert told(compared(of(WHOLE), Cleaning(list(stale.log.batches), 8), compacted=True)[1]) == []


@pytest.mark.parametrize(
    ("kind", "high_watermark", "found"),
    [
        (ControlType.COMMIT, 3, []),
        (ControlType.COMMIT, 2, []),
        (ControlType.ABORT, 3, [("compaction-mismatch", "2", 0)]),
    ],
)
def test_a_committed_transaction_takes_the_place_of_what_was_before(
    kind: ControlType, high_watermark: int, found: list[tuple[str, str, int]]
) -> None:
    """Also where its marker stands above the mark of the one who was asked; an aborted one takes no place."""
    whole = SampleLog().append([b"before"]).append([b"within"], producer_id=7, transactional=True).end(kind, 7)
    result = compared(copy(whole), copy(whole.without(0), mark=high_watermark), compacted=True)
    assert told(result[1]) == found


# --- TLS and SASL -----------------------------------------------------------------------------------------------------


JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="a;b = \\\\c";'


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "client.properties"
    path.write_text("# for tools\n" + "\n".join(lines) + "\n")
    return path


def test_settings_are_kafkas(tmp_path: Path) -> None:
    """By Kafka's names, with a user as Java's clients are told it; paths are relative to the file."""
    path = written(
        tmp_path,
        "security.protocol = SASL_SSL",
        "ssl.truststore.location=ca.pem",
        "ssl.truststore.type=PEM",
        "ssl.endpoint.identification.algorithm=",
        "sasl.mechanism=SCRAM-SHA-256",
        f"sasl.jaas.config={JAAS}",
        "client.id=somebody else's",
    )
    expected = LiveSecurity("SASL_SSL", str(tmp_path / "ca.pem"), "", False, "SCRAM-SHA-256", 'al"ice', "a;b = \\c")
    assert security_from(path) == expected
    assert security_from(written(tmp_path, "retries=1")) == LiveSecurity(mechanism="SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["security.protocol=TLS"], "security.protocol=TLS is none of PLAINTEXT, SSL"),
        (["security.protocol=SASL_SSL"], "needs a user: sasl.username and sasl.password, or sasl.jaas.config"),
        (["security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI"], "sasl.mechanism=GSSAPI is not spoken here"),
        (["ssl.truststore.location=x.jks", "ssl.truststore.type=JKS"], "`keytool -exportcert -rfc`"),
        (["security.protocol=SSL", "ssl.truststore.location=none.pem"], "none.pem: No such file"),
    ],
)
def test_settings_that_cannot_be_used_name_the_remedy(tmp_path: Path, lines: list[str], said: str) -> None:
    """On the command line, with the exit code of wrong usage, before anything is dialled."""
    result = CliRunner().invoke(app, ["live", "-b", "127.0.0.1:1", "--command-config", str(written(tmp_path, *lines))])
    assert result.exit_code == 2
    assert said in result.output
    if "none.pem" not in said:
        with pytest.raises(BadSettings, match=re.escape(said)):
            security_from(written(tmp_path, *lines))


def test_a_listener_without_tls_is_told(tmp_path: Path) -> None:
    """It answers a handshake with nothing, or with something else: one line, and no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"\0\0\0\4\0\0\0\1")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WireError, match="no TLS: "):
            Connection("127.0.0.1", listener.getsockname()[1], 10.0, lambda size: None, LiveSecurity("SSL"))
        thread.join()


def test_numbers_for_prometheus() -> None:
    """Each number has its type and its meaning; findings are counted by their checks."""
    report = Report("live", {}, seconds=1.25, inconclusive=["one"])
    report.findings = [Finding(check, Severity.CRITICAL, "t", 0, "1", "") for check in ("log-matching",) * 2]
    lines = metrics_of(report, 1_795_262_400.5).splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["odradek_audit_verdict"] == "3"
    assert values['odradek_audit_findings{check="log-matching"}'] == "2"
    assert values["odradek_audit_inconclusive"] == "1"
    assert values["odradek_audit_finished_timestamp_seconds"] == "1795262400.5"
    names = {name.partition("{")[0] for name in values}
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == names
    assert {line.split()[2] for line in lines if line.startswith("# HELP")} == names
