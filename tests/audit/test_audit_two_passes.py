"""The first pass proves only what the checks would not object to: with it and without it the audit says the same."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from odradek_audit.engine import local
from odradek_audit.engine.parts import DEFAULT_SPLIT_BYTES, SMALLEST_SPLIT_BYTES, part_tasks
from odradek_audit.engine.two_passes import PassProgress
from odradek_audit.engine.workers import workers
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.facts import BLOCK_OFFSETS
from odradek_audit.inputs.layout import read_layout
from odradek_audit.report import Report
from odradek_proto.compression import Codec
from odradek_proto.formats import decode_transaction_index, encode_transaction_index
from odradek_proto.records import ControlType
from odradek_proto.topics import TopicPartition
from odradek_proto.transport import grpc_network

from tests.audit.corruption import KINDS, NEAR_MISSES, places
from tests.audit.corruption.places import flip_bit, log_end_of
from tests.audit.sample import SampleLog, SamplePartition, WriteCluster
from tests.interop.planted import WHOLE_DIRECTORY, plant_all
from tests.seeds import seeds

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-4.1.1"
SOURCES = {str(node): GOLDEN / f"broker-{node}" for node in (1, 2, 3)}
# In a process of its own: the audit forks, and where other tests have left gRPC at work the child may abort.
INTERRUPTED = """
import multiprocessing, sys
from pathlib import Path
from odradek_audit.engine import local

def interrupt(progress):
    raise KeyboardInterrupt

replicas = {name: Path(path) for name, path in (word.split("=", 1) for word in sys.argv[1:])}
try:
    local.audit(replicas, jobs=2, progress=interrupt)
except KeyboardInterrupt:
    print(f"interrupted, {multiprocessing.active_children()}")
"""
PARTITIONS = [TopicPartition("golden", 0), TopicPartition("ledger", 0)]


def unproven(replicas: Mapping[str, Path], split_bytes: int = SMALLEST_SPLIT_BYTES) -> set[str]:
    """Topics that the first pass leaves to the second."""
    disk = LocalDisk()
    layout = read_layout(disk, {name: str(path) for name, path in replicas.items()})
    passes = PassProgress(disk, {(each.topic, each.partition): each for each in layout.partitions}, {})
    passes.add(local.prove_group(disk, list(part_tasks(disk, passes.tried, split_bytes))))
    return {topic for topic, _ in passes.conclude()[1]}


def same_without(
    replicas: Mapping[str, Path], split_bytes: int = DEFAULT_SPLIT_BYTES, topics: Sequence[str] | None = None
) -> Report:
    """Audit with both passes, and assert that the second alone gives the same."""
    report = local.audit(replicas, split_bytes=split_bytes, topics=topics, deep=False)
    close = local.audit_disk(LocalDisk(), {name: str(path) for name, path in replicas.items()}, topics=topics)
    assert report.findings == close.findings
    assert report.partitions == close.partitions
    assert sorted(report.notes, key=str) == sorted(close.notes, key=str)
    return report


def test_what_kafka_wrote_is_proven() -> None:
    """Idempotent producers, every codec, a change of leaders, a killed broker, transactions with their indexes."""
    assert unproven(SOURCES) == set()
    assert same_without(SOURCES, split_bytes=SMALLEST_SPLIT_BYTES, topics=["golden", "ledger"]).exit_code == 0


def test_damage_is_found_and_never_proven_sound_and_no_near_miss_is(tmp_path: Path) -> None:
    """Each kind, in a topic of its own, is left to the second pass, which finds one class of findings; near misses of
    any partition, among transactions if they can be there, are none."""
    made = plant_all(SOURCES, PARTITIONS, tmp_path / "copies", seed=3)
    assert set(made.planted) == set(made.near) == set(KINDS) - set(WHOLE_DIRECTORY)
    no_log = {"remove-directory"}  # found by the checkpoint alone; what is left of the partition is sound
    assert unproven(made.replicas) >= set(made.planted) - no_log
    assert made.wrong(local.audit(made.replicas, deep=False).findings) == {}


@pytest.mark.slow
def test_damage_is_reported_alike_in_one_pass_and_through_several_processes(tmp_path: Path) -> None:
    """Where each judges parts of what the others judge."""
    made = plant_all(SOURCES, PARTITIONS, tmp_path / "copies", seed=3, near_everywhere=False)
    report = same_without(made.replicas, split_bytes=SMALLEST_SPLIT_BYTES)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as away_from_grpc:
        audited = away_from_grpc.submit(local.audit, made.replicas, jobs=2, split_bytes=SMALLEST_SPLIT_BYTES)
        through_two = audited.result()
    assert (through_two.findings, through_two.partitions) == (report.findings, report.partitions)


@pytest.mark.parametrize("seed", seeds(6, every_day=2))
def test_flipped_bits_anywhere_are_judged_alike(seed: int, tmp_path: Path) -> None:
    """In segments, indexes, snapshots, epochs, of any replica."""
    rng = random.Random(seed)
    replicas = {name: shutil.copytree(path, tmp_path / name) for name, path in SOURCES.items()}
    for _ in range(8):
        topic = rng.choice(["golden", "ledger"])
        directory = replicas[rng.choice("123")] / f"{topic}-0"
        file = rng.choice(sorted(path for path in directory.glob("*") if path.stat().st_size))
        whole = file.read_bytes()
        flip_bit(file, rng.randrange(len(whole)), rng.randrange(8))
        same_without(replicas, split_bytes=SMALLEST_SPLIT_BYTES, topics=[topic])
        file.write_bytes(whole)


def transactions(rng: random.Random) -> SampleLog:
    """Three producers' transactions of some batches each; some markers raise the producer's epoch, as with KIP-890."""
    log, epochs = SampleLog(), dict.fromkeys((1, 2, 3), 0)
    for number in range(150):
        producer = rng.choice(list(epochs))
        if producer not in log.open or rng.random() < 0.6:
            values = [b"%d" % number] * rng.randint(1, 9)
            log.append(values, producer_id=producer, producer_epoch=epochs[producer], transactional=True)
        else:
            epochs[producer] += rng.randint(0, 1)
            log.end(rng.choice([ControlType.COMMIT, ControlType.ABORT]), producer, producer_epoch=epochs[producer])
    return log


@pytest.mark.parametrize("seed", seeds(4, every_day=2))
def test_transactions_are_proven_unless_an_index_says_something_else(seed: int, write_cluster: WriteCluster) -> None:
    """They span parts and segments, and the last ones are open. An entry is missing, or of another producer, or begins
    elsewhere, or there is one without a marker."""
    rng = random.Random(seed)
    sample = SamplePartition(transactions(rng), segment_bytes=9000)
    replicas = write_cluster(sample, sample, sample, clean_shutdown=True)
    assert unproven(replicas) == set()
    report = same_without(replicas)
    opened = sorted(sample.log.open.values())
    assert [note.offset for note in report.notes if note.kind == "open-transaction"] == opened * 3
    index = rng.choice(sorted((replicas["2"] / "t-0").glob("*.txnindex")))
    entries = decode_transaction_index(index.read_bytes())
    place = rng.randrange(len(entries))
    right = entries[place]
    moved, unmarked = (
        right._replace(first_offset=right.first_offset + 1),
        right._replace(last_offset=right.last_offset - 1),
    )
    for wrong in ([], [right._replace(producer_id=9)], [moved], [unmarked, right]):
        index.write_bytes(encode_transaction_index([*entries[:place], *wrong, *entries[place + 1 :]]))
        assert unproven(replicas) == {"t"}
        assert {finding.check for finding in same_without(replicas).findings} == {"transaction-mismatch"}


def test_a_marker_in_a_codec_that_is_not_installed_ends_no_audit(
    write_cluster: WriteCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody compresses markers: somebody changed its attributes, and its CRC with them."""
    log = SampleLog()
    log.append([b"x"], producer_id=1, transactional=True)
    log.end(ControlType.ABORT, 1)
    replicas = write_cluster(SamplePartition(log), SamplePartition(log), clean_shutdown=True)
    for path in replicas.values():
        places.set_field(places.places_of(path / "t-0")[1], slice(22, 23), 0x30 | Codec.ZSTD)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    said = [note.sentence for note in same_without(replicas).notes if note.kind == "not-compared"]
    assert [sentence.partition(" were not read: ")[2][:21].strip() for sentence in said] == [
        "zstd needs zstandard:"
    ] * 2


@pytest.mark.parametrize("batches", [3, 700])
def test_common_range_that_cuts_blocks_is_proven(write_cluster: WriteCluster, batches: int) -> None:
    """A log that begins later and one that ends earlier are compared to the batch, as far as they go."""
    log = SampleLog().fill(batches, records=7, epoch=0)
    end = log.next_offset
    start = batches // 3 * 7
    late = SamplePartition(log.since(start), epochs=[(0, start)])
    early = SamplePartition(log.up_to(end - end // 4), high_watermark=end // 2)
    replicas = write_cluster(SamplePartition(log), late, early)
    assert unproven(replicas) == set()
    report = same_without(replicas)
    assert (report.exit_code, report.compared_records) == (0, end - start + early.log.next_offset)
    assert batches * 7 > BLOCK_OFFSETS or batches == 3


@pytest.mark.parametrize("place", [0.0, 0.7, 0.999])
def test_changed_value_is_found_in_every_block(write_cluster: WriteCluster, place: float) -> None:
    """At the edges of the common range and inside of it."""
    log = SampleLog().fill(700, records=7, epoch=0)
    replicas = write_cluster(log, log.up_to(4800), log)
    found = places.places_of(replicas["3"] / "t-0")
    changed = found[int(place * len(found))]
    places.change_value(changed)
    assert unproven(replicas) == {"t"}
    (finding,) = same_without(replicas).findings
    assert (finding.check, finding.replica, finding.offset) == ("log-matching", "3", changed.header.last_offset)


def test_deleted_records_are_proven(write_cluster: WriteCluster, log: SampleLog) -> None:
    """A log start inside of a segment, where DeleteRecords has put it."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3)
    NEAR_MISSES["raise-log-start"](replicas["2"] / "t-0")
    assert unproven(replicas) == set()
    assert same_without(replicas).compared_records < 2 * log.next_offset


def test_progress_goes_to_the_end(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Bytes done rise to the total, also where partitions are read twice."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3)
    last = max((replicas["2"] / "t-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-9])
    told: list[local.AuditProgress] = []
    local.audit(replicas, progress=told.append)
    done = [progress.done_bytes for progress in told]
    assert done == sorted(done)
    assert told[-1].done_bytes == told[-1].total_bytes > 0


def test_interrupted_audit_leaves_no_process(write_cluster: WriteCluster, log: SampleLog) -> None:
    """Ctrl-C comes out of the audit, and the processes that it started are gone."""
    replicas = write_cluster(log, log)
    words = [sys.executable, "-c", INTERRUPTED, *(f"{name}={path}" for name, path in replicas.items())]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert (ended.returncode, ended.stdout) == (0, "interrupted, []\n"), ended.stderr


def test_the_readme_counts_the_kinds_of_damage() -> None:
    """All of them: those of a whole directory are planted in tests/golden."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"identifies {len(KINDS)} kinds of damage planted in logs written by Kafka" in readme


def test_a_lagging_follower_lacks_the_aborted_transaction_too(tmp_path: Path) -> None:
    """A follower that has not fetched the marker that ends an aborted transaction does not know its end either."""
    replicas = {name: tmp_path / name for name in SOURCES}
    ledgers = [replicas[name] / "ledger-0" for name in SOURCES]
    for name, path in SOURCES.items():
        shutil.copytree(path, replicas[name])
    lag = NEAR_MISSES["cut-log"]
    (index,) = ledgers[1].glob("*.txnindex")
    *_, aborted = decode_transaction_index(index.read_bytes())
    for ledger in ledgers:
        while log_end_of(ledger)[0] > aborted.last_offset + 1:
            lag(ledger)
    lag(ledgers[1])
    assert aborted not in decode_transaction_index(index.read_bytes())
    assert [finding.sentence for finding in local.audit(replicas, topics=["ledger"]).findings] == []


# --- Workers ----------------------------------------------------------------------------------------------------------


COUNT = """
import os
from odradek_audit.engine.workers import workers

def who(_):
    return os.getpid()

with workers(2) as run:
    print(os.getpid() in set(run(who, range(20))))
"""


def who(_: int) -> int:
    return os.getpid()


def test_tasks_run_in_other_processes() -> None:
    """A program without gRPC hands all its tasks to others."""
    ended = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=180, check=False)
    assert (ended.returncode, ended.stdout) == (0, "False\n"), ended.stderr


def test_nothing_is_forked_beside_grpc() -> None:
    """gRPC's threads do not live in a forked child, and its handlers abort it: the tasks run here."""
    assert grpc_network.__name__ in sys.modules
    with workers(2) as run:
        assert set(run(who, range(20))) == {os.getpid()}
