"""`odradek audit live` on compacted topics: replicas that were cleaned apart, by each key's newest record (K-89)."""

from __future__ import annotations

import pytest
from odradek_proto.records import ControlType, encode_batch, encode_control_batch, end_transaction_value

from tests.audit.sample import FIRST_TIMESTAMP, SampleBatch, SampleLog, SamplePartition
from tests.audit.test_audit_compaction import CLEANED, DAMAGED, LATER, WHOLE, WRITTEN, but, log_of
from tests.audit.test_audit_live import Copy, changed, compared, copy, told


def of(sample: SamplePartition, high_watermark: int = len(WRITTEN)) -> Copy:
    return copy(sample.log, high_watermark=high_watermark)


@pytest.mark.parametrize("others", [(CLEANED, CLEANED), (CLEANED, LATER), (LATER, WHOLE), (LATER, LATER)])
@pytest.mark.parametrize("leader", [WHOLE, CLEANED, LATER])
def test_replicas_that_were_cleaned_apart_agree(leader: SamplePartition, others: tuple[SamplePartition, ...]) -> None:
    """Superseded records, and tombstones whose time is over; counted are copies of records that the leader has."""
    result, sink = compared(of(leader), *map(of, others), compacted=True)
    assert (told(sink), sink.notes) == ([], [])
    kept = {batch.base_offset for batch in leader.log.batches}
    assert result.records == sum(each.base_offset in kept for other in others for each in other.log.batches)


@pytest.mark.parametrize(("damaged", "offset", "said"), DAMAGED)
def test_what_a_cleaner_must_keep_is_missed(damaged: SamplePartition, offset: int, said: str) -> None:
    """The same damage as in directories, on a follower and on the leader."""
    for place, logs in enumerate([(damaged, WHOLE, CLEANED), (WHOLE, CLEANED, damaged)]):
        _, sink = compared(*map(of, logs), compacted=True)
        assert told(sink) == [("compaction-mismatch", "13"[place], offset)]
        assert said in sink.findings[0].sentence


def test_a_key_that_was_written_again_behind_the_mark_may_be_gone_below_it() -> None:
    """One replica's cleaner knows of it and the other does not. Without the newer record it is missed."""
    short = of(log_of(WRITTEN[:5]), 5)
    assert told(compared(of(but(0, 1, 3)), short, compacted=True)[1]) == []
    assert told(compared(of(but(0, 1, 3, 6)), short, compacted=True)[1]) == [("compaction-mismatch", "1", 3)]


def test_a_tombstone_that_is_gone_again_may_have_taken_what_was_below_the_mark() -> None:
    """It stands behind the mark, and on one replica alone: the others have cleaned it and the value below away. Without
    it that replica holds what most have deleted."""
    assert told(compared(of(LATER), of(LATER, 4), of(WHOLE), compacted=True)[1]) == []
    assert told(compared(of(LATER), of(LATER, 4), of(but(4)), compacted=True)[1]) == [
        ("compaction-mismatch", "3", 1),
    ]


def test_a_replica_with_a_broken_batch_is_not_asked_for_its_keys() -> None:
    """The batch is the finding; which keys it held nobody knows."""
    _, sink = compared(of(WHOLE), changed(of(CLEANED), 3, 66), compacted=True)
    assert told(sink) == [("crc-mismatch", "2", 5)]
    assert [note.kind for note in sink.notes] == ["not-compared"]


def test_what_was_cleaned_while_it_was_read_is_no_difference() -> None:
    """A value that was deleted, on a replica whose cleaner takes it before it is read a second time."""

    class Cleaning(Copy):
        def fetch(self, offset: int, max_bytes: int) -> tuple[int, int, int, bytes]:
            answer = super().fetch(offset, max_bytes)
            if offset > 3:
                self.batches = list(LATER.log.batches)
            return answer

    stale = but(0, 4)
    assert told(compared(of(WHOLE), of(stale), compacted=True)[1]) == [("compaction-mismatch", "2", 1)]
    assert told(compared(of(WHOLE), Cleaning(list(stale.log.batches), 8), compacted=True)[1]) == []


def keyed(log: SampleLog, value: bytes, producer_id: int = -1) -> SampleLog:
    first = log.next_offset
    data = encode_batch(
        [(FIRST_TIMESTAMP, b"key", value, ())],
        base_offset=first,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )
    return SampleLog([*log.batches, SampleBatch(first, first, 0, FIRST_TIMESTAMP, bytes(data))], first + 1)


def ended(log: SampleLog, kind: ControlType, producer_id: int) -> SampleLog:
    first = log.next_offset
    marker = encode_control_batch(
        kind,
        end_transaction_value(0),
        timestamp=FIRST_TIMESTAMP,
        base_offset=first,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
    )
    return SampleLog([*log.batches, SampleBatch(first, first, 0, FIRST_TIMESTAMP, bytes(marker))], first + 1)


@pytest.mark.parametrize(
    ("kind", "high_watermark", "found"),
    [
        (ControlType.COMMIT, 3, []),
        (ControlType.COMMIT, 2, []),
        (ControlType.ABORT, 3, [("compaction-mismatch", "2", 0)]),
    ],
)
def test_a_committed_transaction_takes_the_place_of_what_was_before(
    kind: ControlType, high_watermark: int, found: list[tuple[str, str, int]]
) -> None:
    """Also where its marker stands above the mark of the one who was asked; an aborted one takes no place."""
    whole = ended(keyed(keyed(SampleLog(), b"before"), b"within", 7), kind, 7)
    cleaned = SampleLog(whole.batches[1:], whole.next_offset)
    result = compared(copy(whole), copy(cleaned, high_watermark=high_watermark), compacted=True)
    assert told(result[1]) == found
