"""The logs as the checker reads them, and the first-commit table: each change of what was committed."""

from __future__ import annotations

import random

import pytest
from odradek_chaos.worlds.simulated.checks.at_rest import logs_at_rest
from odradek_chaos.worlds.simulated.checks.history import ReplicasHistory
from odradek_chaos.worlds.simulated.checks.state import ClusterState, ReplicaState
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.records import encode_batch, read_header, stamped_prefix

DIRECTORY = "/data/t-0"
FIRST, SECOND = 1, 2
PRODUCER = 42
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


def numbered(offset: int, sequence: int) -> bytes:
    """A batch of an idempotent producer."""
    data = encode_batch([(0, None, b"x", ())], producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
    header = read_header(data)
    return bytes(stamped_prefix(offset, header.length, 1)) + bytes(data[PREFIX:])


A, B, C = batch(0, 1, b"a"), batch(1, 1, b"b"), batch(2, 1, b"c")


def look(history: ReplicasHistory, replica: int, disk: SimDisk, end: int, high_watermark: int) -> str | None:
    """What the watcher does when a replica has changed."""
    return history.append(replica, disk, end) or history.commit(replica, high_watermark)


def test_equal_logs_are_fine_however_far_each_has_come() -> None:
    """A follower's high watermark comes later, and segments may be cut elsewhere."""
    history = ReplicasHistory(DIRECTORY)
    assert look(history, FIRST, disk(A, B, C), 3, 2) is None
    assert look(history, SECOND, disk(C, segment=2, found=disk(A, B)), 3, 3) is None
    assert look(history, FIRST, disk(A, B, C), 3, 3) is None
    assert history.committed_end == 3


def test_what_stands_above_the_high_watermark_may_differ() -> None:
    """A tail that nobody committed is truncated one day."""
    history = ReplicasHistory(DIRECTORY)
    assert look(history, FIRST, disk(A, B), 2, 2) is None
    assert look(history, SECOND, disk(A, batch(1, 0, b"x")), 2, 1) is None


@pytest.mark.parametrize(
    "other",
    [batch(1, 1, b"x"), batch(1, 2, b"b"), batch(2, 1, b"b")],
    ids=["other bytes", "other epoch", "other offset"],
)
def test_another_committed_batch_is_reported(other: bytes) -> None:
    """Bytes, leader epoch and offset all belong to what was committed."""
    history = ReplicasHistory(DIRECTORY)
    assert look(history, FIRST, disk(A, B), 2, 2) is None
    assert look(history, SECOND, disk(A, other), 2, 2) is not None


def test_other_bytes_of_one_offset_and_epoch_are_reported_above_the_high_watermark_too() -> None:
    """Two brokers led in one epoch, or a copy was changed (I-2)."""
    history = ReplicasHistory(DIRECTORY)
    assert look(history, FIRST, disk(A, B), 2, 1) is None
    assert look(history, SECOND, disk(A, batch(1, 1, b"x")), 2, 1) is not None


def test_an_end_or_a_high_watermark_above_the_log_is_reported() -> None:
    """Nobody may speak of what he does not have."""
    assert look(ReplicasHistory(DIRECTORY), FIRST, disk(A), 2, 0) is not None
    assert look(ReplicasHistory(DIRECTORY), FIRST, disk(A), 1, 2) is not None


def test_a_log_end_that_runs_ahead_of_the_writes_is_fine_where_it_may() -> None:
    """The quorum's core counts a record before the disk has it; what is committed it must have."""
    history = ReplicasHistory(DIRECTORY)
    assert history.append(FIRST, disk(A), 2, ahead=True) is None
    assert history.commit(FIRST, 2) is not None


def test_an_empty_log_that_begins_later_is_fine() -> None:
    """A replica whose leader has deleted the beginning starts where the leader does (R-84)."""
    assert look(ReplicasHistory(DIRECTORY), FIRST, disk(segment=7), 7, 7) is None


def test_a_replica_is_compared_anew_when_it_was_cut() -> None:
    """A truncation below the committed end shows when the place is filled with something else."""
    history = ReplicasHistory(DIRECTORY)
    assert look(history, FIRST, disk(A, B), 2, 2) is None
    history.view(FIRST).cut(1)
    rewritten = disk(A, batch(1, 3, b"y"))
    history.forget(FIRST)
    assert look(history, FIRST, rewritten, 2, 2) is not None


@pytest.mark.parametrize("end", [2, 3], ids=["as long as before", "longer"])
def test_a_log_that_was_rewritten_without_a_word_is_read_anew(end: int) -> None:
    """No event, no smaller end: but the last batch is not where it was. A log that only grew is not read twice."""
    history, mine = ReplicasHistory(DIRECTORY), disk(A, B)
    assert look(history, FIRST, disk(A, B), 2, 1) is None
    assert look(history, SECOND, mine, 2, 1) is None
    known = history.view(SECOND).batches[0]
    disk(A, B, C, found=mine)
    assert look(history, SECOND, mine, 3, 1) is None
    assert history.view(SECOND).batches[0] is known
    assert look(history, FIRST, disk(A, batch(1, 1, b"x"), C), end, 1) is not None


def test_a_segment_that_took_the_place_of_another_is_read_anew() -> None:
    """The bytes that were read once are still in memory, and no file any more."""
    history, mine = ReplicasHistory(DIRECTORY), disk(A, B)
    assert look(history, FIRST, mine, 2, 2) is None
    files = SimFiles(mine, SimLoop(1), random.Random(2))
    files.remove(f"{DIRECTORY}/{0:020d}.log")
    assert look(history, FIRST, disk(A, batch(1, 1, b"x"), C, found=mine), 3, 2) is not None


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [(A, B, []), (A, batch(1, 1, b"x"), ["log-matching"]), (A, batch(1, 2, b"b"), ["committed-prefix-immutable"])],
    ids=["as it was", "other bytes", "other epoch"],
)
def test_the_end_of_the_story_sees_what_changed_behind_the_newest_batch(
    first: bytes, second: bytes, found: list[str]
) -> None:
    """All was read and fine; later something changes that nobody looks at again."""
    now, mine = ClusterState(), disk(A, B, C)
    now.disks[FIRST], now.replicas[FIRST, "t-0"] = mine, ReplicaState(FIRST, 1, "t-0", 1, 3, 3)
    assert look(now.history("t-0"), FIRST, mine, 3, 3) is None
    disk(first, second, C, found=mine)
    assert [check for check, _ in logs_at_rest(now)] == found


def test_a_cut_takes_the_producers_back() -> None:
    """What a replay of the log gives is what the log that is left says (R-247)."""
    history = ReplicasHistory(DIRECTORY)
    first, second = numbered(0, 0), numbered(1, 1)
    assert history.append(FIRST, disk(first, second), 2) is None
    view = history.view(FIRST)
    assert view.producers == {PRODUCER: (0, 1)}
    view.cut(1)
    assert view.producers == {PRODUCER: (0, 0)}


def test_a_new_process_with_the_same_bytes_is_not_read_again() -> None:
    """What was judged stands, and what comes behind it is read and compared as ever."""
    history, mine = ReplicasHistory(DIRECTORY), disk(C, segment=2, found=disk(A, B))
    assert look(history, FIRST, mine, 3, 3) is None
    known = list(history.view(FIRST).batches)
    history.begin(FIRST, mine)
    assert all(new is old for new, old in zip(history.view(FIRST).batches, known, strict=True))
    assert look(history, SECOND, disk(A, B, C, batch(3, 1, b"d")), 4, 4) is None
    disk(C, batch(3, 1, b"x"), segment=2, found=mine)
    assert look(history, FIRST, mine, 4, 4) is not None


@pytest.mark.parametrize(
    ("changed", "kept"),
    [("first segment", 0), ("second segment", 2), ("another file", 2), ("first segment gone", 0)],
)
def test_a_new_process_is_read_anew_from_the_first_segment_that_changed(changed: str, kept: int) -> None:
    """Batches, producers and what was held against the first-commit table go back to there."""
    history, mine = ReplicasHistory(DIRECTORY), disk(C, segment=2, found=disk(A, B))
    assert look(history, FIRST, mine, 3, 3) is None
    first, second = f"{DIRECTORY}/{0:020d}.log", f"{DIRECTORY}/{2:020d}.log"
    if changed == "first segment":
        mine.flip(first, len(A) + 20)
    elif changed == "second segment":
        mine.flip(second, 20)
    else:
        SimFiles(mine, SimLoop(1), random.Random(2)).remove(second if changed == "another file" else first)
        if changed == "another file":
            disk(C, segment=2, found=mine)
    history.begin(FIRST, mine)
    view = history.view(FIRST)
    assert (len(view.batches), view.committed) == (kept, kept)
    assert (look(history, FIRST, mine, 3, 3) is None) == changed.startswith(("another", "first segment gone"))
