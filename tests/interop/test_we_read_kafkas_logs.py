"""Our storage, our commands and our audit read what Apache Kafka writes, and Kafka goes on with what our storage
wrote."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from odradek_audit.engine.local import audit
from odradek_broker.storage.settings import LogSettings
from odradek_proto.formats import CLEAN_SHUTDOWN, PARTITION_METADATA, decode_partition_metadata
from odradek_proto.records import decode_records, iter_batches
from odradek_proto.topics import TopicPartition

from tests.interop.both_open import WAYS, compare_openings, open_log, opening_of, partitions_of
from tests.interop.dump_rows import check_against_kafka
from tests.interop.kafka.cluster import KafkaCluster
from tests.interop.kafka.writing import Writing, Written, create_topic, leaders, read_all, whole, write_transactions
from tests.interop.our_logs import Story, served
from tests.interop.planted import WHOLE_DIRECTORY, plant_all, plant_directory
from tests.seeds import TORTURE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]  # its programs are fetched once

TOPIC, OURS, LEDGER = "many", "ours", "ledger"
PARTITIONS = 3
SETTINGS = LogSettings(segment_bytes=8192, index_interval_bytes=500)
TOPIC_SETTINGS = {"internal.segment.bytes": "8192", "index.interval.bytes": "500"}
KAFKA_SETTINGS = [f"{name}={value}" for name, value in TOPIC_SETTINGS.items()]
NODES = (1, 2, 3)


@dataclass
class KafkaRun:
    """What a cluster of Kafka left behind: its directories, and every record that it acknowledged."""

    cluster: KafkaCluster
    kept: Path  # copies of the three log directories
    written: list[Written]

    def directories(self) -> Mapping[str, Path]:
        return {str(node): self.kept / f"broker-{node}" for node in NODES}

    def partitions(self) -> list[Path]:
        return [path for path in partitions_of(self.kept) if path.name.startswith(f"{TOPIC}-")]


async def live(cluster: KafkaCluster, now_ms: int) -> list[Written]:
    """Write in all codecs while a leader is killed and comes back; returns what was acknowledged."""
    await create_topic(cluster.bootstrap, TOPIC, PARTITIONS, TOPIC_SETTINGS)
    await create_topic(cluster.bootstrap, OURS, 1, {"internal.segment.bytes": "5000"})
    await create_topic(cluster.bootstrap, LEDGER, 1, {})
    writing = Writing(cluster.bootstrap, TOPIC, PARTITIONS, random.Random(1), now_ms)
    async with writing.producers() as producers:
        for partition in (0, 1):
            await writing.write(producers, 1500)
            await whole(cluster.bootstrap, TOPIC)  # or a slow machine has left the leader alone, and none can follow it
            target = (await leaders(cluster.bootstrap, TOPIC))[partition][0]
            under_way = asyncio.create_task(writing.write(producers, 1500))
            await asyncio.sleep(0)
            cluster.kill(target)
            await under_way
            cluster.start(target)
            await whole(cluster.bootstrap, TOPIC)
        await writing.write(producers, 1500)
    await write_transactions(cluster.bootstrap, LEDGER, ("commit", "abort", "commit", "abort"))
    for topic in (TOPIC, LEDGER):
        await whole(cluster.bootstrap, topic)  # the node that is killed in the end has all that was acknowledged
    return sorted(writing.written, key=lambda each: (each.partition, each.offset))


@pytest.fixture(scope="module")
def kafka_run(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> KafkaRun:
    """Three nodes of Kafka, written to, killed and stopped: the last node by kill -9, the others cleanly."""
    kafka.start()
    written = asyncio.run(live(kafka, int(time.time() * 1000) - 3_600_000))
    kafka.kill(NODES[-1])
    kafka.stop()
    kept = tmp_path_factory.mktemp("kept") / "cluster"
    shutil.copytree(kafka.root, kept)
    return KafkaRun(kafka, kept, written)


def records_of(batches: bytes, partition: int) -> list[Written]:
    """Every record of batches one behind the other, but for control records."""
    found = []
    for position, header in iter_batches(batches):
        if not header.is_control:
            found += [
                Written(
                    partition,
                    each.offset,
                    each.timestamp,
                    each.key,
                    each.value,
                    tuple((name, value or b"") for name, value in each.headers),
                )
                for each in decode_records(batches[position : position + header.size], header)
            ]
    return found


def test_the_run_is_worth_reading(kafka_run: KafkaRun) -> None:
    """Clean and unclean directories, many segments, leader epochs."""
    ends = [(path / CLEAN_SHUTDOWN).exists() for path in kafka_run.directories().values()]
    assert ends == [True, True, False]
    assert len(kafka_run.written) == 7500
    assert len(kafka_run.partitions()) == 9
    assert all(len(list(path.glob("*.log"))) > 5 for path in kafka_run.partitions())


def test_our_storage_serves_every_record_of_kafka(kafka_run: KafkaRun, tmp_path: Path) -> None:
    """Opened cleanly and after a kill, each replica gives back every acknowledged record as it was sent."""
    for number, directory in enumerate(kafka_run.partitions()):
        partition = int(directory.name.rpartition("-")[2])
        wanted = [each for each in kafka_run.written if each.partition == partition]
        known = set(wanted)
        for way in ("as it is", "from the start"):
            copied = tmp_path / f"{number}-{way.replace(' ', '-')}" / directory.name
            shutil.copytree(directory, copied)
            log = open_log(opening_of(directory, way, copied), SETTINGS)
            assert (log.recovery.cut_offset, log.recovery.cut_bytes) == (None, 0)
            assert [each for each in records_of(served(log), partition) if each in known] == wanted
            log.close(clean=True)


def test_both_storages_open_kafkas_logs_alike(classpath: str, kafka_run: KafkaRun, tmp_path: Path) -> None:
    """Believed, recovered and truncated by either: the same bytes are left."""
    found = compare_openings(classpath, kafka_run.partitions(), tmp_path, SETTINGS, KAFKA_SETTINGS)
    assert len(found) == 9 * len(WAYS)
    assert {key: wrong for key, wrong in found.items() if wrong} == {}


def test_our_dump_says_what_kafkas_dump_says(classpath: str, kafka_run: KafkaRun) -> None:
    """Row by row, over segments, indexes and snapshots.

    But for the killed node's: Kafka's tool complains of the room that Kafka left at the end of an active index.
    """
    clean = [path for path in kafka_run.partitions() if (path.parent / CLEAN_SHUTDOWN).exists()]
    assert len(clean) == 2 * PARTITIONS
    check_against_kafka(classpath, clean)


def odradek(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


def test_our_commands_read_kafkas_directories(kafka_run: KafkaRun) -> None:
    """`log verify` finds no problem, `log diff` of replicas no difference, `log dump` every batch."""
    first, *others = [path for path in kafka_run.partitions() if path.name == f"{TOPIC}-0"]
    verified = odradek("log", "verify", str(first), "--json")
    assert (verified.returncode, json.loads(verified.stdout)["problems"]) == (0, [])
    for other in others:
        compared = odradek("log", "diff", str(first), str(other), "--json")
        assert (compared.returncode, json.loads(compared.stdout)["problems"]) == (0, [])
    segment = min(first.glob("*.log"))
    dumped = odradek("log", "dump", str(segment), "--json")
    assert dumped.returncode == 0, dumped.stderr
    rows = [row for row in json.loads(dumped.stdout) if "baseOffset" in row]
    assert len(rows) == len(list(iter_batches(segment.read_bytes())))


def test_the_audit_finds_nothing_in_kafkas_directories(kafka_run: KafkaRun) -> None:
    """All topics, the metadata log and the clean and unclean ends of three real brokers."""
    report = audit(kafka_run.directories())
    assert [finding.sentence for finding in report.findings] == []
    assert report.exit_code == 0
    assert report.compared_records >= 2 * len(kafka_run.written)


@pytest.mark.skipif(not TORTURE, reason="every day it is planted in what is kept of such a run")
def test_planted_damage_in_kafkas_directories_is_found(kafka_run: KafkaRun, tmp_path: Path) -> None:
    """Each kind by name, replica, offset and epoch, as one class of findings; no near miss is reported. Other places
    are tried on what is kept of such a run (tests/audit/test_audit_two_passes.py)."""
    partitions = [TopicPartition(TOPIC, 0), TopicPartition(LEDGER, 0)]
    made = plant_all(kafka_run.directories(), partitions, tmp_path, seed=2, near_everywhere=False)
    assert made.wrong(audit(made.replicas).findings) == {}


@pytest.mark.parametrize("kind", WHOLE_DIRECTORY)
def test_a_directory_of_kafka_in_the_wrong_place_is_found(kafka_run: KafkaRun, tmp_path: Path, kind: str) -> None:
    """Once, and not for each partition in it."""
    made = plant_directory(kind, kafka_run.directories(), TopicPartition(TOPIC, 0), tmp_path)
    assert made.wrong(audit(made.replicas).findings) == {}


async def go_on(cluster: KafkaCluster, now_ms: int) -> tuple[list[Written], list[Written]]:
    """Read what is there, write more through all codecs, read again."""
    await whole(cluster.bootstrap, OURS)
    before = await read_all(cluster.bootstrap, OURS, 1)
    writing = Writing(cluster.bootstrap, OURS, 1, random.Random(2), now_ms)
    async with writing.producers() as producers:
        await writing.write(producers, 500)
    return before, await read_all(cluster.bootstrap, OURS, 1)


def test_kafka_goes_on_with_a_log_of_ours(kafka_run: KafkaRun, tmp_path: Path) -> None:
    """Brokers of Kafka start on a directory that our storage wrote, serve every record, append to it; ours reads on."""
    cluster = kafka_run.cluster
    home = cluster.directory(1) / f"{OURS}-0"
    topic_id = decode_partition_metadata((home / PARTITION_METADATA).read_bytes())
    now_ms = int(time.time() * 1000)
    life = Story(
        tmp_path / "story", TopicPartition(OURS, 0), random.Random(5), now_ms - 60_000, topic_id, elections=False
    )
    life.tell(400, clean_end=False)
    for node in NODES:
        home = cluster.directory(node) / f"{OURS}-0"
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "story" / f"{OURS}-0", home)
        (cluster.directory(node) / CLEAN_SHUTDOWN).unlink(missing_ok=True)
    ours = records_of(b"".join(path.read_bytes() for path in sorted(home.glob("*.log"))), 0)
    try:
        cluster.start()
        before, after = asyncio.run(go_on(cluster, now_ms))
    finally:
        cluster.stop()
    simple = [(each.offset, each.timestamp, each.key, each.value) for each in ours]
    assert [(each.offset, each.timestamp, each.key, each.value) for each in before] == simple
    assert after[: len(before)] == before
    assert len(after) == len(before) + 500
    log = open_log(opening_of(home, "as it is", home), SETTINGS)
    assert records_of(served(log), 0)[len(ours) :] == after[len(ours) :]
    log.close(clean=True)
