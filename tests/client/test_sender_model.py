"""The sender against a broker of one producer, whatever fails: records arrive once and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from odradek.core.batches import ProducerBatch
from odradek_proto.errors import ErrorCode
from odradek_proto.records import decode_records, read_header

from tests.client.sender_bench import Bench, sequences

FAULTS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)


@given(st.lists(st.integers(0, 10), min_size=20, max_size=120), st.integers(0, 1000), st.booleans())
def test_whatever_fails_records_arrive_once_and_in_order(steps: list[int], seed: int, forgetful: bool) -> None:
    """Answers lost before or after the append, refusals, broken streams: the log has each record once, in order.

    If the broker forgets all but the last batch some records fail; those that may be in the log say so.
    """
    bench = Bench(seed=seed, known=False)
    log = BrokerOfOneProducer()
    inbox: deque[ProducerBatch] = deque()
    answers: deque[tuple[ProducerBatch, ErrorCode, int]] = deque()
    values: list[str] = []

    def step(kind: int) -> None:
        if kind <= 2:
            values.append(str(len(values)))
            bench.put(values[-1])
        elif kind <= 4:
            bench.now += 30
            inbox.extend(bench.drain())
        elif kind <= 6 and inbox:
            batch = inbox.popleft()
            answers.append((batch, *log.append(batch.encoded)))
        elif kind == 7 and inbox:
            batch = inbox.popleft()
            answers.append((batch, FAULTS[len(values) % len(FAULTS)], -1))
        elif kind == 8 and answers:
            batch, code, offset = answers.popleft()
            bench.answer(batch, code, base_offset=offset)
        elif kind == 9:
            inbox.clear()
            answers.clear()
            bench.break_stream()
        elif kind == 10 and forgetful:
            del log.known[:-1]
        numbers = bench.sender.sequences
        if forgetful and numbers.needs_producer_id:
            numbers.on_producer_id(77, numbers.producer_epoch + 1)

    for kind in steps:
        step(kind)
    for _ in range(200):
        if not bench.sender.outstanding:
            break
        bench.now += 1_500
        for kind in (3, 5, 5, 5, 5, 5, 8, 8, 8, 8, 8):
            step(kind)
    assert not bench.sender.outstanding
    assert not bench.sender.sequences.needs_producer_id, "nothing here makes a hole"
    failed = [batch for batch in bench.finished if batch.error is not None]
    assert not failed or forgetful
    assert all(batch.error is not None and batch.error.maybe_written for batch in failed)
    assert log.values == sorted(set(log.values), key=int)
    assert len(values) - len(log.values) <= len(failed)


class BrokerOfOneProducer:
    """A second, plain version of R-240 and R-241 for one producer id, whose epochs rise; -1 when it is not known."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.epoch = -1
        self.known: list[tuple[int, int, int]] = []

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        header = read_header(data)
        first, last = header.base_sequence, header.last_sequence
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > self.epoch and (self.epoch < 0 or not first):
            self.epoch = header.producer_epoch
            self.known.clear()
        for known_first, known_last, offset in self.known[-5:]:
            if (known_first, known_last) == (first, last):
                return ErrorCode.NONE, offset
        if header.producer_epoch > self.epoch or (self.known and first != self.known[-1][1] + 1):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.values)
        self.known.append((first, last, offset))
        self.values += [(record.value or b"").decode() for record in decode_records(data, header)]
        return ErrorCode.NONE, offset


def test_sequences_wrap_from_the_last_number_to_zero() -> None:
    """R-241: after 2^31 - 1 comes 0, and a batch may wrap inside."""
    bench = Bench()
    bench.put("a")
    bench.drain()
    bench.queue.next_sequence = 0x7FFFFFFF
    two, three = bench.put("b", "c"), bench.put("d")
    assert sequences(bench.drain()) == [0x7FFFFFFF, 1]
    assert (two.next_sequence, three.next_sequence) == (1, 2)


def test_the_log_of_the_test_peer_agrees_with_the_plain_version(new_log: Callable[[], Any]) -> None:
    """The peer's own sequence check, which other tests lean on, finds duplicates and gaps."""
    bench = Bench()
    log = new_log()
    for value in "abc":
        bench.put(value)
    sent = bench.drain()
    assert log.append(sent[0].encoded) == (ErrorCode.NONE, 0)
    assert log.append(sent[2].encoded) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert log.append(sent[0].encoded) == (ErrorCode.NONE, 0)
    assert log.append(sent[1].encoded) == (ErrorCode.NONE, 1)
