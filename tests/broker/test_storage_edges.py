"""Edges of the storage that mutants were not caught at: the last number that fits, the last byte, what is flushed."""

from __future__ import annotations

import pytest
from odradek_chaos.worlds.simulated.inodes import Inode
from odradek_proto.records import HEADER_SIZE

from tests.broker.log_bench import DIRECTORY, START_MS, LogBench, batch, offsets


@pytest.fixture
def bench() -> LogBench:
    made = LogBench()
    made.open()
    return made


def lost_by_a_power_loss(bench: LogBench, suffixes: tuple[str, ...]) -> list[int]:
    """Base offsets of the files with these suffixes that a power loss would change or take."""
    directory = bench.disk.directory(DIRECTORY)
    lost = []
    for name, entry in sorted(directory.entries.items()):
        if not name.endswith(suffixes):
            continue
        assert isinstance(entry, Inode)
        if directory.durable.get(name) is not entry or bytes(entry.durable()) != bytes(entry.data):
            lost.append(int(name.split(".")[0]))
    return lost


def test_indexes_are_durable_where_they_are_believed(bench: LogBench) -> None:
    """Of complete segments after a flush, since recovery does not read those again; after a clean end all (R-238)."""
    for place in range(30):
        bench.fill(1, timestamp=START_MS + place)
    complete = [segment.base_offset for segment in bench.log.segments[:-1]]
    assert lost_by_a_power_loss(bench, (".index",))[: len(complete)] == complete
    bench.flush()
    assert not set(lost_by_a_power_loss(bench, (".index", ".timeindex"))) & set(complete)
    active = bench.log.segments[-1]
    assert active.index.entries
    bench.close()
    assert lost_by_a_power_loss(bench, (".index", ".timeindex", ".log")) == []


@pytest.mark.parametrize("missing", [1, 30, 50])
def test_a_clean_mark_on_a_log_that_lacks_its_last_bytes_is_not_believed(bench: LogBench, missing: int) -> None:
    """The last batch has its whole header, which speaks of more than there is (R-234)."""
    written = bench.fill(4)
    assert len(written[-1]) - missing >= HEADER_SIZE
    path = bench.log.segments[-1].path
    bench.close()
    bench.files.open(path).truncate(sum(map(len, written)) - missing)
    bench.open(clean=True)
    assert bench.log.end_offset == 3
    assert bench.read_all() == written[:3]


def test_the_largest_offset_that_an_index_can_span_stays_in_the_segment(bench: LogBench) -> None:
    """Relative offsets have 31 bits and a sign: the last one that fits begins no segment, the next one does (R-225)."""
    bench.fill(1)
    bench.append(batch((1 << 31) - 1))
    assert [segment.base_offset for segment in bench.log.segments] == [0]
    bench.append(batch(1 << 31))
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1 << 31]
    assert offsets(bench.read_all()) == [0, (1 << 31) - 1, 1 << 31]
