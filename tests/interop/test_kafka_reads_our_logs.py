"""Apache Kafka's own programs read what our storage and our brokers write."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from odradek_broker.storage.settings import LogSettings
from odradek_proto.topics import TopicPartition

from tests.audit.corruption import plant
from tests.interop.both_open import compare_openings, partitions_of
from tests.interop.dump_rows import check_against_kafka
from tests.interop.kafka.dump import dump, files_of
from tests.interop.our_logs import KAFKA_SETTINGS, SETTINGS, Story
from tests.seeds import unless_torture

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]  # its programs are fetched once

PARTITION = TopicPartition("story", 0)
KILL_ROUNDS = unless_torture(1, 6)  # four made 300 segments on one core with much other work
SEGMENT_BYTES = 16_384


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> list[Story]:
    """Twelve log directories of many small segments, each with a life of its own."""
    root = tmp_path_factory.mktemp("stories")
    now_ms = int(time.time() * 1000) - 60_000
    lives = [Story(root / f"seed-{seed}", PARTITION, random.Random(seed), now_ms) for seed in range(12)]
    for seed, life in enumerate(lives):
        life.tell(400, clean_end=seed % 2 == 0)
    assert sum(life.truncations for life in lives) > 30
    assert sum(life.kills for life in lives) > 20
    assert sum(life.moved_starts for life in lives) > 5
    assert sum(life.torn for life in lives) > 0
    return lives


@pytest.fixture(scope="module")
def killed_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directories of three real brokers that were killed while they were written to."""
    root = tmp_path_factory.mktemp("kills") / "cluster"
    command = [sys.executable, "-m", "odradek.cli.main", "chaos", "rounds", "--rounds", str(KILL_ROUNDS)]
    settings = ["-X", f"internal.segment.bytes={SEGMENT_BYTES}"]
    subprocess.run([*command, "--data", str(root), *settings], check=True, timeout=600)
    return root


def test_kafkas_dump_finds_nothing_in_our_logs(classpath: str, stories: list[Story], tmp_path: Path) -> None:
    """All codecs, headers, producers, rolls, truncations and kills: no complaint, and the same rows as ours.

    What a kill left in the middle of a write is recovered by our storage first.
    """
    roots = []
    for number, life in enumerate(stories):
        roots.append(tmp_path / str(number))
        shutil.copytree(life.root, roots[-1])
        if life.torn:
            again = replace(life, root=roots[-1])
            again.open()
            again.end(clean=True)
    found = check_against_kafka(classpath, roots)
    assert found.count(".log") > 100
    assert found.count(".snapshot") > 100
    codecs = {row["compresscodec"] for name, rows in found.rows.items() if name.endswith(".log") for row in rows}
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_kafkas_dump_finds_nothing_after_kills(classpath: str, killed_cluster: Path) -> None:
    """Three real brokers, killed and started again: no complaint over their log directories."""
    found = check_against_kafka(classpath, [killed_cluster])
    assert found.count(".log") > len(partitions_of(killed_cluster))  # how many segments each, is the machine's speed
    assert found.batches() > 80 * KILL_ROUNDS


def test_kafkas_storage_opens_our_logs_as_ours_does(classpath: str, stories: list[Story], tmp_path: Path) -> None:
    """Believed, recovered and truncated by either: the same bytes are left."""
    found = compare_openings(
        classpath, [path for life in stories for path in partitions_of(life.root)], tmp_path, SETTINGS, KAFKA_SETTINGS
    )
    assert len(found) >= 36
    assert {key: wrong for key, wrong in found.items() if wrong} == {}


def test_kafkas_storage_opens_the_logs_of_killed_brokers(classpath: str, killed_cluster: Path, tmp_path: Path) -> None:
    """The same with directories of real brokers."""
    directories = [path for path in partitions_of(killed_cluster) if path.name.startswith("orders-")]
    settings = LogSettings(segment_bytes=SEGMENT_BYTES)
    found = compare_openings(classpath, directories, tmp_path, settings, [f"internal.segment.bytes={SEGMENT_BYTES}"])
    assert len(found) == 36
    assert {key: wrong for key, wrong in found.items() if wrong} == {}


# The tool says so of Kafka's own compacted logs, too: of gaps, and of a batch without records that is the newest.
OF_COMPACTION = ("Non-consecutive offsets in", " is followed by ", "Found timestamp mismatch in", "log timestamp: -1")


def test_kafkas_storage_and_dump_take_our_compacted_logs(classpath: str, tmp_path: Path) -> None:
    """Cleaned, written on, cleaned again: gaps, batches without records, tombstones with a delete horizon."""
    now_ms = int(time.time() * 1000) - 60_000
    lives = [Story(tmp_path / f"seed-{seed}", PARTITION, random.Random(100 + seed), now_ms) for seed in range(6)]
    for life in lives:
        life.tell(150, clean_end=True)
        life.open()
        life.clean()
        for _ in range(20):
            life.append()
        life.clean()
        for _ in range(5):
            life.append()
        life.end(clean=True)
    found = check_against_kafka(classpath, [life.root for life in lives], known=OF_COMPACTION)
    assert found.count(".log") > 6
    batches = [row for name, rows in found.rows.items() if name.endswith(".log") for row in rows]
    assert any(row["count"] == "0" for row in batches)
    assert any(row["deleteHorizonMs"] != "OptionalLong.empty" for row in batches)
    assert any(int(row["baseOffset"]) > int(before["lastOffset"]) + 1 for before, row in pairwise(batches))
    directories = [path for life in lives for path in partitions_of(life.root)]
    opened = compare_openings(classpath, directories, tmp_path / "copies", SETTINGS, KAFKA_SETTINGS)
    # Kafka's log ends where it was cut, also inside of a gap; ours where the last batch that is left ends.
    assert {key: wrong for key, wrong in opened.items() if wrong and key[0] != "truncated"} == {}


def cut_file(suffix: str, size: int) -> Callable[[Path], None]:
    """Shorten the largest file of a kind by so many bytes."""

    def damage(directory: Path) -> None:
        path = max(directory.glob(f"*{suffix}"), key=lambda each: each.stat().st_size)
        path.write_bytes(path.read_bytes()[:-size])

    return damage


def planted(kind: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        plant(kind, directory.parent, PARTITION, random.Random(kind))

    return damage


DAMAGE: Iterable[tuple[str, Callable[[Path], None]]] = (
    *((kind, planted(kind)) for kind in ("flip-byte", "remove-batch", "misplace-index-entry", "age-time-entry")),
    ("torn log", cut_file(".log", 10)),
    ("torn snapshot", cut_file(".snapshot", 3)),
)


@pytest.mark.parametrize("damage", [damage for _, damage in DAMAGE], ids=[name for name, _ in DAMAGE])
def test_a_complaint_of_kafkas_dump_is_heard(classpath: str, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """The tool ends with exit code 0 over damaged files; its words are found all the same."""
    life = Story(tmp_path / "1", PARTITION, random.Random(3), int(time.time() * 1000) - 60_000)
    life.tell(150, clean_end=True)
    damage(tmp_path / "1" / "story-0")
    assert dump(classpath, files_of(tmp_path)).complaints
