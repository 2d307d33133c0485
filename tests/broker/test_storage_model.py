"""A log against a list of batches: whatever is done to both, they say the same."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import iter_batches, read_header

from tests.broker.log_bench import START_MS, LogBench, batch


class LogAgainstList(RuleBasedStateMachine):
    """Append, roll, truncate, restart, retain, flush, end cleanly, be killed, lose power when all is flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = LogBench()
        self.model: list[bytes] = []
        self.log_start = 0
        self.end = 0
        self.epoch = 0

    @initialize(
        segment_bytes=st.sampled_from([300, 1000, 100_000]),
        interval=st.sampled_from([0, 150, 4096]),
        memory=st.sampled_from([0, 3000, 1 << 20]),
        flush_before_ack=st.booleans(),
        gaps=st.booleans(),
    )
    def begin(self, segment_bytes: int, interval: int, memory: int, flush_before_ack: bool, gaps: bool) -> None:
        self.cache = RecentBatches(memory)
        self.bench.gaps = gaps
        self.bench.settings = LogSettings(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_ms=1 << 60,
            retention_ms=-1,
            flush_before_ack=flush_before_ack,
        )
        self.bench.open(cache=self.cache)

    def reopen(self, *, clean: bool) -> None:
        self.bench.log_start = self.log_start
        self.bench.close(clean=clean)
        self.bench.open(clean=clean, cache=self.cache)

    @rule(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=8),
        newer=st.booleans(),
        gap=st.sampled_from([0, 0, 0, 3]),
    )
    def append(self, counts: list[int], newer: bool, gap: int) -> None:
        """A run of batches, perhaps of a new leader, perhaps behind a gap."""
        self.epoch += newer
        run, offset = [], self.end + gap * self.bench.gaps
        for place, records in enumerate(counts):
            run.append(batch(offset, records, epoch=self.epoch, producer=(place % 3, 0, offset)))
            offset += records
        self.bench.append(*run)
        self.model += run
        self.end = offset

    @rule()
    def roll(self) -> None:
        self.bench.log.roll(START_MS)

    @rule(share=st.floats(0, 1.1))
    def truncate(self, share: float) -> None:
        """Anywhere from the log start to above the end."""
        target = self.log_start + int(share * (self.end - self.log_start))
        kept = [each for each in self.model if read_header(each).next_offset <= target]
        spanning = [read_header(each).base_offset for each in self.model[len(kept) :]]
        last, before = read_header(kept[-1]).next_offset if kept else 0, self.end
        self.end = self.bench.truncate(target)
        if target >= before:
            assert self.end == before
        elif self.bench.gaps:
            assert last <= self.end <= min([target, *spanning])
        else:
            assert self.end == min([target, *spanning])
        self.log_start = min(self.log_start, self.end)
        self.model = kept
        self.epoch = max([read_header(each).leader_epoch for each in self.model], default=self.epoch)

    @rule(ahead=st.integers(0, 20))
    def restart(self, ahead: int) -> None:
        self.log_start = self.end = self.end + ahead
        self.model.clear()
        self.bench.log.restart_at(self.end)
        state = self.bench.log.state
        state.epochs.clear()
        self.bench.log.write_epochs(())

    @rule(share=st.floats(0, 1))
    def retain(self, share: float) -> None:
        start = self.log_start + int(share * (self.end - self.log_start))
        self.log_start = start
        self.model = [each for each in self.model if read_header(each).next_offset > start]
        log = self.bench.log
        log.advance_log_start(start)
        log.state.epochs.truncate_from_start(start)
        log.delete_before_log_start(START_MS)
        log.purge(START_MS + 10**9)

    @rule()
    def flush(self) -> None:
        self.bench.flush()
        assert self.bench.log.recovery_point == self.end

    @rule(clean=st.booleans())
    def end_and_begin(self, clean: bool) -> None:
        self.reopen(clean=clean)
        self.forget_gap()

    @precondition(lambda self: self.model)
    @rule()
    def lose_power(self) -> None:
        """Everything is flushed: nothing may be missing."""
        self.bench.flush()
        self.bench.log_start = self.log_start
        self.bench.files.detach()
        self.bench.disk.power_loss()
        self.bench.new_files()
        self.bench.open(clean=False, cache=self.cache)
        self.forget_gap()

    def forget_gap(self) -> None:
        """A log that was cut in a gap ends, once opened again, with its last batch."""
        last = read_header(self.model[-1]).next_offset if self.model else self.bench.log.end_offset
        assert last <= self.bench.log.end_offset <= self.end
        self.end = self.bench.log.end_offset

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 2000), back=st.integers(0, 30))
    def read(self, share: float, max_bytes: int, back: int) -> None:
        """Any read at all, against the list."""
        offset = self.log_start + int(share * (self.end - self.log_start))
        limit = self.end - back
        data = b"".join(self.bench.log.read(offset, max_bytes, limit))
        expected: list[bytes] = []
        for each in self.model:
            header = read_header(each)
            if header.next_offset <= offset:
                continue
            if header.next_offset > limit or (expected and len(b"".join(expected)) + len(each) > max_bytes):
                break
            expected.append(each)
            if len(each) > max_bytes:
                break
        assert [header.base_offset for _, header in iter_batches(data)] == [
            read_header(e).base_offset for e in expected
        ]
        assert data == b"".join(expected)

    @invariant()
    def they_say_the_same(self) -> None:
        if not hasattr(self, "cache"):
            return
        log = self.bench.log
        assert (log.log_start_offset, log.end_offset) == (self.log_start, self.end)
        assert log.log_start_offset <= log.recovery_point <= log.end_offset
        assert self.bench.read_all(max_bytes=700) == self.model
        assert self.cache.used_bytes <= self.cache.budget_bytes

    @invariant()
    def what_hangs_on_the_log_is_right(self) -> None:
        if not hasattr(self, "cache"):
            return
        state = self.bench.log.state
        producers = ProducerStates()
        for each in self.model:
            header = read_header(each)
            producers.update(header)
            assert state.epochs.epoch_for_offset(max(header.base_offset, self.log_start)) == header.leader_epoch
        for producer_id in range(3):
            mine, theirs = producers.get(producer_id), state.producers.get(producer_id)
            if mine is not None:
                assert theirs is not None
                assert theirs.batches[-len(mine.batches) :] == mine.batches

    def teardown(self) -> None:
        if hasattr(self.bench, "log"):
            self.bench.log.close(clean=True)


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(stateful_step_count=25)
