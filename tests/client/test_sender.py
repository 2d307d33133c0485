"""The producer's decisions, stepped by hand: order, sequence numbers, retries, expiry (R-249, CL-07 to CL-11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from odradek.core.batches import ProducerBatch
from odradek.core.sender import DropStream, RefreshMetadata
from odradek.core.sequences import Sequences
from odradek.shared.errors import BootstrapError, BrokerError, DeliveryTimeout, RecordTooLarge
from odradek_proto.errors import ErrorCode
from odradek_proto.records import read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import broker_pb2 as pb

from tests.client.sender_bench import PLENTY, Bench, sequences


@pytest.fixture
def bench() -> Bench:
    """With the settings that there are by default."""
    return Bench()


def test_a_lone_record_goes_at_once(bench: Bench) -> None:
    """With linger.ms=0 and nothing on the wire a batch does not wait for more."""
    batch = bench.put("a", full=False)
    assert bench.drain() == [batch]


def test_records_gather_while_a_batch_is_on_the_wire(bench: Bench) -> None:
    """With linger.ms=0 what comes before the answer travels together."""
    first = bench.put("a", full=False)
    bench.drain()
    second = bench.put("b", full=False)
    bench.put("c", full=False)
    assert bench.drain() == []
    bench.answer(first)
    assert bench.drain() == [second]
    assert second.count == 2


def test_linger_delays_a_batch_until_it_is_due_or_full() -> None:
    """linger.ms is counted from the batch's first record; a full batch does not wait for it."""
    bench = Bench(linger_ms=5)
    batch = bench.put("a", full=False)
    assert bench.drain() == []
    assert bench.sender.next_deadline_ms(bench.now) == bench.now + 5
    assert bench.drain_after(5) == [batch]
    full = bench.put("b", full=True)
    assert bench.drain() == [full]


def test_a_hurry_ends_lingering() -> None:
    """Who flushes, or waits for room, does not wait for linger.ms."""
    bench = Bench(linger_ms=1000)
    batch = bench.put("a", full=False)
    bench.sender.hurry = True
    assert bench.drain() == [batch]


@pytest.mark.parametrize("idempotent", [True, False])
def test_at_most_five_batches_of_a_partition_are_on_the_wire(idempotent: bool) -> None:
    """R-245: a broker remembers five batches of a producer; the setting holds whether they are numbered or not."""
    bench = Bench(enable_idempotence=idempotent)
    for number in range(7):
        bench.put(str(number))
    assert len(bench.drain()) == 5
    assert bench.drain() == []


def test_retries_keep_order_and_sequence(bench: Bench) -> None:
    """CL-07, R-249: both batches fail, and go again in their order, with their numbers, before anything younger."""
    one, two = bench.put("a", "b"), bench.put("c")
    assert sequences(bench.drain()) == [0, 2]
    three = bench.put("d")
    bench.answer(one, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.answer(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bench.drain() == []
    bench.wait(100)
    again = bench.drain()
    assert again == [one, two]
    assert sequences(again) == [0, 2]
    bench.answer(one)
    assert bench.drain() == [three]
    assert sequences([three]) == [3]


def test_out_of_order_answers_do_not_bump(bench: Bench) -> None:
    """CL-08: a later batch is refused because an earlier one was, and is heard of first; it is only tried again."""
    one, two = bench.sent("a", "b")
    bench.answer(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert not bench.sender.sequences.needs_producer_id
    bench.answer(one, base_offset=10)
    assert sequences(bench.drain_after(100)) == [1]
    bench.answer(two, base_offset=11)
    assert [batch.base_offset for batch in bench.finished] == [10, 11]


def test_a_hole_before_the_next_batch_bumps_the_epoch(bench: Bench) -> None:
    """CL-09: the batch right after the last acknowledged one is out of order: renumber from 0 under a new epoch."""
    [one] = bench.sent("a")
    bench.answer(one)
    two, three = bench.sent("b", "c")
    bench.answer(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bench.sender.sequences.needs_producer_id
    assert bench.drain_after(100) == [], "nothing goes while the third is on the wire under the old epoch"
    bench.answer(three, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bench.drain() == [], "nothing goes without the new epoch"
    bench.sender.sequences.on_producer_id(77, 1)
    assert bench.drain() == [two]
    bench.answer(two)
    assert bench.drain() == [three]
    header = read_header(three.encoded)
    assert (header.producer_epoch, header.base_sequence) == (1, 1)


def test_who_is_overtaken_by_a_larger_epoch_leaves_the_producer_id(bench: Bench) -> None:
    """R-240: a stranger who writes under it with the largest epoch would hold the producer up for ever."""
    [batch] = bench.sent("a")
    bench.answer(batch, ErrorCode.INVALID_PRODUCER_EPOCH)
    sequences = bench.sender.sequences
    assert sequences.needs_producer_id
    assert (sequences.producer_id, sequences.producer_epoch) == (-1, -1), "what the next id is asked for with"
    assert bench.drain_after(100) == []
    sequences.on_producer_id(78, 0)
    assert bench.drain() == [batch]
    header = read_header(batch.encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (78, 0, 0)


GAPS = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH)


@pytest.mark.parametrize("code", GAPS)
def test_a_batch_that_may_be_written_is_not_sent_under_another_epoch(bench: Bench, code: ErrorCode) -> None:
    """R-249: its answer was lost, and a broker that has forgotten it takes its repetition for a gap. So the records may
    be in the log, and the caller is told; the broker would not recognise them under a new epoch."""
    one, two = bench.sent("a", "b")
    bench.break_stream()
    assert bench.drain_after(100) == [one, two]
    third = bench.put("c")
    bench.answer(one, code)
    assert isinstance(one.error, BrokerError)
    assert (one.error.code, one.error.maybe_written) == (code, True)
    assert "an earlier attempt may have written these records: they are not sent again" in one.error.message
    assert not bench.sender.sequences.needs_producer_id
    bench.answer(two)
    assert not bench.sender.sequences.needs_producer_id, "what was known of the first is known by the second"
    assert sequences(bench.drain_after(100)) == [2]
    assert (two.error, third.done) == (None, False)


def test_what_was_never_sent_goes_on_behind_batches_that_may_be_written(bench: Bench) -> None:
    """The broker knows none of them any more: they fail, and the next begins a new epoch."""
    one, two = bench.sent("a", "b")
    bench.break_stream()
    bench.drain_after(100)
    third = bench.put("c")
    bench.answer(one, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.answer(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bench.finished == [one, two]
    bench.sender.sequences.on_producer_id(77, 1)
    assert bench.drain_after(100) == [third]
    assert (sequences([third]), read_header(third.encoded).producer_epoch) == ([0], 1)


def test_a_new_epoch_leaves_out_who_may_be_written(bench: Bench) -> None:
    """R-249: the first was refused before it was written, so it goes again. The answer to the second was lost."""
    one, two, third = bench.sent("a", "b", "c")
    bench.answer(one, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.answer(third, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.break_stream()
    bench.sender.sequences.on_producer_id(77, 1)
    assert bench.drain_after(100) == [one]
    assert sequences([one]) == [0]
    bench.answer(one)
    assert bench.drain() == [third]
    assert sequences([third]) == [1]
    assert isinstance(two.error, BrokerError)
    assert two.error.maybe_written


def test_an_error_for_good_says_that_an_earlier_attempt_may_have_written(bench: Bench) -> None:
    """R-15: the broker refused the repetition, and nobody knows what became of the first."""
    one, two = bench.sent("a", "b")
    bench.answer(two, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    bench.break_stream()
    bench.drain_after(100)
    bench.answer(one, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert [batch.error.maybe_written for batch in (one, two) if batch.error] == [True, False]


def test_a_duplicate_is_a_success_without_an_offset(bench: Bench) -> None:
    """CL-10: DUPLICATE_SEQUENCE_NUMBER says that the record is there, not where."""
    [batch] = bench.sent("a")
    bench.answer(batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, base_offset=-1)
    assert bench.finished == [batch]
    assert batch.error is None
    assert batch.metadata(0).offset == -1


def sent_until_the_first_expires(bench: Bench) -> tuple[ProducerBatch, ProducerBatch]:
    """Two batches half a second apart, of which none is answered within the second that there is."""
    [one] = bench.sent("a")
    bench.now += 500
    [two] = bench.sent("b")
    bench.wait(500)
    return one, two


def test_an_expired_batch_is_resolved_by_those_after_it() -> None:
    """CL-11: the first expires, the second succeeds: there is no hole, and nothing is bumped."""
    bench = Bench(delivery_timeout_ms=1_000)
    one, two = sent_until_the_first_expires(bench)
    assert isinstance(one.error, DeliveryTimeout)
    assert one.error.maybe_written
    third = bench.put("c")
    assert bench.drain() == [], "nothing new before it is known what became of the first"
    bench.answer(two)
    bench.answer(one)
    assert not bench.sender.sequences.needs_producer_id
    assert bench.drain() == [third]
    assert sequences([third]) == [2]


def test_an_expired_batch_that_left_a_hole_bumps_the_epoch() -> None:
    """The broker never got the expired batch: what comes next starts a new epoch."""
    bench = Bench(delivery_timeout_ms=1_000)
    [one] = bench.sent("a")
    bench.wait(1_000)
    bench.answer(one, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert bench.sender.sequences.needs_producer_id
    bench.put("b")
    bench.sender.sequences.on_producer_id(77, 1)
    bench.wait(1_000 - 1)
    assert sequences(bench.drain()) == [0]


def test_an_error_that_cannot_be_retried_ends_one_batch_only(bench: Bench) -> None:
    """The batch fails with the broker's error, the next one goes on under a new epoch."""
    one, two = bench.sent("a", "b")
    bench.answer(one, ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(one.error, BrokerError)
    assert one.error.code is ErrorCode.MESSAGE_TOO_LARGE
    bench.answer(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.sender.sequences.on_producer_id(77, 1)
    assert bench.drain_after(100) == [two]
    assert sequences([two]) == [0]


def test_a_new_leader_gets_the_batches_at_once(bench: Bench) -> None:
    """A refused batch does not sit out its pause when metadata names another leader."""
    [batch] = bench.sent("a")
    bench.answer(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader_id=-1)
    assert any(isinstance(effect, RefreshMetadata) for effect in bench.other)
    assert bench.drain(broker=2) == []
    bench.lead(2)
    assert bench.drain(broker=1) == []
    assert bench.drain(broker=2) == [batch]


def test_a_hint_of_the_new_leader_is_used_at_once(bench: Bench) -> None:
    """KIP-951: NOT_LEADER_OR_FOLLOWER with the new leader needs no metadata."""
    [batch] = bench.sent("a")
    bench.answer(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader_id=3, current_leader_epoch=9)
    assert bench.drain(broker=3) == [batch]


def test_a_broken_stream_returns_its_batches_in_order(bench: Bench) -> None:
    """Nobody knows what was written, so all of them go again with their numbers."""
    sent = [bench.put(str(number)) for number in range(3)]
    bench.drain()
    bench.break_stream()
    assert bench.drain_after(100) == sent
    assert sequences(sent) == [0, 1, 2]


def again_at_a_new_leader(bench: Bench) -> None:
    [batch] = bench.sent("before")
    bench.answer(batch)
    bench.lead(2)


def again_after_an_election(bench: Bench) -> None:
    [batch] = bench.sent("before")
    bench.answer(batch)
    bench.lead(1)


def again_in_a_topic_made_anew(bench: Bench) -> None:
    bench.put("one")
    bench.put("two")
    for batch in bench.drain():
        bench.answer(batch, ErrorCode.UNKNOWN_TOPIC_ID)
    bench.wait(200)


def again_under_a_new_epoch(bench: Bench) -> None:
    bench.sender.sequences.on_producer_id(77, 1)


@pytest.mark.parametrize(
    "unknown", [again_at_a_new_leader, again_after_an_election, again_in_a_topic_made_anew, again_under_a_new_epoch]
)
def test_a_leader_that_may_not_know_the_producer_gets_one_batch_at_a_time(
    bench: Bench, unknown: Callable[[Bench], None]
) -> None:
    """R-241, R-249: such a leader takes any number. It refuses the first since it does not lead yet; had the second
    been behind it and been taken, the first would be refused for good. Until it has acknowledged one, none follows."""
    unknown(bench)
    first, *others = [*bench.queue.waiting, *(bench.put(str(number)) for number in range(5))][:5]
    leader = bench.queue.leader_id
    for _ in range(2):
        assert bench.drain(leader) == [first]
        assert bench.drain(leader) == []
        bench.answer(first, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader_id=-1)
        bench.wait(200)
    bench.drain(leader)
    bench.answer(first)
    assert bench.drain(leader)[:4] == others


def test_an_answer_of_the_last_leader_does_not_speak_for_the_next(bench: Bench) -> None:
    """It was on its way while the partition got another leader."""
    [one] = bench.sent("a")
    bench.lead(2)
    bench.answer(one)
    two = bench.put("b")
    bench.put("c")
    assert bench.drain(broker=2) == [two]


def test_a_frozen_leader_is_left_when_another_leads(bench: Bench) -> None:
    """A broker that owes an answer is asked about, and dropped once metadata shows another leader."""
    bench.put("a")
    bench.drain()
    bench.wait(1_000)
    assert any(isinstance(effect, RefreshMetadata) for effect in bench.other)
    bench.lead(2)
    assert DropStream(1) in bench.other


def test_retries_are_bounded_by_number_too() -> None:
    """With retries=1 the second refusal is final."""
    bench = Bench(retries=1)
    batch = bench.put("a")
    for _ in range(2):
        assert bench.drain_after(1_000) == [batch]
        bench.answer(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert isinstance(batch.error, BrokerError)


@pytest.mark.parametrize(
    ("code", "maybe"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (None, True),  # the stream broke, and the answer may have been on its way
    ],
)
def test_a_timeout_says_whether_the_record_may_be_written(code: ErrorCode | None, maybe: bool) -> None:
    """R-15: only NOT_ENOUGH_REPLICAS says that nothing was written. Attempts are counted, one is not "1 attempts"."""
    bench = Bench(delivery_timeout_ms=1_000)
    [batch] = bench.sent("a")
    if code is None:
        bench.break_stream()
    else:
        bench.answer(batch, code)
    bench.wait(1_000)
    assert isinstance(batch.error, DeliveryTimeout)
    assert batch.error.maybe_written is maybe
    assert " 1 attempt; the last error was: " in str(batch.error)
    assert ("gone" if code is None else code.name) in str(batch.error)


@pytest.mark.parametrize("refusal", [None, BootstrapError({"broker:1": "connection refused"})])
def test_what_was_never_sent_says_why(refusal: BootstrapError | None) -> None:
    """Without a majority of the controllers nobody gives a new producer its id."""
    bench = Bench(delivery_timeout_ms=1_000)
    bench.sender.sequences = Sequences(5, wanted=True)
    bench.sender.sequences.refusal = refusal
    batch = bench.put("a")
    assert bench.drain() == []
    bench.wait(1_000)
    assert isinstance(batch.error, DeliveryTimeout)
    assert not batch.error.maybe_written
    assert "never sent; no broker has given this producer its id and epoch" in str(batch.error)
    assert ("connection refused" in str(batch.error)) is (refusal is not None)


def test_nobody_reached_is_one_text_in_whatever_order_the_brokers_were_asked() -> None:
    """`odradek produce` counts what is the same: records are not of three kinds because three brokers were shuffled."""
    causes = {f"broker:{number}": "connection refused" for number in (3, 1, 2)}
    error = BootstrapError(causes)
    assert str(error) == str(BootstrapError(dict(reversed(causes.items()))))
    assert "broker:1: connection refused; broker:2: connection refused; broker:3" in str(error)
    assert list(error.causes) == ["broker:3", "broker:1", "broker:2"]


def test_unanswered_bytes_stay_within_the_credit(bench: Bench) -> None:
    """A batch for which there is no room waits, one larger than the whole credit fails."""
    one, two = bench.put("a" * 100), bench.put("b" * 100)
    size = len(one.encode(bench.config.codec, 77, 0))
    one.renumber(-1)
    assert bench.drain(room=size + 10, credit=1_000) == [one]
    assert bench.drain(room=10, credit=1_000) == []
    assert bench.drain(room=size, credit=1_000) == [two]
    large = bench.put("c" * 2_000)
    assert bench.drain(room=1_000, credit=1_000) == []
    assert isinstance(large.error, RecordTooLarge)


def test_buffer_memory_is_given_back() -> None:
    """What was taken from buffer.memory is free again when a batch is done, well or not."""
    bench = Bench(delivery_timeout_ms=1_000)
    one = bench.put("a", "b")
    bench.drain()
    bench.answer(one)
    bench.put("c")
    bench.wait(1_000)
    assert (bench.sender.buffered_bytes, bench.sender.outstanding) == (0, 0)


def test_acks_zero_is_done_when_it_is_sent() -> None:
    """With acks=0 nothing is ever answered."""
    bench = Bench(acks=0)
    batch = bench.put("a")
    bench.take(bench.sender.on_sent(bench.drain()))
    assert bench.finished == [batch]
    assert batch.error is None


def test_a_retried_batch_stays_within_the_brokers_memory(bench: Bench) -> None:
    """However often the oldest is refused, no more than five are numbered from it on: else its retry would be new."""
    first = bench.put("first")
    for number in range(9):
        bench.put(str(number))
    for _ in range(4):
        for batch in bench.drain():
            bench.answer(batch, ErrorCode.REQUEST_TIMED_OUT if batch is first else ErrorCode.NONE)
        bench.wait(500)
    assert bench.queue.next_sequence == 5


def test_a_new_epoch_waits_for_what_is_on_the_wire_under_the_old_one(bench: Bench) -> None:
    """R-249: another partition had the hole. Here the broker would take 0 of the new epoch, and refuse the rest of the
    old one, which is still on its way."""
    [one] = bench.sent("a")
    bench.sender.sequences.on_producer_id(77, 1)
    two = bench.put("b")
    assert bench.drain() == []
    bench.answer(one)
    assert bench.drain() == [two]
    header = read_header(two.encoded)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_what_is_numbered_anew_waits_for_the_last_answer_under_the_old_epoch(bench: Bench) -> None:
    """R-249: the new epoch came soon. What is on the wire may have been written, or goes again behind the others."""
    two, three = bench.sent("b", "c")
    bench.answer(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.sender.sequences.on_producer_id(77, 1)
    assert bench.drain_after(100) == []
    bench.answer(three, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bench.drain_after(100) == [two]
    bench.answer(two)
    assert bench.drain() == [three]
    assert sequences([three]) == [1]


def test_a_hole_under_an_older_epoch_asks_for_no_other_one(bench: Bench) -> None:
    """R-249: the epoch that there is by now is new to this partition."""
    [one] = bench.sent("a")
    bench.sender.sequences.on_producer_id(77, 1)
    bench.answer(one, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert not bench.sender.sequences.needs_producer_id
    assert bench.drain_after(100) == [one]
    assert sequences([one]) == [0]


def test_an_expired_batch_is_judged_only_when_all_others_are_answered() -> None:
    """R-249: the one behind it was refused and goes again; until then there may be a hole, or none."""
    bench = Bench(delivery_timeout_ms=1_000)
    one, two = sent_until_the_first_expires(bench)
    assert isinstance(one.error, DeliveryTimeout)
    bench.answer(two, ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.answer(one)
    assert not bench.sender.sequences.needs_producer_id
    assert bench.drain_after(100) == [two]
    assert sequences([two]) == [1]
    bench.answer(two)
    assert not bench.sender.sequences.needs_producer_id


def test_a_hole_under_a_new_epoch_is_not_filled_by_what_was_acknowledged_before() -> None:
    """R-249: sequences of the old epoch count for nothing in the new one."""
    bench = Bench(delivery_timeout_ms=1_000)
    one, two = bench.sent("a", "b")
    bench.answer(one)
    bench.answer(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.sender.sequences.on_producer_id(77, 1)
    assert sequences(bench.drain_after(100)) == [0]
    bench.wait(900)
    bench.answer(two, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert bench.sender.sequences.needs_producer_id


@pytest.mark.parametrize("how", ["refused for good", "expired while it waited"])
def test_a_numbered_batch_that_was_given_up_leaves_a_hole(how: str) -> None:
    """R-249: nobody else is waited for, so the next batch begins a new epoch and is not refused first."""
    bench = Bench(delivery_timeout_ms=1_000)
    [one] = bench.sent("a")
    if how == "refused for good":
        bench.answer(one, ErrorCode.MESSAGE_TOO_LARGE)
    else:
        bench.answer(one, ErrorCode.NOT_ENOUGH_REPLICAS)
        bench.wait(1_000)
    assert one.done
    assert bench.sender.sequences.needs_producer_id


def test_values_that_are_added_at_once_are_counted_as_one_by_one(bench: Bench) -> None:
    """Up to the batch's size, the room that is left, or the first that is not bytes."""
    batch = bench.put("a", full=False)
    size = batch.size
    values = [b"0123456789"] * 100
    assert bench.queue.add_values(values, 95, 5, 10, 200, PLENTY) == 5
    assert (batch.size, len(batch.records)) == (size + 100, 6)
    assert bench.queue.add_values(values, 0, 5, 10, 200, PLENTY) == (200 - batch.size) // 20 + 0
    assert bench.queue.add_values([b"x", "y"], 0, 5, 10, 1_000, PLENTY) == 1
    assert bench.queue.add_values(values, 0, 5, 10, 1_000, 45) == 2
    batch.close()
    assert bench.queue.add_values(values, 0, 5, 10, 1_000, PLENTY) == 0


def test_only_partitions_with_work_are_looked_at(bench: Bench) -> None:
    """However many there are: what a drain and a timer walk over is what has something to do."""
    queues = bench.sender.queues
    for number in range(1, 1_000):
        queues.of(TopicPartition("orders", number), bench.view)
    assert (queues.led_by(1), queues.with_unfinished()) == ({}, [])
    batch = bench.put("a")
    assert [*queues.led_by(1).values()] == queues.with_unfinished() == [bench.queue]
    [sent], _ = bench.sender.drain(1, bench.now, PLENTY, PLENTY)
    assert sent is batch
    assert (queues.has_work(1), queues.leaders_in_use()) == (False, [])
    assert queues.led_by(1) == {}
    assert queues.with_unfinished() == [bench.queue]
    bench.take(bench.sender.on_answer(batch, pb.ProduceAnswer(), bench.now, bench.view))
    assert queues.with_unfinished() == []
