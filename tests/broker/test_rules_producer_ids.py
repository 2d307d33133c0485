"""Blocks of producer ids, one decision at a time (R-250)."""

from __future__ import annotations

import pytest
from odradek_broker.core.controller.producer_ids import BLOCK_SIZE, LARGEST_PRODUCER_ID, allocate_producer_ids
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages

from tests.broker.controller_images import image_of, write


def asked(broker_id: int = 1, broker_epoch: int = 101) -> controller_messages.AllocateProducerIdsRequest:
    return controller_messages.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)


@pytest.mark.parametrize(("broker_id", "broker_epoch"), [(1, 100), (1, 102), (7, 107)])
def test_a_broker_of_another_life_gets_no_producer_ids(broker_id: int, broker_epoch: int) -> None:
    """R-111, R-250: one that was replaced would hand them out beside its successor."""
    image = image_of([1, 2])
    decision = allocate_producer_ids(image, asked(broker_id, broker_epoch))
    assert (decision.answer.error_code, len(decision.records)) == (ErrorCode.STALE_BROKER_EPOCH, 0)


def test_the_last_producer_ids_are_given_once_and_then_none() -> None:
    """R-250: they do not begin again from 0."""
    image = image_of([1])
    image.next_producer_id = LARGEST_PRODUCER_ID - BLOCK_SIZE
    decision = allocate_producer_ids(image, asked())
    assert (decision.answer.first_producer_id, decision.answer.count) == (LARGEST_PRODUCER_ID - BLOCK_SIZE, BLOCK_SIZE)
    write(image, decision.records)
    decision = allocate_producer_ids(image, asked())
    assert (decision.answer.error_code, len(decision.records)) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
