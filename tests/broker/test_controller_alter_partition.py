"""AlterPartition at the controller: every check of R-54, in its order."""

from __future__ import annotations

from typing import Any

import pytest
from odradek_broker.core.controller.alter_partition import alter_partition
from odradek_broker.core.controller.heartbeats import process_heartbeat
from odradek_broker.core.controller.sessions import SessionTable
from odradek_broker.core.metadata.image import MetadataImage
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages

from tests.broker.controller_images import ORDERS_ID, SETTINGS, add_topic, image_of, incarnation, partition_of, write

Altered = controller_messages.AlteredPartition


def cluster(fenced: tuple[int, ...] = (), leaving: tuple[int, ...] = (), recovering: bool = False) -> MetadataImage:
    """Brokers 1 to 4; orders-0 on 1, 2, 3 with ISR {1, 2}, led by 1 in leader epoch 5, partition epoch 10."""
    image = image_of([1, 2, 3, 4], fenced, leaving)
    add_topic(image, "orders", partition_of([1, 2, 3], [1] if recovering else [1, 2], recovering=recovering))
    return image


def ask(
    image: MetadataImage,
    isr: tuple[int, ...],
    *,
    sender: int = 1,
    topic_id: bytes = ORDERS_ID,
    partition: int = 0,
    leader_epoch: int = 5,
    partition_epoch: int = 10,
    recovering: bool = False,
    member_epochs: dict[int, int] | None = None,
) -> tuple[Altered, int]:
    """The answer for the one partition, and how many records were written."""
    epochs = member_epochs or {}
    item = controller_messages.AlterPartitionItem(
        topic_id=topic_id,
        partition=partition,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        recovering=recovering,
        new_isr=[controller_messages.IsrMember(broker_id=i, broker_epoch=epochs.get(i, 100 + i)) for i in isr],
    )
    request = controller_messages.AlterPartitionRequest(broker_id=sender, broker_epoch=100 + sender, partitions=[item])
    decision = alter_partition(image, SETTINGS, request)
    write(image, decision.records)
    assert decision.answer.error_code == ErrorCode.NONE
    return decision.answer.partitions[0], len(decision.records)


def test_shrinking_and_expanding_moves_the_partition_epoch_alone() -> None:
    """CO-01: the leader epoch stays through both (R-55, R-56)."""
    image = cluster()
    shrunk, _ = ask(image, (1,))
    assert (list(shrunk.isr), shrunk.partition_epoch, shrunk.leader_epoch) == ([1], 11, 5)
    grown, _ = ask(image, (1, 2, 3), partition_epoch=11)
    assert (list(grown.isr), grown.partition_epoch, grown.leader_epoch) == ([1, 2, 3], 12, 5)
    assert image.topics["orders"].partitions[0].isr == (1, 2, 3)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"topic_id": b"x" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 11}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 6, "sender": 2}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4, "partition_epoch": 11}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 4, "sender": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"sender": 2}, ErrorCode.INVALID_REQUEST),
        ({"sender": 2, "partition_epoch": 9}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 9}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 2, 2)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 4)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (2, 3)}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1,), "recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 2), "recovering": True}, ErrorCode.INVALID_REQUEST),
        ({"member_epochs": {3: 102}}, ErrorCode.INELIGIBLE_REPLICA),
        ({"member_epochs": {3: 104}}, ErrorCode.INELIGIBLE_REPLICA),
        ({"member_epochs": {3: -1}}, ErrorCode.NONE),
        ({}, ErrorCode.NONE),
    ],
)
def test_every_check_has_its_error(change: dict[str, Any], error: ErrorCode) -> None:
    """CO-02 and CO-04: what is wrong decides the error, and nothing is written unless all is right.

    A member of another incarnation than the registered one is not let in (KAFKA-14617, KIP-903).
    """
    image = cluster()
    arguments: dict[str, Any] = {"isr": (1, 2, 3)} | change
    answer, records = ask(image, **arguments)
    assert answer.error_code == error
    assert records == (1 if error is ErrorCode.NONE else 0)


@pytest.mark.parametrize("epoch", [100, 102])
def test_a_sender_with_another_broker_epoch_is_refused_as_a_whole(epoch: int) -> None:
    """R-54: STALE_BROKER_EPOCH for the request; an unknown broker is told the same."""
    image = cluster()
    for sender in (1, 9):
        request = controller_messages.AlterPartitionRequest(broker_id=sender, broker_epoch=epoch)
        decision = alter_partition(image, SETTINGS, request)
        assert decision.answer.error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("state", ["fenced", "leaving"])
def test_a_fenced_or_leaving_member_is_ineligible_until_it_is_back(state: str) -> None:
    """CO-03, KIP-841: the state is unchanged; granted after unfencing (KAFKA-13916, and leaving: KAFKA-14140)."""
    image = cluster(fenced=(3,)) if state == "fenced" else cluster(leaving=(3,))
    answer, _ = ask(image, (1, 2, 3))
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert image.topics["orders"].partitions[0] == partition_of([1, 2, 3], [1, 2])
    if state == "fenced":
        sessions = SessionTable(SETTINGS)
        sessions.take_over(image, 0)
        heartbeat = controller_messages.Heartbeat(
            broker_id=3, broker_epoch=103, incarnation_id=incarnation(3), current_metadata_offset=200
        )
        write(image, process_heartbeat(image, SETTINGS, sessions, heartbeat, 1).records)
        answer, _ = ask(image, (1, 2, 3))
        assert answer.error_code == ErrorCode.NONE


def test_no_change_writes_nothing_and_says_so_kindly() -> None:
    """R-55: the same members, in whatever order, are no change."""
    answer, records = ask(cluster(), (2, 1))
    assert (answer.error_code, answer.partition_epoch, list(answer.isr), records) == (ErrorCode.NONE, 10, [1, 2], 0)


@pytest.mark.parametrize(("isr", "error"), [((1,), ErrorCode.NONE), ((1, 2), ErrorCode.INVALID_REQUEST)])
def test_a_leader_that_is_recovering_takes_in_nobody(isr: tuple[int, ...], error: ErrorCode) -> None:
    """R-54: it says first that it has recovered, alone."""
    answer, records = ask(cluster(recovering=True), isr, recovering=True)
    assert (answer.error_code, records) == (error, 0)


def test_a_recovering_leader_confirms_that_it_has_recovered() -> None:
    """R-133: the first AlterPartition after an unclean election ends the recovery."""
    image = cluster(recovering=True)
    answer, records = ask(image, (1,), recovering=False)
    assert (answer.error_code, answer.recovering, records) == (ErrorCode.NONE, False, 1)
    assert not image.topics["orders"].partitions[0].recovering


def test_one_request_may_name_a_partition_only_once() -> None:
    """Two records of one batch must not build on the same state."""
    item = controller_messages.AlterPartitionItem(
        topic_id=ORDERS_ID,
        leader_epoch=5,
        partition_epoch=10,
        new_isr=[controller_messages.IsrMember(broker_id=1, broker_epoch=101)],
    )
    request = controller_messages.AlterPartitionRequest(broker_id=1, broker_epoch=101, partitions=[item, item])
    decision = alter_partition(cluster(), SETTINGS, request)
    assert [answer.error_code for answer in decision.answer.partitions] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert len(decision.records) == 1


# --- AlterPartition: which of two faults is named, and who is unknown (R-54) -----------------------------------------


@pytest.mark.parametrize(
    ("isr", "partition_epoch", "error"),
    [
        ((1, 3), 10, ErrorCode.INELIGIBLE_REPLICA),  # 3 is a replica, and no broker
        ((1, 3), 9, ErrorCode.INVALID_UPDATE_VERSION),
        ((3,), 10, ErrorCode.INVALID_REQUEST),  # without the leader
        ((1, 3, 3), 10, ErrorCode.INVALID_REQUEST),
        ((1, 4), 10, ErrorCode.INVALID_REQUEST),  # 4 is a broker that is fenced, and no replica
        ((1, 2), 10, ErrorCode.NONE),
    ],
)
@pytest.mark.parametrize("member_epoch", [-1, None])
def test_the_shape_of_an_isr_is_judged_before_its_members(
    isr: tuple[int, ...], partition_epoch: int, error: ErrorCode, member_epoch: int | None
) -> None:
    """What no cluster could grant is a fault of the request; whom nobody knows is not let in (R-54)."""
    image = image_of([1, 2, 4], fenced=(4,))
    add_topic(image, "orders", partition_of([1, 2, 3], [1]))
    item = controller_messages.AlterPartitionItem(
        topic_id=ORDERS_ID,
        leader_epoch=5,
        partition_epoch=partition_epoch,
        new_isr=[
            controller_messages.IsrMember(
                broker_id=each, broker_epoch=100 + each if member_epoch is None else member_epoch
            )
            for each in isr
        ],
    )
    request = controller_messages.AlterPartitionRequest(broker_id=1, broker_epoch=101, partitions=[item])
    decision = alter_partition(image, SETTINGS, request)
    assert ErrorCode(decision.answer.partitions[0].error_code) is error
    assert len(decision.records) == (error is ErrorCode.NONE)
