"""The last five batches of each producer are known after every way of loading them, as they were before (R-245)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from odradek_broker.core.partition.producers import CachedBatch, ProducerStates
from odradek_broker.storage import producer_loading
from odradek_broker.storage.settings import LogSettings
from odradek_broker.storage.walk import walk_headers
from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader, ControlType, encode_control_batch, end_transaction_value, read_header
from odradek_proto.transport.ports import File

from tests.broker.log_bench import SMALL, START_MS, LogBench, batch, opened


class Writers:
    """Idempotent producers that write to one log."""

    def __init__(self, bench: LogBench) -> None:
        self.bench = bench
        self.sequences: dict[tuple[int, int], int] = {}

    def write(self, producer: int, *, epoch: int = 0, records: int = 1, size: int = 50) -> bytes:
        sequence = self.sequences.get((producer, epoch), 0)
        self.sequences[producer, epoch] = sequence + records
        made = batch(self.bench.log.end_offset, records, producer=(producer, epoch, sequence), size=size)
        self.bench.append(made)
        return made

    def mark(self, producer: int, epoch: int) -> None:
        """The end of a transaction."""
        made = encode_control_batch(
            ControlType.ABORT,
            end_transaction_value(0),
            base_offset=self.bench.log.end_offset,
            leader_epoch=0,
            timestamp=START_MS,
            producer_id=producer,
            producer_epoch=epoch,
        )
        self.bench.append(made)


def memory(states: ProducerStates) -> dict[int, tuple[int, list[CachedBatch]]]:
    """Without times: of a producer whose last batch a marker followed, a snapshot has that of the marker."""
    return {
        entry.producer_id: (entry.producer_epoch, [batch._replace(timestamp=-1) for batch in entry.batches])
        for entry in states.entries()
    }


def test_a_client_may_repeat_each_of_its_last_five_batches_after_a_clean_start(bench: LogBench) -> None:
    """R-245: five were on the wire, their answers were lost, everything was stopped cleanly. None is written again."""
    writers = Writers(bench)
    sent = [writers.write(7, records=3) for _ in range(7)][-5:]
    bench.reopen(clean=True)
    for each in sent:
        check = bench.log.state.producers.check(read_header(each), START_MS)
        known, header = check.duplicate, read_header(each)
        assert known is not None, check.error
        assert (known.first_offset, known.timestamp) == (header.base_offset, header.max_timestamp)


@pytest.mark.parametrize(
    ("segment_bytes", "interval"), [(300, 0), (300, 1 << 20), (1000, 200), (1 << 20, 0), (1 << 20, 200)]
)
@pytest.mark.parametrize("way", ["clean", "killed", "cut", "cut and clean", "log start moved"])
def test_whatever_was_written_is_remembered_alike(way: str, segment_bytes: int, interval: int) -> None:
    """Many producers, epochs, markers and batches of nobody, across segments: memory before and after is the same."""
    rng = random.Random(f"{way} {segment_bytes} {interval}")
    bench = opened(LogSettings(segment_bytes=segment_bytes, index_interval_bytes=interval, segment_ms=1 << 60))
    writers = Writers(bench)
    epochs: dict[int, int] = {}
    remembered = {}
    for _ in range(150):
        producer = rng.choice((1, 1, 1, 2, 2, 3, 4, 5))
        if producer == 5:
            bench.fill(1)
        elif rng.random() < 0.04:
            epochs[producer] = epochs.get(producer, 0) + rng.choice((0, 1))
            writers.mark(producer, epochs[producer])
        else:
            epochs[producer] = epochs.get(producer, 0) + (rng.random() < 0.03)
            writers.write(producer, epoch=epochs[producer], records=rng.randint(1, 3))
        if rng.random() < 0.05:
            bench.flush()
        remembered[bench.log.end_offset] = memory(bench.log.state.producers)
    if way.startswith("cut"):
        target = rng.choice([offset for offset in remembered if offset > 60])
        bench.truncate(target)
        assert memory(bench.log.state.producers) == remembered[target]
    if way == "log start moved":
        bench.log.advance_log_start(100)
        bench.log_start = 100
    if way != "cut":
        before = memory(bench.log.state.producers)
        bench.reopen(clean=way != "killed")
        assert memory(bench.log.state.producers) == before


def test_those_who_wrote_longer_ago_are_found_behind_those_who_wrote_last(bench: LogBench) -> None:
    """Each of them may have five on the wire: who fills the end of the log hides nobody."""
    writers = Writers(bench)
    bench.log.use(LogSettings(segment_bytes=1 << 30, index_interval_bytes=4096, segment_ms=1 << 60))
    bench.log.roll(START_MS)
    for producer in (1, 2, 3):
        for _ in range(8):
            writers.write(producer, size=9_000)
        for _ in range(40):
            bench.fill(1, size=9_000)
    before = memory(bench.log.state.producers)
    assert {len(batches) for _, batches in before.values()} == {5}
    bench.reopen(clean=True)
    assert memory(bench.log.state.producers) == before


@pytest.mark.parametrize("way", ["closed", "killed", "truncated"])
def test_an_older_producer_epoch_stays_fenced(bench: LogBench, way: str) -> None:
    """R-240: whoever was replaced is refused after a start as before."""
    writers = Writers(bench)
    for epoch in (0, 1):
        for _ in range(12):
            writers.write(7, epoch=epoch)
    if way == "truncated":
        bench.truncate(16)
    else:
        bench.reopen(clean=way == "closed")
    check = bench.log.state.producers.check(read_header(batch(99, producer=(7, 0, 12))), START_MS)
    assert check.error is ErrorCode.INVALID_PRODUCER_EPOCH


def read_while_opening(bench: LogBench, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of all batches that a clean start reads back."""
    seen: list[int] = []

    def walked(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        for at, header in walk_headers(file, position, end):
            seen.append(header.base_offset)
            yield at, header

    monkeypatch.setattr(producer_loading, "walk_headers", walked)
    bench.reopen(clean=True)
    return seen


def test_nobody_is_looked_for_who_lacks_nothing(bench: LogBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one batch, whose sequence began with it, and logs without producers cost nothing at a start."""
    writers = Writers(bench)
    for producer in range(20):
        writers.write(producer)
    bench.fill(20)
    assert read_while_opening(bench, monkeypatch) == []


@pytest.mark.parametrize(("limit", "value"), [("READ_BACK_BATCHES", 12), ("READ_BACK_BYTES", 1500)])
def test_reading_back_has_a_limit(bench: LogBench, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    """Who wrote long ago is known by the last batch, as in Kafka; a start does not read the whole log for it."""
    writers = Writers(bench)
    for _ in range(4):
        writers.write(7)
        bench.fill(40)
    monkeypatch.setattr(producer_loading, limit, value)
    monkeypatch.setattr(producer_loading, "FIRST_STEP_BYTES", 300)
    seen = read_while_opening(bench, monkeypatch)
    assert len(seen) <= 14
    assert len(bench.log.state.producers.entries()[0].batches) == 1
    assert bench.log.state.producers.entries()[0].last_sequence == 3


@pytest.mark.parametrize("byte", range(0, 61, 4))
def test_damage_where_it_is_read_back_does_not_keep_a_log_from_opening(bench: LogBench, byte: int) -> None:
    """A log that was closed cleanly is judged when it is read for somebody (R-233)."""
    writers = Writers(bench)
    for _ in range(30):
        writers.write(7)
    bench.close()
    bases = bench.names(".log")
    bench.disk.flip(bench.path(f"{bases[-2]:020d}.log"), byte)
    bench.open(clean=True)
    assert bench.log.state.producers.entries()[0].last_sequence == 29


@pytest.mark.parametrize("byte", range(0, 48, 3))
def test_a_damaged_index_hides_no_producer_for_good(byte: int) -> None:
    """The positions in it are asked (R-227): at worst earlier batches are missing, and nothing is invented."""
    bench = opened(LogSettings(segment_bytes=3000, index_interval_bytes=150, segment_ms=SMALL.segment_ms))
    writers = Writers(bench)
    for _ in range(60):
        writers.write(7)
        bench.fill(1)
    before = bench.log.state.producers.entries()[0].batches
    bench.close()
    for base in bench.names(".index"):
        path = bench.path(f"{base:020d}.index")
        if bench.files.size(path) > byte:
            bench.disk.flip(path, byte)
    bench.open(clean=True)
    after = bench.log.state.producers.entries()[0].batches
    assert after[-1] == before[-1]
    assert set(after) <= set(before)
