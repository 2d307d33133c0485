"""What a leader takes from producers, and what it tells those that wait (A2, R-220, R-240)."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.messages import IsrAnswer, PartitionSettings, ProposeIsr, TruncationMode, WriteEpochs
from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from tests.scripts.roles import WALL_MS, append, fetch, header, leader, of_kind, registration, replica_log

CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08


@pytest.mark.parametrize("acks", [2, -2, 3, 100])
def test_unknown_acks_are_refused(acks: int) -> None:
    """acks other than 0, 1 and all: INVALID_REQUIRED_ACKS, nothing appended. (PA-35, R-10)"""
    partition = leader()
    assert partition.prepare_append(header(), acks, 0, WALL_MS).error == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize(
    ("acks", "error"), [(-1, ErrorCode.NOT_ENOUGH_REPLICAS), (1, ErrorCode.NONE), (0, ErrorCode.NONE)]
)
def test_min_isr_is_asked_by_acks_all_alone(acks: int, error: ErrorCode) -> None:
    """Below min.insync.replicas only acks=all is refused (R-11)."""
    partition = leader(metadata=registration(isr=[0]), min_isr=2)
    assert partition.prepare_append(header(), acks, 0, WALL_MS).error == error


@pytest.mark.parametrize("changes", [{"attributes": CONTROL}, {"length": 2_000_000}])
def test_min_isr_is_asked_before_the_batch_is_judged(changes: dict[str, int]) -> None:
    """With too few replicas that is what a producer is told, whatever else is wrong with its batch (R-10)."""
    partition = leader(metadata=registration(isr=[0]), min_isr=2)
    sent = header()._replace(**changes)
    assert partition.prepare_append(sent, -1, 0, WALL_MS).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.prepare_append(sent, 1, 0, WALL_MS).error not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS)


def test_min_isr_is_asked_before_a_repetition_is_recognized() -> None:
    """A repeated batch waits like the first one, so it is refused like the first one (R-10, R-16)."""
    partition = leader(metadata=registration(isr=[0]))
    sent = header(producer_id=9, producer_epoch=0, sequence=0)
    first = partition.prepare_append(sent, -1, 0, WALL_MS)
    assert first.header is not None
    partition.on_appended([first.header], 0)
    partition.settings = replace(partition.settings, min_insync_replicas=2)
    assert partition.prepare_append(sent, -1, 0, WALL_MS).error == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.prepare_append(sent, 1, 0, WALL_MS).duplicate


def test_committed_isr_decides_before_the_append() -> None:
    """A proposed member does not count towards min.insync.replicas (R-11)."""
    partition = leader(metadata=registration(isr=[0]), min_isr=2)
    partition.fetch_by_follower(fetch(1, 0), 0)
    assert partition.maximal_isr == (0, 1)
    assert partition.prepare_append(header(), -1, 0, WALL_MS).error == ErrorCode.NOT_ENOUGH_REPLICAS


def test_batch_gets_its_place_and_nothing_moves() -> None:
    """The header comes back with base offset and epoch; the state is as before (R-12, R-243)."""
    partition = leader(replica_log(7), metadata=registration(leader_epoch=3))
    decision = partition.prepare_append(header(count=5), -1, 0, WALL_MS)
    assert decision.header is not None
    assert (decision.header.base_offset, decision.header.leader_epoch, decision.header.last_offset) == (7, 3, 11)
    assert (decision.base_offset, decision.required_offset, decision.duplicate) == (7, 12, False)
    assert partition.log.log_end_offset == 7
    partition.on_appended([decision.header], 0)
    assert partition.log.log_end_offset == 12


def test_the_oldest_protocol_notes_its_epoch_with_the_first_record() -> None:
    """L-7: not when it is elected; kept for audits."""
    partition = leader(metadata=registration(leader_epoch=3), mode=TruncationMode.HIGH_WATERMARK)
    for expected in ([WriteEpochs((EpochEntry(3, 0),))], []):
        decision = partition.prepare_append(header(), 1, 0, WALL_MS)
        assert decision.header is not None
        effects = partition.on_appended([decision.header], 0)
        assert [effect for effect in effects if isinstance(effect, WriteEpochs)] == expected


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 3}, ErrorCode.INVALID_RECORD),
        ({"record_count": 7, "last_offset_delta": 6}, ErrorCode.NONE),  # in 51 bytes
        ({"record_count": 8, "last_offset_delta": 7}, ErrorCode.INVALID_RECORD),
        ({"record_count": 8, "last_offset_delta": 7, "attributes": 4}, ErrorCode.NONE),
        ({"record_count": 1 << 30, "last_offset_delta": (1 << 30) - 1, "attributes": 4}, ErrorCode.INVALID_RECORD),
        ({"attributes": CONTROL}, ErrorCode.INVALID_RECORD),
        ({"attributes": TRANSACTIONAL, "producer_id": 1}, ErrorCode.INVALID_TXN_STATE),
        ({"attributes": LOG_APPEND_TIME}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 4}, ErrorCode.NONE),
        ({"length": 1_000 - 12}, ErrorCode.NONE),
        ({"length": 1_001 - 12}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"max_timestamp": WALL_MS + 501}, ErrorCode.INVALID_TIMESTAMP),
        ({"max_timestamp": WALL_MS + 500}, ErrorCode.NONE),
        ({"base_timestamp": WALL_MS - 701}, ErrorCode.INVALID_TIMESTAMP),
        ({"base_timestamp": WALL_MS - 700}, ErrorCode.NONE),
        ({"base_timestamp": -1, "max_timestamp": -1}, ErrorCode.NONE),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
    ],
)
def test_batch_is_judged_by_its_header(changes: dict[str, int], error: ErrorCode) -> None:
    """What the leader checks of a client's batch (R-220)."""
    partition = leader()
    partition.settings = PartitionSettings(
        max_message_bytes=1_000, message_timestamp_after_max_ms=500, message_timestamp_before_max_ms=700
    )
    decision = partition.prepare_append(header()._replace(**changes), 1, 0, WALL_MS)
    assert decision.error == error
    assert bool(decision.message) == (error != ErrorCode.NONE)


def test_log_append_time_takes_the_place_of_a_clients_times() -> None:
    """The header says so, whatever the client wrote; a repetition is answered with the time of the first (KIP-32)."""
    partition = leader()
    partition.settings = PartitionSettings(
        log_append_time=True, message_timestamp_after_max_ms=0, message_timestamp_before_max_ms=0
    )
    sent = header(count=2, producer_id=9, producer_epoch=0, sequence=0)
    sent = sent._replace(base_timestamp=1_000, max_timestamp=WALL_MS + 9, attributes=4)
    first = partition.prepare_append(sent, -1, 0, WALL_MS)
    assert first.header is not None
    assert (first.header.base_timestamp, first.header.max_timestamp) == (1_000, WALL_MS)
    assert (first.header.attributes, first.log_append_time_ms) == (LOG_APPEND_TIME | 4, WALL_MS)
    partition.on_appended([first.header], 0)
    again = partition.prepare_append(sent, -1, 0, WALL_MS + 50)
    assert (again.duplicate, again.log_append_time_ms) == (True, WALL_MS)


def test_batch_larger_than_a_segment_is_refused() -> None:
    """RECORD_LIST_TOO_LARGE, when max.message.bytes would allow it."""
    partition = leader()
    partition.settings = PartitionSettings(segment_bytes=50)
    assert partition.prepare_append(header(length=60), 1, 0, WALL_MS).error == ErrorCode.RECORD_LIST_TOO_LARGE


def test_duplicate_waits_like_the_original() -> None:
    """A repeated batch is answered with the first offsets, and requires the first batch's end (R-16)."""
    partition = leader(metadata=registration(replicas=[0, 1]))
    sent = header(count=3, producer_id=9, producer_epoch=0, sequence=0)
    first = partition.prepare_append(sent, -1, 0, WALL_MS)
    assert first.header is not None
    partition.on_appended([first.header], 0)
    append(partition, 4)
    again = partition.prepare_append(sent, -1, 0, WALL_MS)
    assert (again.error, again.duplicate, again.header) == (ErrorCode.NONE, True, None)
    assert (again.base_offset, again.required_offset) == (0, 3)
    assert partition.produce_outcome(again.required_offset) is None
    partition.fetch_by_follower(fetch(1, 3), 0)
    assert partition.produce_outcome(again.required_offset) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("epoch", "sequence", "error"),
    [
        (1, 3, ErrorCode.NONE),
        (1, 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 0, ErrorCode.NONE),
        (2, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_producer_must_be_in_sequence(epoch: int, sequence: int, error: ErrorCode) -> None:
    """After sequences 0 to 2 of epoch 1: the next one, a gap, an old epoch, a new epoch (R-240, R-241)."""
    partition = leader()
    first = partition.prepare_append(header(count=3, producer_id=9, producer_epoch=1, sequence=0), 1, 0, WALL_MS)
    assert first.header is not None
    partition.on_appended([first.header], 0)
    sent = header(producer_id=9, producer_epoch=epoch, sequence=sequence)
    assert partition.prepare_append(sent, 1, 0, WALL_MS).error == error


def test_outcome_after_the_append_counts_the_maximal_isr() -> None:
    """The high watermark is there, but too few replicas are: NOT_ENOUGH_REPLICAS_AFTER_APPEND (R-14)."""
    partition = leader(metadata=registration(isr=[0]))
    append(partition, 2)
    assert partition.produce_outcome(2) == ErrorCode.NONE
    partition.settings = replace(partition.settings, min_insync_replicas=2)
    assert partition.produce_outcome(2) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert partition.produce_outcome(3) is None


def test_a_proposed_member_counts_for_the_outcome() -> None:
    """The records are on enough replicas as long as the proposed one may be a member; else it is unknown (R-14)."""
    partition = leader(metadata=registration(replicas=[0, 1]), min_isr=2)
    append(partition, 2)
    partition.fetch_by_follower(fetch(1, 2), 0)
    effects = partition.update(registration(replicas=[0, 1], isr=[0], partition_epoch=1), 0)
    assert (partition.isr, partition.maximal_isr) == ((0,), (0, 1))
    assert partition.produce_outcome(2) == ErrorCode.NONE
    (order,) = of_kind(effects, ProposeIsr)
    partition.on_isr_answer(order.proposal, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA), 0)
    assert partition.produce_outcome(2) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
