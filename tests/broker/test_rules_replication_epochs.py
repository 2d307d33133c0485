"""Which epochs a log has when it is opened: those of the records that are there (R-61, R-66)."""

from __future__ import annotations

import pytest
from odradek_broker.storage.atomic import read_file
from odradek_proto.formats import LEADER_EPOCH_CHECKPOINT, decode_leader_epochs

from tests.broker.log_bench import LogBench


def test_epochs_below_the_recovery_point_come_back_too(bench: LogBench) -> None:
    """A lost file is read again from all batches, not only from those that a recovery walks through (R-61)."""
    for epoch in (0, 2):
        bench.fill(10, epoch=epoch)
    bench.flush()
    bench.fill(10, epoch=5)
    bench.close(clean=False)
    bench.files.remove(bench.path(LEADER_EPOCH_CHECKPOINT))
    bench.open(clean=False)
    assert bench.log.recovery.batches < 30
    assert bench.epochs() == ((0, 0), (2, 10), (5, 20))


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_without_its_segments_has_no_epochs(bench: LogBench, clean: bool) -> None:
    """It begins anew where it began; the epochs of records that are gone are nobody's (R-66)."""
    bench.fill(10, epoch=3)
    bench.log_start = 7
    bench.close(clean=clean)
    for suffix in (".log", ".index", ".timeindex"):
        for base in bench.names(suffix):
            bench.files.remove(bench.path(f"{base:020d}{suffix}"))
    bench.open(clean=clean)
    assert (bench.log.state.log_start_offset, bench.log.end_offset) == (7, 7)
    assert bench.epochs() == ()


def test_a_log_that_begins_anew_forgets_its_epochs_on_the_disk(bench: LogBench) -> None:
    """Before its segments go, and not only when the core says so: a kill may come in between (R-67, R-231)."""
    bench.fill(3, epoch=4)
    bench.log.restart_at(20)
    content = read_file(bench.files, bench.path(LEADER_EPOCH_CHECKPOINT))
    assert content is not None
    assert decode_leader_epochs(content) == []
    bench.log_start = 20
    bench.reopen(clean=False)
    assert (bench.epochs(), bench.log.end_offset) == ((), 20)
