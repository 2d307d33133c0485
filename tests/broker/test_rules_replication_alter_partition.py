"""AlterPartition: which of two faults is named, and who is unknown (R-54)."""

from __future__ import annotations

import pytest
from odradek_broker.core.controller.alter_partition import alter_partition
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages

from tests.broker.controller_images import ORDERS_ID, SETTINGS, add_topic, image_of, partition_of


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
