"""Hostile directories end in findings or in silence, never in a crash, a hang or a large allocation."""

from __future__ import annotations

import os
import random
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_audit.engine.local import audit
from odradek_audit.engine.parts import SMALLEST_SPLIT_BYTES, split_segment
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.facts import BatchFacts, BatchTable
from odradek_audit.inputs.layout import read_layout
from odradek_audit.inputs.scan import SegmentPart, scan_part, scan_replica
from odradek_proto.topics import TopicPartition

from tests.audit.sample import SampleLog, SamplePartition, WriteCluster, write_log_directory

SPARSE = 1 << 28  # bytes of a file that takes no room


def write_pair(root: Path) -> dict[str, Path]:
    """Two replicas of one partition with two segments."""
    log = SampleLog().fill(12, epoch=0).fill(12, epoch=2)
    sample = {TopicPartition("t", 0): SamplePartition(log, segment_bytes=7000)}
    return {str(node): write_log_directory(root / str(node), node, sample) for node in (1, 2)}


@given(seed=st.integers(0, 2**32))
def test_any_change_of_any_file_ends_in_a_report(seed: int) -> None:
    """Bytes flipped, cut, repeated, replaced by noise anywhere: there is a report, and the other replica is not
    blamed."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        replicas = write_pair(Path(name))
        files = sorted(path for path in replicas["2"].rglob("*") if path.is_file())
        for _ in range(chance.randint(1, 4)):
            path = chance.choice(files)
            path.write_bytes(mangle(path.read_bytes(), chance))
        report = audit(replicas)
    assert report.exit_code in (0, 1, 3)
    either = ("log-matching", "epoch-fork", "identity-mismatch")  # of two replicas that differ, either may be named
    assert all(finding.replica == "2" for finding in report.findings if finding.check not in either)
    for finding in report.findings:
        assert type(finding).from_json(finding.to_json()) == finding


def mangle(data: bytes, chance: random.Random) -> bytes:
    """One hostile change."""
    at = chance.randint(0, len(data))
    kind = chance.randrange(6)
    if kind == 0 and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + chance.randbytes(chance.randint(1, 200)) + data[at:]
    if kind == 3:
        return data[:at] + b"\xff" * 16 + data[at + 16 :]
    if kind == 4:
        return data[:at] + bytes(300) + data[at + 300 :]
    return data[:at] + data[max(0, at - 700) :]


@given(seed=st.integers(0, 2**32))
def test_parts_of_a_segment_say_what_the_whole_says(seed: int) -> None:
    """Wherever a damaged segment is cut, its parts give the same batches and the same unreadable stretches."""
    chance = random.Random(seed)
    log = SampleLog().fill(60, size=chance.choice([50, 400]), records=3)
    with tempfile.TemporaryDirectory() as name:
        root = write_log_directory(Path(name), 1, {TopicPartition("t", 0): SamplePartition(log)})
        path = root / "t-0" / f"{0:020d}.log"
        for _ in range(chance.randint(0, 3)):
            path.write_bytes(mangle(path.read_bytes(), chance))
        if chance.random() < 0.5:
            index = path.with_suffix(".index")
            index.write_bytes(mangle(index.read_bytes(), chance))
        inputs = read_layout(LocalDisk(), {"1": str(root)}).partitions[0].replicas["1"]
        segment = inputs.segments[0]
        parts = split_segment(LocalDisk(), inputs, segment, SMALLEST_SPLIT_BYTES)
        assert [part.end for part in parts[:-1]] == [part.start for part in parts[1:]]
        in_parts = [fact for part in parts for fact in scan_part(LocalDisk(), part)]
        whole = scan_replica(LocalDisk(), inputs)
    assert whole.pack() == BatchTable(in_parts).pack()


def test_segments_are_cut_at_the_index(tmp_path: Path) -> None:
    """A healthy segment is cut into parts of about the asked size."""
    log = SampleLog().fill(100, size=400)
    root = write_log_directory(tmp_path, 1, {TopicPartition("t", 0): SamplePartition(log)})
    inputs = read_layout(LocalDisk(), {"1": str(root)}).partitions[0].replicas["1"]
    sizes = [part.end - part.start for part in split_segment(LocalDisk(), inputs, inputs.segments[0], 20_000)]
    assert sum(sizes) == inputs.segments[0].size
    assert len(sizes) == 8
    assert max(sizes) < 30_000


@pytest.mark.parametrize("with_index", [True, False])
def test_large_claims_cost_no_memory(tmp_path: Path, with_index: bool) -> None:
    """A header that claims all of a large sparse file is not believed."""
    log = SampleLog().append([b"x"])
    root = write_log_directory(tmp_path, 1, {TopicPartition("t", 0): SamplePartition(log)})
    path = root / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[8:12] = (SPARSE // 2).to_bytes(4, "big")
    path.write_bytes(data)
    os.truncate(path, SPARSE)
    part = SegmentPart(str(path), 0, SPARSE, 0, 64 * 1024 * 1024)
    tracemalloc.start()
    facts = list(scan_part(LocalDisk(), part))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [fact.problem for fact in facts] == ["unreadable"]
    assert peak < SPARSE // 8


def test_links_pipes_and_odd_names_are_not_read(write_cluster: WriteCluster, log: SampleLog, tmp_path: Path) -> None:
    """A pipe would make the auditor wait for ever, a link would lead it elsewhere."""
    replicas = write_cluster(log, log)
    directory = replicas["2"] / "t-0"
    os.mkfifo(directory / f"{900:020d}.log")
    os.mkfifo(replicas["2"] / "log-start-offset-checkpoint.tmp")
    (replicas["2"] / "u-0").symlink_to("/")
    (directory / f"{901:020d}.log").symlink_to("/dev/zero")
    (directory / ("9" * 20 + ".log")).write_bytes(b"")
    (replicas["2"] / "cleaner-offset-checkpoint").mkdir()
    report = audit(replicas)
    assert {finding.check for finding in report.findings} == {"file-corrupt"}
    assert {finding.file for finding in report.findings} == {
        f"{900:020d}.log",
        f"{901:020d}.log",
        "9" * 20 + ".log",
        "cleaner-offset-checkpoint",
    }


def test_findings_are_bounded(write_cluster: WriteCluster) -> None:
    """A log that is broken everywhere gives some findings and the number of the others."""
    log = SampleLog().fill(300, records=1)
    replicas = write_cluster(log, log)
    path = replicas["2"] / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    for batch, start in enumerate(range(0, len(data), len(log.batches[0].data))):
        data[start + 70 if batch < 9 else start + 71] ^= 1
    path.write_bytes(data)
    report = audit(replicas)
    crc = [finding for finding in report.findings if finding.check == "crc-mismatch"]
    assert len(crc) == 50
    assert report.partitions[0].suppressed["crc-mismatch"] > 200


@given(
    facts=st.lists(
        st.builds(
            lambda **fields: BatchFacts(**fields),
            segment=st.integers(0, 2**60),
            position=st.integers(0, 2**40),
            size=st.integers(0, 2**31),
            base_offset=st.integers(-1, 2**60),
            crc=st.integers(0, 2**32 - 1),
            attributes=st.integers(-(2**15), 2**15 - 1),
            problem=st.sampled_from(["", "torn", "crc"]),
            detail=st.text(max_size=10),
        ),
        max_size=8,
    ),
    cut=st.integers(0, 8),
)
def test_tables_survive_the_way_to_another_process(facts: list[BatchFacts], cut: int) -> None:
    """Packed in two pieces and put together, a table is the one that it was."""
    whole, together = BatchTable(facts), BatchTable()
    for piece in (facts[:cut], facts[cut:]):
        together.extend_packed(BatchTable(piece).pack())
    assert together.pack() == whole.pack()
    assert together.problems == whole.problems
