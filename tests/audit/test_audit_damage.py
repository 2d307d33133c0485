"""Every kind of damage is found by name, replica, offset and epoch, and its near miss stays silent."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from odradek_audit.findings import Finding
from odradek_audit.local import audit
from odradek_audit.planting import KINDS, Planted, plant
from odradek_audit.sample import SampleLog, SamplePartition
from odradek_proto.formats import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    encode_leader_epochs,
    encode_offset_checkpoint,
)
from odradek_proto.topics import TopicPartition

PARTITION = TopicPartition("t", 0)


def is_found(planted: Planted, findings: list[Finding], replica: str = "2", topic: str = "t") -> bool:
    """Whether a finding names check, replica, offset and epoch of what was planted."""
    return any(
        (finding.check, finding.replica, finding.offset, finding.epoch, finding.file, finding.topic)
        == (planted.check, replica, planted.offset, planted.epoch, planted.file, topic)
        for finding in findings
    )


def test_healthy_replicas_agree(write_cluster: Callable[..., dict[str, Path]], log: SampleLog) -> None:
    """Equal logs in three directories give no finding, and everything is counted as compared."""
    report = audit(write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3))
    assert (report.verdict, report.exit_code, report.findings) == ("fine", 0, [])
    assert report.compared_records == 2 * 260
    assert report.compared_batches == 2 * 65


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_planted_damage_is_found(
    write_cluster: Callable[..., dict[str, Path]], log: SampleLog, kind: str, seed: int
) -> None:
    """The finding names what was planted, wherever chance put it."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3)
    planted = plant(kind, replicas["2"], PARTITION, random.Random(f"{kind}-{seed}"))
    report = audit(replicas)
    assert is_found(planted, report.findings), (planted, [finding.sentence for finding in report.findings])
    assert {finding.replica for finding in report.findings} == {"2"}
    assert report.exit_code == 3


def flip_in_torn_tail(directory: Path) -> None:
    """A half-written last batch, with a flipped byte in it."""
    last = sorted(directory.glob("*.log"))[-1]
    data = last.read_bytes()
    last.write_bytes(data + data[:40] + bytes([data[40] ^ 0xFF]) + data[41:100])


def zeros_at_end(directory: Path) -> None:
    """Room that was allocated and never written."""
    last = sorted(directory.glob("*.log"))[-1]
    last.write_bytes(last.read_bytes() + bytes(20_000))


def noise_in_ignored_files(directory: Path) -> None:
    """Files that are on their way out."""
    for suffix in (".log.deleted", ".log.swap", ".log.cleaned"):
        (directory / f"{7:020d}{suffix}").write_bytes(b"\xff" * 500)
    (directory.parent / "t-0.0123456789abcdef-delete").mkdir()
    (directory.parent / "t-0.0123456789abcdef-delete" / f"{0:020d}.log").write_bytes(b"\xff" * 500)


def cleaned_batches(directory: Path) -> None:
    """Kafka's cleaner has removed batches below its checkpoint."""
    first = min(directory.glob("*.log"))
    data = first.read_bytes()
    size = 12 + int.from_bytes(data[8:12], "big")
    first.write_bytes(data[:size] + data[2 * size :])
    first.with_suffix(".index").unlink()
    first.with_suffix(".timeindex").unlink()
    (directory.parent / "cleaner-offset-checkpoint").write_bytes(encode_offset_checkpoint({PARTITION: 12}))


def merged_segments(directory: Path) -> None:
    """Other segment boundaries: two segments put together into one."""
    first, second = sorted(directory.glob("*.log"))[:2]
    first.write_bytes(first.read_bytes() + second.read_bytes())
    for path in (second, *directory.glob("*index")):
        path.unlink()


def padded_index(directory: Path) -> None:
    """The active segment's indexes have room for more entries."""
    for suffix, size in ((OFFSET_INDEX_SUFFIX, 8), (TIME_INDEX_SUFFIX, 12)):
        for path in directory.glob(f"*{suffix}"):
            path.write_bytes(path.read_bytes() + bytes(size * 100))


def no_index(directory: Path) -> None:
    """A log without indexes, which a broker builds anew."""
    for path in directory.glob("*index"):
        path.unlink()


def earlier_position(directory: Path) -> None:
    """An index entry that points to an earlier batch: slower, and still right, as followers of an older Kafka write
    it."""
    path = min(directory.glob("*.index"))
    data = bytearray(path.read_bytes())
    data[4:8] = bytes(4)
    path.write_bytes(data)


def stale_front_epoch(directory: Path) -> None:
    """The epoch file still has an epoch whose records retention removed."""
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()


def epoch_without_records(directory: Path) -> None:
    """A leader that was elected and wrote nothing."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    path.write_bytes(encode_leader_epochs([(0, 0), (1, 60), (3, 140), (7, 260)]))


def no_topic_id(directory: Path) -> None:
    """A directory from before topic ids."""
    (directory / PARTITION_METADATA).unlink()


def behind_checkpoints(directory: Path) -> None:
    """Checkpoints that are older than the log."""
    marks = encode_offset_checkpoint({PARTITION: 16})
    (directory.parent / "replication-offset-checkpoint").write_bytes(marks)
    (directory.parent / "recovery-point-offset-checkpoint").write_bytes(marks)


NEAR_MISSES = (
    flip_in_torn_tail,
    zeros_at_end,
    noise_in_ignored_files,
    cleaned_batches,
    merged_segments,
    padded_index,
    no_index,
    earlier_position,
    stale_front_epoch,
    epoch_without_records,
    no_topic_id,
    behind_checkpoints,
)


@pytest.mark.parametrize("change", NEAR_MISSES, ids=lambda change: change.__name__)
def test_near_miss_stays_silent(
    write_cluster: Callable[..., dict[str, Path]], log: SampleLog, change: Callable[[Path], None]
) -> None:
    """What a healthy broker may leave behind is no finding."""
    replicas = write_cluster(*[SamplePartition(log, segment_bytes=9000)] * 3)
    change(replicas["2"] / "t-0")
    report = audit(replicas)
    assert [finding.sentence for finding in report.findings] == []
    assert report.exit_code == 0


@pytest.mark.parametrize("change", [flip_in_torn_tail, zeros_at_end])
def test_tail_after_clean_shutdown_is_found(
    write_cluster: Callable[..., dict[str, Path]], log: SampleLog, change: Callable[[Path], None]
) -> None:
    """The same tail is a finding when the broker said that it had stopped cleanly."""
    replicas = write_cluster(log, log, clean_shutdown=True)
    change(replicas["2"] / "t-0")
    assert {(finding.check, finding.replica) for finding in audit(replicas).findings} == {("torn-tail", "2")}


def test_torn_tail_below_recovery_point_is_found(write_cluster: Callable[..., dict[str, Path]], log: SampleLog) -> None:
    """What was flushed cannot be torn."""
    sample = SamplePartition(log, recovery_point=260)
    replicas = write_cluster(sample, sample)
    path = replicas["1"] / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-30])
    found = {(finding.check, finding.offset) for finding in audit(replicas).findings}
    assert ("torn-tail", 256) in found


def test_lagging_follower_is_no_finding(write_cluster: Callable[..., dict[str, Path]], log: SampleLog) -> None:
    """A shorter log is compared as far as it goes."""
    report = audit(write_cluster(log, SamplePartition(log.up_to(100), high_watermark=90)))
    assert report.exit_code == 0
    assert report.compared_records == 100


def test_different_log_starts_are_no_finding(write_cluster: Callable[..., dict[str, Path]], log: SampleLog) -> None:
    """Retention runs on every replica on its own (R-164); only the common range is compared."""
    short = log.since(80)
    report = audit(write_cluster(log, replace(SamplePartition(short), epochs=[(1, 80), (3, 140)])))
    assert [finding.sentence for finding in report.findings] == []
    assert report.compared_records == 180
