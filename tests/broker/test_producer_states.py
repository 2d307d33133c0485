"""What a partition remembers of its idempotent producers (R-240 to R-248)."""

from odradek_broker.core.partition.producers import ACCEPTED, MAX_SEQUENCE, ProducerStates
from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader, ControlType, encode_control_batch, end_transaction_value, read_header

from tests.broker.log_bench import batch

DAY_MS = 86_400_000
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def header(
    offset: int,
    sequence: int,
    *,
    records: int = 1,
    epoch: int = 0,
    producer: int = 7,
    timestamp: int = 0,
    open: bool = False,
) -> BatchHeader:
    made = batch(offset, records, timestamp=timestamp, producer=(producer, epoch, sequence), transactional=open)
    return read_header(made)


def marker(offset: int, *, epoch: int = 0, producer: int = 7) -> BatchHeader:
    made = encode_control_batch(
        ControlType.COMMIT,
        end_transaction_value(0),
        base_offset=offset,
        leader_epoch=0,
        timestamp=0,
        producer_id=producer,
        producer_epoch=epoch,
    )
    return read_header(made)


class States:
    """Producer states with an end that moves by itself."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def error(self, sequence: int, *, records: int = 1, epoch: int = 0, now_ms: int = 0) -> ErrorCode:
        return self.states.check(header(self.end, sequence, records=records, epoch=epoch), now_ms).error

    def write(self, sequence: int, *, records: int = 1, epoch: int = 0, timestamp: int = 0) -> None:
        self.states.update(header(self.end, sequence, records=records, epoch=epoch, timestamp=timestamp))
        self.end += records


def test_sequences_of_one_producer_follow_each_other() -> None:
    """One more is right, a repetition of an older one and a gap are not; epochs only rise (PS-01)."""
    made = States()
    for sequence in (0, 1):
        assert made.error(sequence) is ErrorCode.NONE
        made.write(sequence)
    assert made.error(5) is OUT_OF_ORDER
    assert made.error(1, records=2) is OUT_OF_ORDER
    assert made.error(5, epoch=1) is OUT_OF_ORDER
    assert made.error(0, epoch=1) is ErrorCode.NONE
    made.write(0, epoch=1)
    assert made.error(1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert made.error(0, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_without_a_producer_is_not_judged() -> None:
    """Producers without idempotence leave no state but the end offset."""
    states = ProducerStates()
    plain = read_header(batch(4, 2))
    assert states.check(plain, 0) is ACCEPTED
    states.update(plain)
    assert (len(states), states.end_offset) == (0, 6)


def test_the_first_producer_id_is_one() -> None:
    """Ids are counted from 0; -1 says that there is none."""
    states = ProducerStates()
    states.update(header(0, 0, producer=0))
    assert states.check(header(1, 0, producer=0), 0).duplicate is not None
    assert states.check(header(1, 5, producer=0), 0).error is OUT_OF_ORDER


def test_sequences_wrap_around() -> None:
    """After 2^31 - 1 comes 0, also inside of a batch (PS-02)."""
    made = States()
    made.write(MAX_SEQUENCE)
    assert made.error(1) is OUT_OF_ORDER
    assert made.error(0) is ErrorCode.NONE
    made.write(0)
    spanning = States()
    spanning.write(MAX_SEQUENCE - 1, records=4)
    assert spanning.error(1) is OUT_OF_ORDER
    assert spanning.error(2) is ErrorCode.NONE
    again = spanning.states.check(header(9, MAX_SEQUENCE - 1, records=4), 0)
    assert again.duplicate is not None
    assert again.duplicate.last_sequence == 1


def test_a_replica_accepts_a_gap_and_moves_on() -> None:
    """The leader refuses a gap; whoever copies the log takes it and counts from there (R-244, PS-03)."""
    made = States()
    made.write(0)
    assert made.error(2) is OUT_OF_ORDER
    made.write(2)
    assert made.error(3) is ErrorCode.NONE


def test_a_replica_accepts_an_unknown_or_old_producer() -> None:
    """An append of an expired producer, or of an old epoch, is no error on a replica (PS-04)."""
    made = States()
    made.write(41)
    made.write(0, epoch=3)
    made.write(42, epoch=0)
    entry = made.states.get(7)
    assert entry is not None
    assert (entry.producer_epoch, entry.last_sequence) == (0, 42)


def test_a_marker_with_a_larger_epoch_starts_the_sequence_anew() -> None:
    """After a coordinator bumped the epoch, the next batch has to begin at 0 (PS-05)."""
    made = States()
    made.write(5)
    made.states.update(marker(1, epoch=1))
    assert made.error(6, epoch=1) is OUT_OF_ORDER
    assert made.error(0, epoch=1) is ErrorCode.NONE
    assert made.error(6, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_last_five_batches_are_known_when_they_come_again() -> None:
    """A repetition of one of five is answered with its offsets; older ones and overlaps are not (R-242, LG-03)."""
    made = States()
    for place in range(6):
        made.write(place * 2, records=2)
    for place in range(1, 6):
        check = made.states.check(header(99, place * 2, records=2), 0)
        assert check.error is ErrorCode.NONE
        assert check.duplicate is not None
        assert (check.duplicate.first_offset, check.duplicate.last_offset) == (place * 2, place * 2 + 1)
    assert made.error(0, records=2) is OUT_OF_ORDER
    assert made.error(9, records=2) is OUT_OF_ORDER
    assert made.error(10, records=1) is OUT_OF_ORDER


def test_a_check_moves_nothing() -> None:
    """A batch that was checked and not written may come again (R-243)."""
    made = States()
    made.write(0)
    assert made.error(1) is ErrorCode.NONE
    assert made.error(1) is ErrorCode.NONE
    assert made.states.check(header(1, 1), 0).duplicate is None


def test_a_producer_that_is_not_known_may_start_anywhere() -> None:
    """Its older records may have been deleted (R-241)."""
    assert States().error(99) is ErrorCode.NONE


def test_a_data_batch_needs_a_sequence() -> None:
    """A producer id without a sequence is not a record batch of Kafka's."""
    assert States().error(-1) is ErrorCode.INVALID_RECORD


def test_a_silent_producer_is_forgotten() -> None:
    """After a day any sequence is accepted again, and the entry goes (PS-08)."""
    made = States()
    made.write(5, timestamp=1000)
    assert made.error(9, now_ms=999 + DAY_MS) is OUT_OF_ORDER
    assert made.states.expire(999 + DAY_MS) == 0
    silent = States()
    silent.write(5, timestamp=1000)
    assert silent.error(9, now_ms=1000 + DAY_MS) is ErrorCode.NONE
    assert silent.states.expire(1000 + DAY_MS) == 1
    assert len(silent.states) == 0


def test_a_producer_of_old_records_is_not_forgotten_while_it_writes() -> None:
    """Records of last year are copied with their timestamps; a retry is still known as one (differs from Kafka)."""
    made = States()
    now_ms = 400 * DAY_MS
    assert made.error(0, now_ms=now_ms) is ErrorCode.NONE
    made.write(0, timestamp=DAY_MS)
    assert made.states.check(header(1, 0), now_ms + 5).duplicate is not None
    assert made.states.expire(now_ms + DAY_MS - 1) == 0
    assert made.states.expire(now_ms + DAY_MS) == 1


def test_the_first_unstable_offset_follows_open_transactions() -> None:
    """A transaction holds readers back until its marker is below the high watermark (PS-09)."""
    states = ProducerStates()
    assert states.first_unstable_offset(100) is None
    states.update(header(99, 0, producer=1, open=True))
    states.update(header(105, 0, producer=2, open=True))
    assert states.first_unstable_offset(100) == 99
    states.update(marker(109, producer=1))
    assert [states.first_unstable_offset(offset) for offset in (100, 109, 110)] == [99, 99, 105]
    states.update(marker(112, producer=2))
    assert states.first_unstable_offset(200) is None
    assert states.first_unstable_offset(100) is None, "nothing is kept of what is settled"


def test_a_snapshot_keeps_open_transactions() -> None:
    """Whoever starts from a snapshot holds readers back at the same offset, until the same marker (PS-09)."""
    before = ProducerStates()
    before.update(header(5, 0, producer=1))
    before.update(header(6, 0, producer=2, open=True))
    states = ProducerStates()
    states.restore(before.entries(), 7)
    assert states.first_unstable_offset(0) == 6
    states.update(marker(7, producer=2))
    assert states.first_unstable_offset(0) == 6
    states.restore([], 5)
    assert states.first_unstable_offset(0) is None, "what was known of another log"


def test_a_log_that_begins_anew_waits_for_no_transaction() -> None:
    """What is open in a snapshot counts, and nothing that was open before it was read."""
    states = ProducerStates()
    states.update(header(3, 0, open=True))
    states.restore([], 10)
    assert states.first_unstable_offset(0) is None


def test_an_open_transaction_keeps_its_producer() -> None:
    """Expiry waits for the end of the transaction (R-248)."""
    states = ProducerStates()
    states.update(header(0, 0, open=True))
    assert states.expire(10 * DAY_MS) == 0
    states.update(marker(1))
    assert states.expire(20 * DAY_MS) == 1


def test_a_snapshot_is_a_copy() -> None:
    """What is restored answers as what was saved, and later changes do not reach it."""
    made = States()
    for sequence in range(3):
        made.write(sequence)
    saved = made.states.entries()
    made.write(3)
    states = ProducerStates()
    states.restore(saved, 3)
    assert states.end_offset == 3
    assert states.check(header(3, 3), 0).error is ErrorCode.NONE
    assert states.check(header(9, 1), 0).duplicate is not None
    states.clear()
    assert (len(states), states.end_offset) == (0, 0)


def test_a_follower_remembers_a_producer_of_old_records_from_when_it_came() -> None:
    """R-248: it judges no batch, so the time comes from the duty that forgets; its next leader must know a retry."""
    made = States()
    made.states.expire(2 * DAY_MS)
    made.write(0)
    assert made.states.expire(3 * DAY_MS - 1) == 0
    assert made.states.expire(3 * DAY_MS) == 1


def test_a_producer_of_a_snapshot_is_not_forgotten_at_once() -> None:
    """R-248: its records may be old, and when it was heard last is in no file."""
    made = States()
    made.write(0)
    read = ProducerStates(now_wall_ms=2 * DAY_MS)
    read.restore(made.states.entries(), made.states.end_offset)
    assert read.expire(3 * DAY_MS - 1) == 0
    assert read.expire(3 * DAY_MS) == 1
