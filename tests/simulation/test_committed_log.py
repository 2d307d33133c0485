"""The first-commit table: it must see each way in which committed records change, and nothing else."""

from __future__ import annotations

import random

import pytest
from odradek_chaos.worlds.simulated.committed import CommittedLog
from odradek_chaos.worlds.simulated.disk import SimDisk
from odradek_chaos.worlds.simulated.files import SimFiles
from odradek_chaos.worlds.simulated.loop import SimLoop
from odradek_proto.records import encode_batch, read_header, stamped_prefix

DIRECTORY = "/data/t-0"
FIRST, SECOND = 1, 2
PREFIX = 16  # base offset, length and leader epoch: what a leader stamps


def batch(offset: int, epoch: int, value: bytes) -> bytes:
    data = encode_batch([(0, None, value, ())])
    header = read_header(data)
    return bytes(stamped_prefix(offset, header.length, epoch)) + bytes(data[PREFIX:])


def disk(*batches: bytes, segment: int = 0, found: SimDisk | None = None) -> SimDisk:
    """A replica's disk with these batches in one segment file."""
    disk = found or SimDisk(random.Random(1))
    files = SimFiles(disk, SimLoop(1), random.Random(2))
    files.makedirs(DIRECTORY)
    file = files.open(f"{DIRECTORY}/{segment:020d}.log", create=True)
    file.pwritev(batches, 0)
    file.close()
    return disk


A, B, C = batch(0, 1, b"a"), batch(1, 1, b"b"), batch(2, 1, b"c")


def test_equal_logs_are_fine_however_far_each_has_come() -> None:
    """A follower's high watermark comes later, and segments may be cut elsewhere."""
    log = CommittedLog(DIRECTORY)
    assert log.compare(FIRST, disk(A, B, C), 2) is None
    assert log.compare(SECOND, disk(C, segment=2, found=disk(A, B)), 3) is None
    assert log.compare(FIRST, disk(A, B, C), 3) is None
    assert log.end_offset == 3


def test_what_stands_above_the_high_watermark_may_differ() -> None:
    """A tail that nobody committed is truncated one day."""
    log = CommittedLog(DIRECTORY)
    assert log.compare(FIRST, disk(A, B), 2) is None
    assert log.compare(SECOND, disk(A, batch(1, 0, b"x")), 1) is None


@pytest.mark.parametrize(
    "other",
    [batch(1, 1, b"x"), batch(1, 2, b"b"), batch(2, 1, b"b")],
    ids=["other bytes", "other epoch", "other offset"],
)
def test_another_committed_batch_is_reported(other: bytes) -> None:
    """Bytes, leader epoch and offset all belong to what was committed."""
    log = CommittedLog(DIRECTORY)
    assert log.compare(FIRST, disk(A, B), 2) is None
    assert log.compare(SECOND, disk(A, other), 2) is not None


def test_a_high_watermark_above_the_log_is_reported() -> None:
    """Nobody may call committed what he does not have."""
    assert CommittedLog(DIRECTORY).compare(FIRST, disk(A), 2) is not None


def test_a_replica_is_compared_anew_when_it_was_cut() -> None:
    """A truncation below the committed end shows when the place is filled with something else."""
    log = CommittedLog(DIRECTORY)
    assert log.compare(FIRST, disk(A, B), 2) is None
    rewritten = disk(A, batch(1, 3, b"y"))
    assert log.compare(FIRST, rewritten, 2) is None  # nobody said that it was cut
    log.forget(FIRST)
    assert log.compare(FIRST, rewritten, 2) is not None
